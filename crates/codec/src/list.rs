//! Lists of algorithms as users and peers write them: one grammar, one parser, one printer.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use crate::algorithm::{Algorithm, Choice, LevelRange};
use crate::limits::{LIST_BYTES_MAX, LIST_ITEMS_MAX, QUOTED_BYTES_MAX};

/// An ordered list of algorithms with levels, in order of preference, without duplicates.
///
/// ```text
/// list  = [ item *( "," item ) ]        at most 16 items, 1024 bytes; empty text is the empty list
/// item  = ws name [ ws ":" ws level ] ws
/// name  = "none" | "pglz" | "lz4" | "zlib" | "zstd" | "snappy" | "lzfse"
/// level = decimal integer, may be negative
/// ```
///
/// | algorithm | levels | omitted | also written |
/// |---|---|---|---|
/// | zstd | -131072 to 22, lower is faster | 3 | 0 is 3 |
/// | zlib | 1 to 9, lower is faster | 6 | -1 is 6 |
/// | lz4 | acceleration 1 to 65537, **higher** is faster | 1 | 0 is 1 |
/// | the others | none; writing one is an error | | |
///
/// Printing gives the canonical form, in which each level is written out; it parses back to the same list.
///
/// ```
/// use pgshrink_codec::AlgorithmList;
/// let list: AlgorithmList = "zstd:1, lz4:2, zlib".parse()?;
/// assert_eq!(list.to_string(), "zstd:1,lz4:2,zlib:6");
/// # Ok::<(), pgshrink_codec::ListError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AlgorithmList(Vec<Choice>);

/// Why a text is not an [`AlgorithmList`]. Each names the item, what was found and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// Not an algorithm, or not one that is allowed here.
    #[error("unknown algorithm '{found}' (item {item}): allowed are: {allowed}")]
    UnknownAlgorithm {
        /// Which item, from 1.
        item: usize,
        /// The name found.
        found: String,
        /// The names allowed.
        allowed: String,
    },
    /// The level is not a number.
    #[error("{algorithm} level '{found}' is not a number: allowed are {allowed}")]
    LevelNotNumber {
        /// The item's algorithm.
        algorithm: Algorithm,
        /// The text found.
        found: String,
        /// The levels there are.
        allowed: LevelRange,
    },
    /// The level is a number that the algorithm does not have.
    #[error("{algorithm} level {found} is out of range: allowed are {allowed}")]
    LevelOutOfRange {
        /// The item's algorithm.
        algorithm: Algorithm,
        /// The number found.
        found: String,
        /// The levels there are.
        allowed: LevelRange,
    },
    /// A level for an algorithm that has none.
    #[error("{algorithm} has no levels, found '{found}': write just {algorithm}")]
    NoLevels {
        /// The item's algorithm.
        algorithm: Algorithm,
        /// The level found.
        found: String,
    },
    /// An algorithm appears again.
    #[error("{algorithm} is listed twice (item {item}): list each algorithm once")]
    Duplicate {
        /// Which item, from 1.
        item: usize,
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// Nothing between two commas, or before or after one.
    #[error("item {item} is empty: expected algorithm[:level]")]
    EmptyItem {
        /// Which item, from 1.
        item: usize,
    },
    /// More items than [`LIST_ITEMS_MAX`].
    #[error("the list has {found} items: at most {LIST_ITEMS_MAX} are allowed")]
    TooManyItems {
        /// How many.
        found: usize,
    },
    /// Longer than [`LIST_BYTES_MAX`].
    #[error("the list is {found} bytes long: at most {LIST_BYTES_MAX} are allowed")]
    TooLong {
        /// Its length.
        found: usize,
    },
}

impl AlgorithmList {
    /// Parses what an operator or user wrote: any fault is an error. `allowed` are the algorithms that make
    /// sense in this place.
    pub fn parse(text: &str, allowed: &[Algorithm]) -> Result<Self, ListError> {
        if text.len() > LIST_BYTES_MAX {
            return Err(ListError::TooLong { found: text.len() });
        }
        let mut list = AlgorithmList::default();
        if text.trim().is_empty() {
            return Ok(list);
        }
        let found = text.split(',').count();
        if found > LIST_ITEMS_MAX {
            return Err(ListError::TooManyItems { found });
        }
        for (index, item) in text.split(',').enumerate() {
            let choice = parse_item(item, index + 1, allowed)?;
            list.push(choice, index + 1)?;
        }
        Ok(list)
    }

