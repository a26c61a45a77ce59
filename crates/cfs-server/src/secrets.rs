//! Where master keys come from: files, commands, the environment; and randomness from the kernel. The server
//! and the offline tool read keys by these functions alone, so that a key that one takes the other takes.
//!
//! No error shows a byte of what was read, and what was read is wiped when it has been understood.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use pgshrink_cfs::seal::{Random, SECRET_BYTES_MAX, Secret, is_private};
use rustix::fs::OFlags;
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

/// The environment's variable with a key, as of the original CFS.
pub const VARIABLE: &str = "PG_CIPHER_KEY";

/// Why a key is not available: where it was looked for, and what is wrong there.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct SecretError {
    /// A path, or the name of a setting, an argument or a variable.
    pub place: String,
    /// Without anything of the key.
    pub reason: String,
}

impl SecretError {
    fn new(place: &str, reason: impl ToString) -> SecretError {
        SecretError { place: place.to_owned(), reason: reason.to_string() }
    }
}

/// getrandom(2) at each call.
#[derive(Clone, Copy)]
pub struct Kernel(());

impl Kernel {
    /// Draws once, so that what can fail fails here.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> Result<Kernel, SecretError> {
        let drawn = getrandom(&mut [0; 32], GetRandomFlags::empty());
        drawn.map_err(|error| SecretError::new("getrandom", error))?;
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

/// The key in a file, which must be its owner's alone ([`is_private`]). A pipe is read like a file.
///
/// # Errors
/// It cannot be read, others may read it, or it holds no key.
pub fn of_file(path: &Path) -> Result<Secret, SecretError> {
    read(path, OFlags::empty())
}

/// As [`of_file`], of a regular file alone: a server does not wait for who writes to a pipe.
///
/// # Errors
/// As [`of_file`]; it is another kind of file.
pub fn of_regular_file(path: &Path) -> Result<Secret, SecretError> {
    read(path, OFlags::NONBLOCK)
}

fn read(path: &Path, flags: OFlags) -> Result<Secret, SecretError> {
    let place = path.display().to_string();
    let failed = |error: io::Error| SecretError::new(&place, error);
    // A terminal does not become the server's.
    let is_regular_alone = flags.contains(OFlags::NONBLOCK);
    let flags = (OFlags::NOCTTY | flags).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        let reason = "expected a file with the key, found a directory; name the file in it";
        return Err(SecretError::new(&place, reason));
    }
    if is_regular_alone && !metadata.is_file() {
        let reason = "expected a regular file with the key, found a pipe or a device; for a key that a \
            program prints, set cfs.key_command";
        return Err(SecretError::new(&place, reason));
    }
    if !is_private(metadata.mode(), metadata.uid() == 0) {
        return Err(SecretError::new(
            &place,
            "other users may read this key file; change its permissions \
            with chmod 600",
        ));
    }
    parsed(file, &place)
}

/// The key that `command` prints, which `/bin/sh` runs. `place` is what errors call it, as the command itself
/// may hold a password.
///
/// # Errors
/// It cannot be run, fails, or prints no key.
pub fn of_command(command: &str, place: &str) -> Result<Secret, SecretError> {
    let failed = |error: io::Error| SecretError::new(place, error);
    let mut shell = Command::new("/bin/sh");
    let mut child =
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let secret = child.stdout.take().map(|output| parsed(output, place));
    let status = child.wait().map_err(failed)?;
    match secret {
        Some(secret) if status.success() => secret,
        _ => Err(SecretError::new(place, format!("the command failed: {status}"))),
    }
}

/// The key in a value of [`VARIABLE`].
///
/// # Errors
/// It is no key.
pub fn of_variable(value: OsString) -> Result<Secret, SecretError> {
    let text = Zeroizing::new(value.into_encoded_bytes());
    Secret::parse(&text).map_err(|error| SecretError::new(VARIABLE, error))
}

fn parsed(from: impl Read, place: &str) -> Result<Secret, SecretError> {
    let mut text = Zeroizing::new(Vec::with_capacity(SECRET_BYTES_MAX + 3));
    let limit = SECRET_BYTES_MAX as u64 + 3;
    from.take(limit).read_to_end(&mut text).map_err(|error| SecretError::new(place, error))?;
    Secret::parse(&text).map_err(|error| SecretError::new(place, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_testkit::TempDir;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    const PHRASE: &str = "correct horse battery";

    #[test]
    fn a_file_that_others_may_read_and_a_directory_give_no_key() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, PHRASE).unwrap();
        for (mode, is_taken) in [(0o600, true), (0o400, true), (0o644, false), (0o604, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let secret = of_file(&path);
            assert_eq!(secret.is_ok(), is_taken, "{mode:o}");
            if let Err(error) = secret {
                assert!(
                    error.to_string().ends_with(
                        "key: other users may read this key file; change its \
                        permissions with chmod 600"
                    ),
                    "{error}"
                );
            }
        }
        assert!(of_file(directory.path()).unwrap_err().to_string().contains("found a directory"));
        assert!(of_file(&directory.path().join("none")).is_err());
        assert!(of_regular_file(&path).unwrap_err().to_string().contains("other users may read"));
    }

    #[test]
    fn a_server_does_not_wait_for_who_writes_to_a_pipe() {
        let directory = TempDir::new().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero")] {
            assert!(of_regular_file(path).unwrap_err().to_string().contains("found a pipe or a device"));
        }
    }

    #[test]
    fn a_command_gives_what_it_prints_and_nothing_if_it_fails() {
        assert!(of_command(&format!("echo {PHRASE}"), "cfs.key_command").unwrap().is_passphrase());
        assert!(!of_command("printf '%064d' 7", "cfs.key_command").unwrap().is_passphrase());
        for command in [&format!("echo {PHRASE}; exit 3"), "true", "/nonexistent"] {
            let error = of_command(command, "cfs.key_command").unwrap_err().to_string();
            assert!(error.starts_with("cfs.key_command: "), "{error}");
            assert!(!error.contains(PHRASE), "{error}");
        }
    }

    #[test]
    fn no_error_shows_what_was_read() {
        let cut = "00ff".repeat(15);
        let error = of_variable(OsString::from(&cut)).unwrap_err().to_string();
        assert!(error.starts_with("PG_CIPHER_KEY: ") && !error.contains(&cut), "{error}");
    }
}
