//! The authentication, relayed message by message.
//!
//! Owns three duties: it knows whether the server asked for anything (a session let in without a challenge was let in
//! because of where it came from, and behind a gateway that is the gateway), it keeps SCRAM channel binding from
//! being tried where it cannot work, and it caps sizes. It reads no password and keeps none.

use pgshrink_wire::message::{self, authentication_kind, tag};

use super::leg::Leg;
use crate::error::{Failure, Refusal, sqlstate};

const KIND_OK: u32 = 0;
const KIND_SASL: u32 = 10;
const KIND_SASL_FINAL: u32 = 12;
/// Of both dialects.
const COMPRESSION_TAGS: [u8; 3] = [tag::COMPRESSION_ACK, tag::SET_COMPRESSION_METHOD, tag::COMPRESSED_DATA];
const PLUS: &[u8] = b"SCRAM-SHA-256-PLUS";

/// What is true of this session's two legs.
pub(crate) struct Rules {
    pub(crate) message_size_max: usize,
    /// Takes SCRAM-SHA-256-PLUS out of the server's list: the client leg has no TLS to bind to.
    pub(crate) strip_plus: bool,
    /// Set when a client that binds to the certificate it sees would be refused by the server, which has another.
    pub(crate) refuse_plus: Option<Refusal>,
    /// What to tell a client that the server lets in without a challenge; `None` lets it in.
    pub(crate) refuse_unchallenged: Option<Refusal>,
    /// The client asked for compression by itself, and the server's answer to that is for it.
    pub(crate) client_asked: bool,
}

/// How the authentication ended.
pub(crate) enum Outcome {
    /// AuthenticationOk was read and is not yet forwarded.
    Accepted(Vec<u8>),
    /// The server said no, and its words are with the client, or it just closed.
    Rejected,
}

/// Relays until the server has decided.
pub(crate) async fn relay(client: &mut Leg, server: &mut Leg, rules: &Rules) -> Result<Outcome, Failure> {
    let mut challenged = false;
    let mut client_turn = false;
    let mut sasl = false;
    loop {
        let from_server = tokio::select! {
            biased;
            header = server.peek(rules.message_size_max) => header?,
            header = client.peek(rules.message_size_max), if client_turn => {
                let Some(header) = header? else { return Err(Failure::Done("client closed during authentication")) };
                if sasl && header.tag == tag::PASSWORD {
                    check_choice(client.body(header), rules)?;
                }
                (client_turn, sasl) = (false, false);
                let message = client.take(header);
                server.send(&message).await?;
                continue;
            }
        };
        let Some(header) = from_server else { return Ok(Outcome::Rejected) };
        if !rules.client_asked && COMPRESSION_TAGS.contains(&header.tag) {
            return Err(compressed_too_early(header.tag).into());
        }
        let mut is_choice = false;
        if header.tag == tag::AUTHENTICATION {
            let kind = authentication_kind(server.body(header));
            match kind {
                Some(KIND_OK) => {
                    if !challenged && let Some(refusal) = &rules.refuse_unchallenged {
                        return Err(refusal.clone().into());
                    }
                    return Ok(Outcome::Accepted(server.take(header)));
                }
                Some(KIND_SASL_FINAL) => {}
                _ => {
                    challenged = true;
                    client_turn = true;
                    is_choice = kind == Some(KIND_SASL);
                    sasl = is_choice;
                }
            }
        }
        let mut bytes = server.take(header);
        if is_choice && rules.strip_plus {
            bytes = without_plus(&bytes);
        }
        client.send(&bytes).await?;
        if header.tag == tag::ERROR_RESPONSE {
            return Ok(Outcome::Rejected);
        }
    }
}

/// A client that did not ask takes these for something else, or for the end of the protocol: nothing of compression comes before
/// AuthenticationOk but the answer to an offer, which the caller has taken.
fn compressed_too_early(found: u8) -> Refusal {
    Refusal::new(
        sqlstate::PROTOCOL_VIOLATION,
        format!(
            "the server sent a message of type '{}' before authentication: nothing may be compressed yet",
            char::from(found)
        ),
    )
    .hint("Check that a pgshrink gateway or a PostgreSQL server listens there, and not another proxy.")
    .hostile()
}

/// Refuses a choice of channel binding that the server would refuse with words that help nobody.
fn check_choice(sasl_initial: &[u8], rules: &Rules) -> Result<(), Refusal> {
    match &rules.refuse_plus {
        Some(refusal) if sasl_initial.split(|b| *b == 0).next() == Some(PLUS) => Err(refusal.clone()),
        _ => Ok(()),
    }
}

/// AuthenticationSASL without SCRAM-SHA-256-PLUS. When nothing else is on offer it stays: the client's own error
/// about it is better than an empty list.
fn without_plus(sasl: &[u8]) -> Vec<u8> {
    let names: Vec<&[u8]> =
        sasl[message::HEADER_SIZE + 4..].split(|b| *b == 0).filter(|name| !name.is_empty()).collect();
    let kept: Vec<u8> =
        names.iter().filter(|name| **name != PLUS).flat_map(|name| [name, &b"\0"[..]].concat()).collect();
    if kept.is_empty() {
        return sasl.to_vec();
    }
    message::authentication(KIND_SASL, &[&kept[..], b"\0"].concat())
}

/// The advice for channel binding across two TLS legs.
pub(crate) fn plus_refusal() -> Refusal {
    Refusal::new(
        sqlstate::INVALID_AUTHORIZATION,
        "SCRAM channel binding cannot work through this gateway: it presents a different certificate than the server does",
    )
    .hint(
        "Set channel_binding=disable on the client, or connect the gateway to the server without TLS or by Unix \
         socket, or give the gateway the server's own certificate and key.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_binding_mechanism_is_taken_out() {
        let both = message::authentication(KIND_SASL, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
        assert_eq!(without_plus(&both), message::authentication(KIND_SASL, b"SCRAM-SHA-256\0\0"));
        let alone = message::authentication(KIND_SASL, b"SCRAM-SHA-256-PLUS\0\0");
        assert_eq!(without_plus(&alone), alone);
    }

    #[test]
    fn choosing_the_binding_mechanism_is_refused_with_advice_only_where_it_cannot_work() {
        let mut rules = Rules {
            message_size_max: 1000,
            strip_plus: false,
            refuse_plus: Some(plus_refusal()),
            refuse_unchallenged: None,
            client_asked: false,
        };
        let choice = |name: &str| [name.as_bytes(), b"\0\0\0\0\x03n,,"].concat();
        assert!(check_choice(&choice("SCRAM-SHA-256"), &rules).is_ok());
        let refusal = check_choice(&choice("SCRAM-SHA-256-PLUS"), &rules).unwrap_err();
        assert!(refusal.hint.unwrap().contains("channel_binding=disable"));
        rules.refuse_plus = None;
        assert!(check_choice(&choice("SCRAM-SHA-256-PLUS"), &rules).is_ok());
    }
}
