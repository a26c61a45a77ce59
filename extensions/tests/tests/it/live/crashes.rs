//! Processes and servers that end without warning while files change their form.

use std::time::Duration;

use pgshrink_testkit::{Rng, Seed, Server, Stop, wait_until};

use super::writers::{TABLES, WRITTEN, check};
use super::{Live, MAJORS, PATIENCE, To, on_each_major, signal, sum, table};

/// How a server may end.
#[derive(Clone, Copy, Debug)]
enum End {
    Process(&'static str),
    Immediate,
    Postmaster,
}

const ENDS: [End; 5] = [
    End::Process("client backend"),
    End::Process("cfs converter"),
    End::Process("cfs dispatcher"),
    End::Immediate,
    End::Postmaster,
];

impl End {
    fn happens(self, live: &Live) {
        match self {
            End::Process(kind) => kill_one(live, kind),
            End::Immediate => live.cluster.stop(Stop::Immediate).unwrap(),
            End::Postmaster => live.cluster.kill().unwrap(),
        }
        if !live.cluster.is_running() {
            live.cluster.start().unwrap();
        }
        live.wait_until_back();
    }
}

/// Kills a process of the server, whose others end and start again; not after some seconds, if there is none.
fn kill_one(live: &Live, kind: &str) {
    let again = "all server processes terminated; reinitializing";
    let count = || live.cluster.log().unwrap().matches(again).count();
    let before = count();
    // The number of a dispatcher, which lives for milliseconds, must not be of the past: it kills itself by SQL.
    let query = format!(
        "select pid from pg_stat_activity where backend_type = '{kind}' and pid <> pg_backend_pid() limit 1"
    );
    let _ = wait_until(Duration::from_secs(5), "a crash", || {
        let Ok(pid) = live.cluster.sql(&query) else { return count() > before };
        if !pid.is_empty() {
            signal(&pid, "KILL");
        }
        wait_until(Duration::from_millis(100), "the others to end", || count() > before).is_ok()
    });
}

#[test]
fn tables_amid_a_conversion_are_what_they_were_after_every_kind_of_end() {
    on_each_major("crashes amid conversions", |live| {
        let mut rng = Seed::from_env_or_time().rng();
        live.sql(&table("t", 12_000));
        let mut before = live.sql(&sum("t"));
        live.set(&[("cfs.convert_rate", "16MB")]);
        let mut to = To::Container;
        for end in ENDS {
            live.ask("t", to);
            std::thread::sleep(Duration::from_millis(rng.between(0, 1500) as u64));
            if rng.chance(50) {
                live.sql("update t set word = word || 'x' where id % 50 = 0");
                before = live.sql(&sum("t"));
            }
            end.happens(live);
            assert_eq!(live.sql(&sum("t")), before, "{end:?}, {to:?}");
            if rng.chance(70) {
                to = to.other();
            }
        }
        live.set(&[("cfs.convert_rate", "0")]);
        for to in [to, to.other()] {
            live.convert("t", to);
            assert_eq!(live.sql(&sum("t")), before);
        }
        live.is_clean();
    });
}

#[test]
#[ignore = "minutes on a busy machine: make soak"]
fn a_conversion_goes_on_by_itself_after_a_crash() {
    on_each_major("conversions resumed after crashes", |live| {
        live.sql(&table("t", 12_000));
        let before = live.sql(&sum("t"));
        for to in To::BOTH {
            live.set(&[("cfs.convert_rate", "8MB")]);
            live.ask("t", to);
            live.wait_for_middle(20);
            live.cluster.kill().unwrap();
            live.cluster.set_conf("cfs.convert_rate", "0").unwrap();
            live.cluster.start().unwrap();
            live.wait("t");
            live.has_form("t", to);
            assert_eq!(live.sql(&sum("t")), before);
        }
        live.is_clean();
    });
}

#[test]
#[ignore = "minutes: make soak"]
fn a_server_that_dies_under_load_amid_conversions_comes_back_with_all_that_it_acknowledged() {
    Server::each_with_extensions("crashes under load amid conversions", &MAJORS, |server| {
        let mut rng = Seed::from_env_or_time().rng();
        let settings = [("shared_buffers", "4MB"), ("cfs.convert_workers", "2"), ("fsync", "on")];
        let live = Live::start(server, &settings);
        live.sql(TABLES);
        for round in 0..60 {
            under_load(&live, &mut rng, ENDS[round % ENDS.len()]);
            check(&live);
        }
        WRITTEN.iter().for_each(|table| live.convert(table, To::Plain));
        check(&live);
        live.is_clean();
    });
}

/// Sessions pay, tables change their form, until the end.
fn under_load(live: &Live, rng: &mut Rng, end: End) {
    let payers: Vec<_> = (0..3)
        .map(|_| {
            let psql = live.cluster.psql();
            std::thread::spawn(move || while psql.clone().sql("call pay(40)").is_ok() {})
        })
        .collect();
    let rate = *rng.pick::<&str>(&["0", "4MB", "20MB", "60MB"]);
    live.set(&[("cfs.convert_rate", rate)]);
    for table in WRITTEN {
        let to = if rng.chance(50) { To::Container } else { To::Plain };
        live.ask(table, to);
        std::thread::sleep(Duration::from_millis(rng.between(0, 800) as u64));
    }
    if rng.chance(30) {
        live.sql("checkpoint");
    }
    end.happens(live);
    payers.into_iter().for_each(|payer| payer.join().unwrap());
    live.wait_until_back();
    wait_until(PATIENCE, "sessions of before to end", || {
        live.cluster.sql("select count(*) from pg_stat_activity where query like 'call pay%' and pid <> pg_backend_pid()").is_ok_and(|count| count == "0")
    })
    .unwrap();
}

#[test]
fn unlogged_tables_are_empty_after_a_crash_amid_their_conversion_and_serve_on() {
    on_each_major("unlogged tables amid conversions", |live| {
        live.sql("create unlogged table u (id int primary key, w text)");
        live.set(&[("cfs.convert_rate", "8MB")]);
        let fill = "insert into u select i, repeat(md5(i::text), 15) from generate_series(1, 15000) i";
        live.sql(fill);
        for to in To::BOTH {
            live.ask("u", to);
            live.wait_for_middle(20);
            live.cluster.stop(Stop::Immediate).unwrap();
            live.cluster.start().unwrap();
            assert_eq!(live.sql("select count(*) from u"), "0");
            live.sql(fill);
            assert_eq!(live.sql("select count(*), sum(id) from u"), "15000|112507500");
            live.set(&[("cfs.convert_rate", "0")]);
            live.wait("u");
            live.has_form("u", to);
            // A clean stop keeps them.
            live.cluster.restart().unwrap();
            assert_eq!(live.sql("select count(*), sum(id) from u"), "15000|112507500");
            live.set(&[("cfs.convert_rate", "8MB")]);
        }
        live.is_clean();
    });
}
