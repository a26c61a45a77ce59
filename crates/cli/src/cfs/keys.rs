//! Where keys come from: files, commands, the environment; and randomness from the kernel.

use super::Failure;
use crate::args::{KeyArgs, RekeyArgs};
use pgshrink_cfs::seal::{KeyError, Keyring, Random, SECRET_BYTES_MAX, Secret, is_private};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use zeroize::Zeroizing;

const VARIABLE: &str = "PG_CIPHER_KEY";

/// getrandom(2) at each call.
#[derive(Clone, Copy)]
pub(crate) struct Kernel(());

impl Kernel {
    /// Draws once, so that what can fail fails here.
    pub(crate) fn new() -> Result<Kernel, Failure> {
        let drawn = getrandom(&mut [0; 32], GetRandomFlags::empty());
        drawn.map_err(|error| Failure::new(Path::new("getrandom"), error))?;
        Ok(Kernel(()))
    }
}

impl Random for Kernel {
    fn fill(&self, bytes: &mut [u8]) {
        let wanted = bytes.len();
        let drawn = getrandom(bytes, GetRandomFlags::empty());
        // As the contract has it: a write without randomness is worse than none.
        assert_eq!(drawn, Ok(wanted), "getrandom failed");
    }
}

/// All keys that were named, in their order, or that of the environment.
pub(crate) fn keyring(args: &KeyArgs) -> Result<Keyring, Failure> {
    secrets(args).map(Keyring::new)
}

/// With a new key before all others.
pub(crate) fn keyring_with_new(args: &RekeyArgs) -> Result<Keyring, Failure> {
    let new = KeyArgs {
        key_file: args.new_key_file.iter().cloned().collect(),
        key_command: args.new_key_command.iter().cloned().collect(),
    };
    let mut all = secrets(&new)?;
    all.extend(secrets(&args.key)?);
    Ok(Keyring::new(all))
}

/// For what is plain where a key was given: whoever replaced something sealed need not know the key.
pub(crate) fn not_sealed(path: &Path, found: &str) -> Failure {
    let reason = format!(
        "expected something sealed, as a key was given; found {found}. If it was packed without --seal, leave \
         --key-file, --key-command and {VARIABLE} away; if it was packed with --seal, somebody replaced it: take \
         another copy"
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

fn secrets(args: &KeyArgs) -> Result<Vec<Secret>, Failure> {
    let mut secrets = Vec::new();
    for path in &args.key_file {
        secrets.push(of_file(path)?);
    }
    for command in &args.key_command {
        secrets.push(of_command(command)?);
    }
    if secrets.is_empty()
        && let Some(text) = std::env::var_os(VARIABLE)
    {
        let text = Zeroizing::new(text.into_encoded_bytes());
        secrets.push(Secret::parse(&text).map_err(|error| Failure::new(Path::new(VARIABLE), error))?);
    }
    Ok(secrets)
}

fn of_file(path: &Path) -> Result<Secret, Failure> {
    let file = File::open(path).map_err(Failure::reading(path))?;
    let metadata = file.metadata().map_err(Failure::reading(path))?;
    if metadata.is_dir() {
        return Err(Failure::new(
            path,
            "expected a file with the key, found a directory; name the file in it",
        ));
    }
    if !is_private(metadata.mode(), metadata.uid() == 0) {
        return Err(Failure::new(path, "others may read this key; chmod 600 it"));
    }
    secret(file, path)
}

fn of_command(command: &str) -> Result<Secret, Failure> {
    let name = Path::new("--key-command");
    let spawned =
        Command::new("/bin/sh").args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(Failure::reading(name))?;
    let parsed = child.stdout.take().map(|output| secret(output, name));
    let status = child.wait().map_err(Failure::reading(name))?;
    match parsed {
        Some(parsed) if status.success() => parsed,
        _ => Err(Failure::new(name, format!("the command failed: {status}"))),
    }
}

fn secret(from: impl Read, name: &Path) -> Result<Secret, Failure> {
    let mut text = Zeroizing::new(Vec::with_capacity(SECRET_BYTES_MAX + 3));
    let limit = SECRET_BYTES_MAX as u64 + 3;
    from.take(limit).read_to_end(&mut text).map_err(Failure::reading(name))?;
    Secret::parse(&text).map_err(|error| Failure::new(name, error))
}
