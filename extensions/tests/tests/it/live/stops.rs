//! What a clean stop leaves beside files that were converted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pgshrink_testkit::{Stop, TempDir, run};

use super::backups::answer;
use super::{Live, To, on_each_major, sum, table};
use crate::compressed::GUARD;

/// The guards below a data directory.
fn guards(data: &Path) -> Vec<PathBuf> {
    let databases = fs::read_dir(data.join("base")).unwrap().map(|entry| entry.unwrap().path());
    databases.map(|database| database.join(GUARD)).filter(|guard| guard.exists()).collect()
}

/// A copy made by somebody who may read all files.
fn copy(live: &Live, place: &TempDir) -> PathBuf {
    let (from, to) = (live.cluster.data_dir(), place.path().join("copy"));
    let mode = |data: &Path, mode| {
        guards(data)
            .iter()
            .for_each(|guard| fs::set_permissions(guard, Permissions::from_mode(mode)).unwrap());
    };
    mode(&from, 0o400);
    run::output(live.cluster.owner().command("cp").arg("-a").arg(&from).arg(&to)).unwrap();
    mode(&from, 0);
    mode(&to, 0);
    to
}

#[test]
fn after_a_clean_stop_copies_of_converted_files_are_good_and_plain_ones_have_no_guard() {
    on_each_major("clean stops after conversions", |live| {
        // One that stays plain, one that is emptied and one that goes: all of them were looked for.
        live.sql(&format!("{}{}", table("t", 2_000), table("u", 2_000)));
        live.sql("create table gone as select generate_series(1, 3000) i; create table small as select 1 i");
        let expected = live.sql(&sum("t"));
        for to in To::BOTH {
            for name in ["t", "u"] {
                live.convert(name, to);
            }
            live.sql("drop table if exists gone; select count(*) from small; checkpoint");
            live.cluster.stop(Stop::Fast).unwrap();
            assert_eq!(guards(&live.cluster.data_dir()).len(), usize::from(to == To::Container), "{to:?}");
            let place = TempDir::owned_by(live.cluster.owner()).unwrap();
            let said = answer(live, &copy(live, &place), "cfs", &sum("t"));
            assert!(
                expected.split('|').all(|number| said.contains(&format!("\"{number}\""))),
                "{to:?} {said}"
            );
            live.cluster.start().unwrap();
        }
        live.is_clean();
    });
}
