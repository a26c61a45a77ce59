//! Containers in `base/`, and in tablespaces without a setting.
// The server's own calls on directories.
#![allow(unsafe_code)]

use std::collections::{BTreeSet, HashSet};
use std::ffi::{CStr, CString};
use std::fs;
use std::path::Path;

use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs_server::collecting::{path_of, segments_on_disk};
use pgshrink_cfs_server::guard::{self, Content, State};
use pgshrink_cfs_server::server::{begin, close_all, enter_directory, follow_directories};
use pgshrink_cfs_server::work::{Form, info};
use pgshrink_cfs_server::{DEFAULT_TABLESPACE, GUARD_NAME, Problem, RESERVE_NAME};
use pgshrink_interpose::{Errno, Front, Listed};

use crate::server::{
    FRONT, PLAIN_TABLESPACE, VERSION, be_checkpointer, close, in_a_server, page, path, process, read, real,
    restart, write,
};

const CREATE: i32 = libc::O_RDWR | libc::O_CREAT;

/// Paths of database 5 from the data directory.
fn base(name: &str) -> CString {
    CString::new(format!("base/5/{name}")).unwrap()
}

fn plain(name: &str) -> CString {
    CString::new(format!("pg_tblspc/{PLAIN_TABLESPACE}/{VERSION}/5/{name}")).unwrap()
}

fn real_of(path: &CStr) -> &Path {
    Path::new(path.to_str().unwrap())
}

fn key(tablespace: u32, relation: u32) -> SegmentKey {
    SegmentKey { tablespace, database: 5, relation, fork: 0, segment: 0 }
}

fn open(path: &CStr) -> i32 {
    FRONT.open(path, libc::O_RDWR, 0).unwrap().unwrap()
}

/// Makes a container by way of an empty directory, which counts as an empty file that was compressed.
pub fn made(path: &CStr) -> i32 {
    fs::create_dir(real_of(path)).unwrap();
    FRONT.open(path, CREATE, 0o600).unwrap().unwrap()
}

/// Two containers with two pages, in `base/` and elsewhere.
fn both_made() {
    process(|| {
        for (tablespace, path) in [(DEFAULT_TABLESPACE, base("16401")), (PLAIN_TABLESPACE, plain("16401"))] {
            enter_directory(tablespace, 5).unwrap();
            let file = made(&path);
            assert_eq!(write(file, 0, &[page(1), page(2)]), Ok(2));
            FRONT.sync(file).unwrap();
            close(file);
        }
    });
}

fn content(directory: &str) -> Option<Content> {
    guard::read(Path::new(directory)).unwrap()
}

fn names_for(directory: &CStr) -> Vec<CString> {
    let data = std::env::current_dir().unwrap();
    let relative = directory.to_str().unwrap();
    ["", "./", &format!("{}/", data.display())]
        .iter()
        .map(|before| CString::new(format!("{before}{relative}")).unwrap())
        .collect()
}

#[test]
fn containers_in_base_and_where_no_setting_is_are_used_by_all_their_paths_and_survive_a_restart() {
    in_a_server(|| {
        both_made();
        for _ in 0..2 {
            process(|| {
                let location = std::env::current_dir().unwrap().join("plain").join(VERSION).join("5/16401");
                let location = CString::new(location.to_str().unwrap()).unwrap();
                let paths = names_for(&base("16401")).into_iter().chain(names_for(&plain("16401")));
                for path in paths.chain([location]) {
                    let file = open(&path);
                    assert!(read(file, 0, 3) == Ok(vec![page(1), page(2)]), "{path:?}");
                    close(file);
                    assert_eq!(FRONT.attributes(&path).unwrap().unwrap().size, 2 * 8192);
                    assert_eq!(FRONT.access(&path, libc::R_OK), Some(Ok(())));
                    assert!(FRONT.may_manage(&path) && FRONT.moment(&path).is_some());
                }
            });
            restart();
        }
        process(|| {
            let file = open(&base("16401"));
            assert_eq!(write(file, 2, &vec![page(3); 500]), Ok(500));
            FRONT.sync(file).unwrap();
            FRONT.truncate_path(&base("16401"), 0).unwrap().unwrap();
            FRONT.unlink(&base("16401")).unwrap().unwrap();
            assert!(!real_of(&base("16401")).exists());
        });
    });
}

