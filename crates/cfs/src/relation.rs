//! The names of relation files, as PostgreSQL's `relpath.c` gives them.

/// What a file's name in a database directory says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RelationName {
    /// The relfilenode.
    pub number: u32,
    /// 0 main, 1 free-space map, 2 visibility map, 3 of an unlogged relation's start.
    pub fork: u8,
    /// Number of the segment.
    pub segment: u32,
}

const FORKS: [&str; 4] = ["main", "fsm", "vm", "init"];

impl RelationName {
    /// None: it is no relation's file, or a temporary one's.
    pub fn parse(name: &str) -> Option<RelationName> {
        let (stem, segment) = match name.split_once('.') {
            Some((stem, segment)) => (stem, number(segment).filter(|segment| *segment > 0)?),
            None => (name, 0),
        };
        let (stem, fork) = match stem.split_once('_') {
            Some((stem, fork)) => (stem, FORKS[1..].iter().position(|known| *known == fork)? as u8 + 1),
            None => (stem, 0),
        };
        Some(RelationName { number: number(stem).filter(|number| *number > 0)?, fork, segment })
    }

    /// The fork's name as in `pg_relation_size`.
    pub fn fork_name(&self) -> &'static str {
        FORKS[usize::from(self.fork)]
    }
}

/// Without sign, blanks or leading zeros: `0001` is a file of pg_xact.
pub fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[test]
fn only_relation_files_have_relation_names() {
    let parse = |name| RelationName::parse(name).map(|found| (found.number, found.fork, found.segment));
    assert_eq!(parse("16397"), Some((16397, 0, 0)));
    assert_eq!(parse("16397.2"), Some((16397, 0, 2)));
    assert_eq!(parse("16397_fsm"), Some((16397, 1, 0)));
    assert_eq!(parse("16397_vm.1"), Some((16397, 2, 1)));
    assert_eq!(parse("4294967295_init"), Some((u32::MAX, 3, 0)));
    for other in
        ["", "0", "0001", "16397.0", "16397.01", "t3_16397", "16397_x", "PG_VERSION", "4294967296", "1.2.3"]
    {
        assert_eq!(parse(other), None, "{other}");
    }
}
