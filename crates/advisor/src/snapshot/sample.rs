//! Rows of some blocks of a table.

use serde::{Deserialize, Serialize};

/// All live rows of some blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Blocks that were read, ascending, those without a live row included.
    pub blocks: Vec<u32>,
    /// Where rows are, in the order of blocks and items.
    pub rows: Vec<RowPlace>,
    /// By `attnum`; of dropped columns all lists are empty.
    pub columns: Vec<SampledColumn>,
    /// Images of pages, where they may be read; a subset of `blocks`.
    pub pages: Vec<Page>,
    /// Images of further pages, which are not in `blocks`: those of the blocks on which a server trains a dictionary for the table.
    #[serde(default)]
    pub training_pages: Vec<Page>,
    /// Images of pages of indexes and of the TOAST table, where they may be read.
    pub other_pages: Vec<RelationPages>,
    /// The whole table was read.
    pub is_whole: bool,
}

/// A row's `ctid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RowPlace(
    /// Block.
    pub u32,
    /// Item, from 1.
    pub u16,
);

/// Where a value is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// NULL.
    #[default]
    #[serde(rename = "n")]
    Null,
    /// In the row.
    #[serde(rename = "i")]
    Inline,
    /// In the row, compressed by pglz.
    #[serde(rename = "p")]
    Pglz,
    /// In the row, compressed by lz4.
    #[serde(rename = "l")]
    Lz4,
    /// In the TOAST table.
    #[serde(rename = "e")]
    External,
    /// In the TOAST table, compressed by pglz.
    #[serde(rename = "ep")]
    ExternalPglz,
    /// In the TOAST table, compressed by lz4.
    #[serde(rename = "el")]
    ExternalLz4,
    /// Added with a default that the row does not have (`atthasmissing`): no bytes until the row is rewritten.
    #[serde(rename = "m")]
    Missing,
}

impl Place {
    /// In the TOAST table.
    pub fn is_external(self) -> bool {
        matches!(self, Place::External | Place::ExternalPglz | Place::ExternalLz4)
    }

    /// Compressed, wherever it is.
    pub fn is_compressed(self) -> bool {
        matches!(self, Place::Pglz | Place::Lz4 | Place::ExternalPglz | Place::ExternalLz4)
    }
}

/// A column's values in the rows' order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledColumn {
    /// `pg_column_size`: with the value's header, as it is stored in the row, or its bytes in the TOAST table. 0 for NULL.
    pub sizes: Vec<u32>,
    /// Where they are.
    pub places: Vec<Place>,
    /// The values as text, None for NULL and for values above [`VALUE_BYTES_MAX`]. None at all without values.
    pub values: Option<Vec<Option<String>>>,
}

/// Values with more bytes (`pg_column_size`) are not read.
pub const VALUE_BYTES_MAX: u32 = 32 << 10;

/// A page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// Its number in the relation.
    pub block: u32,
    /// 8,192 bytes, in base64 in the file.
    #[serde(with = "base64_bytes")]
    pub image: Vec<u8>,
}

/// Pages of another relation of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelationPages {
    /// `pg_class.oid`.
    pub oid: u32,
    /// Pages it has.
    pub page_count: u32,
    /// Some of them, ascending.
    pub pages: Vec<Page>,
}

mod base64_bytes {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}