#[test]
fn pages_where_no_setting_is_are_compressed_as_recommended() {
    in_a_server(|| {
        both_made();
        process(|| {
            for (tablespace, path) in
                [(DEFAULT_TABLESPACE, base("16401")), (PLAIN_TABLESPACE, plain("16401"))]
            {
                let file = open(&path);
                write(file, 0, &(0..300).map(page).collect::<Vec<_>>()).unwrap();
                FRONT.sync(file).unwrap();
                let found = info(&key(tablespace, 16401)).unwrap().unwrap();
                assert_eq!(found.virtual_bytes, 300 * 8192);
                assert!(matches!(found.form, Form::Container { .. }), "{found:?}");
                assert!(found.disk_bytes < 300 * 8192 * 3 / 4, "{found:?}");
            }
        });
    });
}

#[test]
fn nothing_is_born_compressed_in_base_or_where_no_setting_is() {
    in_a_server(|| {
        process(|| {
            for entered in [false, true] {
                if entered {
                    enter_directory(DEFAULT_TABLESPACE, 5).unwrap();
                    enter_directory(PLAIN_TABLESPACE, 5).unwrap();
                    // Its first segment is a container.
                    close(made(&base("16403")));
                }
                for name in ["16402", "16402_fsm", "16403.1"] {
                    assert_eq!(FRONT.open(&base(name), CREATE | libc::O_EXCL, 0o600), None);
                    assert_eq!(FRONT.open(&plain(name), CREATE, 0o600), None);
                    assert!(!real_of(&base(name)).exists());
                }
            }
        });
    });
}

#[test]
fn paths_are_none_of_ours_until_their_directory_is_entered_and_after_it_is_gone() {
    in_a_server(|| {
        process(|| {
            let (file, directory) = (base("16401"), CString::new("base/5").unwrap());
            fs::create_dir(real_of(&file)).unwrap();
            let is_ours = || FRONT.attributes(&file).is_some() && FRONT.may_manage(&file);
            assert!(!is_ours() && FRONT.remove_directory(&directory).is_none());
            enter_directory(PLAIN_TABLESPACE, 5).unwrap();
            assert!(!is_ours() && FRONT.remove_directory(&directory).is_none());
            enter_directory(DEFAULT_TABLESPACE, 5).unwrap();
            assert!(is_ours());
            assert_eq!(content("base/5"), Some(Content::Original(State::Running)));
            // Others are in it, and it stays as it was.
            assert_eq!(FRONT.remove_directory(&directory), Some(Err(Errno(libc::ENOTEMPTY))));
            assert!(is_ours());
            assert_eq!(content("base/5"), Some(Content::Original(State::Running)));
            // DROP DATABASE: what it lists, then the directory.
            FRONT.unlink(&file).unwrap().unwrap();
            fs::remove_file("base/5/PG_VERSION").unwrap();
            fs::write("base/5/16409.pgshrink-new.77", "kept until now").unwrap();
            assert_eq!(FRONT.remove_directory(&directory), Some(Ok(())));
            assert!(!Path::new("base/5").exists() && !FRONT.may_manage(&file));
        });
        for other in [c"global/1262", c"base/6/16401", c"base/5/PG_VERSION", c"base/5/t3_16401"] {
            assert!(!FRONT.may_manage(other));
        }
        assert_eq!(FRONT.moment(c"global/pg_control"), None);
    });
}

