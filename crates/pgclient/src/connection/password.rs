//! Who connects, and with which password.

use crate::surroundings::Surroundings;
use crate::target::Target;
use crate::{Error, Parameters, passfile};
use std::path::Path;

/// The system's users.
const USERS_FILE: &str = "/etc/passwd";

/// The role: `user`, else the system's name of the process' user.
pub(super) fn user(parameters: &Parameters, around: &Surroundings<'_>) -> Result<String, Error> {
    if let Some(user) = parameters.text("user")? {
        return Ok(user.to_owned());
    }
    let uid = rustix::process::geteuid().as_raw().to_string();
    let users = around.files.read(Path::new(USERS_FILE)).unwrap_or_default();
    let users = String::from_utf8_lossy(&users).into_owned();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1) == Some(&uid)).then(|| name.to_owned())
    });
    // Users of a directory service are in no file.
    let logged_in = || around.var("USER").and_then(|name| name.to_str()).map(str::to_owned);
    named.or_else(logged_in).filter(|name| !name.is_empty()).ok_or(Error::NoUser)
}

/// The password for a target: `password`, else the first line of the password file that matches.
pub(super) fn password(
    parameters: &Parameters,
    around: &Surroundings<'_>,
    target: &Target,
    user: &str,
) -> Option<Vec<u8>> {
    if let Some(password) = parameters.get_nonempty("password") {
        return Some(password.to_vec());
    }
    let named = parameters.path("passfile");
    let path = passfile::path(named.as_deref(), around)?;
    if passfile::usable(&path, around) != passfile::Usable::Yes {
        return None;
    }
    let text = around.files.read(&path).ok()?;
    let (host, port) = (target.passfile_host(), target.port.to_string());
    let database = parameters.get_nonempty("dbname").unwrap_or(user.as_bytes());
    let find = |database: &[u8]| {
        let wanted = [host.as_bytes(), port.as_bytes(), database, user.as_bytes()];
        passfile::password(&text, wanted)
    };
    // pg_basebackup looks for a database called replication.
    let physical = matches!(parameters.get("replication"), Some(b"true" | b"on" | b"yes" | b"1"));
    find(database).or_else(|| physical.then(|| find(b"replication")).flatten())
}
