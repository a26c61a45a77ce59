//! What every client begins with: an optional PROXY header, encryption requests, then a startup or cancel packet.

use std::net::SocketAddr;

use pgshrink_wire::startup::{First, StartupPacket, parse_first};
use tokio::io::AsyncWriteExt;

use super::leg::Leg;
use crate::config::{Network, is_loopback};
use crate::error::{Failure, Refusal, sqlstate};
use crate::places::{Arriving, Progress};
use crate::proxy_protocol::{self, Parsed};
use crate::registry::Session;
use crate::stream::{Peer, Socket, Stream};
use crate::tls::ALPN;
use crate::tls::server::ListenTls;

/// What a client wants.
pub(crate) enum Opening {
    Startup(StartupPacket),
    /// The whole packet.
    Cancel(Vec<u8>),
}

/// A client that has said what it wants.
pub(crate) struct Opened {
    pub(crate) client: Leg,
    pub(crate) opening: Opening,
}

/// A failure, and the client to tell it to, if that makes sense.
pub(crate) type OpenFailure = (Option<Leg>, Failure);

/// Reads up to the startup or cancel packet. The caller sets the time limit. The session is told who the client
/// is when a trusted proxy has said so, and the arrival counts as that client's from then on.
pub(crate) async fn open_client(
    socket: Socket,
    session: &Session,
    arriving: &Arriving,
    tls: Option<&ListenTls>,
    proxies: &[Network],
) -> Result<Opened, OpenFailure> {
    let mut leg = Leg::new(Stream::Plain(socket), "client");
    if let Peer::Address(proxy) = session.peer()
        && proxies.iter().any(|n| n.contains(proxy.ip()))
    {
        match read_proxy_header(&mut leg, proxy).await {
            Ok(client) => {
                session.came_from(behind_proxy(proxy, client));
                arriving.came_from(session.peer());
            }
            Err(failure) => return Err((Some(leg), failure)),
        }
    }
    let (mut asked_tls, mut asked_gss) = (false, false);
    loop {
        let first = match read_first(&mut leg).await {
            Ok(first) => first,
            Err(failure) => return Err((Some(leg), failure)),
        };
        match (first, tls) {
            (First::Ssl, _) if asked_tls || leg.stream.is_tls() => {
                return Err((Some(leg), violation("a second SSLRequest").into()));
            }
            (First::Gss, _) if asked_gss => {
                return Err((Some(leg), violation("a second GSSENCRequest").into()));
            }
            (First::Gss, _) => {
                asked_gss = true;
                leg = answer(leg, b'N').await?;
            }
            (First::Ssl, None) => {
                asked_tls = true;
                leg = answer(leg, b'N').await?;
            }
            (First::Ssl, Some(tls)) => {
                asked_tls = true;
                arriving.advance(Progress::AskedTls);
                leg = answer(leg, b'S').await?;
                leg = accept_tls(leg, tls, false).await?;
                arriving.advance(Progress::Encrypted);
            }
            (First::TlsClientHello, Some(tls)) if !leg.stream.is_tls() && !asked_tls => {
                arriving.advance(Progress::AskedTls);
                leg = accept_tls(leg, tls, true).await?;
                arriving.advance(Progress::Encrypted);
            }
            (First::TlsClientHello, _) => {
                return Err((None, Failure::Done("TLS handshake, but TLS is not possible here")));
            }
            (First::Cancel(packet), _) => {
                return Ok(Opened { client: leg, opening: Opening::Cancel(packet) });
            }
            (First::Startup(packet), _) => {
                return Ok(Opened { client: leg, opening: Opening::Startup(packet) });
            }
            _ => return Err((Some(leg), violation("an unknown first packet").into())),
        }
    }
}

/// Who a proxy's client is. The address that a proxy reports is one of the proxy's machine: loopback there is this machine
/// only where the proxy itself is on it.
fn behind_proxy(proxy: SocketAddr, client: Option<SocketAddr>) -> Peer {
    match client {
        Some(client) if is_loopback(proxy) || !is_loopback(client) => Peer::Address(client),
        Some(client) => Peer::Proxied(client),
        None => Peer::Proxied(proxy),
    }
}

