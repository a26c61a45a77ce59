//! Crashes at thousands of points, each checked against the contract.
//!
//! Which schedules find what, in the engine as it was before the findings were fixed (debug build, one CPU):
//!
//! | finding | plan | schedules until it was found | seconds |
//! |---|---|---|---|
//! | A, a page lost after write and commit | `SIZES`, nobody dies, freeze | 7 (then 1 in 50) | 0.5 |
//! | A | the same, priorities | 16, 121 (1 in 200) | 0.5, 4 |
//! | B, no address left for a commit | `SPACE`, nobody dies | 35 (1 in 60) | 1 |
//! | D, memory that outlives its file; a reader first | openers | 1 | 0.1 |
//! | F, a block torn with something durable in it | freeze | 18 images in 600 schedules, 3 did not open | 24 |
//! | G, a lock whose holder panicked or jumped | panics, jumps | 2, 3 | 1 |
//! | H, a dead extension's record, a dead truncation | `PLAIN`, `SIZES` | 1 to 10 | 0.1 |

use std::collections::BTreeMap;

use pgshrink_cfs::fault::Fault;

use crate::plan::{Focus, Plan, Tally};
use crate::schedule::{Style, run};

pub const PLAIN: Plan = Plan {
    seed: 0,
    crashes: 10,
    fault: Fault::None,
    faults: false,
    fsync_off: false,
    wide: false,
    focus: Focus::Usual,
    segments: 1,
    panics: false,
    jumps: false,
    openers: false,
    unloads: false,
    immortal: false,
    style: None,
};
pub const WIDE: Plan = Plan { wide: true, ..PLAIN };
pub const UNLOADS: Plan = Plan { unloads: true, ..WIDE };
pub const SIZES: Plan = Plan { focus: Focus::Sizes, ..PLAIN };
pub const SPACE: Plan = Plan { focus: Focus::Space, ..PLAIN };
pub const GROUP: Plan = Plan { segments: 3, ..PLAIN };

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
    // A schedule may end early, by a torn block that the contract excepts.
    let tally = many(0..105, PLAIN);
    assert!(tally.crashes >= 1000);
    assert!(tally.collections > 0 && tally.punches > 0 && tally.foreground_collections > 0, "{tally:?}");
    assert!(tally.stored_anew > 100, "{tally:?}");
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
fn leaves_that_are_taken_out_of_memory_take_no_page_and_no_space_with_them() {
    let tally = many(9000..9080, UNLOADS)
        + many(9100..9150, Plan { focus: Focus::Sizes, ..UNLOADS })
        + many(9200..9230, Plan { faults: true, ..UNLOADS })
        + many(9300..9330, Plan { panics: true, jumps: true, ..UNLOADS })
        + many(9400..9420, Plan { openers: true, ..UNLOADS });
    assert!(tally.unloaded_leaves > 1000 && tally.kills > 10_000, "{tally:?}");
}

/// The plan that the environment names, by its parts.
fn plan_of_environment() -> Plan {
    let words = std::env::var("PLAN").unwrap_or_default();
    let has = |word: &str| words.split_whitespace().any(|found| found == word);
    Plan {
        faults: has("faults"),
        wide: has("wide"),
        fsync_off: has("fsync_off"),
        panics: has("panics"),
        jumps: has("jumps"),
        openers: has("openers"),
        unloads: has("unloads"),
        immortal: has("immortal"),
        segments: if has("group") { GROUP.segments } else { PLAIN.segments },
        focus: match () {
            () if has("sizes") => Focus::Sizes,
            () if has("space") => Focus::Space,
            () => Focus::Usual,
        },
        style: match () {
            () if has("io") => Some(Style::Io),
            () if has("random") => Some(Style::Random),
            () if has("priorities") => Some(Style::Priorities),
            () if has("freeze") => Some(Style::Freeze),
            () => None,
        },
        ..PLAIN
    }
}

#[test]
fn hundreds_of_crashes_of_segments_that_are_extended_all_the_time_break_no_promise() {
    let tally = many(200..300, SIZES) + many(4100..4120, Plan { faults: true, ..SIZES });
    assert!(
        tally.extensions > 5 * tally.writes / 2 && tally.truncations > 0 && tally.freezes > 0,
        "{tally:?}"
    );
}

#[test]
fn segments_that_are_committed_together_keep_their_promises_each() {
    let tally = many(8000..8030, GROUP)
        + many(8100..8115, Plan { faults: true, ..GROUP })
        + many(8200..8210, Plan { panics: true, jumps: true, ..GROUP });
    assert!(tally.groups > 1000 && tally.kills > 1000 && tally.crashes >= 500, "{tally:?}");
}

#[test]
fn a_segment_without_space_of_its_own_can_be_committed_and_opened() {
    let tally = many(5000..5060, SPACE);
    assert!(tally.refused_space > 0 && tally.commits > 0, "{tally:?}");
}

