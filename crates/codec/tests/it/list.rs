use pgshrink_codec::limits::{LIST_BYTES_MAX, LIST_ITEMS_MAX, QUOTED_BYTES_MAX};
use pgshrink_codec::{Algorithm, AlgorithmList, Choice, Level, ListError};

const WIRE: &[Algorithm] = &[Algorithm::Zstd, Algorithm::Lz4, Algorithm::Zlib];

fn printed(text: &str) -> String {
    AlgorithmList::parse(text, WIRE).unwrap().to_string()
}

fn refused(text: &str) -> String {
    AlgorithmList::parse(text, WIRE).unwrap_err().to_string()
}

#[test]
fn a_list_prints_in_the_canonical_form_that_parses_back() {
    for (text, canonical) in [
        ("", ""),
        ("  ", ""),
        ("zstd:1,lz4:2,zlib", "zstd:1,lz4:2,zlib:6"),
        (" zstd : 22 ,\tlz4", "zstd:22,lz4:1"),
        ("zstd:0", "zstd:3"),
        ("zstd:-131072", "zstd:-131072"),
        ("zstd:+5", "zstd:5"),
        ("zlib:-1", "zlib:6"),
        ("lz4:0", "lz4:1"),
        ("lz4:65537", "lz4:65537"),
        ("lz4:00002", "lz4:2"),
    ] {
        assert_eq!(printed(text), canonical, "{text:?}");
        assert_eq!(printed(canonical), canonical, "{text:?}");
    }
}

#[test]
fn an_omitted_level_is_the_default_of_its_algorithm() {
    let list: AlgorithmList = "none,pglz,lz4,zlib,zstd,snappy,lzfse".parse().unwrap();
    let levels: Vec<i32> = list.iter().map(|c| c.level.0).collect();
    assert_eq!(levels, [0, 0, 1, 6, 3, 0, 0]);
    assert_eq!(list.to_string(), "none,pglz,lz4:1,zlib:6,zstd:3,snappy,lzfse");
    assert_eq!(list.position(Algorithm::Zstd), Some(4));
    assert_eq!(list.get(4), Some(Choice { algorithm: Algorithm::Zstd, level: Level(3) }));
    assert_eq!(list.get(7), None);
    assert_eq!((list.len(), list.is_empty()), (7, false));
}

#[test]
fn an_error_names_the_item_what_was_found_and_what_is_allowed() {
    assert_eq!(refused("zstd:40"), "zstd level 40 is out of range: allowed are -131072 to 22, and 0 for 3");
    assert_eq!(refused("zlib:0"), "zlib level 0 is out of range: allowed are 1 to 9, and -1 for 6");
    assert_eq!(refused("lz4:65538"), "lz4 level 65538 is out of range: allowed are 1 to 65537, and 0 for 1");
    assert_eq!(
        refused("zstd:99999999999999999999"),
        "zstd level 99999999999999999999 is out of range: allowed are -131072 to 22, and 0 for 3"
    );
    assert_eq!(refused("lz4,zst:1"), "unknown algorithm 'zst' (item 2): allowed are: zstd, lz4, zlib");
    assert_eq!(refused("pglz"), "unknown algorithm 'pglz' (item 1): allowed are: zstd, lz4, zlib");
    assert_eq!(refused("lz4,zstd,lz4:3"), "lz4 is listed twice (item 3): list each algorithm once");
    assert_eq!(refused("zstd:"), "zstd level '' is not a number: allowed are -131072 to 22, and 0 for 3");
    assert_eq!(
        refused("zstd:1:2"),
        "zstd level '1:2' is not a number: allowed are -131072 to 22, and 0 for 3"
    );
    assert_eq!(
        refused("zstd:fast"),
        "zstd level 'fast' is not a number: allowed are -131072 to 22, and 0 for 3"
    );
    assert_eq!(refused("zstd,"), "item 2 is empty: expected algorithm[:level]");
    assert_eq!(refused(",zstd"), "item 1 is empty: expected algorithm[:level]");
    let error = "snappy:1".parse::<AlgorithmList>().unwrap_err();
    assert_eq!(error.to_string(), "snappy has no levels, found '1': write just snappy");
}

#[test]
fn a_list_has_a_limited_size() {
    let long = " ".repeat(LIST_BYTES_MAX) + "zstd";
    let found = long.len();
    assert_eq!(AlgorithmList::parse(&long, WIRE), Err(ListError::TooLong { found }));
    assert!(AlgorithmList::parse_lenient(&long, WIRE).0.is_empty());
    let many = ["x"; LIST_ITEMS_MAX + 1].join(",");
    let found = LIST_ITEMS_MAX + 1;
    assert_eq!(AlgorithmList::parse(&many, WIRE), Err(ListError::TooManyItems { found }));
    let name = "é".repeat(200);
    let ListError::UnknownAlgorithm { found, .. } = AlgorithmList::parse(&name, WIRE).unwrap_err() else {
        panic!("another error");
    };
    assert_eq!(found, "é".repeat(QUOTED_BYTES_MAX / 2));
}

#[test]
fn what_a_peer_sent_is_read_leniently_and_the_skipped_items_are_reported() {
    let (list, skipped) =
        AlgorithmList::parse_lenient("brotli:5, zstd:1,lz4:99999,zlib:x,,snappy,zstd:2,lz4", WIRE);
    assert_eq!(list.to_string(), "zstd:1,lz4:1");
    assert_eq!(skipped, ["brotli:5", "lz4:99999", "zlib:x", "", "snappy", "zstd:2"]);
    let (list, skipped) = AlgorithmList::parse_lenient(" ", WIRE);
    assert!(list.is_empty() && skipped.is_empty());
    let (list, skipped) = AlgorithmList::parse_lenient("\u{1}\n,zlib", WIRE);
    assert_eq!((list.to_string(), skipped), ("zlib:6".into(), vec!["\u{fffd}".to_string()]));
}

#[test]
fn choices_make_a_list_only_if_their_levels_exist_and_none_repeats() {
    let zstd = |level| Choice { algorithm: Algorithm::Zstd, level: Level(level) };
    let list = AlgorithmList::try_from(vec![zstd(0), Choice::from(Algorithm::Snappy)]).unwrap();
    assert_eq!(list.to_string(), "zstd:3,snappy");
    assert!(matches!(
        AlgorithmList::try_from(vec![zstd(23)]).unwrap_err(),
        ListError::LevelOutOfRange { algorithm: Algorithm::Zstd, .. }
    ));
    assert_eq!(
        AlgorithmList::try_from(vec![zstd(1), zstd(2)]).unwrap_err(),
        ListError::Duplicate { item: 2, algorithm: Algorithm::Zstd }
    );
}

#[test]
fn the_cheaper_level_is_the_smaller_one_except_for_an_acceleration() {
    assert_eq!(Algorithm::Zstd.cheaper(Level(1), Level(-5)), Level(-5));
    assert_eq!(Algorithm::Zlib.cheaper(Level(6), Level(9)), Level(6));
    assert_eq!(Algorithm::Lz4.cheaper(Level(1), Level(8)), Level(8));
}

#[test]
fn names_lead_back_to_their_algorithms() {
    for &algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::from_name(algorithm.name()), Some(algorithm));
    }
    assert_eq!(Algorithm::from_name("ZSTD"), None);
    assert_eq!(Algorithm::from_name(""), None);
}
