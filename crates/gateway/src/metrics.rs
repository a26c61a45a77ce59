//! Prometheus: `/metrics`, and `/healthz` for load balancers, on a listener of its own.
//!
//! Plain HTTP/1.1 without authentication: bind it to an address that only monitoring reaches. A few connections at
//! once, each for one request and a few seconds; it shares nothing with sessions but their counters.

mod classic;
mod page;
pub(crate) mod process;
mod savings;

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{TcpListener as StdListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::config::split_host_port;
use crate::error::Error;
use crate::listen::ANY;
use crate::registry::{Listener, Registry};
use crate::throttle::limited;

/// Requests served at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;
/// How long a client may take for its request's head.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection may live.
const CONNECTION_LIMIT: Duration = Duration::from_secs(20);
/// Longest head of a request, bytes; hyper's smallest.
const HEAD_SIZE_MAX: usize = 8192;
/// Pause after a failed accept (out of file descriptors, usually).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two attempts to get an address that is in use.
const BIND_PAUSE: Duration = Duration::from_secs(1);
const TEXT: &str = "text/plain; charset=utf-8";

/// Where the page is to be.
pub(crate) struct Endpoint {
    address: String,
    /// `None`: somebody else has the address yet.
    listener: Option<StdListener>,
}

impl Endpoint {
    /// Binds `metrics_listen`. An address in use is no error: a process that drains keeps its page, and its successor
    /// must not fail because of that.
    pub(crate) fn bind(address: &str) -> Result<Self, Error> {
        let listener = match try_bind(address) {
            Ok(listener) => Some(listener),
            Err(Error::Listen { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
                tracing::warn!(address, "metrics: address in use, waiting for it");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Self { address: address.to_string(), listener })
    }

    async fn listen(self) -> std::io::Result<TcpListener> {
        let mut bound = self.listener;
        loop {
            if let Some(listener) = bound {
                return TcpListener::from_std(listener);
            }
            tokio::time::sleep(BIND_PAUSE).await;
            bound = try_bind(&self.address).ok();
        }
    }
}

fn try_bind(address: &str) -> Result<StdListener, Error> {
    let fail = |source| Error::Listen { address: address.to_string(), source };
    let (host, port) = split_host_port(address).map_err(|reason| Error::config("metrics_listen", reason))?;
    let host = if host == ANY { "0.0.0.0" } else { host.as_str() };
    let resolved: Vec<_> = (host, port).to_socket_addrs().map_err(fail)?.collect();
    let listener = StdListener::bind(resolved.as_slice()).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    Ok(listener)
}

/// Serves until it is dropped.
pub(crate) async fn serve(endpoint: Endpoint, registry: Arc<Registry>) {
    let listener = match endpoint.listen().await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "metrics are not served");
            return;
        }
    };
    let address = listener.local_addr().map_or_else(|_| String::new(), |a| a.to_string());
    tracing::info!(address, "metrics");
    let known = registry.process.add_listener(address, "metrics");
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                limited!(warn, %error, "metrics: accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        Listener::count_accepted(&known);
        let registry = registry.clone();
        tokio::spawn(async move {
            if timeout(CONNECTION_LIMIT, connection(stream, registry)).await.is_err() {
                tracing::debug!("metrics: connection took too long");
            }
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, registry: Arc<Registry>) {
    let service = service_fn(move |request| {
        let response = answer(&request, &registry);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_SIZE_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "metrics: connection ended");
    }
}

fn answer(request: &Request<Incoming>, registry: &Arc<Registry>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => match page::render(registry) {
            Ok(page) if accepts_open_metrics(request) => text(StatusCode::OK, page::MEDIA_TYPE, page),
            Ok(page) => text(StatusCode::OK, classic::MEDIA_TYPE, classic::from_open_metrics(&page)),
            Err(error) => {
                tracing::error!(%error, "metrics not rendered");
                text(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "not rendered\n")
            }
        },
        "/healthz" if registry.is_draining() => text(StatusCode::SERVICE_UNAVAILABLE, TEXT, "draining\n"),
        "/healthz" => text(StatusCode::OK, TEXT, "ok\n"),
        _ => text(StatusCode::NOT_FOUND, TEXT, "not found: try /metrics or /healthz\n"),
    }
}

fn accepts_open_metrics(request: &Request<Incoming>) -> bool {
    let accepts = request.headers().get_all(ACCEPT);
    accepts.iter().any(|value| value.to_str().is_ok_and(|v| v.contains("application/openmetrics-text")))
}

fn text(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let value = hyper::header::HeaderValue::from_static;
    response.headers_mut().insert(CONTENT_TYPE, value(media_type));
    response.headers_mut().insert(CACHE_CONTROL, value("no-store"));
    response
}
