//! Pauses, rates, calls to stop, and restarts in the middle.

use std::time::{Duration, Instant};

use pgshrink_testkit::{Seed, Server, Stop, wait_until};

use super::{Live, MAJORS, PATIENCE, To, on_each_major, sum, table};

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
            std::thread::sleep(Duration::from_millis(300));
            let done =
                "select sum(pages_done) || ' ' || string_agg(distinct waits_for, ', ') from cfs_progress";
            let paused = live.sql(done);
            assert!(paused.contains("cfs.convert, which is off"), "{paused}");
            std::thread::sleep(Duration::from_millis(700));
            assert_eq!(live.sql(done), paused);
            assert_eq!(live.sql(&sum("t")), before);
            live.set(&[("cfs.convert", "on")]);
            live.wait("t");
            live.has_form("t", to);
        }
        let (mib, seconds) = ((2 * bytes(live, "t")) >> 20, begun.elapsed().as_secs_f64());
        println!("{mib} MiB in {seconds:.1} s at 8 MB/s");
        assert!(seconds > mib as f64 / 8.0 * 0.8, "{mib} MiB in {seconds} s");
        assert_eq!(live.sql(&sum("t")), before);
        live.is_clean();
    });
}

#[test]
fn a_pause_shows_what_is_on_its_way_after_a_restart_and_not_what_was_dropped() {
    on_each_major("progress of a pause", |live| {
        live.sql(&format!("{}{}", table("t", 20_000), table("gone", 20_000)));
        let before = live.sql(&sum("t"));
        live.set(&[("cfs.convert_rate", "64kB")]);
        ["t", "gone"].iter().for_each(|name| live.ask(name, To::Container));
        live.wait_for_middle(0);
        live.set(&[("cfs.convert", "off")]);
        let shown = |name: &str| {
            live.sql(&format!("select count(*) from cfs_progress where relation::text = '{name}'"))
        };
        assert!(shown("t") != "0" && shown("gone") != "0", "{}", live.progress());
        live.cluster.restart().unwrap();
        wait_until(PATIENCE, "files on their way to be found", || shown("t") != "0" && shown("gone") != "0")
            .unwrap_or_else(|error| panic!("{error}: {}", live.progress()));
        let waits = live.sql("select distinct waits_for from cfs_progress");
        assert_eq!(waits, "cfs.convert, which is off");
        live.sql("drop table gone; checkpoint");
        let of_none = "select count(*) from cfs_progress where relation is null";
        wait_until(PATIENCE, "files that were dropped to go", || live.sql(of_none) == "0")
            .unwrap_or_else(|error| panic!("{error}: {}", live.progress()));
        assert!(shown("t") != "0", "{}", live.progress());
        live.set(&[("cfs.convert_rate", "0"), ("cfs.convert", "on")]);
        live.wait("t");
        live.has_form("t", To::Container);
        assert_eq!(live.sql(&sum("t")), before);
        live.is_clean();
    });
}

#[test]
fn what_is_asked_for_amid_the_other_direction_turns_the_conversion_round() {
    on_each_major("turning round", |live| {
        live.sql(&table("t", 20_000));
        let before = live.sql(&sum("t"));
        for to in To::BOTH {
            // Minutes, if it had to go to its end first.
            live.set(&[("cfs.convert_rate", "64kB")]);
            live.ask("t", to);
            live.wait_for_middle(0);
            live.ask("t", to.other());
            let direction = if to == To::Plain { "decompress" } else { "compress" };
            let as_before = format!("select count(*) from cfs_progress where direction = '{direction}'");
            wait_until(PATIENCE, "the conversion to turn round", || live.sql(&as_before) == "0").unwrap();
            live.set(&[("cfs.convert_rate", "0")]);
            live.wait("t");
            live.has_form("t", to.other());
            live.convert("t", to);
        }
        assert_eq!(live.sql(&sum("t")), before);
        live.is_clean();
    });
}

#[test]
fn what_is_asked_for_begins_without_a_nap_also_while_a_look_is_under_way() {
    Server::each_with_extensions("naps", &MAJORS, |server| {
        let live = Live::start(server, &[("cfs.naptime", "1h")]);
        let names: Vec<String> = (0..8).map(|number| format!("t{number}")).collect();
        names.iter().for_each(|name| drop(live.sql(&table(name, 200))));
        // Each is asked for by itself: most while a look for those before has begun, and has not ended.
        for to in To::BOTH {
            names.iter().for_each(|name| live.ask(name, to));
            for name in &names {
                live.wait(name);
                live.has_form(name, to);
            }
        }
        live.is_clean();
    });
}

#[test]
#[ignore = "minutes on a busy machine: make soak"]
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

/// Small tables, so that many of the calls come while a worker ends what was asked for before.
#[test]
#[ignore = "minutes: make soak"]
fn a_conversion_is_turned_round_at_any_moment_and_none_is_forgotten() {
    Server::each_with_extensions("conversions turned round at any moment", &MAJORS, |server| {
        let live = Live::start(server, &[("cfs.convert_workers", "2")]);
        let mut rng = Seed::from_env_or_time().rng();
        let names = ["a", "b", "c", "d"];
        names.iter().for_each(|name| drop(live.sql(&table(name, 1_500))));
        let expected = names.map(|name| live.sql(&sum(name)));
        for round in 0..20 {
            for _ in 0..30 {
                live.ask(rng.pick::<&str>(&names), *rng.pick(&To::BOTH));
                std::thread::sleep(Duration::from_millis(rng.between(0, 120) as u64));
            }
            names.iter().for_each(|name| live.wait(name));
            if round % 4 == 3 {
                live.cluster.kill().unwrap();
                live.cluster.start().unwrap();
            }
            assert_eq!(names.map(|name| live.sql(&sum(name))), expected, "round {round}");
        }
        live.is_clean();
    });
}

#[test]
fn a_file_that_could_not_be_opened_for_a_while_is_gone_on_with_and_counts_with_its_base() {
    on_each_major("a base that was away", |live| {
        live.sql(&table("t", 12_000));
        let expected = live.sql(&sum("t"));
        let read_only =
            live.cluster.sql("begin read only; select cfs_set('t', 'lz4')").unwrap_err().to_string();
        assert!(read_only.contains("read-only transaction"), "{read_only}");
        live.set(&[("cfs.convert_rate", "2MB")]);
        live.ask("t", To::Container);
        live.wait_for_middle(20);
        let path = live.cluster.data_dir().join(live.sql("select pg_relation_filepath('t')"));
        let on_disk =
            live.sql("select disk_bytes > virtual_bytes from cfs_relations where relation = 't'::regclass");
        assert_eq!(on_disk, "t", "the base counts");
        live.cluster.stop(Stop::Fast).unwrap();
        let (base, away) = (path.join("base.pgshrink"), live.cluster.data_dir().join("base-away"));
        std::fs::rename(&base, &away).unwrap();
        live.cluster.start().unwrap();
        let said = live.cluster.sql("select count(*) from t").unwrap_err().to_string();
        assert!(said.contains("base.pgshrink") && !said.contains("from a backup"), "{said}");
        // Workers have looked for what they have to go on with by then.
        wait_until(PATIENCE, "a look of the dispatcher", || live.cluster.log_contains("cfs cannot convert"))
            .unwrap();
        std::fs::rename(&away, &base).unwrap();
        live.set(&[("cfs.convert_rate", "0")]);
        live.wait("t");
        live.has_form("t", To::Container);
        assert_eq!(live.sql(&sum("t")), expected);
    });
}