/// Reads the header, which a trusted proxy has to send: without it every client would have the proxy's address, and with a
/// proxy on this machine every client would be local.
async fn read_proxy_header(leg: &mut Leg, proxy: SocketAddr) -> Result<Option<SocketAddr>, Failure> {
    loop {
        if !leg.ahead.is_empty() {
            match proxy_protocol::parse(&leg.ahead) {
                Parsed::Absent => return Err(missing_header(proxy).into()),
                Parsed::Header { client, size } => {
                    leg.ahead.drain(..size);
                    return Ok(client);
                }
                Parsed::Broken(why) => return Err(violation(&format!("a PROXY header: {why}")).into()),
                Parsed::More => {}
            }
        }
        if leg.fill().await? == 0 {
            return Err(Failure::Done("closed before the startup packet"));
        }
    }
}

async fn read_first(leg: &mut Leg) -> Result<First, Failure> {
    loop {
        if let Some((first, size)) = parse_first(&leg.ahead)? {
            leg.ahead.drain(..size);
            return Ok(first);
        }
        if leg.fill().await? == 0 {
            return Err(Failure::Done("closed before the startup packet"));
        }
    }
}

/// Answers an encryption request. Bytes that are already here would be taken for encrypted ones later
/// (CVE-2021-23214), or were sent by a client that does not wait for the answer: both are refused.
async fn answer(mut leg: Leg, byte: u8) -> Result<Leg, OpenFailure> {
    if !leg.ahead.is_empty() {
        let refusal = Refusal::new(sqlstate::PROTOCOL_VIOLATION, "received unencrypted data after SSL request")
            .detail("This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.")
            .hostile();
        return Err((Some(leg), refusal.into()));
    }
    match leg.send(&[byte]).await {
        Ok(()) => Ok(leg),
        Err(failure) => Err((None, failure)),
    }
}

async fn accept_tls(leg: Leg, tls: &ListenTls, direct: bool) -> Result<Leg, OpenFailure> {
    let Leg { stream: Stream::Plain(socket), ahead, .. } = leg else {
        return Err((None, Failure::Done("TLS inside TLS")));
    };
    let mut rest = ahead.as_slice();
    let mut broken = None;
    // What was read to recognise the handshake is handed to the TLS library first.
    let accepted = tls.acceptor.accept_with(socket, |connection| {
        while !rest.is_empty() && broken.is_none() {
            broken = match connection.read_tls(&mut rest) {
                Ok(_) => connection.process_new_packets().err().map(|e| e.to_string()),
                Err(e) => Some(e.to_string()),
            };
        }
    });
    let accepted = accepted.await;
    let mut stream = match (accepted, broken) {
        (Ok(stream), None) => stream,
        (Ok(_), Some(e)) => return Err((None, Failure::client(std::io::Error::other(e)))),
        (Err(e), _) => return Err((None, Failure::client(e))),
    };
    if direct && stream.get_ref().1.alpn_protocol() != Some(ALPN) {
        let refusal = Refusal::new(
            sqlstate::PROTOCOL_VIOLATION,
            "received direct SSL connection request without ALPN protocol negotiation extension",
        );
        let _ = stream.flush().await;
        return Err((Some(Leg::new(Stream::Tls(Box::new(stream.into())), "client")), refusal.into()));
    }
    Ok(Leg::new(Stream::Tls(Box::new(stream.into())), "client"))
}

fn missing_header(proxy: SocketAddr) -> Refusal {
    let ip = proxy.ip().to_canonical();
    Refusal::new(
        sqlstate::PROTOCOL_VIOLATION,
        format!("expected a PROXY header from {ip}, which is in trusted_proxies, found none"),
    )
    .hint(
        "Make the proxy send one (send-proxy or send-proxy-v2 in HAProxy). A client on the proxy's machine \
         connects through the proxy or by the gateway's Unix socket. If this address is not a proxy, \
         remove it from trusted_proxies.",
    )
    .hostile()
}

fn violation(found: &str) -> Refusal {
    Refusal::new(sqlstate::PROTOCOL_VIOLATION, format!("expected a startup packet, found {found}")).hostile()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxys_client_is_local_only_where_both_are_on_this_machine() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let local =
            |proxy, client: Option<&str>| behind_proxy(address(proxy), client.map(address)).is_local();
        assert!(local("127.0.0.1:9", Some("127.0.0.1:7")));
        assert!(!local("127.0.0.1:9", Some("203.0.113.9:7")));
        assert!(!local("10.0.0.5:9", Some("127.0.0.1:7")), "loopback of the proxy's machine");
        assert!(!local("127.0.0.1:9", None), "UNKNOWN and LOCAL say nothing about the client");
    }
}
