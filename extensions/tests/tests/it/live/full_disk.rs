//! A filesystem that has no room for another segment: conversions wait, and go on.

use std::fs::{self, File};
use std::io::Write;

use pgshrink_testkit::{Server, left_out, or_skip, wait_until};

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

/// Leaves so many bytes free.
fn fill(path: &std::path::Path, leave: u64) {
    let mut file = File::create(path).unwrap();
    let bytes = vec![7; 1 << 16];
    while file.write_all(&bytes).is_ok() {}
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(leave)).unwrap();
    file.sync_all().unwrap();
}
