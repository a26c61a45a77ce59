//! PostgreSQL's own regression and isolation tests, with a compressed tablespace as the default for tables.
//!
//! Each script runs on two servers of the same version: a stock one, and one with the library. Both have a tablespace of
//! the same name as `default_tablespace`, compressed on the second one. What the scripts print must be the same;
//! `differences.txt` lists what is not, and why. A difference that is not listed fails.
//!
//! The scripts are PostgreSQL's (`tools/fetch-regression`), and so are the programs that run them: `pg_regress` and
//! `pg_isolation_regress` of the server's development files. `make test` runs those of
//! `chosen.txt`; `make soak` runs all.

mod differences;
mod runner;

use std::time::Duration;

use pgshrink_testkit::{Server, ServerBinaries, Stop, wait_until};

pub use differences::check;
use runner::Results;
pub use runner::{Kind, Sources, Suite, Twin};

const MAJORS: [u32; 2] = [15, 18];

#[test]
fn postgresqls_own_tests_of_tables_and_indexes_say_the_same_with_compressed_ones() {
    let test = "PostgreSQL's own tests of tables with compressed ones";
    Server::each_with_extensions(test, &Sources::of_majors(test, &MAJORS), |server| {
        compare(server, &[Suite::chosen(server, Kind::Regress), Suite::chosen(server, Kind::Isolation)]);
    });
}

#[test]
#[ignore = "minutes: make soak"]
fn postgresql_15s_whole_suites_say_the_same_with_compressed_tables() {
    whole("PostgreSQL 15's whole suites with compressed tables", 15);
}

#[test]
#[ignore = "minutes: make soak"]
fn postgresql_18s_whole_suites_say_the_same_with_compressed_tables() {
    whole("PostgreSQL 18's whole suites with compressed tables", 18);
}

fn whole(test: &str, major: u32) {
    Server::each_with_extensions(test, &Sources::of_majors(test, &[major]), |server| {
        compare(server, &[Suite::whole(server, Kind::Regress), Suite::whole(server, Kind::Isolation)]);
    });
}

#[test]
#[ignore = "minutes: make soak"]
fn a_server_that_crashes_amid_the_suite_comes_back_whole_and_runs_it_all_the_same() {
    let test = "PostgreSQL's regression suite with crashes";
    Server::each_with_extensions(test, &Sources::of_majors(test, &MAJORS), |server| {
        let suite = Suite::whole(server, Kind::Regress);
        let (plain, compressed) = (Twin::plain(server), Twin::compressed(server));
        for seconds in [4, 9, 15, 23] {
            let ended = std::thread::scope(|scope| {
                let run = scope.spawn(|| compressed.run(&suite));
                std::thread::sleep(Duration::from_secs(seconds));
                compressed.cluster.stop(Stop::Immediate).unwrap();
                run.join().unwrap()
            });
            println!("crash after {seconds} s: {} scripts had ended", ended.outputs.len());
            compressed.cluster.start().unwrap();
            compressed.is_whole();
        }
        // Roles, which are the server's and not the database's, are left by a run that was interrupted.
        compressed.forget_roles();
        let found = check(server.major, &suite, &plain.run(&suite), &compressed.run(&suite));
        report(server, &[(&suite, found)]);
        compressed.is_whole();
    });
}

/// Runs suites on a server of each kind, and fails for what differs and is not listed.
fn compare(server: &ServerBinaries, suites: &[Suite]) {
    let run = |twin: Twin| {
        let results: Vec<Results> = suites.iter().map(|suite| twin.run(suite)).collect();
        // Whatever comes after would be missing on both.
        assert!(twin.ends().is_empty(), "on PostgreSQL {}: {}", server.version, twin.ends().join("\n"));
        twin.is_whole();
        results
    };
    let (plain, compressed) = std::thread::scope(|scope| {
        let plain = scope.spawn(|| run(Twin::plain(server)));
        let compressed = scope.spawn(|| run(Twin::compressed(server)));
        (plain.join().unwrap(), compressed.join().unwrap())
    });
    let results = suites.iter().zip(plain.iter().zip(&compressed));
    let found: Vec<_> = results
        .map(|(suite, (plain, compressed))| (suite, check(server.major, suite, plain, compressed)))
        .collect();
    report(server, &found);
}

/// Says what was compared, and fails if anything was not as it should be.
fn report(server: &ServerBinaries, found: &[(&Suite, differences::Found)]) {
    let mut wrong = String::new();
    for (suite, found) in found {
        println!("PostgreSQL {}, {}: {}", server.version, suite.kind, found.summary);
        wrong.push_str(&found.wrong);
    }
    assert!(wrong.is_empty(), "on PostgreSQL {}\n{wrong}", server.version);
}

/// Waits for a server that starts again by itself.
fn wait_for(twin: &Twin) {
    let is_back = || twin.cluster.sql("select 1").is_ok();
    wait_until(Duration::from_secs(120), "the server to be back", is_back).unwrap();
}
