//! The client's side of authentication.
//!
//! 1. No message of the server is believed before it said AuthenticationOk, and with SCRAM not before it has proved
//!    that it knows the password too.
//! 2. `require_auth` and `channel_binding=require` are checked at AuthenticationOk as well, so a server that
//!    asks for nothing does not get around them.

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, ScramSha256};
use rustls::ClientConnection;

use super::methods::{Method, Methods};
use super::startup::Credentials;
use crate::protocol::backend::Authentication;
use crate::protocol::frontend;
use crate::ssl::ChannelBinding;
use crate::tls;

const SCRAM: &str = "SCRAM-SHA-256";
const SCRAM_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// Longest password; PostgreSQL reads no longer message of a client that has proved nothing.
const PASSWORD_SIZE_MAX: usize = 60_000;

/// One authentication, message by message. Reasons for failures are texts; they never hold a password.
pub(super) struct Exchange<'a> {
    credentials: Credentials<'a>,
    encrypted: bool,
    /// The hash of the server's certificate, where there is one.
    end_point: Option<Vec<u8>>,
    step: Step,
    /// SCRAM-SHA-256-PLUS was used.
    bound: bool,
}

enum Step {
    /// Nothing asked yet.
    First,
    /// The password was sent.
    Sent,
    Scram(Box<ScramSha256>),
    /// The server's proof is good.
    Proved,
    Done,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(credentials: Credentials<'a>, tls: Option<&ClientConnection>) -> Self {
        let certificate = tls.and_then(|session| session.peer_certificates()).and_then(|chain| chain.first());
        let end_point = certificate.and_then(|certificate| tls::server_end_point(certificate));
        Self { credentials, encrypted: tls.is_some(), end_point, step: Step::First, bound: false }
    }

