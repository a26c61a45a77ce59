//! The byte that tells a decoder what was done with a page.

use pgshrink_codec::Algorithm;

use super::Error;

/// One byte: the algorithm in the lowest three bits, then flags. Zero is no mode, so that a missing one is
/// noticed.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mode(u8);

/// Algorithms by code. Code 7 is for pages that no algorithm touched.
const CODES: [(u8, Algorithm); 6] = [
    (1, Algorithm::Pglz),
    (2, Algorithm::Lz4),
    (3, Algorithm::Zlib),
    (4, Algorithm::Zstd),
    (5, Algorithm::Snappy),
    (6, Algorithm::Lzfse),
];
const ALGORITHM_MASK: u8 = 7;
const TRANSFORMED: u8 = 8;
const DICTIONARY: u8 = 16;
const BLOCKS: u8 = 32;
const CHECKSUM: u8 = 64;

/// What a codec did.
#[derive(Copy, Clone)]
pub(super) struct Packed(u8);

impl Packed {
    pub(super) fn new(blocks: bool, dictionary: bool) -> Packed {
        Packed(if blocks { BLOCKS } else { 0 } | if dictionary { DICTIONARY } else { 0 })
    }

    pub(super) fn transformed(self, checksum_implied: bool) -> Packed {
        Packed(self.0 | TRANSFORMED | if checksum_implied { CHECKSUM } else { 0 })
    }
}

impl Mode {
    /// The page is stored as it is.
    pub const RAW: Mode = Mode(7);
    /// The page is all zero, and nothing is stored.
    pub const ZERO: Mode = Mode(15);

    pub(super) fn new(algorithm: Algorithm, packed: Packed) -> Mode {
        CODES.iter().find(|(_, a)| *a == algorithm).map_or(Mode::RAW, |(code, _)| Mode(code | packed.0))
    }

    /// The mode of this byte, if it is one.
    ///
    /// # Errors
    /// [`Error::Mode`].
    pub fn from_byte(byte: u8) -> Result<Mode, Error> {
        let mode = Mode(byte);
        if mode == Mode::RAW || mode == Mode::ZERO {
            return Ok(mode);
        }
        let algorithm = CODES.iter().find(|(code, _)| *code == byte & ALGORITHM_MASK).map(|(_, a)| *a);
        let fits = match algorithm {
            Some(Algorithm::Zstd) => true,
            Some(Algorithm::Lz4) => !mode.has_blocks(),
            Some(_) => byte & (BLOCKS | DICTIONARY) == 0,
            None => false,
        };
        let checksum_fits = !mode.implies_checksum() || mode.is_transformed();
        if fits && checksum_fits && byte < 0x80 { Ok(mode) } else { Err(Error::Mode { mode: byte }) }
    }

    /// The byte.
    pub fn byte(self) -> u8 {
        self.0
    }

    /// What the payload was compressed by; none for raw pages and those of zeros.
    pub fn algorithm(self) -> Algorithm {
        CODES.iter().find(|(code, _)| *code == self.0 & ALGORITHM_MASK).map_or(Algorithm::None, |(_, a)| *a)
    }

    /// Whether the page was rearranged first.
    pub fn is_transformed(self) -> bool {
        self.0 & TRANSFORMED != 0 && self != Mode::ZERO
    }

    /// Whether a dictionary is needed.
    pub fn has_dictionary(self) -> bool {
        self.0 & DICTIONARY != 0
    }

    /// Whether the payload has zstd's block headers.
    pub(super) fn has_blocks(self) -> bool {
        self.0 & BLOCKS != 0
    }

    /// Whether the page's checksum is computed from its block number.
    pub fn implies_checksum(self) -> bool {
        self.0 & CHECKSUM != 0
    }
}
