//! Every invariant broken on purpose, to prove that the tests would notice. Schedules are run from seed 0 on,
//! each with ten crashes, up to 400 of them; a directed test needs one run. How many were needed when this
//! was written:
//!
//! | invariant | what is injected | caught by | runs |
//! |---|---|---|---|
//! | I1 | map durable before the data (`MapBeforeData`) | schedule | 56 |
//! | I1 | one fdatasync for a whole group (`GroupSyncedByOne`) | schedule of a group | 30 |
//! | I2 | space reused before the commit (`ReuseBeforeCommit`) | schedule | 8 |
//! | I2 | space reused under a writer (`ReuseUnderWriter`) | schedule; loom in `protocol` | 4 |
//! | I3 | torn root accepted (`TornRootAccepted`) | all 256 mixtures of two roots' sectors | 1 |
//! | I3 | root written over the only one (`RootInPlace`) | schedule | 1 |
//! | I4 | missing entry read as zeros (`MissingReadsAsZeros`) | `damage`, directed | 1 |
//! | I5 | fsync error swallowed (`FsyncErrorSwallowed`) | schedule with faults | 1 |
//! | I5 | fsync tried again, the cache serving as clean what it lost (`FsyncRetried`) | schedule with faults | 1 |
//! | I6 | lost directory entry (`NameNotSynced`) | schedule | 1 |
//! | I7 | stale record of an earlier epoch rolled forward (`StaleEpochRolledForward`) | schedule | 1 |
//! | I8 | collector's copy over a newer write (`CollectorOverwrites`) | schedule; loom in `protocol` | 4 |
//! | I8 | collector's copy a newer version (`CollectorRaisesVersion`) | schedule without fsync | 3 |
//! | I9 | dirty marks taken after the fsync (`DirtyClearedAfterSync`) | schedule | 249 |
//! | I10 | older record taken for the entry's (`ReaderIgnoresTag`) | `damage`, directed | 1 |
//! | I11 | truncated pages come back (`TruncationForgotten`) | schedule | 2 |
//! | I12 | what a dead process left taken for whole (`DeadHolderTrusted`) | schedule | 4 |
//! | I13 | dictionary dropped under a writer (`DictionaryDroppedUnderWriter`) | schedule; `dictionaries`, directed; loom | 33; 1 |
//! | I13 | dictionary's number given out again (`DictionaryNumberReused`) | schedule | 1 |
//! | I14 | leaf loaded over newer entries (`LoaderOverwrites`) | schedule of a wide segment; loom | 1 |
//! | I14 | truncated pages brought back by a late loader (`LoaderForgetsTruncation`) | `leaves`, directed; loom | 1 |
//! | I14 | leaf unloaded with newer entries (`UnloadsDirty`) | schedule with unloading | 3 |
//! | I14 | leaf loaded from a record of before it was unloaded (`LoaderTrustsPlace`) | `unload`, directed | 1 |
//! | I15 | space freed although leaves were unloaded (`CountsUnloaded`) | schedule with unloading | 2 |
//! | I15 | space freed before the map is complete (`ReuseBeforeLoaded`) | schedule of a wide segment | 1 |
//! | P3 | codec that lies (`CodecLies`) | `store`, directed | 1 |
//! | P4 | dictionaries kept by number alone (`CacheIgnoresContainer`) | `store::dictionaries`, directed | 1 |
//! | S1 | nonce reused after a fork (a seeded generator) | `damage`, directed; `seal::fork`, real processes | 1 |

use pgshrink_cfs::Tuning;
use pgshrink_cfs::fault::Fault;

use crate::crashes::{GROUP, PLAIN, UNLOADS, WIDE};
use crate::fixture::{Bench, content, read, write};
use crate::plan::Plan;
use crate::schedule::run;

const SEEDS: u64 = 400;

/// The first violation among the seeds, and that there is none without the bug.
fn caught(fault: Fault, plan: Plan) -> String {
    let first = (0..SEEDS).find_map(|seed| run(Plan { seed, fault, ..plan }).err().map(|what| (seed, what)));
    let (seed, what) = first.unwrap_or_else(|| panic!("{fault:?} passed {SEEDS} seeds"));
    println!("{fault:?} after {} runs: {what}", seed + 1);
    let honest = run(Plan { seed, ..plan });
    assert!(honest.is_ok(), "without {fault:?}: {honest:?}");
    what
}

fn with_faults() -> Plan {
    Plan { faults: true, ..PLAIN }
}

#[test]
fn i1_a_map_durable_before_its_data_is_caught() {
    caught(Fault::MapBeforeData, PLAIN);
}

#[test]
fn i1_one_fdatasync_for_a_whole_group_is_caught() {
    caught(Fault::GroupSyncedByOne, GROUP);
}

#[test]
fn i2_space_reused_before_the_commit_is_caught() {
    caught(Fault::ReuseBeforeCommit, PLAIN);
}

