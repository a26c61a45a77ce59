//! Values that stand in JSON as text: identifiers, LSNs, times, paths.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};
use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

pub(super) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

pub(super) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    let text = Cow::<'de, str>::deserialize(from)?;
    text.parse().map_err(D::Error::custom)
}

/// Paths, as text where they are UTF-8.
pub(super) mod list {
    use crate::path::BackupPath;
    use crate::record::DIRECTORIES_MAX;
    use serde::de::{Error as _, SeqAccess, Visitor};
    use serde::ser::Error as _;
    use serde::{Deserializer, Serializer};
    use std::borrow::Cow;
    use std::fmt;

    pub(in crate::record) fn serialize<S: Serializer>(
        paths: &[BackupPath],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let text = |path: &BackupPath| path.as_str().map(str::to_owned);
        let texts: Option<Vec<String>> = paths.iter().map(text).collect();
        to.collect_seq(texts.ok_or_else(|| S::Error::custom("a directory's name is not UTF-8"))?)
    }

    pub(in crate::record) fn deserialize<'de, D>(from: D) -> Result<Vec<BackupPath>, D::Error>
    where
        D: Deserializer<'de>,
    {
        from.deserialize_seq(Paths)
    }

    /// Reads paths one by one, so that no more than [`DIRECTORIES_MAX`] are ever in memory.
    struct Paths;

    impl<'de> Visitor<'de> for Paths {
        type Value = Vec<BackupPath>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {DIRECTORIES_MAX} paths")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<Vec<BackupPath>, A::Error> {
            let mut paths = Vec::new();
            while let Some(text) = texts.next_element::<Cow<'de, str>>()? {
                if paths.len() == DIRECTORIES_MAX {
                    return Err(A::Error::invalid_length(paths.len() + 1, &self));
                }
                paths.push(BackupPath::new(text.as_bytes()).map_err(A::Error::custom)?);
            }
            Ok(paths)
        }
    }
}

/// WAL files, read one by one, so that no more than [`WAL_FILES_MAX`](super::WAL_FILES_MAX) are ever in memory.
pub(super) mod wal {
    use crate::record::{WAL_FILES_MAX, WalFileRecord};
    use serde::de::{Error as _, SeqAccess, Visitor};
    use serde::{Deserializer, Serialize, Serializer};
    use std::fmt;

    pub(in crate::record) fn serialize<S: Serializer>(
        files: &[WalFileRecord],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        files.serialize(to)
    }

    pub(in crate::record) fn deserialize<'de, D>(from: D) -> Result<Vec<WalFileRecord>, D::Error>
    where
        D: Deserializer<'de>,
    {
        from.deserialize_seq(Files)
    }

    struct Files;

    impl<'de> Visitor<'de> for Files {
        type Value = Vec<WalFileRecord>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {WAL_FILES_MAX} files of WAL")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut found: A) -> Result<Vec<WalFileRecord>, A::Error> {
            let mut files = Vec::new();
            while let Some(file) = found.next_element()? {
                if files.len() == WAL_FILES_MAX {
                    return Err(A::Error::invalid_length(files.len() + 1, &self));
                }
                files.push(file);
            }
            Ok(files)
        }
    }
}

/// Numbers of packs, as numbers.
pub(super) mod number {
    use crate::pack::PackNumber;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::record) fn serialize<S: Serializer>(number: &PackNumber, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(number.0)
    }

    pub(in crate::record) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PackNumber, D::Error> {
        u32::deserialize(from).map(PackNumber)
    }
}
