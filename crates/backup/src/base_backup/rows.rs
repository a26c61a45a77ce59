//! The rows that come before and after the archives, in text format.

use crate::error::Error;
use crate::wal::{Lsn, Timeline};

/// A place where the backup starts or ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The place.
    pub lsn: Lsn,
    /// Its timeline.
    pub timeline: Timeline,
}

impl Position {
    /// From the columns `recptr` and `tli`.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the row is another one.
    pub fn from_row(columns: &[Option<&[u8]>]) -> Result<Position, Error> {
        let [Some(lsn), Some(timeline)] = columns else {
            return Err(wrong_row("a row of an LSN and a timeline", columns));
        };
        Ok(Position { lsn: text("recptr", lsn)?.parse()?, timeline: text("tli", timeline)?.parse()? })
    }
}

/// A tablespace of the backup, or the data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tablespace {
    /// OID and location; none for the data directory.
    pub space: Option<(u32, Vec<u8>)>,
    /// About how many bytes its archive will have before compression, in whole KiB; none unless `PROGRESS`
    /// was asked for.
    pub size_bytes: Option<u64>,
}

impl Tablespace {
    /// From the columns `spcoid`, `spclocation` and `size`.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the row is another one.
    pub fn from_row(columns: &[Option<&[u8]>]) -> Result<Tablespace, Error> {
        let expected = "a row of a tablespace's OID, location and size";
        let &[oid, location, size] = columns else { return Err(wrong_row(expected, columns)) };
        let space = match (oid, location) {
            (None, None) => None,
            (Some(oid), Some(location)) if !location.is_empty() && !location.contains(&0) => {
                let number: u32 = number("spcoid", oid)?;
                Some((number, location.to_vec()))
            }
            _ => return Err(wrong_row(expected, columns)),
        };
        let kib: Option<u64> = size.map(|size| number("size", size)).transpose()?;
        let size_bytes = match kib.map(|kib| kib.checked_mul(1024)) {
            Some(None) => {
                return Err(Error::malformed(
                    "size",
                    "KiB of less than 2^64 bytes",
                    size.unwrap_or_default(),
                ));
            }
            Some(bytes) => bytes,
            None => None,
        };
        Ok(Tablespace { space, size_bytes })
    }
}

fn text<'a>(what: &'static str, value: &'a [u8]) -> Result<&'a str, Error> {
    std::str::from_utf8(value).map_err(|_| Error::malformed(what, "UTF-8", value))
}

fn number<T: std::str::FromStr>(what: &'static str, value: &[u8]) -> Result<T, Error> {
    let plain = text(what, value)?;
    let digits = plain.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { plain.parse().ok() } else { None };
    number.ok_or_else(|| Error::malformed(what, "a number that is not negative", value))
}

fn wrong_row(expected: &'static str, columns: &[Option<&[u8]>]) -> Error {
    let nulls = columns.iter().filter(|column| column.is_none()).count();
    let found = format!("{} columns, {nulls} of them NULL", columns.len());
    Error::malformed("answer to BASE_BACKUP", expected, found.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(columns: &[Option<&str>]) -> Result<Position, Error> {
        Position::from_row(&columns.iter().map(|column| column.map(str::as_bytes)).collect::<Vec<_>>())
    }

    fn tablespace(columns: &[Option<&str>]) -> Result<Tablespace, Error> {
        Tablespace::from_row(&columns.iter().map(|column| column.map(str::as_bytes)).collect::<Vec<_>>())
    }

    #[test]
    fn rows_of_the_server_are_read() {
        let start = position(&[Some("0/2000028"), Some("1")]).unwrap();
        assert_eq!((start.lsn, start.timeline), (Lsn(0x200_0028), Timeline::FIRST));
        let base = tablespace(&[None, None, Some("22345")]).unwrap();
        assert_eq!(base, Tablespace { space: None, size_bytes: Some(22345 << 10) });
        let space = tablespace(&[Some("16384"), Some("/a b"), None]).unwrap();
        assert_eq!(space, Tablespace { space: Some((16384, b"/a b".to_vec())), size_bytes: None });
    }

    #[test]
    fn other_rows_are_refused() {
        for row in [&[][..], &[None, Some("1")], &[Some("0/1"), Some("0")], &[Some("0/1"), Some("1"), None]] {
            assert!(position(row).is_err(), "{row:?}");
        }
        for row in [
            &[None, None][..],
            &[None, Some("/a"), None],
            &[Some("1"), None, None],
            &[Some("1"), Some(""), None],
            &[Some("1"), Some("a\0"), None],
            &[Some("-1"), Some("/a"), None],
            &[Some("4294967296"), Some("/a"), None],
            &[None, None, Some("-1")],
            &[None, None, Some("18014398509481984")],
        ] {
            assert!(tablespace(row).is_err(), "{row:?}");
        }
        assert!(tablespace(&[None, None, Some("18014398509481983")]).is_ok());
    }
}