#[test]
fn a_file_replaced_under_its_shared_memory_or_first_opened_for_reading_is_not_taken_for_another() {
    let tally = many(6000..6030, Plan { openers: true, ..PLAIN });
    assert!(tally.replaced > 0, "{tally:?}");
    many(6100..6110, Plan { openers: true, fsync_off: true, ..PLAIN });
}

#[test]
fn processes_that_panic_or_jump_out_of_the_engine_and_go_on_harm_nobody() {
    let tally = many(7000..7030, Plan { panics: true, ..SIZES })
        + many(7100..7130, Plan { panics: true, jumps: true, ..PLAIN });
    assert!(tally.panics > 0 && tally.jumps > 0, "{tally:?}");
}

#[test]
#[ignore = "replays one seed, of the plan that PLAN names"]
fn replay() {
    let Ok(seed) = std::env::var("PGSHRINK_SEED") else { return println!("PGSHRINK_SEED is not set") };
    let seed = seed.parse().unwrap();
    many(seed..seed + 1, plan_of_environment());
}

/// How often each kind of violation is found, in how many schedules and how much time: to judge schedules by.
#[test]
#[ignore = "surveys SEEDS schedules of the plan that PLAN names"]
fn survey() {
    let Ok(seeds) = std::env::var("SEEDS") else { return println!("SEEDS is not set") };
    let seeds: u64 = seeds.parse().unwrap();
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut tally = Tally::default();
    let start = std::time::Instant::now();
    for seed in 0..seeds {
        match run(Plan { seed, ..plan_of_environment() }) {
            Ok(done) => tally += done,
            Err(what) => {
                let kind = what.split_once(": ").map_or("", |(_, kind)| kind);
                let kind: String = kind.chars().filter(|found| !found.is_ascii_digit()).take(70).collect();
                if !kinds.contains_key(&kind) {
                    println!("{:.1} s, {what}", start.elapsed().as_secs_f64());
                }
                kinds.entry(kind).or_insert((seed, 0)).1 += 1;
            }
        }
    }
    println!("{tally:?}, {:.1} s", start.elapsed().as_secs_f64());
    for (kind, (first, count)) in kinds {
        println!("{count:5} first {first:5} {kind}");
    }
}

#[test]
#[ignore = "a quarter of an hour: hundreds of thousands of crashes, hundreds of millions of steps"]
fn hundreds_of_thousands_of_crashes_break_no_promise() {
    let first = pgshrink_testkit::seed::Seed::from_env_or_time().0 >> 2;
    let mut all = Tally::default();
    let mut soak = |name: &str, schedules: u64, plan: Plan| {
        let start = std::time::Instant::now();
        let mut tally = Tally::default();
        for seed in first..first + schedules {
            tally += run(Plan { seed, ..plan }).unwrap_or_else(|what| panic!("{name}: {what}"));
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{name}: {} schedules, {} steps, {} crashes, {} kills, {} panics, {} jumps, {} freezes, \
             {} torn blocks with something durable, {seconds:.0} s",
            tally.schedules,
            tally.steps,
            tally.crashes,
            tally.kills,
            tally.panics,
            tally.jumps,
            tally.freezes,
            tally.garbled,
        );
        all += tally;
    };
    let rough = Plan { panics: true, jumps: true, ..PLAIN };
    soak("plain", 4000, PLAIN);
    soak("faults", 4000, Plan { faults: true, ..PLAIN });
    soak("fsync off", 2000, Plan { fsync_off: true, ..PLAIN });
    soak("wide", 1000, WIDE);
    soak("wide, faults", 1000, Plan { faults: true, ..WIDE });
    soak("wide, fsync off", 500, Plan { fsync_off: true, ..WIDE });
    soak("sizes", 4000, SIZES);
    soak("sizes, nobody dies", 4000, Plan { immortal: true, style: Some(Style::Freeze), ..SIZES });
    soak("sizes, faults", 2000, Plan { faults: true, ..SIZES });
    soak("space", 2000, SPACE);
    soak("space, nobody dies", 2000, Plan { immortal: true, ..SPACE });
    soak("openers", 2000, Plan { openers: true, ..PLAIN });
    soak("openers, fsync off", 1000, Plan { openers: true, fsync_off: true, ..PLAIN });
    soak("panics and jumps", 2000, rough);
    soak("groups", 2000, GROUP);
    soak("groups, nobody dies", 1000, Plan { immortal: true, ..GROUP });
    soak("groups, faults", 1000, Plan { faults: true, ..GROUP });
    soak("groups, panics and jumps", 1000, Plan { segments: GROUP.segments, ..rough });
    soak("panics and jumps, sizes", 2000, Plan { focus: Focus::Sizes, ..rough });
    soak("unloads", 2000, UNLOADS);
    soak("unloads, faults", 1000, Plan { faults: true, ..UNLOADS });
    soak("unloads, sizes", 3000, Plan { focus: Focus::Sizes, ..UNLOADS });
    soak("unloads, panics and jumps", 1000, Plan { wide: true, unloads: true, ..rough });
    println!("in all {all:?}");
    assert!(all.crashes >= 300_000);
}
