//! A filesystem that has no room for another segment, and one that has none at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use pgshrink_testkit::{Server, ServerBinaries, Stop, left_out, or_skip, run, wait_until};

use super::{Live, MAJORS, PATIENCE, To, sum, table};
use crate::compressed::{Filesystem, Format};

#[test]
fn a_conversion_waits_for_space_and_goes_on_when_there_is_some() {
    let test = "conversions on a full filesystem";
    drop(or_skip!(test, Filesystem::new()));
    Server::each_with_extensions(test, &MAJORS, |binaries| {
        let filesystem = Filesystem::new().unwrap();
        if let Err(why) = filesystem.mount(Format::Ext4) {
            return left_out(test, &why);
        }
        let live = Live::start(binaries, &[]);
        let location = filesystem.root().join("small");
        fs::create_dir(&location).unwrap();
        let owner = live.cluster.owner();
        std::os::unix::fs::chown(&location, Some(owner.uid), Some(owner.gid)).unwrap();
        live.sql(&format!("create tablespace small location '{}'", location.display()));
        live.sql(&table("t", 20_000));
        live.sql("alter table t set tablespace small; alter index t_pkey set tablespace small");
        let expected = live.sql(&sum("t"));
        for to in To::BOTH {
            let ballast = filesystem.root().join("ballast");
            fill(&ballast, 14 << 20);
            live.ask("t", to);
            let waits = "select count(*) from cfs_progress where waits_for like 'free space%'";
            wait_until(PATIENCE, "the conversion to wait for space", || live.sql(waits) != "0")
                .unwrap_or_else(|error| panic!("{error} {to:?}: {}\n{}", live.progress(), live.end_of_log()));
            live.sql("update t set word = word where id % 100 = 0; checkpoint");
            assert_eq!(live.sql(&sum("t")), expected);
            fs::remove_file(&ballast).unwrap();
            live.wait("t");
            live.has_form("t", to);
            assert_eq!(live.sql(&sum("t")), expected);
        }
        assert!(!live.cluster.log_contains("PANIC"), "{}", live.end_of_log());
        live.sql("drop table t; drop tablespace small; checkpoint");
    });
}

/// Where files are that no tablespace's setting asks to compress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// `pg_default`.
    Base,
    Tablespace,
}

#[test]
fn without_a_setting_too_a_checkpoint_and_a_restart_succeed_on_a_filesystem_that_is_full() {
    let test = "converted files on a filesystem without a free block";
    drop(or_skip!(test, Filesystem::new()));
    Server::each_with_extensions(test, &MAJORS, |binaries| {
        for place in [Place::Base, Place::Tablespace] {
            let filesystem = Filesystem::new().unwrap();
            if let Err(why) = filesystem.mount(Format::Ext4) {
                return left_out(test, &why);
            }
            on_a_full_filesystem(binaries, &filesystem, place);
        }
    });
}

fn on_a_full_filesystem(binaries: &ServerBinaries, filesystem: &Filesystem, place: Place) {
    let live = Live::start(binaries, &[("shared_buffers", "4MB")]);
    let root = prepare(&live, filesystem, place);
    live.sql(&table("t", 15_000));
    let reserve = || {
        let found =
            run::output(live.cluster.owner().command("find").arg(&root).args(["-name", "pgshrink-reserve"]));
        let path = found.unwrap().trim().to_owned();
        if path.is_empty() { 0 } else { fs::metadata(path).unwrap().len() }
    };
    assert_eq!(reserve(), 0, "{place:?}");
    live.convert("t", To::Container);
    let held = reserve();
    assert!(held > 4 << 20, "{held} {place:?}");
    live.sql("create table small as select 1 i; vacuum analyze; checkpoint");
    // A session that finds none writes a file of its catalogs' descriptions, or fails.
    live.sql("select count(*) from small");

    let ballast = filesystem.root().join("ballast");
    fill(&ballast, 0);
    let full = live.cluster.sql("create table junk as select md5(i::text) from generate_series(1, 50000) i");
    let full = full.unwrap_err().to_string();
    assert!(full.contains("No space left on device"), "{full}");
    let change = "update t set word = md5(id::text) where id % 20 = 0";
    for _ in 0..3 {
        live.sql(change);
        live.sql("checkpoint");
    }
    let expected = live.sql(&sum("t"));
    assert!(reserve() < held, "{place:?}");
    live.sql(change);
    live.cluster.stop(Stop::Immediate).unwrap();
    live.cluster.start().unwrap();
    live.cluster.restart().unwrap();

    fs::remove_file(ballast).unwrap();
    assert_eq!(live.sql(&sum("t")), expected);
    wait_until(PATIENCE, "the launcher to fill the reserve again", || reserve() > 4 << 20).unwrap();
    live.convert("t", To::Plain);
    assert_eq!(live.sql(&sum("t")), expected);
    live.cluster.restart().unwrap();
    assert_eq!((reserve(), live.sql(&sum("t"))), (0, expected), "{place:?}");
    live.is_clean();
    if place == Place::Tablespace {
        live.convert("t", To::Container);
        live.sql("drop table t, small; drop tablespace small");
    }
    live.cluster.stop(Stop::Fast).unwrap();
}

/// Has tables made on the filesystem from now on; returns where they are.
fn prepare(live: &Live, filesystem: &Filesystem, place: Place) -> PathBuf {
    let root = filesystem.root().join("here");
    match place {
        Place::Base => {
            let base = live.cluster.data_dir().join("base");
            live.cluster.stop(Stop::Fast).unwrap();
            move_to(&base, &root);
            live.cluster.start().unwrap();
        }
        Place::Tablespace => {
            fs::create_dir(&root).unwrap();
            let owner = live.cluster.owner();
            std::os::unix::fs::chown(&root, Some(owner.uid), Some(owner.gid)).unwrap();
            live.sql(&format!("create tablespace small location '{}'", root.display()));
            live.sql("do $$ begin execute format('alter database %I set default_tablespace = small', current_database()); end $$");
        }
    }
    root
}

/// Leaves a link behind.
fn move_to(from: &Path, to: &Path) {
    run::output(std::process::Command::new("mv").arg(from).arg(to)).unwrap();
    std::os::unix::fs::symlink(to, from).unwrap();
}

/// Leaves so many bytes free.
fn fill(path: &Path, leave: u64) {
    let mut file = File::create(path).unwrap();
    let bytes = vec![7; 1 << 16];
    while file.write_all(&bytes).is_ok() {}
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(leave)).unwrap();
    file.sync_all().unwrap();
}
