//! Who may use the console.
//!
//! * A1 A process of the gateway's own user or of root, over a Unix socket (the kernel says who it is), needs no
//!   password and may do everything: it could stop the gateway anyway. `admin.trust_own_user = false` takes this away.
//! * A2 Anybody else needs an entry in `admin.password_file` and proves it by SCRAM-SHA-256. Without such a file
//!   there is nothing to prove with, and the answer is no.
//! * A3 A password exchange that others could watch is refused before it begins: TCP beyond this machine needs TLS.
//! * A4 `admin.users` may do everything, `admin.stats_users` may look, others may not enter.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pgshrink_wire::message::{self, tag};
use pgshrink_wire::startup::StartupPacket;

use super::scram::{self, Exchange, MECHANISM, Verifier};
use crate::config::AdminConfig;
use crate::error::{Error, Failure, Refusal, sqlstate};
use crate::handshake::leg::Leg;
use crate::stream::Peer;

/// Larger files are not password files.
const FILE_SIZE_MAX: u64 = 1 << 20;
/// Largest message of the password exchange.
const MESSAGE_SIZE_MAX: usize = 4096;
const KIND_OK: u32 = 0;
const KIND_SASL: u32 = 10;
const KIND_SASL_CONTINUE: u32 = 11;
const KIND_SASL_FINAL: u32 = 12;

/// What a user of the console may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    /// SHOW.
    Look,
    /// Everything.
    Change,
}

impl std::fmt::Display for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Look => "look",
            Self::Change => "change",
        })
    }
}

/// The rules, loaded.
#[derive(Debug)]
pub(crate) struct Access {
    database: Option<String>,
    admin_users: Vec<String>,
    stats_users: Vec<String>,
    trust_own_user: bool,
    /// `None`: no password file is configured.
    passwords: Option<HashMap<String, Verifier>>,
    /// Makes up salts for users who do not exist.
    secret: [u8; 32],
}

impl Access {
    /// Reads the password file, if there is one.
    pub(crate) fn load(config: &AdminConfig) -> Result<Self, Error> {
        let random = |reason| Error::config("admin", reason);
        Ok(Self {
            database: (!config.database.is_empty()).then(|| config.database.clone()),
            admin_users: config.users.clone(),
            stats_users: config.stats_users.clone(),
            trust_own_user: config.trust_own_user,
            passwords: config.password_file.as_deref().map(read_passwords).transpose()?,
            secret: scram::random().map_err(random)?,
        })
    }

    /// Whether a startup packet asks for the console.
    pub(crate) fn is_meant(&self, packet: &StartupPacket) -> bool {
        self.database.as_deref().is_some_and(|name| name.as_bytes() == packet.database())
    }

    /// Whether the kernel's word is enough.
    pub(super) fn is_trusted(&self, peer: Peer) -> bool {
        matches!(peer, Peer::Unix { uid } if self.trust_own_user && is_own_or_root(uid))
    }

    /// Lets a client in, after a password exchange where one is due. AuthenticationOk is not sent yet.
    pub(crate) async fn admit(
        &self,
        client: &mut Leg,
        peer: Peer,
        packet: &StartupPacket,
    ) -> Result<Grant, Failure> {
        if self.is_trusted(peer) {
            return Ok(Grant::Change);
        }
        let user = String::from_utf8_lossy(packet.user()).into_owned();
        let Some(passwords) = &self.passwords else { return Err(self.no_password_refusal(peer).into()) };
        if !peer.is_local() && !client.stream.is_tls() {
            return Err(Refusal::new(
                sqlstate::INVALID_AUTHORIZATION,
                "the console does not ask for a password over an unencrypted connection",
            )
            .hint("Connect with TLS (sslmode=require), or from the gateway's machine.")
            .into());
        }
        let known = passwords.get(&user);
        let verifier = known.cloned().unwrap_or_else(|| Verifier::made_up(&self.secret, &user));
        if !prove(client, verifier).await? {
            return Err(wrong_password(&user).into());
        }
        self.grant(&user).ok_or_else(|| {
            Refusal::new(sqlstate::INVALID_AUTHORIZATION, format!("user \"{user}\" may not use the console"))
                .hint("Add the user to admin.stats_users or admin.users.")
                .into()
        })
    }

    fn grant(&self, user: &str) -> Option<Grant> {
        let has = |list: &[String]| list.iter().any(|u| u == user);
        match (has(&self.admin_users), has(&self.stats_users)) {
            (true, _) => Some(Grant::Change),
            (false, true) => Some(Grant::Look),
            (false, false) => None,
        }
    }

    fn no_password_refusal(&self, peer: Peer) -> Refusal {
        let message = match peer {
            Peer::Unix { uid } => format!("the console does not admit system user {uid} without a password"),
            Peer::Address(_) | Peer::Proxied(_) => {
                "the console does not admit clients over TCP without a password".to_string()
            }
        };
        Refusal::new(sqlstate::INVALID_AUTHORIZATION, message).hint(
            "Connect over the Unix socket as the system user that runs the gateway, or as root; \
             or set admin.password_file.",
        )
    }
}

