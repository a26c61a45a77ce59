//! Names of relation files (`src/common/relpath.c`, `src/backend/storage/file/reinit.c`).

/// Blocks of 8 KiB in a segment of a relation file, 1 GiB. Servers built with another `--with-segsize` say it
/// in `pg_control_init()`.
pub const BLOCKS_PER_SEGMENT: u32 = 131_072;
/// Segments that block numbers of 32 bits allow.
pub const SEGMENTS_MAX: u32 = 32_768;

/// A part of a relation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fork {
    /// The rows or index entries.
    Main,
    /// The free-space map, `_fsm`.
    FreeSpaceMap,
    /// The visibility map, `_vm`.
    VisibilityMap,
    /// What an unlogged relation is after a crash, `_init`.
    Init,
}

/// A segment of a relation's fork.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RelationFile {
    /// OID of its tablespace: 1663 for `pg_default`, 1664 for `pg_global`.
    pub tablespace: u32,
    /// OID of its database; 0 for what all databases share.
    pub database: u32,
    /// Its file number (relfilenode).
    pub number: u32,
    /// Which part.
    pub fork: Fork,
    /// Number of the segment, below [`SEGMENTS_MAX`].
    pub segment: u32,
}

impl RelationFile {
    /// Number of the first block in this file.
    pub fn first_block(&self) -> u32 {
        self.segment.saturating_mul(BLOCKS_PER_SEGMENT)
    }
}

/// A segment of a temporary relation: `t3_16384_vm.1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TemporaryRelationFile {
    /// Number of the session among the server's.
    pub session: u32,
    /// Its file number.
    pub number: u32,
}

impl TemporaryRelationFile {
    /// As `looks_like_temp_rel_name` of `src/backend/storage/file/fd.c`. None: it is none.
    pub fn parse(name: &[u8]) -> Option<TemporaryRelationFile> {
        let name = name.strip_prefix(b"t")?;
        let at = name.iter().position(|byte| *byte == b'_')?;
        let session = number(&name[..at])?;
        parse(&name[at + 1..]).map(|(number, ..)| TemporaryRelationFile { session, number })
    }
}

/// Number, fork and segment. None: it is no relation's file, or a temporary one's.
///
/// Numbers have no leading zeros, as in `parse_filename_for_nontemp_relation` since 17; no server makes such
/// files.
pub(super) fn parse(name: &[u8]) -> Option<(u32, Fork, u32)> {
    let (stem, segment) = match name.iter().position(|byte| *byte == b'.') {
        None => (name, 0),
        Some(at) => {
            (&name[..at], number(&name[at + 1..]).filter(|segment| (1..SEGMENTS_MAX).contains(segment))?)
        }
    };
    let (stem, fork) = match stem.iter().position(|byte| *byte == b'_') {
        None => (stem, Fork::Main),
        Some(at) => {
            let fork = match &stem[at + 1..] {
                b"fsm" => Fork::FreeSpaceMap,
                b"vm" => Fork::VisibilityMap,
                b"init" => Fork::Init,
                _ => return None,
            };
            (&stem[..at], fork)
        }
    };
    Some((number(stem).filter(|number| *number > 0)?, fork, segment))
}

/// Without sign, blanks or leading zeros.
pub(super) fn number(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok()?;
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relation_files_have_relation_names() {
        assert_eq!(parse(b"16397"), Some((16397, Fork::Main, 0)));
        assert_eq!(parse(b"4294967295_init.32767"), Some((u32::MAX, Fork::Init, 32_767)));
        assert_eq!(parse(b"1_fsm"), Some((1, Fork::FreeSpaceMap, 0)));
        assert_eq!(parse(b"1_vm.2"), Some((1, Fork::VisibilityMap, 2)));
        for other in [
            "",
            "0",
            "0001",
            "1.0",
            "1.01",
            "1.",
            "1.32768",
            "t3_1",
            "1_x",
            "1_",
            "4294967296",
            "1.2.3",
            "1.1_vm",
            "PG_VERSION",
        ] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
        let last =
            RelationFile { tablespace: 1663, database: 5, number: 1, fork: Fork::Main, segment: 32_767 };
        assert_eq!(last.first_block(), u32::MAX - BLOCKS_PER_SEGMENT + 1);
    }

    #[test]
    fn temporary_relations_have_a_session() {
        assert_eq!(
            TemporaryRelationFile::parse(b"t3_16_vm.1"),
            Some(TemporaryRelationFile { session: 3, number: 16 })
        );
        for other in ["t", "t_16", "t3", "t3_", "3_16", "t-3_16", "t3_16_x", "T3_16"] {
            assert_eq!(TemporaryRelationFile::parse(other.as_bytes()), None, "{other}");
        }
    }
}
