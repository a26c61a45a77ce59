//! Which keys were named on the command line, and what is said about them. How one is read: [`secrets`].

use super::Failure;
use crate::args::{KeyArgs, RekeyArgs};
use pgshrink_cfs::seal::{KeyError, Keyring, Secret};
pub(crate) use pgshrink_cfs_server::secrets::Kernel;
use pgshrink_cfs_server::secrets::{self, SecretError, VARIABLE};
use std::path::Path;

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Failure {
        Failure { what: error.place, reason: error.reason, damage: None }
    }
}

/// All keys that were named, in their order, or that of the environment.
pub(crate) fn keyring(args: &KeyArgs) -> Result<Keyring, Failure> {
    named(args).map(Keyring::new)
}

/// With a new key before all others.
pub(crate) fn keyring_with_new(args: &RekeyArgs) -> Result<Keyring, Failure> {
    let new = KeyArgs {
        key_file: args.new_key_file.iter().cloned().collect(),
        key_command: args.new_key_command.iter().cloned().collect(),
    };
    let mut all = named(&new)?;
    all.extend(named(&args.key)?);
    Ok(Keyring::new(all))
}

/// For what is plain where a key was given: whoever replaced something sealed need not know the key.
pub(crate) fn not_sealed(path: &Path, found: &str) -> Failure {
    let reason = format!(
        "expected an encrypted container, because a key was given; found {found}. If it was packed without \
         --seal, leave out --key-file, --key-command and {VARIABLE}; if it was packed with --seal, \
         somebody replaced it: use another copy. Some files of a server's encrypted tablespace are always \
         plain: --allow-plain accepts them"
    );
    Failure::new(path, reason)
}

/// The first way by which a key was given, if any.
pub(crate) fn given(args: &KeyArgs) -> Option<&'static str> {
    if !args.key_file.is_empty() {
        Some("--key-file")
    } else if !args.key_command.is_empty() {
        Some("--key-command")
    } else {
        std::env::var_os(VARIABLE).map(|_| VARIABLE)
    }
}

/// What is wrong about a key, and how to give the right one.
pub(crate) fn explained(error: &KeyError) -> String {
    match error {
        KeyError::Missing { .. } => {
            format!("{error}; give it with --key-file, --key-command or {VARIABLE}")
        }
        KeyError::Wrong { .. } => format!("{error}; give that one with --key-file or --key-command"),
        error => error.to_string(),
    }
}

fn named(args: &KeyArgs) -> Result<Vec<Secret>, Failure> {
    let mut found = Vec::new();
    for path in &args.key_file {
        found.push(secrets::of_file(path)?);
    }
    for command in &args.key_command {
        found.push(secrets::of_command(command, "--key-command")?);
    }
    if found.is_empty()
        && let Some(value) = std::env::var_os(VARIABLE)
    {
        found.push(secrets::of_variable(value)?);
    }
    Ok(found)
}
