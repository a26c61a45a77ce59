//! Pauses, rates, calls to stop, and restarts in the middle.

use std::time::Instant;

use pgshrink_testkit::{Stop, wait_until};

use super::{Live, PATIENCE, To, on_each_major, sum, table};

/// Bytes of a table, its index and TOAST.
fn bytes(live: &Live, table: &str) -> u64 {
    live.sql(&format!("select pg_total_relation_size('{table}')")).parse().unwrap()
}

#[test]
fn a_conversion_keeps_to_its_rate_pauses_and_goes_on() {
    on_each_major("rate and pause", |live| {
        live.sql(&table("t", 20_000));
        let before = live.sql(&sum("t"));
        live.set(&[("cfs.convert_rate", "8MB")]);
        let begun = Instant::now();
        for to in To::BOTH {
            live.ask("t", to);
            live.wait_for_middle(10);
            live.set(&[("cfs.convert", "off")]);
            // What was in hand is finished: a step of milliseconds.
            std::thread::sleep(std::time::Duration::from_millis(300));
            let done =
                "select sum(pages_done) || ' ' || string_agg(distinct waits_for, ', ') from cfs_progress";
            let paused = live.sql(done);
            assert!(paused.contains("cfs.convert, which is off"), "{paused}");
            std::thread::sleep(std::time::Duration::from_millis(700));
            assert_eq!(live.sql(done), paused);
            assert_eq!(live.sql(&sum("t")), before);
            live.set(&[("cfs.convert", "on")]);
            live.wait("t");
            live.has_form("t", to);
        }
        let (mib, seconds) = (2 * bytes(live, "t") >> 20, begun.elapsed().as_secs_f64());
        println!("{mib} MiB in {seconds:.1} s at 8 MB/s");
        assert!(seconds > mib as f64 / 8.0 * 0.8, "{mib} MiB in {seconds} s");
        assert_eq!(live.sql(&sum("t")), before);
        live.is_clean();
    });
}

#[test]
fn a_call_to_cancel_brings_back_what_had_moved_in_either_direction() {
    on_each_major("cfs_cancel", |live| {
        live.sql(&table("t", 20_000));
        let before = live.sql(&sum("t"));
        for to in To::BOTH {
            live.set(&[("cfs.convert_rate", "8MB")]);
            live.ask("t", to);
            live.wait_for_middle(10);
            let back: u32 = live.sql("select cfs_cancel('t')").parse().unwrap();
            assert!(back > 0);
            live.set(&[("cfs.convert_rate", "0")]);
            live.wait("t");
            live.has_form("t", to.other());
            assert_eq!(live.sql(&sum("t")), before);
            // For the other direction.
            live.convert("t", to);
        }
        live.is_clean();
    });
}

#[test]
fn a_conversion_goes_on_after_a_restart_in_its_middle() {
    on_each_major("restarts amid conversions", |live| {
        live.sql(&table("t", 20_000));
        let before = live.sql(&sum("t"));
        for to in To::BOTH {
            live.set(&[("cfs.convert_rate", "3MB")]);
            live.ask("t", to);
            live.wait_for_middle(10);
            for how in [Stop::Fast, Stop::Immediate] {
                live.cluster.stop(how).unwrap();
                live.cluster.start().unwrap();
                assert_eq!(live.sql(&sum("t")), before);
                let goes_on =
                    "select count(*) > 0 or cfs_wait('t', '0') from cfs_progress where pages_done > 0";
                wait_until(PATIENCE, "the conversion to go on", || live.sql(goes_on) == "t")
                    .unwrap_or_else(|error| panic!("{error}: {how:?} {to:?}\n{}", live.end_of_log()));
            }
            live.set(&[("cfs.convert_rate", "0")]);
            live.wait("t");
            live.has_form("t", to);
            assert_eq!(live.sql(&sum("t")), before);
        }
        live.is_clean();
    });
}