#[test]
fn listings_show_files_also_when_they_began_before_the_directory_had_containers() {
    in_a_server(|| {
        process(|| {
            let location = std::env::current_dir().unwrap().join("plain").join(VERSION).join("5");
            let location = CString::new(location.to_str().unwrap()).unwrap();
            let directories = names_for(c"base/5").into_iter().chain(names_for(&plain(""))).chain([location]);
            let numbers: BTreeSet<_> = directories.map(|name| FRONT.open_directory(&name).unwrap()).collect();
            let number = numbers.first().copied().unwrap();
            assert_eq!(numbers.len(), 1);
            enter_directory(DEFAULT_TABLESPACE, 5).unwrap();
            close(made(&base("16401")));
            let kinds = [("16401", libc::DT_DIR), ("PG_VERSION", libc::DT_REG), ("16402", libc::DT_REG)];
            let shown = kinds.map(|(name, kind)| {
                let name = CString::new(name).unwrap();
                FRONT.listed(number, &name, kind)
            });
            assert_eq!(shown, [Listed::File, Listed::Shown, Listed::Shown]);
            for hidden in [GUARD_NAME, "16401.pgshrink-new.7", "16401.pgshrink-old.7"] {
                let name = CString::new(hidden).unwrap();
                assert_eq!(FRONT.listed(number, &name, libc::DT_DIR), Listed::Hidden);
            }
            for other in [c"global", c"pg_wal", c"."] {
                assert_eq!(FRONT.open_directory(other), None);
            }
            let version = CString::new(format!("pg_tblspc/{PLAIN_TABLESPACE}/{VERSION}")).unwrap();
            let reserve = CString::new(RESERVE_NAME).unwrap();
            for directory in names_for(c"base").into_iter().chain(names_for(&version)) {
                let number = FRONT.open_directory(&directory).unwrap();
                assert_eq!(FRONT.listed(number, &reserve, libc::DT_REG), Listed::Hidden, "{directory:?}");
                assert_eq!(FRONT.listed(number, c"5", libc::DT_DIR), Listed::Shown);
            }
        });
    });
}

#[test]
fn a_place_without_a_setting_has_a_reserve_as_long_as_it_may_have_containers() {
    in_a_server(|| {
        let version = format!("pg_tblspc/{PLAIN_TABLESPACE}/{VERSION}");
        let reserves = ["base", &version].map(|place| Path::new(place).join(RESERVE_NAME));
        let sizes = || reserves.each_ref().map(|reserve| reserve.metadata().map_or(0, |found| found.len()));
        process(|| {
            let mut filled = HashSet::new();
            follow_directories(&mut filled);
            assert_eq!(sizes(), [0, 0]);
            both_made();
            follow_directories(&mut filled);
            assert!(sizes().iter().all(|size| *size > 0), "{:?}", sizes());
            // DROP DATABASE, of the only one with containers there.
            FRONT.unlink(&plain("16401")).unwrap().unwrap();
            let directory = plain("");
            let directory = CString::new(directory.to_str().unwrap().trim_end_matches('/')).unwrap();
            assert_eq!(FRONT.remove_directory(&directory), Some(Ok(())));
            follow_directories(&mut filled);
            assert!(matches!(sizes(), [size, 0] if size > 0), "{:?}", sizes());
            // DROP TABLESPACE, when the launcher has made it anew.
            fs::write(&reserves[1], "x").unwrap();
            let version = CString::new(version.as_str()).unwrap();
            assert_eq!(FRONT.remove_directory(&version), Some(Ok(())));
            close_all().unwrap();
            assert!(matches!(sizes(), [size, 0] if size > 0), "{:?}", sizes());
            FRONT.unlink(&base("16401")).unwrap().unwrap();
            close_all().unwrap();
            assert_eq!(sizes(), [0, 0]);
        });
    });
}

#[test]
fn walks_find_containers_in_all_places() {
    in_a_server(|| {
        both_made();
        process(|| {
            close(FRONT.open(&path("16401"), CREATE, 0o600).unwrap().unwrap());
            fs::write("base/5/16402", "").unwrap();
            let mut found = segments_on_disk();
            found.sort_by_key(|key| key.tablespace);
            let expected = [DEFAULT_TABLESPACE, 16400, PLAIN_TABLESPACE].map(|place| key(place, 16401));
            assert_eq!(found, expected);
            assert_eq!(path_of(&expected[0]), "base/5/16401");
            assert_eq!(info(&key(DEFAULT_TABLESPACE, 16402)).unwrap().unwrap().form, Form::Plain);
        });
    });
}

