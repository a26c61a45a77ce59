//! What a shell fetched from a command, a file or the environment, understood.

use super::KeyError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use zeroize::{Zeroize, Zeroizing};

/// Bytes at most of what is taken for a secret, as of PostgreSQL's passphrase commands.
pub const SECRET_BYTES_MAX: usize = 1024;
/// Bytes at least of a passphrase.
const PASSPHRASE_BYTES_MIN: usize = 12;

/// A master key, or a passphrase that is stretched into one.
pub struct Secret(pub(super) Kind);

pub(super) enum Kind {
    Key(Zeroizing<[u8; 32]>),
    Passphrase(Zeroizing<Vec<u8>>),
}

impl Secret {
    /// 64 hexadecimal digits or 44 characters of base64 are a key of 32 bytes, whatever blanks and ends of
    /// line are around them; anything else is a passphrase, of 12 bytes at least, of which one end of line is
    /// taken off. What looks like a key that was cut, or like two, is refused rather than stretched.
    ///
    /// # Errors
    /// [`KeyError::Secret`] for what is empty, too short or too long to be either.
    pub fn parse(text: &[u8]) -> Result<Secret, KeyError> {
        let bare = text.trim_ascii();
        if let Some(key) = hexadecimal(bare).or_else(|| base64(bare)) {
            return Ok(Secret(Kind::Key(key)));
        }
        let is_key =
            |line: &[u8]| hexadecimal(line.trim_ascii()).or_else(|| base64(line.trim_ascii())).is_some();
        if text.split(|byte| *byte == b'\n').any(is_key) {
            return Err(KeyError::Secret {
                reason: "expected one key, found a line with a key and further lines",
            });
        }
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let refused = |reason| Err(KeyError::Secret { reason });
        if text.is_empty() {
            return refused("the key is empty; make one with: openssl rand -hex 32");
        }
        if text.len() < PASSPHRASE_BYTES_MIN {
            return refused("the passphrase is shorter than 12 bytes; make a key with: openssl rand -hex 32");
        }
        if text.len() > SECRET_BYTES_MAX {
            return refused("the passphrase is longer than 1024 bytes");
        }
        if bare.len() >= 32 && bare.iter().all(u8::is_ascii_hexdigit) {
            return refused("the key has hexadecimal digits, but not 64 of them");
        }
        Ok(Secret(Kind::Passphrase(Zeroizing::new(text.to_vec()))))
    }

    /// Whether it has to be stretched.
    pub fn is_passphrase(&self) -> bool {
        matches!(self.0, Kind::Passphrase(_))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_passphrase() { "Secret(passphrase)" } else { "Secret(key)" })
    }
}

/// Whether a key file's permissions keep it secret: nobody but its owner, or its group as well if it belongs
/// to root (libpq's and the server's rule for private keys).
pub fn is_private(mode: u32, owned_by_root: bool) -> bool {
    mode & if owned_by_root { 0o037 } else { 0o077 } == 0
}

fn hexadecimal(text: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let text: &[u8; 64] = text.try_into().ok()?;
    let mut key = Zeroizing::new([0; 32]);
    for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |index: usize| char::from(pair[index]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(key)
}

fn base64(text: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    if text.len() != 44 {
        return None;
    }
    let mut decoded = Zeroizing::new(STANDARD.decode(text).ok()?);
    let key = decoded.as_slice().try_into().ok().map(Zeroizing::new);
    decoded.zeroize();
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Result<&'static str, KeyError> {
        Secret::parse(text.as_bytes()).map(|secret| if secret.is_passphrase() { "passphrase" } else { "key" })
    }

    #[test]
    fn keys_passphrases_and_what_is_neither_are_told_apart() {
        let hex = "00ff".repeat(16);
        assert_eq!(kind(&hex), Ok("key"));
        assert_eq!(kind(&format!("{}\r\n", hex.to_uppercase())), Ok("key"));
        assert_eq!(kind("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"), Ok("key"));
        // Blanks around a key never make a passphrase of it.
        for around in [format!(" {hex}"), format!("{hex}\n\n"), format!("\t{hex} \r\n")] {
            assert_eq!(kind(&around), Ok("key"), "{around:?}");
        }
        assert_eq!(kind(" AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8= \n"), Ok("key"));
        assert!(matches!(kind(&format!(" {}\n\n", &hex[1..])), Err(KeyError::Secret { .. })));
        // One key was appended to another.
        for two in [format!("{hex}\n{hex}\n"), format!("correct horse battery\n{hex}")] {
            assert!(matches!(kind(&two), Err(KeyError::Secret { .. })), "{two:?}");
        }
        assert_eq!(kind("correct horse battery\nstaple"), Ok("passphrase"));
        assert_eq!(kind("correct horse battery"), Ok("passphrase"));
        for refused in ["", "\n", "short", &hex[1..], &format!("{hex}0"), &"x".repeat(1025)] {
            assert!(matches!(kind(refused), Err(KeyError::Secret { .. })), "{refused}");
        }
    }

    #[test]
    fn hexadecimal_and_base64_of_the_same_key_are_the_same_key() {
        let bytes = |text: &str| match Secret::parse(text.as_bytes()).unwrap().0 {
            Kind::Key(key) => *key,
            Kind::Passphrase(_) => panic!("not a key"),
        };
        let expected: Vec<u8> = (0..32).collect();
        assert_eq!(
            bytes(" 000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F\n\n")[..],
            expected[..]
        );
        assert_eq!(bytes("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")[..], expected[..]);
    }

    #[test]
    fn nothing_printed_shows_a_secret() {
        let secret = Secret::parse(b"correct horse battery").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(passphrase)");
    }

    #[test]
    fn a_key_file_is_its_owners_alone_unless_root_shares_it_with_a_group() {
        let cases = [(0o600, false, true), (0o400, false, true), (0o640, false, false), (0o640, true, true)];
        for (mode, owned_by_root, private) in cases {
            assert_eq!(is_private(0o100_000 | mode, owned_by_root), private, "{mode:o}");
        }
        assert!(!is_private(0o604, true) && !is_private(0o660, true));
    }
}
