//! AES-256-GCM-SIV (RFC 8452) over records and roots.
//!
//! Sealed bytes are `nonce | ciphertext | tag`. The cipher needs its tag before it can encrypt, so that both
//! ends run over the bytes twice; what is gained is that a nonce drawn twice tells at most that the same
//! bytes were sealed for the same place and version, which no engine does.

use super::{KeyId, Random, Seal};
use aes_gcm_siv::aes::Aes256Enc;
use aes_gcm_siv::{AeadInOut, AesGcmSiv, KeyInit, Nonce, Tag};
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 12;
/// Bytes of an authentication tag.
pub const TAG_BYTES: usize = 16;
/// Bytes by which sealed bytes are longer than what they hold.
pub const OVERHEAD_BYTES: usize = NONCE_BYTES + TAG_BYTES;

/// The cipher under one key. Only ever encrypts blocks, so it needs no schedule for decrypting them. Forgets
/// its keys when dropped.
pub(super) struct Cipher(AesGcmSiv<Aes256Enc>);

impl Cipher {
    pub(super) fn new(key: &[u8; 32]) -> Cipher {
        Cipher(AesGcmSiv::new(key.into()))
    }

    pub(super) fn seal(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        bytes: &mut [u8],
    ) -> [u8; TAG_BYTES] {
        let sealed = self.0.encrypt_inout_detached(&nonce.into(), associated, bytes.into());
        // Fails over 64 GiB only (RFC 8452, 6), 65536 times what a record may hold.
        assert!(sealed.is_ok(), "record too long for the cipher");
        sealed.unwrap_or_default().into()
    }

    /// Whether the bytes were sealed so; they are opened in place then.
    #[must_use]
    pub(super) fn open(&self, nonce: &Nonce, associated: &[u8], bytes: &mut [u8], tag: &Tag) -> bool {
        self.0.decrypt_inout_detached(nonce, associated, bytes.into(), tag).is_ok()
    }
}

/// The key that a container's records and roots are sealed with.
#[derive(Clone)]
pub struct DataKey(pub(super) Zeroizing<[u8; 32]>);

impl DataKey {
    pub(super) fn new(random: &dyn Random) -> DataKey {
        let mut key = Zeroizing::new([0; 32]);
        random.fill(key.as_mut_slice());
        DataKey(key)
    }

    /// The seal of the container. `master` is the id of the master key that wraps this one: what the roots
    /// say.
    pub fn into_seal<R: Random>(self, master: KeyId, random: R) -> RecordSeal<R> {
        RecordSeal { cipher: Cipher::new(&self.0), master, random }
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

/// [`Seal`] with one container's data key. Holds no state but the key, so that it may be shared by threads
/// and carried over a fork.
pub struct RecordSeal<R> {
    cipher: Cipher,
    master: KeyId,
    random: R,
}

impl<R: Random> Seal for RecordSeal<R> {
    fn key_id(&self) -> KeyId {
        self.master
    }

    fn seal(&self, associated: &[u8], plaintext: &[u8], out: &mut Vec<u8>) {
        let mut nonce = [0; NONCE_BYTES];
        self.random.fill(&mut nonce);
        out.reserve(plaintext.len() + OVERHEAD_BYTES);
        out.extend_from_slice(&nonce);
        let start = out.len();
        out.extend_from_slice(plaintext);
        let tag = self.cipher.seal(nonce, associated, &mut out[start..]);
        out.extend_from_slice(&tag);
    }

    fn open(&self, associated: &[u8], sealed: &[u8], out: &mut [u8]) -> Option<usize> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let (ciphertext, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
        let out = out.get_mut(..ciphertext.len())?;
        out.copy_from_slice(ciphertext);
        let opened = self.cipher.open(nonce.into(), associated, out, tag.into());
        opened.then_some(ciphertext.len())
    }
}

impl<R> fmt::Debug for RecordSeal<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordSeal({})", super::HexId(self.master))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    /// RFC 8452, appendix C.2, by key 0100… and nonce 030000…: associated data, plaintext, ciphertext and
    /// tag.
    const VECTORS: [(&str, &str, &str); 6] = [
        ("", "", "07f5f4169bbf55a8400cd47ea6fd400f"),
        ("", "0100000000000000", "c2ef328e5c71c83b843122130f7364b761e0b97427e3df28"),
        ("", "010000000000000000000000", "9aab2aeb3faa0a34aea8e2b18ca50da9ae6559e48fd10f6e5c9ca17e"),
        (
            "",
            "0100000000000000000000000000000002000000000000000000000000000000",
            "4a6a9db4c8c6549201b9edb53006cba821ec9cf850948a7c86c68ac7539d027fe819e63abcd020b006a976397632eb5d",
        ),
        ("01", "020000000000000000000000", "163d6f9cc1b346cd453a2e4cc1a4a19ae800941ccdc57cc8413c277f"),
        (
            "0100000000000000000000000000000002000000",
            "030000000000000000000000000000000400",
            "462401724b5ce6588d5a54aae5375513a075cfcdf5042112aa29685c912fc2056543",
        ),
    ];

    #[test]
    fn the_cipher_is_that_of_rfc_8452() {
        let mut key = [0; 32];
        key[0] = 1;
        let mut nonce = [0; NONCE_BYTES];
        nonce[0] = 3;
        let cipher = Cipher::new(&key);
        for (associated, plaintext, result) in VECTORS {
            let (associated, mut text) = (bytes(associated), bytes(plaintext));
            let tag = cipher.seal(nonce, &associated, &mut text);
            assert_eq!([&text[..], &tag].concat(), bytes(result));
            assert!(cipher.open(&nonce.into(), &associated, &mut text, &tag.into()));
            assert_eq!(text, bytes(plaintext));
        }
    }
}
