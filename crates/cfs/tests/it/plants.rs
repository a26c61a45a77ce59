//! Every invariant broken on purpose, to prove that the simulator would notice.

use pgshrink_cfs::plant::Plant;

use crate::crashes::PLAIN;
use crate::plan::Plan;
use crate::schedule::run;

const SEEDS: u64 = 400;

/// The first violation among the seeds, and that there is none without the bug.
fn caught(plant: Plant, plan: Plan) -> String {
    let first = (0..SEEDS).find_map(|seed| run(Plan { seed, plant, ..plan }).err().map(|what| (seed, what)));
    let (seed, what) = first.unwrap_or_else(|| panic!("{plant:?} passed {SEEDS} seeds"));
    println!("{plant:?} after {} runs: {what}", seed + 1);
    let honest = run(Plan { seed, ..plan });
    assert!(honest.is_ok(), "without {plant:?}: {honest:?}");
    what
}

fn with_faults() -> Plan {
    Plan { faults: true, ..PLAIN }
}

#[test]
fn i1_a_map_durable_before_its_data_is_caught() {
    caught(Plant::MapBeforeData, PLAIN);
}

#[test]
fn i2_space_reused_before_the_commit_is_caught() {
    caught(Plant::ReuseBeforeCommit, PLAIN);
}

#[test]
fn i2_space_reused_under_a_writer_is_caught() {
    caught(Plant::ReuseUnderWriter, PLAIN);
}

#[test]
fn i3_a_torn_root_that_is_accepted_is_caught() {
    caught(Plant::TornRootAccepted, PLAIN);
}

#[test]
fn i3_a_root_written_over_the_only_one_is_caught() {
    caught(Plant::RootInPlace, PLAIN);
}

#[test]
fn i5_a_swallowed_fsync_error_is_caught() {
    caught(Plant::FsyncErrorSwallowed, with_faults());
}

#[test]
fn i5_a_failed_fsync_whose_pages_the_cache_serves_as_clean_is_caught() {
    caught(Plant::FsyncRetried, with_faults());
}

#[test]
fn i6_a_lost_directory_entry_is_caught() {
    caught(Plant::NameNotSynced, PLAIN);
}

#[test]
fn i7_a_stale_record_of_an_earlier_epoch_rolled_forward_is_caught() {
    caught(Plant::StaleEpochRolledForward, PLAIN);
}

#[test]
fn i8_a_collector_that_overwrites_newer_writes_is_caught() {
    caught(Plant::CollectorOverwrites, PLAIN);
}

#[test]
fn i8_a_collector_whose_copy_is_a_newer_version_is_caught() {
    caught(Plant::CollectorRaisesVersion, Plan { fsync_off: true, ..PLAIN });
}

#[test]
fn i9_dirty_marks_taken_after_the_fsync_are_caught() {
    caught(Plant::DirtyClearedAfterSync, PLAIN);
}

#[test]
fn i11_truncated_pages_that_come_back_are_caught() {
    caught(Plant::TruncationForgotten, PLAIN);
}

#[test]
fn i12_a_dead_commit_taken_for_whole_is_caught() {
    caught(Plant::DeadHolderTrusted, PLAIN);
}
