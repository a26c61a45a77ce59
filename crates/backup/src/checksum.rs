//! The checksums that a backup manifest may hold for a file (`src/common/checksum_helper.c`).

use std::fmt;

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::error::Error;
use crate::hex;

/// The largest checksum, SHA-512's.
pub const CHECKSUM_BYTES_MAX: usize = 64;

/// How the files of a manifest are checked: `MANIFEST_CHECKSUMS` of `BASE_BACKUP`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ChecksumAlgorithm {
    /// Files have no checksum, only a size.
    None,
    /// CRC-32 with Castagnoli's polynomial: the server's default.
    Crc32c,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl ChecksumAlgorithm {
    /// All of them.
    pub const ALL: [ChecksumAlgorithm; 6] =
        [Self::None, Self::Crc32c, Self::Sha224, Self::Sha256, Self::Sha384, Self::Sha512];

    /// The name in manifests and commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Crc32c => "CRC32C",
            Self::Sha224 => "SHA224",
            Self::Sha256 => "SHA256",
            Self::Sha384 => "SHA384",
            Self::Sha512 => "SHA512",
        }
    }

    /// Bytes of a checksum.
    pub fn size_bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Crc32c => 4,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

/// Upper and lower case are the same, as in `pg_checksum_parse_type`.
impl std::str::FromStr for ChecksumAlgorithm {
    type Err = Error;

    fn from_str(text: &str) -> Result<ChecksumAlgorithm, Error> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            let expected = "NONE, CRC32C, SHA224, SHA256, SHA384 or SHA512";
            Error::malformed("checksum algorithm", expected, text.as_bytes())
        })
    }
}

impl fmt::Display for ChecksumAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A checksum of a file. `Display` gives the hexadecimal digits of the manifest.
///
/// A CRC-32C is stored in the byte order of the server's machine; only little-endian servers are supported.
#[derive(Clone, Copy)]
pub struct Checksum {
    algorithm: ChecksumAlgorithm,
    /// Used are the first `algorithm.size_bytes()`.
    bytes: [u8; CHECKSUM_BYTES_MAX],
}

impl Checksum {
    /// For files without a checksum.
    pub const NONE: Checksum =
        Checksum { algorithm: ChecksumAlgorithm::None, bytes: [0; CHECKSUM_BYTES_MAX] };

    /// # Errors
    /// [`Error::Malformed`] when `bytes` are not as many as the algorithm gives.
    pub fn new(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> Result<Checksum, Error> {
        if bytes.len() != algorithm.size_bytes() {
            let found = format!("{} bytes for {algorithm}", bytes.len());
            return Err(Error::malformed("checksum", "the algorithm's size", found.as_bytes()));
        }
        let mut checksum = Checksum { algorithm, ..Checksum::NONE };
        checksum.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(checksum)
    }

    /// Reads hexadecimal digits, upper or lower case.
    ///
    /// # Errors
    /// [`Error::Malformed`] when these are not the digits of a checksum of that algorithm.
    pub fn from_hex(algorithm: ChecksumAlgorithm, digits: &[u8]) -> Result<Checksum, Error> {
        let bytes = hex::decode(digits)
            .ok_or_else(|| Error::malformed("checksum", "pairs of hexadecimal digits", digits))?;
        Checksum::new(algorithm, &bytes)
    }

    /// Which algorithm gave it.
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// As many bytes as the algorithm gives.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.size_bytes()]
    }
}

impl From<Crc32c> for Checksum {
    fn from(crc: Crc32c) -> Checksum {
        let mut checksum = Checksum { algorithm: ChecksumAlgorithm::Crc32c, ..Checksum::NONE };
        checksum.bytes[..4].copy_from_slice(&crc.0.to_le_bytes());
        checksum
    }
}

impl PartialEq for Checksum {
    fn eq(&self, other: &Checksum) -> bool {
        self.algorithm == other.algorithm && self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Checksum {}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.algorithm)
    }
}

/// CRC-32C of a range of bytes, which can be joined with that of the range behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Crc32c(pub u32);

impl Crc32c {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Crc32c {
        Crc32c(crc32c::crc32c(bytes))
    }

    /// Of the range so far and `bytes` behind it.
    pub fn append(self, bytes: &[u8]) -> Crc32c {
        Crc32c(crc32c::crc32c_append(self.0, bytes))
    }

    /// Of this range and the next, whose checksum is `next` and whose length is `next_bytes`, below 2^61.
    ///
    /// It takes a multiplication of polynomials for each bit that is set in the length: for chunks of a power
    /// of two one, which is a thousand times faster than `crc32c_combine` of the crate (Mark Adler,
    /// `crc32_combine_op` of zlib 1.2.12).
    pub fn combine(self, next: Crc32c, next_bytes: u64) -> Crc32c {
        let mut shifted = self.0;
        let mut rest = next_bytes;
        while rest != 0 {
            let bit = rest.trailing_zeros();
            // A byte is eight, 2^3, powers of x.
            shifted = multiply(POWERS[(bit as usize + 3) % POWERS.len()], shifted);
            rest &= rest - 1;
        }
        Crc32c(shifted ^ next.0)
    }
}

/// Castagnoli's polynomial without its highest power. The highest bit of a word is the coefficient of 1.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x to the power of 2^index, modulo the polynomial.
const POWERS: [u32; 64] = {
    let mut powers = [1 << 30; 64];
    let mut index = 1;
    while index < powers.len() {
        powers[index] = multiply(powers[index - 1], powers[index - 1]);
        index += 1;
    }
    powers
};