    /// The server has said AuthenticationOk and was allowed to.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.step, Step::Done)
    }

    /// Answers one request, by appending to what is sent.
    pub(super) fn answer(&mut self, request: Authentication<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        match (request, std::mem::replace(&mut self.step, Step::Done)) {
            (Authentication::Ok, step) => return self.finish(&step),
            (Authentication::Cleartext, Step::First) => {
                self.allow(Method::Password, "a cleartext password")?;
                frontend::password(out, self.password()?);
                self.step = Step::Sent;
            }
            (Authentication::Md5(salt), Step::First) => {
                self.allow(Method::Md5, "an MD5 password")?;
                let hashed = md5_hash(self.credentials.user.as_bytes(), self.password()?, salt);
                frontend::password(out, hashed.as_bytes());
                self.step = Step::Sent;
            }
            (Authentication::Sasl(mechanisms), Step::First) => self.begin_scram(&mechanisms, out)?,
            (Authentication::SaslContinue(data), Step::Scram(mut scram)) => {
                scram.update(data).map_err(|error| format!("SCRAM exchange failed: {error}"))?;
                frontend::sasl_response(out, scram.message());
                self.step = Step::Scram(scram);
            }
            (Authentication::SaslFinal(data), Step::Scram(mut scram)) => {
                let proof = scram.finish(data);
                proof.map_err(|error| format!("the server did not authenticate itself in SCRAM: {error}"))?;
                self.step = Step::Proved;
            }
            (Authentication::Other(name), _) => {
                return Err(format!("authentication method {name} is not supported"));
            }
            (_, _) => return Err("authentication requests came in the wrong order".to_owned()),
        }
        Ok(())
    }

    fn finish(&self, step: &Step) -> Result<(), String> {
        match step {
            Step::First => self.allow(Method::None, "no authentication")?,
            Step::Sent | Step::Proved => {}
            Step::Scram(_) => {
                return Err("server ended SCRAM authentication before it authenticated itself".to_owned());
            }
            Step::Done => return Err("authentication requests came in the wrong order".to_owned()),
        }
        if self.credentials.binding == ChannelBinding::Require && !self.bound {
            return Err(
                "channel binding required, but server authenticated client without channel binding".into()
            );
        }
        Ok(())
    }

    fn begin_scram(&mut self, mechanisms: &[&str], out: &mut Vec<u8>) -> Result<(), String> {
        self.allow(Method::Scram, "SCRAM")?;
        let (offers, binding) = (|name: &str| mechanisms.contains(&name), self.credentials.binding);
        let usable = binding != ChannelBinding::Disable && self.encrypted;
        let (mechanism, bound) = match self.end_point.take() {
            Some(hash) if usable && offers(SCRAM_PLUS) => {
                (SCRAM_PLUS, sasl::ChannelBinding::tls_server_end_point(hash))
            }
            _ if binding == ChannelBinding::Require => return Err(self.no_binding()),
            // Claims that the server has no channel binding, so that it notices when somebody took its offer away.
            Some(_) if usable && offers(SCRAM) => (SCRAM, sasl::ChannelBinding::unrequested()),
            _ if offers(SCRAM) => (SCRAM, sasl::ChannelBinding::unsupported()),
            _ => {
                let shown = mechanisms.join(", ").escape_debug().to_string();
                return Err(format!("none of the server's SASL mechanisms is supported: {shown}"));
            }
        };
        let scram = ScramSha256::new(self.password()?, bound);
        frontend::sasl_initial(out, mechanism, scram.message());
        self.bound = mechanism == SCRAM_PLUS;
        self.step = Step::Scram(Box::new(scram));
        Ok(())
    }

    fn no_binding(&self) -> String {
        let why = match self.encrypted {
            false => "SSL not in use",
            true => "server did not offer an authentication method that supports channel binding",
        };
        format!("channel binding required, but {why}")
    }

    fn allow(&self, method: Method, shown: &str) -> Result<(), String> {
        let methods: &Methods = self.credentials.methods;
        if !methods.allow(method) {
            return Err(format!("require_auth does not allow what the server asks for: {shown}"));
        }
        let password_only = matches!(method, Method::Password | Method::Md5);
        if password_only && self.credentials.binding == ChannelBinding::Require {
            return Err(self.no_binding());
        }
        Ok(())
    }

    fn password(&self) -> Result<&[u8], String> {
        match self.credentials.password.as_deref() {
            None => {
                Err("the server asks for a password, but none was given (password, PGPASSWORD, PGPASSFILE)"
                    .into())
            }
            Some(password) if password.len() > PASSWORD_SIZE_MAX => Err("the password is too long".into()),
            Some(password) if !frontend::has_no_zero(password) => {
                Err("the password contains a zero byte".into())
            }
            Some(password) => Ok(password),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is sent to a server that asks for this over a connection without TLS.
    fn sent(
        request: Authentication<'_>,
        binding: ChannelBinding,
        methods: &Methods,
    ) -> (Result<(), String>, Vec<u8>) {
        let password = Some(b"secret".to_vec());
        let mut exchange = Exchange::new(Credentials { user: "ann", password, methods, binding }, None);
        let mut out = Vec::new();
        (exchange.answer(request, &mut out), out)
    }

    #[test]
    fn a_password_does_not_go_to_a_server_that_may_not_have_it() {
        let scram = || Authentication::Sasl(vec![SCRAM]);
        let (any, only_scram) = (Methods::any(), Methods::parse("scram-sha-256").unwrap());
        let (done, out) = sent(Authentication::Cleartext, ChannelBinding::Prefer, &any);
        assert!(done.is_ok() && out.windows(6).any(|part| part == b"secret"));
        for request in [Authentication::Cleartext, Authentication::Md5([1; 4]), scram()] {
            let (done, out) = sent(request, ChannelBinding::Require, &any);
            assert!(done.is_err_and(|error| error.contains("channel binding required")));
            assert!(out.is_empty(), "the refusal comes before the password");
        }
        for request in [Authentication::Cleartext, Authentication::Md5([1; 4])] {
            let (done, out) = sent(request, ChannelBinding::Prefer, &only_scram);
            assert!(done.is_err_and(|error| error.contains("require_auth")) && out.is_empty());
        }
        assert!(sent(scram(), ChannelBinding::Prefer, &only_scram).0.is_ok());
    }
    #[test]
    fn a_server_hears_whether_its_offer_of_channel_binding_was_seen() {
        let any = Methods::any();
        for (binding, end_point, offers, begin) in [
            (ChannelBinding::Prefer, Some(vec![7; 32]), &[SCRAM, SCRAM_PLUS][..], "p=tls-server-end-point,,"),
            // Somebody may have taken the offer away.
            (ChannelBinding::Prefer, Some(vec![7; 32]), &[SCRAM], "y,,"),
            (ChannelBinding::Prefer, None, &[SCRAM, SCRAM_PLUS], "n,,"),
            (ChannelBinding::Disable, Some(vec![7; 32]), &[SCRAM, SCRAM_PLUS], "n,,"),
        ] {
            let password = Some(b"secret".to_vec());
            let credentials = Credentials { user: "ann", password, methods: &any, binding };
            let exchange = Exchange::new(credentials, None);
            let mut exchange = Exchange { encrypted: end_point.is_some(), end_point, ..exchange };
            let mut out = Vec::new();
            exchange.answer(Authentication::Sasl(offers.to_vec()), &mut out).unwrap();
            let sent = String::from_utf8_lossy(&out);
            assert!(sent.contains(&format!("{begin}n=")), "{binding:?}: {sent}");
            assert_eq!(exchange.bound, begin.starts_with('p'));
        }
    }
}
