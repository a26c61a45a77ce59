//! Copies of files that are taken while their pages move.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use pgshrink_testkit::{TempDir, run, wait_until};

use super::{Live, PATIENCE, To, on_each_major, sum, table};

/// pg_basebackup into a directory, by so many kilobytes each second.
fn backup(live: &Live, into: &Path, rate: &str) -> Command {
    let mut command = live.cluster.owner().command(live.cluster.server().program("pg_basebackup"));
    command.args(["-X", "fetch", "-c", "fast", "--no-sync", "--max-rate", rate, "-D"]).arg(into);
    command.arg("-d").arg(live.cluster.conninfo_unix("postgres"));
    command
}

/// What a single-user server on a copy answers.
pub fn answer(live: &Live, data: &Path, libraries: &str, query: &str) -> String {
    let mut single = live.cluster.owner().command(live.cluster.server().program("postgres"));
    single.args(["--single", "-c"]).arg(format!("shared_preload_libraries={libraries}"));
    single.arg("-D").arg(data).arg("postgres");
    let query = query.replace('\n', " ").replace("count(*)", "count(*) as n");
    run::output_with_input(&mut single, format!("{query}\n").as_bytes()).unwrap()
}

#[test]
fn a_base_backup_in_the_midst_of_a_file_is_right_when_its_conversion_ends_meanwhile() {
    on_each_major("a base backup across a conversion", |live| {
        live.sql(&table("t", 12_000));
        let expected = live.sql(&sum("t"));
        let path = live.sql("select pg_relation_filepath('t')");
        let size: u64 = live.sql("select pg_relation_size('t')").parse().unwrap();
        live.sql("create table changes (i int); insert into changes values (0)");
        for to in To::BOTH {
            let place = TempDir::owned_by(live.cluster.owner()).unwrap();
            let copy = place.path().join("copy");
            live.sql("checkpoint");
            let mut backup = backup(live, &copy, "8M").stderr(Stdio::piped()).spawn().unwrap();
            // In its middle: some of the file is there, and not all.
            wait_until(PATIENCE, "the backup to be in the file", || {
                let length = copy.join(&path).metadata().map_or(0, |file| file.len());
                assert!(backup.try_wait().unwrap().is_none(), "it ended too early");
                (1..size).contains(&length)
            })
            .unwrap();
            live.convert("t", to);
            // The backup is not over before the conversion.
            let is_under_way = backup.try_wait().unwrap().is_none();
            live.sql("update t set word = word where id % 1000 = 0; update changes set i = i + 1");
            let ended = backup.wait_with_output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            println!("to {to:?}: the backup was under way at the conversion's end: {is_under_way}");
            // Without the library: a copy has plain files.
            for libraries in ["", "cfs"] {
                let said = answer(live, &copy, libraries, &sum("t"));
                let mut numbers = expected.split('|');
                assert!(numbers.all(|number| said.contains(&format!("\"{number}\""))), "{to:?} {said}");
            }
        }
        live.is_clean();
    });
}

#[test]
fn a_file_that_is_read_in_pieces_across_a_conversion_has_all_pages() {
    on_each_major("pg_read_binary_file across conversions", |live| {
        live.sql(&table("t", 4_000));
        live.sql("vacuum freeze t; select count(*) from t; checkpoint");
        let path = live.sql("select pg_relation_filepath('t')");
        let whole = live.sql(&format!("select md5(pg_read_binary_file('{path}'))"));
        let half = live.sql("select pg_relation_size('t') / 8192 / 2 * 8192");
        for to in To::BOTH {
            // In one session: it reads a half, the form changes, it reads the other half.
            let mut session = live.cluster.psql().command();
            let mut session = session.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut script = session.stdin.take().unwrap();
            writeln!(script, "create temp table first as select pg_read_binary_file('{path}', 0, {half}) b;")
                .unwrap();
            script.flush().unwrap();
            live.convert("t", to);
            writeln!(script, "select md5(b || pg_read_binary_file('{path}', {half}, 100000000)) from first;")
                .unwrap();
            drop(script);
            let said = session.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), whole, "{to:?}");
        }
        live.is_clean();
    });
}

#[test]
fn a_program_that_has_a_plain_file_open_reads_it_to_its_end_across_a_conversion() {
    on_each_major("an open file across conversions", |live| {
        live.sql(&table("t", 4_000));
        live.sql("vacuum freeze t; select count(*) from t; checkpoint");
        let before = std::fs::read(live.path("t")).unwrap();
        let mut file = std::fs::File::open(live.path("t")).unwrap();
        let mut half = vec![0; before.len() / 2];
        std::io::Read::read_exact(&mut file, &mut half).unwrap();
        live.convert("t", To::Container);
        live.sql("checkpoint");
        std::io::Read::read_to_end(&mut file, &mut half).unwrap();
        assert!(half == before);
        live.convert("t", To::Plain);
        live.sql("checkpoint");
        assert!(std::fs::read(live.path("t")).unwrap() == before);
    });
}