/// The product of two polynomials, modulo [`POLYNOMIAL`].
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut power = 0;
    while power < 32 {
        let taken = (a << power) >> 31;
        product ^= b & taken.wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
        power += 1;
    }
    product
}

/// Computes the checksum of a file that comes in parts.
#[derive(Clone, Debug)]
pub struct Hasher(State);

#[derive(Clone, Debug)]
enum State {
    None,
    Crc32c(Crc32c),
    Sha224(Sha224),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Hasher {
    /// Of an empty file.
    pub fn new(algorithm: ChecksumAlgorithm) -> Hasher {
        Hasher(match algorithm {
            ChecksumAlgorithm::None => State::None,
            ChecksumAlgorithm::Crc32c => State::Crc32c(Crc32c::default()),
            ChecksumAlgorithm::Sha224 => State::Sha224(Sha224::new()),
            ChecksumAlgorithm::Sha256 => State::Sha256(Sha256::new()),
            ChecksumAlgorithm::Sha384 => State::Sha384(Sha384::new()),
            ChecksumAlgorithm::Sha512 => State::Sha512(Sha512::new()),
        })
    }

    /// Takes the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::None => {}
            State::Crc32c(crc) => *crc = crc.append(bytes),
            State::Sha224(sha) => sha.update(bytes),
            State::Sha256(sha) => sha.update(bytes),
            State::Sha384(sha) => sha.update(bytes),
            State::Sha512(sha) => sha.update(bytes),
        }
    }

    /// The checksum of all that was taken.
    pub fn finish(self) -> Checksum {
        let sha = |algorithm, digest: &[u8]| {
            let mut checksum = Checksum { algorithm, ..Checksum::NONE };
            checksum.bytes[..digest.len()].copy_from_slice(digest);
            checksum
        };
        match self.0 {
            State::None => Checksum::NONE,
            State::Crc32c(crc) => crc.into(),
            State::Sha224(state) => sha(ChecksumAlgorithm::Sha224, &state.finalize()),
            State::Sha256(state) => sha(ChecksumAlgorithm::Sha256, &state.finalize()),
            State::Sha384(state) => sha(ChecksumAlgorithm::Sha384, &state.finalize()),
            State::Sha512(state) => sha(ChecksumAlgorithm::Sha512, &state.finalize()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 B.4 for CRC-32C in the order of bytes of a manifest; FIPS 180 examples for the others.
    const OF_ABC: [(ChecksumAlgorithm, &str); 6] = [
        (ChecksumAlgorithm::None, ""),
        (ChecksumAlgorithm::Crc32c, "b73f4b36"),
        (ChecksumAlgorithm::Sha224, "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"),
        (ChecksumAlgorithm::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            ChecksumAlgorithm::Sha384,
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
        ),
        (
            ChecksumAlgorithm::Sha512,
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
    ];

    #[test]
    fn checksums_are_those_of_the_standards_however_the_file_is_cut() {
        for (algorithm, expected) in OF_ABC {
            for cut in 0..=3 {
                let mut hasher = Hasher::new(algorithm);
                hasher.update(&b"abc"[..cut]);
                hasher.update(&b"abc"[cut..]);
                assert_eq!(hasher.finish().to_string(), expected, "{algorithm}");
            }
            let read = Checksum::from_hex(algorithm, expected.to_uppercase().as_bytes()).unwrap();
            assert_eq!(
                (read.to_string().as_str(), read.as_bytes().len()),
                (expected, algorithm.size_bytes())
            );
            assert_eq!(algorithm.name().to_lowercase().parse(), Ok(algorithm));
        }
        assert_eq!(Crc32c::of(&[0; 32]), Crc32c(0x8a91_36aa), "RFC 3720 B.4: 32 bytes of zeroes");
    }

    #[test]
    fn checksums_of_chunks_combine_to_that_of_the_file() {
        let mut rng = pgshrink_testkit::Seed::from_env_or_time().rng();
        let length = rng.between(1, 3 << 20);
        let file = rng.bytes(length);
        for size in [1 << 17, 1 << 19, 1000] {
            let parts = file.chunks(size).map(|chunk| (Crc32c::of(chunk), chunk.len() as u64));
            let joined = parts.fold(Crc32c::default(), |file, (chunk, length)| file.combine(chunk, length));
            assert_eq!(joined, Crc32c::of(&file));
        }
    }

    #[test]
    fn long_ranges_combine_as_the_crate_does() {
        let mut rng = pgshrink_testkit::Seed::from_env_or_time().rng();
        for _ in 0..300 {
            let (first, next) = (Crc32c(rng.bits() as u32), Crc32c(rng.bits() as u32));
            // The crate's returns the first one for an empty range, whatever the second one is.
            let length = (rng.bits() >> rng.between(3, 63)).max(1);
            let expected = crc32c::crc32c_combine(first.0, next.0, length as usize);
            assert_eq!(first.combine(next, length), Crc32c(expected), "{length}");
        }
        assert_eq!(Crc32c(7).combine(Crc32c::of(b""), 0), Crc32c(7));
    }

    #[test]
    fn wrong_digits_and_sizes_are_refused() {
        for digits in ["", "b73f4b3", "b73f4b3g", "b73f4b3600", "+73f4b36"] {
            assert!(Checksum::from_hex(ChecksumAlgorithm::Crc32c, digits.as_bytes()).is_err(), "{digits}");
        }
        assert!("MD5".parse::<ChecksumAlgorithm>().is_err());
    }
}
