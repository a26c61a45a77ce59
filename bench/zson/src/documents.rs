//! Documents as bytes of jsonb, and what kind of documents they are.

use pgshrink_bench_report::Result;
use pgshrink_testkit::Cluster;
use pgshrink_testkit::corpora::Format;

/// Documents, one behind the other.
#[derive(Debug, Default)]
pub struct Documents {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// What kind of documents a corpus has, which decides how small its table must become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Rows of tables, and other documents.
    Record,
    /// JSON documents that in one piece are ten times smaller under zstd:3, as those of machines are.
    Repetitive,
    /// Longer than 16 KiB on average: what is common to two of them is little beside what is in each.
    Prose,
}

const REPETITIVE_RATIO_MIN: f64 = 10.0;
const PROSE_BYTES_MIN: usize = 16 << 10;
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// Signature, flags, length of an extension.
const COPY_HEAD_BYTES: usize = 19;

impl Documents {
    /// What `query` gives: one column of bytea, no nulls.
    pub fn of(cluster: &Cluster, query: &str) -> Result<Documents> {
        let copy = format!("copy ({query}) to stdout (format binary)");
        let done = cluster.psql().arg("-c").arg(copy).command().output()?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned().into());
        }
        Documents::parse(&done.stdout).ok_or_else(|| "a binary COPY that is cut off".into())
    }

    /// The rows of a binary COPY.
    fn parse(copy: &[u8]) -> Option<Documents> {
        let mut documents = Documents::default();
        let mut rest = copy.strip_prefix(SIGNATURE).and_then(|_| copy.get(COPY_HEAD_BYTES..))?;
        loop {
            let (columns, after) = rest.split_first_chunk()?;
            if i16::from_be_bytes(*columns) < 0 {
                return Some(documents);
            }
            let (length, after) = after.split_first_chunk()?;
            let (document, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            documents.push(|bytes| bytes.extend_from_slice(document));
            rest = after;
        }
    }

    /// Adds what `append` appends.
    pub fn push(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// A binary COPY of them, as one column of bytea.
    pub fn to_copy(&self) -> Vec<u8> {
        let mut copy = [SIGNATURE, &[0; 8]].concat();
        for document in self.iter() {
            copy.extend_from_slice(&1i16.to_be_bytes());
            copy.extend_from_slice(&(document.len() as u32).to_be_bytes());
            copy.extend_from_slice(document);
        }
        copy.extend_from_slice(&(-1i16).to_be_bytes());
        copy
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[*start..*end])
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Their bytes together.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// How many times smaller they are in one piece under zstd:3.
    pub fn ratio_in_one_piece(&self) -> Result<f64> {
        let mut packed = Vec::with_capacity(zstd_safe::compress_bound(self.size()));
        let size = zstd_safe::compress(&mut packed, &self.bytes, 3).map_err(zstd_safe::get_error_name)?;
        Ok(self.size() as f64 / size as f64)
    }
}

impl Class {
    /// Of these documents, which are so many times smaller in one piece.
    pub fn of(documents: &Documents, format: Format, ratio_in_one_piece: f64) -> Class {
        if documents.size() > PROSE_BYTES_MIN * documents.count() {
            Class::Prose
        } else if format == Format::JsonLines && ratio_in_one_piece >= REPETITIVE_RATIO_MIN {
            Class::Repetitive
        } else {
            Class::Record
        }
    }

    /// The name on the page.
    pub fn name(self) -> &'static str {
        match self {
            Class::Record => "record",
            Class::Repetitive => "repetitive",
            Class::Prose => "prose",
        }
    }

    /// How many times smaller than that of jsonb a table has to be.
    pub fn ratio_min(self) -> Option<f64> {
        match self {
            Class::Record => Some(3.0),
            Class::Repetitive => Some(5.0),
            Class::Prose => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_come_back_from_a_copy() {
        let mut documents = Documents::default();
        for text in ["abc", "", "d"] {
            documents.push(|bytes| bytes.extend_from_slice(text.as_bytes()));
        }
        let back = Documents::parse(&documents.to_copy()).unwrap();
        assert_eq!(back.iter().collect::<Vec<_>>(), [&b"abc"[..], b"", b"d"]);
        assert!(Documents::parse(&documents.to_copy()[..30]).is_none());
    }
}
