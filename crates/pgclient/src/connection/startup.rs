//! From the startup packet to the first ReadyForQuery.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pgshrink_wire::message::tag;

use super::auth::Exchange;
use super::buffer::ReadBuffer;
use super::methods::Methods;
use super::route::Route;
use super::transport::Transport;
use super::{BackendKey, Connection, Options, Phase, State, Wait};
use crate::protocol::backend::{self, Authentication};
use crate::protocol::frontend;
use crate::ssl::ChannelBinding;
use crate::{Error, Parameters};

/// Most messages a server may send before it is ready.
const STARTUP_MESSAGE_COUNT_MAX: usize = 1000;
/// The largest of them, as long as nobody has proved anything.
const STARTUP_MESSAGE_SIZE_MAX: usize = 64 << 10;

/// What the client proves itself with. Has no `Debug`: it holds a password.
pub(super) struct Credentials<'a> {
    pub(super) user: &'a str,
    pub(super) password: Option<Vec<u8>>,
    pub(super) methods: &'a Methods,
    pub(super) binding: ChannelBinding,
}

/// The startup packet's parameters, in libpq's order.
pub(super) fn packet<'a>(
    parameters: &'a Parameters,
    user: &'a str,
    application_name: &'a str,
) -> Vec<(&'static str, &'a [u8])> {
    let get = |keyword| parameters.get_nonempty(keyword);
    let name = get("application_name").or(get("fallback_application_name"));
    let encoding = get("client_encoding").filter(|encoding| *encoding != b"auto");
    let all = [
        ("user", Some(user.as_bytes())),
        ("database", get("dbname").or(Some(user.as_bytes()))),
        ("replication", get("replication")),
        ("options", get("options")),
        ("application_name", name.or(Some(application_name.as_bytes()))),
        ("client_encoding", encoding.or(Some(b"UTF8"))),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

impl Connection {
    pub(super) fn over(transport: Transport, route: Route, options: &Options) -> Self {
        Connection {
            transport,
            buffer: ReadBuffer::new(),
            outgoing: Vec::new(),
            // Until the server is ready there is nothing to say goodbye to.
            state: State::Broken,
            phase: Phase::Startup,
            route,
            key: None,
            parameters: BTreeMap::new(),
            read_timeout: options.read_timeout,
            limits: options.limits,
            last_received: Instant::now(),
            statements: 0,
            on_notice: None,
        }
    }

    /// Starts the session, at the latest by the deadline.
    pub(super) fn start(
        &mut self,
        packet: &[(&str, &[u8])],
        credentials: Credentials<'_>,
        deadline: Instant,
    ) -> Result<(), Error> {
        if packet.iter().any(|(_, value)| !frontend::has_no_zero(value)) {
            return Err(Error::ZeroByte { what: "a connection parameter" });
        }
        let (timeout, limits) = (self.read_timeout, self.limits);
        self.limits.message_size_max = limits.message_size_max.min(STARTUP_MESSAGE_SIZE_MAX);
        self.read_timeout = Some(left(deadline));
        frontend::startup(&mut self.outgoing, packet);
        let started = self.flush().and_then(|()| self.follow(credentials, deadline));
        (self.read_timeout, self.limits) = (timeout, limits);
        self.state = if started.is_ok() { State::Ready } else { State::Broken };
        started
    }

    fn follow(&mut self, credentials: Credentials<'_>, deadline: Instant) -> Result<(), Error> {
        let mut exchange = Exchange::new(credentials, self.transport.tls());
        let wait = Wait::Deadline(deadline, self.route.limit);
        for _ in 0..STARTUP_MESSAGE_COUNT_MAX {
            let Some(found) = self.receive(wait)? else { break };
            match found.tag {
                tag::AUTHENTICATION => {
                    let body = self.buffer.get(found.body);
                    let request = match Authentication::parse(body) {
                        Ok(request) => request,
                        Err(malformed) => return Err(self.malformed(malformed)),
                    };
                    let answered = exchange.answer(request, &mut self.outgoing);
                    answered
                        .map_err(|reason| Error::Authentication { place: self.place().clone(), reason })?;
                    self.flush()?;
                }
                tag::BACKEND_KEY_DATA => match backend::backend_key(self.buffer.get(found.body)) {
                    Ok((process, secret)) => self.key = Some(BackendKey { process, secret: secret.to_vec() }),
                    Err(malformed) => return Err(self.malformed(malformed)),
                },
                tag::ERROR_RESPONSE => return Err(self.server_error(found.body)),
                tag::READY_FOR_QUERY if exchange.is_done() => return Ok(()),
                other => return Err(self.unexpected("startup", "an authentication or its end", other)),
            }
        }
        Err(self.unexpected("startup", "fewer than 1000 messages", tag::PARAMETER_STATUS))
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