fn is_own_or_root(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn wrong_password(user: &str) -> Refusal {
    Refusal::new(sqlstate::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
}

/// The password exchange.
async fn prove(client: &mut Leg, verifier: Verifier) -> Result<bool, Failure> {
    let mechanisms = [MECHANISM.as_bytes(), b"\0\0"].concat();
    client.send(&message::authentication(KIND_SASL, &mechanisms)).await?;
    let first = read_answer(client).await?;
    let body = first.strip_prefix(MECHANISM.as_bytes()).and_then(|b| b.strip_prefix(b"\0"));
    let Some((_, data)) = body.and_then(|b| b.split_first_chunk::<4>()) else {
        return Err(violation("an unknown mechanism").into());
    };
    let exchange = Exchange::begin(verifier, &text(data)?).map_err(|e| violation(&e))?;
    client.send(&message::authentication(KIND_SASL_CONTINUE, exchange.server_first().as_bytes())).await?;
    let last = read_answer(client).await?;
    match exchange.finish(&text(&last)?).map_err(|e| violation(&e))? {
        None => Ok(false),
        Some(signature) => {
            client.send(&message::authentication(KIND_SASL_FINAL, signature.as_bytes())).await?;
            Ok(true)
        }
    }
}

async fn read_answer(client: &mut Leg) -> Result<Vec<u8>, Failure> {
    match client.peek(MESSAGE_SIZE_MAX).await? {
        Some(header) if header.tag == tag::PASSWORD => {
            Ok(client.take(header).split_off(message::HEADER_SIZE))
        }
        Some(_) => Err(violation("another message").into()),
        // libpq asks its user for a password and comes again.
        None => Err(Failure::Done("client closed the connection instead of sending a password")),
    }
}

fn text(bytes: &[u8]) -> Result<String, Refusal> {
    String::from_utf8(bytes.to_vec()).map_err(|_| violation("bytes that are not UTF-8"))
}

fn violation(found: &str) -> Refusal {
    Refusal::new(sqlstate::PROTOCOL_VIOLATION, format!("expected a SCRAM-SHA-256 exchange: {found}"))
}

/// AuthenticationOk.
pub(super) fn ok() -> Vec<u8> {
    message::authentication(KIND_OK, &[])
}

fn read_passwords(path: &Path) -> Result<HashMap<String, Verifier>, Error> {
    let fail = |reason: String| Error::File { what: "admin.password_file", path: path.into(), reason };
    let meta = std::fs::metadata(path).map_err(|e| fail(e.to_string()))?;
    if meta.mode() & 0o007 != 0 {
        return Err(fail(format!(
            "mode {:04o} lets everybody read it; use 0600 or 0640",
            meta.mode() & 0o777
        )));
    }
    if meta.len() > FILE_SIZE_MAX {
        return Err(fail(format!("{} bytes, at most {FILE_SIZE_MAX} are read", meta.len())));
    }
    let text = std::fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
    parse_passwords(&text).map_err(fail)
}

/// pgbouncer's `userlist.txt`: `"user" "password or SCRAM verifier"` on each line, `""` for a quote, `;` comments.
fn parse_passwords(text: &str) -> Result<HashMap<String, Verifier>, String> {
    let mut users = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        let place = |reason: &str| format!("line {}: {reason}", index + 1);
        let entry = quoted(line).and_then(|(user, rest)| Some((user, quoted(rest.trim_start())?.0)));
        let (user, secret) = entry.ok_or_else(|| place("expected \"user\" \"password\""))?;
        users.insert(user, Verifier::from_secret(&secret).map_err(|e| place(&e))?);
    }
    Ok(users)
}

fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text.strip_prefix('"')?;
    loop {
        let (part, after) = rest.split_once('"')?;
        value.push_str(part);
        match after.strip_prefix('"') {
            Some(more) => {
                value.push('"');
                rest = more;
            }
            None => return Some((value, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_file_is_read_as_pgbouncer_reads_it() {
        let users =
            parse_passwords("; comment\n\n\"bob\" \"secret\"\n\"o\"\"hara\" \"a\"\"b\" trailing\n").unwrap();
        assert_eq!(users.len(), 2);
        assert!(users.contains_key("o\"hara"));
        for (text, reason) in [
            ("bob secret", "line 1: expected \"user\" \"password\""),
            ("\n\"bob\" \"md50123456789abcdef0123456789abcdef\"", "line 2: an MD5 hash"),
            ("\"bob\" \"", "line 1: expected"),
        ] {
            assert!(parse_passwords(text).unwrap_err().starts_with(reason), "{text}");
        }
    }

    #[test]
    fn a_password_file_that_everybody_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("pgshrink-userlist-{}", std::process::id()));
        std::fs::write(&path, "\"bob\" \"secret\"\n").unwrap();
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o644);
        assert!(read_passwords(&path).unwrap_err().to_string().contains("mode 0644"));
        set(0o640);
        assert_eq!(read_passwords(&path).unwrap().len(), 1);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn users_may_look_or_change_or_stay_out() {
        let config = AdminConfig {
            users: vec!["ann".into()],
            stats_users: vec!["ann".into(), "bob".into()],
            ..AdminConfig::default()
        };
        let access = Access::load(&config).unwrap();
        assert_eq!(access.grant("ann"), Some(Grant::Change));
        assert_eq!(access.grant("bob"), Some(Grant::Look));
        assert_eq!(access.grant("eve"), None);
    }

    #[test]
    fn only_root_and_the_own_user_are_trusted_by_the_socket() {
        let own = rustix::process::geteuid().as_raw();
        let access =
            |trust_own_user| Access::load(&AdminConfig { trust_own_user, ..AdminConfig::default() }).unwrap();
        let unix = |uid| Peer::Unix { uid };
        assert!(access(true).is_trusted(unix(0)) && access(true).is_trusted(unix(own)));
        assert!(!access(true).is_trusted(unix(own + 12345)) && !access(true).is_trusted(unix(u32::MAX)));
        assert!(!access(true).is_trusted(Peer::Address("127.0.0.1:1".parse().unwrap())));
        assert!(!access(false).is_trusted(unix(0)) && !access(false).is_trusted(unix(own)));
    }
}
