//! Crashes at thousands of points, each checked against the contract.

use pgshrink_cfs::plant::Plant;

use crate::plan::{Plan, Tally};
use crate::schedule::run;

pub const PLAIN: Plan =
    Plan { seed: 0, crashes: 10, plant: Plant::None, faults: false, fsync_off: false, wide: false };
pub const WIDE: Plan = Plan { wide: true, ..PLAIN };

fn many(seeds: std::ops::Range<u64>, plan: Plan) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        tally += run(Plan { seed, ..plan }).unwrap_or_else(|what| panic!("{what}"));
    }
    println!("{tally:?}");
    tally
}

#[test]
fn a_thousand_crashes_break_no_promise() {
    let tally = many(0..100, PLAIN);
    assert!(tally.crashes >= 1000);
    assert!(tally.collections > 0 && tally.punches > 0 && tally.helps > 0, "{tally:?}");
}

#[test]
fn a_thousand_crashes_with_failing_reads_writes_and_syncs_break_no_promise() {
    many(1000..1100, Plan { faults: true, ..PLAIN });
}

#[test]
fn without_fsync_a_crash_of_the_server_loses_nothing_that_was_written() {
    many(2000..2030, Plan { fsync_off: true, ..PLAIN });
}

#[test]
fn hundreds_of_crashes_of_segments_that_are_loaded_leaf_by_leaf_break_no_promise() {
    many(3000..3025, WIDE);
    many(3100..3115, Plan { faults: true, ..WIDE });
    many(3200..3205, Plan { fsync_off: true, ..WIDE });
}

#[test]
#[ignore = "replays one seed"]
fn replay() {
    let seed = std::env::var("PGSHRINK_SEED").unwrap().parse().unwrap();
    let faults = std::env::var_os("FAULTS").is_some();
    let (wide, fsync_off) = (std::env::var_os("WIDE").is_some(), std::env::var_os("FSYNC_OFF").is_some());
    many(seed..seed + 1, Plan { faults, wide, fsync_off, ..PLAIN });
}

#[test]
#[ignore = "a few minutes: more than a hundred thousand crashes"]
fn a_hundred_thousand_crashes_break_no_promise() {
    let first = pgshrink_testkit::seed::Seed::from_env_or_time().0 >> 1;
    let mut tally = many(first..first + 5000, PLAIN);
    tally += many(first..first + 5000, Plan { faults: true, ..PLAIN });
    tally += many(first..first + 1000, Plan { fsync_off: true, ..PLAIN });
    tally += many(first..first + 1000, WIDE);
    tally += many(first..first + 1000, Plan { faults: true, ..WIDE });
    println!("in all {tally:?}");
    assert!(tally.crashes >= 100_000);
}