#[test]
fn i2_space_reused_under_a_writer_is_caught() {
    caught(Fault::ReuseUnderWriter, PLAIN);
}

/// Opens every mixture of two roots that a torn write of the second can leave in its disk block, with all
/// else durable. What is read must be all of the one commit or all of the other.
fn tears(fault: Fault) -> Result<u32, String> {
    const PAGES: u32 = 60;
    let mut bench = Bench::new(crate::plan::options(fault, 0));
    bench.options.tuning = Tuning::default();
    let container = bench.create(1);
    let generation = |generation| {
        (0..PAGES).for_each(|block| write(&container, block, generation));
        container.commit().unwrap();
        bench.bytes()
    };
    (0..3).for_each(|early| drop(generation(early)));
    let (before, after) = (generation(3), generation(4));
    let sequence = |disk_block: usize| before[disk_block * 4096 + 40..disk_block * 4096 + 48].to_vec();
    let next = (0..3).min_by_key(|disk_block| sequence(*disk_block)).unwrap() * 4096;
    let mut tears = 0;
    for mask in 0..=u8::MAX {
        let mut bytes = [&before[..12288], &after[12288..]].concat();
        for sector in (0..8).filter(|sector| mask >> sector & 1 == 1) {
            let at = next + sector * 512;
            bytes[at..at + 512].copy_from_slice(&after[at..at + 512]);
        }
        bench.set_bytes(bytes);
        let failed = |error: pgshrink_cfs::Error| format!("sectors {mask:08b}: {error}");
        let (opened, _) = bench.open().map_err(failed)?;
        let pages: Result<Vec<_>, _> = (0..opened.pages()).map(|block| read(&opened, block)).collect();
        let pages = pages.map_err(failed)?;
        let is = |generation| (0..PAGES).all(|block| pages[block as usize] == content(block, generation));
        if pages.len() != PAGES as usize || !is(3) && !is(4) {
            return Err(format!("sectors {mask:08b}: pages of two commits"));
        }
        tears += u32::from(is(3));
    }
    Ok(tears)
}

#[test]
fn i3_a_torn_root_that_is_accepted_is_caught() {
    let tears_refused = tears(Fault::None).unwrap();
    assert!(tears_refused > 128, "{tears_refused} of 256 are no whole root");
    println!("TornRootAccepted in one run: {}", tears(Fault::TornRootAccepted).unwrap_err());
}

#[test]
fn i3_a_root_written_over_the_only_one_is_caught() {
    caught(Fault::RootInPlace, PLAIN);
}

#[test]
fn i5_a_swallowed_fsync_error_is_caught() {
    caught(Fault::FsyncErrorSwallowed, with_faults());
}

#[test]
fn i5_a_failed_fsync_whose_pages_the_cache_serves_as_clean_is_caught() {
    caught(Fault::FsyncRetried, with_faults());
}

#[test]
fn i6_a_lost_directory_entry_is_caught() {
    caught(Fault::NameNotSynced, PLAIN);
}

#[test]
fn i7_a_stale_record_of_an_earlier_epoch_rolled_forward_is_caught() {
    caught(Fault::StaleEpochRolledForward, PLAIN);
}

#[test]
fn i8_a_collector_that_overwrites_newer_writes_is_caught() {
    caught(Fault::CollectorOverwrites, PLAIN);
}

#[test]
fn i8_a_collector_whose_copy_is_a_newer_version_is_caught() {
    caught(Fault::CollectorRaisesVersion, Plan { fsync_off: true, ..PLAIN });
}

#[test]
fn i9_dirty_marks_taken_after_the_fsync_are_caught() {
    caught(Fault::DirtyClearedAfterSync, PLAIN);
}

#[test]
fn i11_truncated_pages_that_come_back_are_caught() {
    caught(Fault::TruncationForgotten, PLAIN);
}

#[test]
fn i14_a_leaf_loaded_over_newer_entries_is_caught() {
    caught(Fault::LoaderOverwrites, WIDE);
}

#[test]
fn i14_a_leaf_unloaded_with_what_was_published_since_is_caught() {
    caught(Fault::UnloadsDirty, UNLOADS);
}

#[test]
fn i15_space_freed_although_leaves_were_unloaded_is_caught() {
    caught(Fault::CountsUnloaded, UNLOADS);
}

#[test]
fn i15_space_freed_before_the_map_is_complete_is_caught() {
    caught(Fault::ReuseBeforeLoaded, WIDE);
}

#[test]
fn i12_a_dead_commit_taken_for_whole_is_caught() {
    caught(Fault::DeadHolderTrusted, PLAIN);
}

#[test]
fn i13_a_dictionary_dropped_under_a_writer_is_caught() {
    caught(Fault::DictionaryDroppedUnderWriter, PLAIN);
}

#[test]
fn i13_a_dictionarys_number_given_out_again_is_caught() {
    caught(Fault::DictionaryNumberReused, PLAIN);
}
