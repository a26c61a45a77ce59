//! PostgreSQL's regression suite while every relation changes its form again and again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgshrink_testkit::{Server, ServerBinaries};

use super::MAJORS;
use crate::suites::{Kind, Sources, Suite, Twin, check};

#[test]
fn postgresqls_own_tests_say_the_same_while_all_relations_change_their_form() {
    let test = "PostgreSQL's own tests while relations are converted";
    Server::each_with_extensions(test, &Sources::of_majors(test, &MAJORS), |server| {
        compare(server, &Suite::chosen(server, Kind::Regress));
    });
}

#[test]
#[ignore = "minutes: make soak"]
fn postgresqls_whole_suites_say_the_same_while_all_relations_change_their_form() {
    let test = "PostgreSQL's whole suites while relations are converted";
    Server::each_with_extensions(test, &Sources::of_majors(test, &MAJORS), |server| {
        for kind in [Kind::Regress, Kind::Isolation] {
            compare(server, &Suite::whole(server, kind));
        }
    });
}

/// Runs a suite on a stock server and on one whose relations go to and fro.
fn compare(server: &ServerBinaries, suite: &Suite) {
    let (plain, converted) = std::thread::scope(|scope| {
        let plain = scope.spawn(|| Twin::plain(server).run(suite));
        let converted = scope.spawn(|| {
            let twin = Twin::with_library(server);
            let (results, to, fro) = while_converting(&twin, || twin.run(suite));
            // Few tables of the isolation tests have more than four pages.
            let has_large = matches!(suite.kind, Kind::Regress);
            assert!(!has_large || to > 20 && fro > 20, "too few conversions: {to} and {fro}");
            twin.is_whole();
            results
        });
        (plain.join().unwrap(), converted.join().unwrap())
    });
    let found = check(server.major, suite, &plain, &converted);
    println!("PostgreSQL {}, {}: {}", server.version, suite.kind, found.summary);
    assert!(found.wrong.is_empty(), "on PostgreSQL {}\n{}", server.version, found.wrong);
}

/// The setting of the whole server changes every two seconds, and dispatchers look all the time. Returns the results, and
/// how many files were converted to containers and back.
fn while_converting<T>(twin: &Twin, run: impl FnOnce() -> T) -> (T, usize, usize) {
    let set = |name: &str, value: &str| twin.cluster.set_conf(name, value).unwrap();
    set("cfs.naptime", "1s");
    set("log_min_messages", "debug1");
    twin.cluster.reload().unwrap();
    let is_over = AtomicBool::new(false);
    let results = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for setting in ["zstd:1", "none"] {
                    set("cfs.node_compression", setting);
                    // The server may end amid a test that fails anyway.
                    let _ = twin.cluster.reload();
                    std::thread::sleep(Duration::from_secs(2));
                }
            }
        });
        let results = run();
        is_over.store(true, Ordering::Relaxed);
        results
    });
    let log = twin.cluster.log().unwrap();
    let begun = |what: &str| log.matches(&format!("cfs dispatcher: {what} ")).count();
    let (to, fro) = (begun("compress"), begun("decompress"));
    println!("PostgreSQL {}: {to} files to containers, {fro} back", twin.cluster.server().version);
    (results, to, fro)
}
