//! SCRAM-SHA-256, the server's side (RFC 5802, RFC 7677; PostgreSQL documentation, "SASL Authentication").
//!
//! Owns the exchange and the keys; primitives are ring's. No channel binding is offered. A user who is not known goes
//! through the same exchange with made-up keys, so that neither answers nor timing tell who exists.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::{digest, hmac, pbkdf2, rand};
use subtle::ConstantTimeEq;

/// The mechanism's name in AuthenticationSASL.
pub(super) const MECHANISM: &str = "SCRAM-SHA-256";
/// PostgreSQL's `SCRAM_SHA_256_DEFAULT_ITERATIONS`, the least RFC 7677 allows.
const ITERATIONS: u32 = 4096;
/// More than this in a file is a mistake: clients would calculate for minutes.
const ITERATIONS_MAX: u32 = 10_000_000;
const KEY_SIZE: usize = 32;
const SALT_SIZE: usize = 16;
const NONCE_SIZE: usize = 18;
/// How a stored verifier begins: `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, as in `pg_authid`.
const VERIFIER_START: &str = "SCRAM-SHA-256$";

/// What is kept of a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Verifier {
    salt: Vec<u8>,
    iterations: u32,
    stored_key: [u8; KEY_SIZE],
    server_key: [u8; KEY_SIZE],
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Verifier {
    /// From a file's entry: a verifier as PostgreSQL stores it, or a password in the clear.
    pub(super) fn from_secret(secret: &str) -> Result<Self, String> {
        if secret.starts_with(VERIFIER_START) {
            return Self::parse(secret)
                .ok_or_else(|| "a SCRAM-SHA-256 verifier that cannot be read".to_string());
        }
        if secret.is_empty() {
            return Err("an empty password".to_string());
        }
        if secret.strip_prefix("md5").is_some_and(|hex| hex.len() == 32) {
            return Err("an MD5 hash; store a SCRAM-SHA-256 verifier or the password".to_string());
        }
        Self::new(secret, &random::<SALT_SIZE>()?, ITERATIONS)
    }

    fn new(password: &str, salt: &[u8], iterations: u32) -> Result<Self, String> {
        // Where SASLprep does not apply, PostgreSQL and libpq both take the bytes as they are.
        let prepared = stringprep::saslprep(password).unwrap_or(password.into());
        let rounds = iterations.try_into().map_err(|_| "no iterations")?;
        let mut salted = [0; KEY_SIZE];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, prepared.as_bytes(), &mut salted);
        Ok(Self {
            salt: salt.to_vec(),
            iterations,
            stored_key: sha256(&mac(&salted, b"Client Key")),
            server_key: mac(&salted, b"Server Key"),
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let (parameters, keys) = text.strip_prefix(VERIFIER_START)?.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |text: &str| BASE64_STANDARD.decode(text).ok()?.try_into().ok();
        Some(Self {
            salt: BASE64_STANDARD.decode(salt).ok().filter(|s| !s.is_empty())?,
            iterations: iterations.parse().ok().filter(|i| (1..=ITERATIONS_MAX).contains(i))?,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }

    /// For a user who does not exist: the same salt at each attempt, and no password fits.
    pub(super) fn made_up(secret: &[u8], user: &str) -> Self {
        let key = mac(secret, user.as_bytes());
        let unknown = mac(&key, b"no password");
        Self {
            salt: key[..SALT_SIZE].to_vec(),
            iterations: ITERATIONS,
            stored_key: unknown,
            server_key: unknown,
        }
    }
}

/// One exchange, after the client's first message.
pub(super) struct Exchange {
    verifier: Verifier,
    client_first_bare: String,
    server_first: String,
    /// `c=` of the final message: the client's own GS2 header.
    binding: String,
    nonce: String,
}

impl Exchange {
    /// Answers the client's first message (`n,,n=,r=…`).
    pub(super) fn begin(verifier: Verifier, client_first: &str) -> Result<Self, String> {
        Self::begin_with(verifier, client_first, &BASE64_STANDARD.encode(random::<NONCE_SIZE>()?))
    }

    fn begin_with(verifier: Verifier, client_first: &str, own_nonce: &str) -> Result<Self, String> {
        let mut parts = client_first.splitn(3, ',');
        let (flag, authzid, bare) = match (parts.next(), parts.next(), parts.next()) {
            (Some(flag), Some(authzid), Some(bare)) => (flag, authzid, bare),
            _ => return Err("malformed first message".into()),
        };
        // "y": the client could bind but thinks that this end cannot, which is so.
        if !matches!(flag, "n" | "y") {
            return Err("channel binding is not offered here".into());
        }
        if !authzid.is_empty() {
            return Err("authorization identities are not supported".into());
        }
        let client_nonce = bare.split(',').nth(1).and_then(|a| a.strip_prefix("r="));
        let client_nonce = client_nonce.filter(|n| !n.is_empty() && bare.starts_with("n="));
        let nonce = format!("{}{own_nonce}", client_nonce.ok_or("malformed first message")?);
        let salt = BASE64_STANDARD.encode(&verifier.salt);
        Ok(Self {
            server_first: format!("r={nonce},s={salt},i={}", verifier.iterations),
            binding: BASE64_STANDARD.encode(format!("{flag},,")),
            client_first_bare: bare.to_string(),
            nonce,
            verifier,
        })
    }

    /// What to send in AuthenticationSASLContinue.
    pub(super) fn server_first(&self) -> &str {
        &self.server_first
    }

    /// Judges the client's final message; what to send in AuthenticationSASLFinal, or `None`: the password is wrong.
    pub(super) fn finish(self, client_final: &str) -> Result<Option<String>, String> {
        let malformed = || "malformed final message".to_string();
        let (without_proof, proof) = client_final.rsplit_once(",p=").ok_or_else(malformed)?;
        let proof: [u8; KEY_SIZE] =
            BASE64_STANDARD.decode(proof).ok().and_then(|p| p.try_into().ok()).ok_or_else(malformed)?;
        let (binding, nonce) = without_proof.split_once(',').ok_or_else(malformed)?;
        if binding.strip_prefix("c=") != Some(self.binding.as_str()) {
            return Err("the channel binding changed during the exchange".into());
        }
        if nonce.split(',').next().and_then(|n| n.strip_prefix("r=")) != Some(self.nonce.as_str()) {
            return Err("the nonce does not match".into());
        }
        let signed = format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
        let mut client_key = mac(&self.verifier.stored_key, signed.as_bytes());
        client_key.iter_mut().zip(proof).for_each(|(key, p)| *key ^= p);
        let is_right: bool = sha256(&client_key).ct_eq(&self.verifier.stored_key).into();
        let signature = mac(&self.verifier.server_key, signed.as_bytes());
        Ok(is_right.then(|| format!("v={}", BASE64_STANDARD.encode(signature))))
    }
}

/// Random bytes of the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N], String> {
    rand::generate::<[u8; N]>(&rand::SystemRandom::new())
        .map(rand::Random::expose)
        .map_err(|_| "the system has no random numbers".into())
}

fn mac(key: &[u8], data: &[u8]) -> [u8; KEY_SIZE] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data);
    let mut bytes = [0; KEY_SIZE];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

fn sha256(data: &[u8]) -> [u8; KEY_SIZE] {
    let mut bytes = [0; KEY_SIZE];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, data).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const OWN_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn pencil() -> Verifier {
        Verifier::new("pencil", &BASE64_STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap(), 4096).unwrap()
    }

    #[test]
    fn the_example_of_the_rfc_comes_out() {
        let exchange = Exchange::begin_with(pencil(), CLIENT_FIRST, OWN_NONCE).unwrap();
        assert_eq!(
            exchange.server_first(),
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        assert_eq!(
            exchange.finish(CLIENT_FINAL),
            Ok(Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".into()))
        );
    }

    #[test]
    fn a_wrong_password_and_an_unknown_user_are_refused_alike() {
        let other = Verifier { server_key: [0; 32], stored_key: [1; 32], ..pencil() };
        for verifier in [other, Verifier { salt: pencil().salt, ..Verifier::made_up(b"k", "user") }] {
            let exchange = Exchange::begin_with(verifier, CLIENT_FIRST, OWN_NONCE).unwrap();
            assert_eq!(exchange.finish(CLIENT_FINAL), Ok(None));
        }
        assert_eq!(Verifier::made_up(b"k", "eve"), Verifier::made_up(b"k", "eve"));
        assert_ne!(Verifier::made_up(b"k", "eve").salt, Verifier::made_up(b"k", "bob").salt);
    }

    #[test]
    fn a_verifier_of_the_server_is_read_and_others_are_refused() {
        let v = pencil();
        let text = format!(
            "SCRAM-SHA-256$4096:{}${}:{}",
            BASE64_STANDARD.encode(&v.salt),
            BASE64_STANDARD.encode(v.stored_key),
            BASE64_STANDARD.encode(v.server_key)
        );
        assert_eq!(Verifier::from_secret(&text), Ok(v));
        for bad in [
            "",
            "SCRAM-SHA-256$x",
            "SCRAM-SHA-256$0:W22ZaJ0SNY7soEsUEjb6gQ==$a:b",
            "md50123456789abcdef0123456789abcdef",
        ] {
            assert!(Verifier::from_secret(bad).is_err(), "{bad}");
        }
        assert!(!format!("{:?}", pencil()).contains("key"));
    }

    #[test]
    fn messages_that_were_tampered_with_are_errors() {
        for first in ["", "p=tls-server-end-point,,n=,r=x", "n,a=bob,n=,r=x", "n,,r=x", "n,,n=,r="] {
            assert!(Exchange::begin(pencil(), first).is_err(), "{first}");
        }
        for (from, to) in [("biws", "eSws"), ("rOpr", "xOpr"), (",p=", ",q="), ("AndVQ=", "AndVQ")] {
            let exchange = Exchange::begin_with(pencil(), CLIENT_FIRST, OWN_NONCE).unwrap();
            assert!(exchange.finish(&CLIENT_FINAL.replace(from, to)).is_err(), "{from}");
        }
    }
}
