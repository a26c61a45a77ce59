//! The postmaster is killed at any moment of CREATE, ALTER and DROP TABLESPACE.

use std::process::Stdio;
use std::time::Duration;

use pgshrink_testkit::{Seed, Server};

use super::{MAJORS, labels, settle, sql, with_cfs};

/// Kills for each major.
const KILLS: usize = 16;

/// One statement after another, for ever.
fn script() -> String {
    let mut script = String::new();
    for round in 0..400 {
        let level = round % 19 + 1;
        script += &format!(
            "create tablespace made{round} location '' with (compression = 'zstd:{level}');
            alter tablespace kept set (compression = 'zstd:{level}');
            alter tablespace made{round} set (compression = lz4);
            begin; alter tablespace kept set (compression = none); rollback;
            drop tablespace made{round};\n"
        );
    }
    script
}

#[test]
fn label_and_file_agree_after_a_kill_at_any_moment() {
    let seed = Seed::from_env_or_time();
    Server::each_with_extensions("kills in statements about tablespaces", &MAJORS, |server| {
        let mut rng = seed.rng();
        let cluster = with_cfs(server);
        sql(&cluster, "create extension cfs; create tablespace kept location '' with (compression = lz4)");
        for kill in 0..KILLS {
            let mut psql = cluster.psql().arg("-v").arg("ON_ERROR_STOP=0").command();
            let mut psql =
                psql.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let mut input = psql.stdin.take().unwrap();
            let writer = std::thread::spawn(move || {
                use std::io::Write;
                // It ends when psql does.
                let _ = input.write_all(script().as_bytes());
            });
            std::thread::sleep(Duration::from_micros(30_000 + rng.below(300_000) as u64));
            cluster.kill().unwrap();
            psql.wait().unwrap();
            writer.join().unwrap();
            cluster.start().unwrap_or_else(|error| panic!("{seed:?}, kill {kill}: {error}"));
            for left in sql(&cluster, "select spcname from pg_tablespace where spcname like 'made%'").lines()
            {
                sql(&cluster, &format!("drop tablespace {left}"));
            }
            settle_with_orphans(&cluster);
            let unequal = "select count(*) from cfs_tablespaces where compression <> in_force";
            assert_eq!(sql(&cluster, unequal), "0", "{seed:?}, kill {kill}");
            assert_eq!(labels(&cluster).len(), 1, "{seed:?}, kill {kill}");
        }
    });
}

/// A CREATE that was killed leaves its directory in `pg_tblspc`, with or without the library: nobody's. They are removed
/// here as an administrator would do it.
fn settle_with_orphans(cluster: &pgshrink_testkit::Cluster) {
    let known = sql(cluster, "select oid from pg_tablespace");
    for entry in std::fs::read_dir(cluster.data_dir().join("pg_tblspc")).unwrap() {
        let entry = entry.unwrap();
        if !known.lines().any(|oid| entry.file_name() == *oid) {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    settle(cluster);
}
