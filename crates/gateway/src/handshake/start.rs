//! Opening a session at a server: connect, send the startup packet, look at the first reply.

use pgshrink_wire::message::{Header, tag};

use super::leg::Leg;
use crate::error::Failure;
use crate::upstream::{OpenError, Target, TcpOptions};

/// A server that has answered the startup packet. Its first message is still unread.
pub(crate) struct Started {
    pub(crate) server: Leg,
    /// `None`: it closed without a word.
    pub(crate) first: Option<Header>,
}

impl Started {
    /// A server that said something.
    pub(crate) fn answered(self, target: &Target) -> Result<Self, OpenError> {
        match self.first {
            Some(_) => Ok(self),
            None => Err(OpenError::Unreachable(format!(
                "server at {} closed the connection without an answer",
                target.describe()
            ))),
        }
    }
}

/// Tries the ways that `sslmode` allows. A server that refuses the session one way (its pg_hba may want TLS, or want
/// none) is asked the other way, as libpq does; its last word is what the client gets.
pub(crate) async fn start(
    target: &Target,
    options: &TcpOptions,
    greeting: &[u8],
    startup: &[u8],
    message_size_max: usize,
) -> Result<Started, OpenError> {
    let mut last = Err(OpenError::Unreachable(String::new()));
    for wish in target.wishes() {
        let stream = match target.open(*wish, options, greeting).await {
            Ok(stream) => stream,
            // The word of a server that answered says more than a failed second try.
            Err(e) if last.is_ok() => {
                tracing::debug!(server = %target.describe(), error = e.reason(), "second attempt failed");
                continue;
            }
            Err(e @ OpenError::Unreachable(_)) => return Err(e),
            Err(e @ OpenError::Insecure(_)) => {
                last = Err(e);
                continue;
            }
        };
        let mut server = Leg::new(stream, "server");
        let first = match server.send(startup).await {
            Ok(()) => server.peek(message_size_max).await,
            Err(failure) => Err(failure),
        };
        match first {
            Ok(first) if first.is_some_and(|h| h.tag != tag::ERROR_RESPONSE) => {
                return Ok(Started { server, first });
            }
            Ok(first) => last = Ok(Started { server, first }),
            Err(failure) => last = Err(OpenError::Unreachable(describe(target, &failure))),
        }
    }
    last
}

fn describe(target: &Target, failure: &Failure) -> String {
    match failure {
        Failure::Refused(refusal) => format!("server at {}: {}", target.describe(), refusal.message),
        Failure::Lost(_, error) => format!("connection to server at {} failed: {error}", target.describe()),
        Failure::Done(why) => format!("connection to server at {} failed: {why}", target.describe()),
    }
}
