//! A way into every database of a cluster whose roles nobody knows.

use super::super::Failure;
use super::cluster::Cluster;
use super::startup;

/// Databases that a single-user server can be started in. One of them is there unless somebody went to great lengths.
const DATABASES: [&str; 3] = ["template1", "template0", "postgres"];

/// Makes a superuser of our own in the restored cluster, and lets connections into every database. A single-user server runs as the
/// bootstrap superuser, whatever its name.
pub(super) fn superuser(cluster: &Cluster<'_>) -> Result<String, Failure> {
    let mut random = [0; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Failure::new("random numbers", error))?;
    let role = format!("pgshrink_verify_{:08x}", u32::from_le_bytes(random));
    // One command a line.
    let commands = format!(
        "CREATE ROLE {role} SUPERUSER LOGIN;\n\
         UPDATE pg_catalog.pg_database SET datallowconn = true WHERE NOT datallowconn;\n"
    );
    let data = cluster.scratch.data().display().to_string();
    let settings = cluster.options();
    let mut args = vec!["--single", "-D", &data];
    args.extend(settings.iter().map(String::as_str));
    for value in FREE {
        args.extend(["-c", value]);
    }
    let mut said = String::new();
    for database in DATABASES {
        let ended = cluster.run("postgres", &[&args[..], &[database]].concat(), &commands)?;
        if ended.status.success() {
            return Ok(role);
        }
        said = ended.said;
        if !said.contains("does not exist") {
            break;
        }
    }
    let what = format!("could not create a role for reading:\n{}", startup::last_lines(&said));
    match DAMAGE.iter().any(|text| said.contains(text)) {
        true => Err(Failure::damage("the restored cluster", what)),
        false => Err(Failure::new("--boot", what)),
    }
}

/// What a server says of damaged catalogs.
const DAMAGE: [&str; 6] =
    ["invalid page", "could not read block", "could not open file", "chunk number", "corrupt", "PANIC:"];

/// An error is the end, and no setting of the cluster hinders.
const FREE: [&str; 6] = [
    "exit_on_error=on",
    "default_transaction_read_only=off",
    "statement_timeout=0",
    "session_preload_libraries=",
    "local_preload_libraries=",
    "client_min_messages=warning",
];
