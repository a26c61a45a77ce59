//! A server with a compressed tablespace beside one without the library: both are told the same, also by
//! several sessions, and must say the same, while ours crashes over and over.
//!
//! Statements are chosen by a seed. Every transaction leaves a mark; after a crash the mark says whether the
//! transaction that was being committed is to be committed on the twin too. The moments of crashes differ from
//! run to run, so a seed repeats the statements up to the first crash, and nearly the same ones afterwards.
//!
//! In most runs a session of ours alone has tables converted, in both directions ([`conversions`]).
//!
//! It was proved with bugs planted in the library: an fsync that commits nothing, an unlink that removes nothing,
//! and writes of some pages that are left out. Each was found by the first or second seed.

mod check;
mod choose;
mod conversions;
mod crash;
mod databases;
mod link;
mod pair;
mod planted;
mod run;
mod story;
mod variant;

use std::time::{Duration, Instant};

use pgshrink_testkit::{Seed, Server, ServerBinaries};

use run::Run;
use variant::Variant;

const MAJORS: [u32; 2] = [15, 18];

/// PostgreSQL 18.4, without any library: recovery finds the state file of a transaction that was prepared after the last
/// checkpoint began, takes it for one of the future, removes another name, and then believes that it has been restored.
const LOST_BY_ITSELF: &str = "could not recover two-phase state file for transaction";
/// From a seed to the one that is tried in its place.
const ANOTHER: u64 = 1 << 32;

#[track_caller]
fn run_seed(server: &ServerBinaries, seed: u64, length: Duration) {
    let variant = Variant::of(seed);
    judge(Run::new(server, seed, &variant), server, seed, length);
}

#[track_caller]
fn judge(mut run: Run, server: &ServerBinaries, seed: u64, length: Duration) {
    let start = Instant::now();
    let went = run.go(length);
    let (steps, crashes) = (run.twins.story.len(), run.crashes);
    println!(
        "twin: PostgreSQL {}, seed {seed}: {steps} lines of story, {crashes} crashes, {} s",
        server.major,
        start.elapsed().as_secs()
    );
    if went.is_ok() && std::env::var_os("PGSHRINK_SEED").is_some() {
        run.twins.story.report(&format!("{}-{seed}", server.major), "nothing is wrong");
    }
    if let Err(why) = went {
        let log = run.twins.ours.log().unwrap_or_default();
        if log.contains(LOST_BY_ITSELF) {
            println!(
                "twin: seed {seed} is left: PostgreSQL {} has lost a prepared transaction by itself",
                server.version
            );
            return run_seed(server, seed + ANOTHER, length);
        }
        let story = run.twins.story.report(&format!("{}-{seed}", server.major), &why);
        let log: Vec<&str> = log.lines().collect();
        panic!(
            "PostgreSQL {}, PGSHRINK_SEED={seed}: {why}\n\n{story}\nthe end of the server's log:\n{}",
            server.version,
            log[log.len().saturating_sub(30)..].join("\n")
        );
    }
}

#[test]
fn a_server_that_crashes_gives_the_same_answers_as_one_without_the_library() {
    Server::each_with_extensions("the twin server, shortly", &MAJORS, |server| {
        run_seed(server, u64::from(server.major), Duration::from_secs(12));
    });
}

/// `PGSHRINK_SEED` repeats one seed; `PGSHRINK_TWIN_SECONDS` says for how long new ones are tried: otherwise 1,200
/// seconds.
#[test]
#[ignore = "long: make soak"]
fn many_seeds_give_the_same_answers_as_a_server_without_the_library() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let length = Duration::from_secs(number("PGSHRINK_TWIN_SECONDS").unwrap_or(1200));
    let (first, start) = (Seed::from_env_or_time().0, Instant::now());
    let only = number("PGSHRINK_SEED").is_some();
    for seed in first.. {
        Server::each_with_extensions("the twin server, at length", &MAJORS, |server| {
            run_seed(server, seed, Duration::from_secs(40));
        });
        if only || start.elapsed() >= length {
            break;
        }
    }
}

#[test]
#[ignore = "long: make soak"]
fn a_relation_of_more_than_one_file_gives_the_same_answers_as_in_a_server_without_the_library() {
    let seed = Seed::from_env_or_time().0;
    Server::each_with_extensions("the twin server, with more than 1 GB", &MAJORS, |server| {
        let run = Run::new(server, seed, &Variant::of(seed));
        for cluster in [&run.twins.ours, &run.twins.twin] {
            // A row to a page.
            let sql = "create table t0 (id bigint primary key using index tablespace fast, k int, w text, d text)
                tablespace fast;
                alter table t0 alter column w set storage plain;
                insert into t0 select i, i % 97, repeat(md5(i::text), 200), null from generate_series(1, 133000) i";
            cluster.sql(sql).unwrap();
            assert_eq!(cluster.sql("select pg_relation_size('t0') > 1 << 30").unwrap(), "t");
        }
        judge(run, server, seed, Duration::from_secs(120));
    });
}
