//! The postmaster is killed at any moment of CREATE, ALTER and DROP TABLESPACE.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pgshrink_testkit::{Cluster, Seed, Server, Stop, wait_until};

use super::{MAJORS, files, labels, settle, sql, with_cfs};

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
fn settle_with_orphans(cluster: &Cluster) {
    let known = sql(cluster, "select oid from pg_tablespace");
    for entry in std::fs::read_dir(cluster.data_dir().join("pg_tblspc")).unwrap() {
        let entry = entry.unwrap();
        if !known.lines().any(|oid| entry.file_name() == *oid) {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    settle(cluster);
}

/// What `pg_cfs/OID` has in it.
fn file_of(cluster: &Cluster, name: &str) -> PathBuf {
    let oid = sql(cluster, &format!("select oid from pg_tablespace where spcname = '{name}'"));
    cluster.data_dir().join("pg_cfs").join(oid)
}

#[test]
fn whatever_a_crash_leaves_between_a_commit_and_its_file_is_mended() {
    Server::each_with_extensions("mending", &MAJORS, |server| {
        let cluster = with_cfs(server);
        sql(
            &cluster,
            "create extension cfs; create tablespace altered location '' with (compression = lz4);
            create tablespace lost location '' with (compression = 'zstd:2');
            create tablespace unlabelled location '' with (compression = 'zstd:3')",
        );
        let [altered, lost, unlabelled] =
            ["altered", "lost", "unlabelled"].map(|name| file_of(&cluster, name));
        let before = fs::read(&altered).unwrap();
        let compressed = fs::read(&unlabelled).unwrap();
        sql(
            &cluster,
            "alter tablespace altered set (compression = 'zstd:5');
            security label for cfs on tablespace unlabelled is null",
        );
        cluster.stop(Stop::Immediate).unwrap();
        // ALTER: the old file. CREATE on a standby: none. A label taken away: the old file. DROP: a file too many.
        fs::write(&altered, &before).unwrap();
        fs::remove_file(&lost).unwrap();
        fs::write(&unlabelled, &compressed).unwrap();
        fs::copy(&altered, altered.with_file_name("4000000")).unwrap();
        let owner = fs::metadata(cluster.data_dir().join("PG_VERSION")).unwrap();
        std::os::unix::fs::chown(altered.with_file_name("4000000"), Some(owner.uid()), Some(owner.gid()))
            .unwrap();
        cluster.start().unwrap();
        let expected = "altered|zstd:5|zstd:5\nlost|zstd:2|zstd:2\nunlabelled||none";
        let in_force = "select name, compression, in_force from cfs_tablespaces order by 1";
        wait_until(Duration::from_secs(40), "the launcher", || sql(&cluster, in_force) == expected).unwrap();
        wait_until(Duration::from_secs(40), "the files", || {
            let files = files(&cluster);
            let of = |path: &Path| {
                files.get(path.file_name().unwrap().to_str().unwrap()).cloned().unwrap_or_default()
            };
            files.len() == 3
                && of(&altered) == "compression=zstd:5"
                && of(&lost) == "compression=zstd:2"
                && of(&unlabelled) == "compression=none"
        })
        .unwrap();
    });
}