    /// Parses what a peer sent: an item that [`parse`](Self::parse) would refuse is skipped and its text
    /// reported (cut to [`QUOTED_BYTES_MAX`] bytes), so that a newer peer's algorithms do no harm.
    pub fn parse_lenient(text: &str, allowed: &[Algorithm]) -> (Self, Vec<String>) {
        let mut list = AlgorithmList::default();
        if text.len() > LIST_BYTES_MAX {
            return (list, vec![quoted(text)]);
        }
        if text.trim().is_empty() {
            return (list, Vec::new());
        }
        let mut skipped = Vec::new();
        for (index, item) in text.split(',').enumerate() {
            let parsed = parse_item(item, index + 1, allowed).and_then(|c| list.push(c, index + 1));
            if parsed.is_err() && skipped.len() < LIST_ITEMS_MAX {
                skipped.push(quoted(item.trim()));
            }
        }
        (list, skipped)
    }

    /// The choices in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Choice> {
        self.0.iter()
    }

    /// The choices in order.
    pub fn as_slice(&self) -> &[Choice] {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The choice at `index`, from 0.
    pub fn get(&self, index: usize) -> Option<Choice> {
        self.0.get(index).copied()
    }

    /// Where `algorithm` stands, from 0.
    pub fn position(&self, algorithm: Algorithm) -> Option<usize> {
        self.0.iter().position(|c| c.algorithm == algorithm)
    }

    fn push(&mut self, choice: Choice, item: usize) -> Result<(), ListError> {
        if self.position(choice.algorithm).is_some() {
            return Err(ListError::Duplicate { item, algorithm: choice.algorithm });
        }
        if self.0.len() == LIST_ITEMS_MAX {
            return Err(ListError::TooManyItems { found: item });
        }
        self.0.push(choice);
        Ok(())
    }
}

impl FromStr for AlgorithmList {
    type Err = ListError;

    fn from_str(text: &str) -> Result<Self, ListError> {
        Self::parse(text, Algorithm::ALL)
    }
}

impl TryFrom<Vec<Choice>> for AlgorithmList {
    type Error = ListError;

    fn try_from(choices: Vec<Choice>) -> Result<Self, ListError> {
        let mut list = AlgorithmList::default();
        for (index, choice) in choices.into_iter().enumerate() {
            let level = normal_level(choice.algorithm, &choice.level.to_string())?;
            list.push(Choice { level, ..choice }, index + 1)?;
        }
        Ok(list)
    }
}

impl<'a> IntoIterator for &'a AlgorithmList {
    type Item = &'a Choice;
    type IntoIter = std::slice::Iter<'a, Choice>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for AlgorithmList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, choice) in self.iter().enumerate() {
            if index > 0 {
                f.write_char(',')?;
            }
            write!(f, "{choice}")?;
        }
        Ok(())
    }
}

fn parse_item(text: &str, item: usize, allowed: &[Algorithm]) -> Result<Choice, ListError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(ListError::EmptyItem { item });
    }
    let (name, level) = match text.split_once(':') {
        Some((name, level)) => (name.trim(), Some(level.trim())),
        None => (text, None),
    };
    let algorithm = Algorithm::from_name(name).filter(|a| allowed.contains(a)).ok_or_else(|| {
        let allowed: Vec<&str> = allowed.iter().map(|a| a.name()).collect();
        ListError::UnknownAlgorithm { item, found: quoted(name), allowed: allowed.join(", ") }
    })?;
    match level {
        None => Ok(Choice::from(algorithm)),
        Some(found) if !algorithm.has_levels() => {
            Err(ListError::NoLevels { algorithm, found: quoted(found) })
        }
        Some(found) => Ok(Choice { algorithm, level: normal_level(algorithm, found)? }),
    }
}

fn normal_level(algorithm: Algorithm, text: &str) -> Result<crate::Level, ListError> {
    let allowed = algorithm.levels();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ListError::LevelNotNumber { algorithm, found: quoted(text), allowed });
    }
    // A number too long for i64 is out of range, too.
    text.parse::<i64>()
        .ok()
        .and_then(|found| algorithm.level(found).ok())
        .ok_or_else(|| ListError::LevelOutOfRange { algorithm, found: quoted(text), allowed })
}

/// Foreign text for a message: bounded, on one line.
fn quoted(text: &str) -> String {
    let mut end = text.len().min(QUOTED_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
