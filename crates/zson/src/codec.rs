//! What a profile is written with: `shapes`, `shapes:9`, `zstd:3`, `lz4:1`, `none`.

use std::fmt;

use pgshrink_codec::{Algorithm, AlgorithmList, Choice, ListError};

/// A codec by its name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Codec {
    /// Whether documents are stored by their shapes where the dictionary has some, and where that is not much longer.
    pub is_shapes: bool,
    /// The algorithm and level of all other documents, and of long texts.
    pub choice: Choice,
}

/// The name of the codec of shapes, and before the level of zstd for long texts, and documents that shapes do not pay for.
const SHAPES: &str = "shapes";

impl Codec {
    /// Shapes, and zstd at its usual level for what they do not pay for.
    pub fn shapes() -> Codec {
        Codec { is_shapes: true, choice: Algorithm::Zstd.into() }
    }

    /// The codec of this name.
    ///
    /// # Errors
    /// As [`AlgorithmList::parse`]; also if there is not exactly one.
    pub fn parse(text: &str) -> Result<Codec, CodecError> {
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case(SHAPES) {
            return Ok(Codec::shapes());
        }
        let level = trimmed.split_once(':').filter(|(name, _)| name.trim().eq_ignore_ascii_case(SHAPES));
        let (is_shapes, other) = match level {
            Some((_, level)) => (true, format!("{}:{level}", Algorithm::Zstd.name())),
            None => (false, trimmed.to_owned()),
        };
        let list = AlgorithmList::parse(&other, &[Algorithm::Zstd, Algorithm::Lz4, Algorithm::None])?;
        match list.as_slice() {
            [choice] => Ok(Codec { is_shapes, choice: *choice }),
            more => Err(CodecError::Count(more.len())),
        }
    }
}

/// Why a text names no codec.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// There are several, or none.
    #[error("Expected one codec, found {0}.")]
    Count(usize),
    /// An unknown name, or a level out of range.
    #[error(transparent)]
    List(#[from] ListError),
}

impl From<Choice> for Codec {
    fn from(choice: Choice) -> Codec {
        Codec { is_shapes: false, choice }
    }
}

impl From<Algorithm> for Codec {
    fn from(algorithm: Algorithm) -> Codec {
        Choice::from(algorithm).into()
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_shapes { write!(f, "{SHAPES}:{}", self.choice.level.0) } else { self.choice.fmt(f) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_read_as_they_are_written() {
        for (text, written) in [
            ("shapes", "shapes:3"),
            ("SHAPES : 9", "shapes:9"),
            ("zstd", "zstd:3"),
            (" lz4:1 ", "lz4:1"),
            ("none", "none"),
        ] {
            let codec = Codec::parse(text).unwrap();
            assert_eq!(codec.to_string(), written);
            assert_eq!(Codec::parse(written), Ok(codec));
        }
        for text in ["", "shapes:", "shapes:23", "shapes:x", "shape", "zstd,lz4", "shapes,zstd", "zlib"] {
            assert!(Codec::parse(text).is_err(), "{text}");
        }
    }
}