#[test]
fn a_container_beside_a_databases_catalogs_is_copied_as_a_plain_file() {
    in_a_server(|| {
        both_made();
        process(|| {
            // Into a tablespace with a setting: the copy's own catalogs may not be there yet.
            close(FRONT.open(&base("16401"), libc::O_RDONLY, 0).unwrap().unwrap());
            assert_eq!(FRONT.open(&path("16401"), CREATE | libc::O_EXCL, 0o600), None);
            // From a directory without catalogs.
            close(FRONT.open(&plain("16401"), libc::O_RDONLY, 0).unwrap().unwrap());
            close(FRONT.open(&path("16401"), CREATE | libc::O_EXCL, 0o600).unwrap().unwrap());
        });
    });
}

#[test]
fn guards_in_base_and_where_no_setting_is_say_what_the_server_does() {
    let directories = ["base/5", "plain/PG_15_202209061/5"];
    in_a_server(|| {
        both_made();
        let are = |state| directories.iter().all(|name| content(name) == Some(Content::Original(state)));
        assert!(are(State::Running));
        process(be_checkpointer);
        assert!(are(State::Stopped));
        restart();
        assert!(are(State::Running));
        process(|| assert!(read(open(&base("16401")), 0, 2).unwrap() == [page(1), page(2)]));
        for directory in directories {
            let (guard, aside) = (Path::new(directory).join(GUARD_NAME), Path::new("aside"));
            fs::rename(&guard, aside).unwrap();
            fs::write(&guard, "a copy that was not ended").unwrap();
            let problem = begin(true).expect_err("containers that may be a copy");
            assert!(matches!(problem, Problem::Copied { .. }), "{problem}");
            assert!(problem.to_string().contains(directory), "{problem}");
            fs::rename(aside, &guard).unwrap();
        }
        restart();
    });
}

#[test]
fn what_an_exchange_left_goes_at_the_start_unless_it_may_have_the_only_pages() {
    in_a_server(|| {
        both_made();
        let with_base = |name: &str| {
            fs::create_dir(name).unwrap();
            fs::write(format!("{name}/segment.pgshrink"), "container").unwrap();
            fs::write(format!("{name}/base.pgshrink"), "pages").unwrap();
        };
        fs::write("base/5/16402", "pages").unwrap();
        // Died before the exchange, after it, on the way back.
        with_base("base/5/16402.pgshrink-new.77");
        fs::hard_link("base/5/16402", "base/5/16401.pgshrink-new.77").unwrap();
        fs::write("base/5/16402.pgshrink-new.78", "pages").unwrap();
        // Dropped.
        with_base("base/5/16410.pgshrink-old.77");
        fs::write("base/5/16411.pgshrink-old.77", "pages").unwrap();
        // Never in its place.
        fs::create_dir("base/5/16412.pgshrink-new.77").unwrap();
        fs::write("base/5/16412.pgshrink-new.77/segment.pgshrink-new", "half").unwrap();
        // Nobody else has their pages.
        with_base("base/5/16420.pgshrink-new.77");
        fs::write("base/5/16421_fsm.1.pgshrink-new.77", "pages").unwrap();
        restart();
        let left = fs::read_dir("base/5").unwrap().map(|entry| entry.unwrap().file_name());
        let left: BTreeSet<_> = left.map(|name| name.into_string().unwrap()).collect();
        let expected = [
            "16401",
            "16402",
            "16420.pgshrink-new.77",
            "16421_fsm.1.pgshrink-new.77",
            "PG_VERSION",
            GUARD_NAME,
        ];
        assert_eq!(left, expected.map(str::to_owned).into());
        assert!(Path::new("base/5/16420.pgshrink-new.77/base.pgshrink").exists());
        assert_eq!(fs::read("base/5/16402").unwrap(), b"pages");
        assert!(real("").exists());
    });
}
