//! The cipher of one object, and what writes blocks with it.

use super::layout::{BLOCK_BYTES, HEADER_BYTES, Header, TAG_BYTES};
use super::{ObjectName, SealKey};
use crate::{Error, ObjectWriter};
use aes_gcm_siv::aes::Aes256Enc;
use aes_gcm_siv::{AeadInOut, AesGcmSiv, KeyInit, Tag};
use ring::hkdf::{HKDF_SHA256, Salt};
use std::io::{self, Write};
use zerocopy::IntoBytes;
use zeroize::Zeroizing;

/// Set apart from whatever else is derived from the same key.
const LABEL: &[u8] = b"pgshrink backup object key 1";
const NONCE_BYTES: usize = 12;

/// AES-256-GCM-SIV with the key of one object: no other header, salt or name gives that key. Wiped when it is dropped.
pub(super) struct ObjectCipher(AesGcmSiv<Aes256Enc>);

impl ObjectCipher {
    pub(super) fn new(key: &SealKey, header: &Header, name: &ObjectName) -> ObjectCipher {
        let mut object_key = Zeroizing::new([0; 32]);
        let info = [LABEL, header.as_bytes(), name.as_str().as_bytes()];
        let extracted = Salt::new(HKDF_SHA256, &header.salt).extract(key.key.as_slice());
        let filled = extracted.expand(&info, HKDF_SHA256).and_then(|okm| okm.fill(object_key.as_mut_slice()));
        // Fails for more than 255 hashes only (RFC 5869, 2.3).
        assert!(filled.is_ok(), "one hash can be derived");
        ObjectCipher(AesGcmSiv::new((&*object_key).into()))
    }

    /// Unique under this key: a block's number, and whether it is the last one (the construction STREAM, so that a cut at a
    /// block's end is found).
    fn nonce(block: u64, is_last: bool) -> [u8; NONCE_BYTES] {
        let mut nonce = [0; NONCE_BYTES];
        nonce[..8].copy_from_slice(&block.to_le_bytes());
        nonce[8] = is_last.into();
        nonce
    }

    /// Encrypts a block in place.
    fn seal(&self, block: u64, is_last: bool, bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = Self::nonce(block, is_last);
        let sealed = self.0.encrypt_inout_detached(&nonce.into(), b"", bytes.into());
        // Fails over 64 GiB only (RFC 8452, 6).
        assert!(sealed.is_ok(), "block too long for the cipher");
        sealed.unwrap_or_default().into()
    }

    /// Decrypts a block in place, which its tag follows. None: it is not that block of that object.
    pub(super) fn open<'b>(&self, block: u64, is_last: bool, stored: &'b mut [u8]) -> Option<&'b [u8]> {
        let (bytes, tag) = stored.split_last_chunk_mut::<TAG_BYTES>()?;
        let (nonce, tag) = (Self::nonce(block, is_last), Tag::from(*tag));
        let opened = self.0.decrypt_inout_detached(&nonce.into(), b"", (&mut *bytes).into(), &tag);
        opened.is_ok().then_some(bytes)
    }
}

/// Most bytes that a [`Sealer`] keeps.
pub(crate) const SEALER_BYTES_MAX: usize = HEADER_BYTES + BLOCK_BYTES + TAG_BYTES;

/// Writes an encrypted object to a sink, block by block.
pub(super) struct Sealer<W> {
    sink: W,
    cipher: ObjectCipher,
    /// The header, until it is written; then the plaintext of the block that is being filled, from `block_at` on. A block that
    /// is full stays until it is known whether another one follows.
    out: Vec<u8>,
    block_at: usize,
    block: u64,
    /// Bytes may be missing in the sink. Nothing is to be encrypted or finished any more.
    has_failed: bool,
}

impl<W: Write> Sealer<W> {
    /// `salt` must be random, and never used before.
    pub(super) fn new(sink: W, key: &SealKey, name: &ObjectName, salt: [u8; 32]) -> Sealer<W> {
        let header = Header::new(key.id(), salt);
        let cipher = ObjectCipher::new(key, &header, name);
        let mut out = Vec::with_capacity(SEALER_BYTES_MAX);
        out.extend_from_slice(header.as_bytes());
        Sealer { sink, cipher, out, block_at: HEADER_BYTES, block: 0, has_failed: false }
    }

    fn put_block(&mut self, is_last: bool) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("an earlier write of this object has failed"));
        }
        let tag = self.cipher.seal(self.block, is_last, &mut self.out[self.block_at..]);
        self.out.extend_from_slice(&tag);
        let written = self.sink.write_all(&self.out);
        self.has_failed = written.is_err();
        self.out.clear();
        (self.block_at, self.block) = (0, self.block + 1);
        written
    }

    /// Writes the last block, and gives the sink back.
    pub(super) fn end(mut self) -> io::Result<W> {
        self.put_block(true)?;
        Ok(self.sink)
    }
}

impl<W: Write> Write for Sealer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.out.len() - self.block_at == BLOCK_BYTES {
            self.put_block(false)?;
        }
        let room = BLOCK_BYTES - (self.out.len() - self.block_at);
        let taken = &bytes[..bytes.len().min(room)];
        self.out.extend_from_slice(taken);
        Ok(taken.len())
    }

    /// A block that is not full stays here.
    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

impl ObjectWriter for Sealer<Box<dyn ObjectWriter>> {
    fn finish(self: Box<Self>) -> Result<(), Error> {
        match self.end() {
            Ok(inner) => inner.finish(),
            // What the repository said of itself.
            Err(error) => Err(error.downcast::<Error>().unwrap_or_else(|source| Error::Io {
                what: "write",
                path: "an encrypted object".to_owned(),
                source,
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyId;

    /// A sink that has room for so many bytes.
    struct Small(usize);

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn sealer<W: Write>(sink: W, name: &str) -> Sealer<W> {
        let id = 0x0f52_6a8b_f3a3_bd7d_f650_8800_2585_f174_u128.to_be_bytes();
        let key = SealKey::new(KeyId(id), Zeroizing::new(std::array::from_fn(|at| at as u8)));
        let salt = std::array::from_fn(|at| 0x40 + at as u8);
        Sealer::new(sink, &key, &ObjectName::new(name).unwrap(), salt)
    }

    /// Expected: what `formats/backup-sealed/reference.py` made with OpenSSL's ciphers.
    #[test]
    fn a_key_a_salt_and_a_name_give_the_golden_objects() {
        let boundary: Vec<u8> = (0..BLOCK_BYTES + 1).map(|at| (at % 251) as u8).collect();
        let golden: [(&str, &[u8], &[u8]); 3] = [
            ("one/empty", b"", include_bytes!("../../../../formats/backup-sealed/golden/empty.sealed")),
            (
                "one/text",
                b"a marker that is found nowhere\n",
                include_bytes!("../../../../formats/backup-sealed/golden/text.sealed"),
            ),
            (
                "one/boundary",
                &boundary,
                include_bytes!("../../../../formats/backup-sealed/golden/boundary.sealed"),
            ),
        ];
        for (name, plain, expected) in golden {
            for part in [1, 1000, 1 << 20] {
                let mut sealer = sealer(Vec::new(), name);
                plain.chunks(part).for_each(|part| sealer.write_all(part).unwrap());
                assert!(sealer.end().unwrap() == expected, "{name} in writes of {part}");
            }
        }
    }

    #[test]
    fn after_a_write_that_failed_nothing_is_encrypted_or_finished() {
        let mut writer = sealer(Small(100_000), "one/text");
        writer.write_all(&[7; 2 * BLOCK_BYTES]).unwrap();
        assert!(writer.write_all(&[7; BLOCK_BYTES + 1]).is_err());
        writer.sink.0 = 1 << 30;
        assert!(writer.write_all(&[7; 2 * BLOCK_BYTES]).is_err());
        assert!(writer.end().is_err());
    }

    #[test]
    fn a_writer_keeps_one_block_in_memory() {
        let mut writer = sealer(io::sink(), "one/text");
        for _ in 0..50 {
            writer.write_all(&[7; 50_000]).unwrap();
            assert!(writer.out.capacity() <= SEALER_BYTES_MAX);
        }
        writer.end().unwrap();
    }
}
