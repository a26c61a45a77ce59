//! Processes that keep a file of before open: a conversion waits for them, and nobody else does.

use std::process::{Child, Stdio};
use std::time::Duration;

use pgshrink_testkit::wait_until;

use super::{Live, PATIENCE, To, on_each_major, signal, sum, table};

const STATE: &str = "select coalesce(string_agg(distinct state || ' ' || coalesce(waits_for, ''), ', '), '') from cfs_progress";

/// A session that reads all rows of `t` for a client that reads none of them.
struct Stuck {
    client: Child,
    backend: String,
}

impl Stuck {
    /// The client stands still as soon as rows come.
    fn start(live: &Live) -> Stuck {
        let mut command = live.cluster.psql().arg("-c").arg("copy t to stdout").command();
        let client = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let sends = "select pid from pg_stat_activity where query = 'copy t to stdout' and wait_event = 'ClientWrite'";
        let mut backend = String::new();
        // Nobody reads the pipe: psql waits to write to it, and the backend for psql. For good, not for a moment.
        let mut looks = 0;
        wait_until(PATIENCE, "the backend to wait for its client", || {
            backend = live.sql(sends);
            looks = if backend.is_empty() { 0 } else { looks + 1 };
            std::thread::sleep(Duration::from_millis(20));
            looks >= 15
        })
        .unwrap();
        Stuck { client, backend }
    }

    /// The client reads the rest; how many lines it got.
    fn ends(mut self) -> usize {
        let mut rows = Vec::new();
        std::io::Read::read_to_end(&mut self.client.stdout.take().unwrap(), &mut rows).unwrap();
        assert!(self.client.wait().unwrap().success());
        rows.split(|byte| *byte == b'\n').count() - 1
    }
}

#[track_caller]
fn waits_for(live: &Live, pid: &str) {
    let expected = format!("waiting for old file descriptors process {pid} to close");
    wait_until(PATIENCE, "the conversion to wait for a process", || live.sql(STATE).contains(&expected))
        .unwrap_or_else(|error| panic!("{error} {pid}: {}\n{}", live.sql(STATE), live.end_of_log()));
}

#[test]
fn a_conversion_waits_for_a_client_that_reads_nothing_and_others_go_on() {
    on_each_major("a client that reads nothing", |live| {
        live.sql(&table("t", 20_000));
        live.sql(&table("other", 3_000));
        let expected = live.sql(&sum("t"));
        let stuck = Stuck::start(live);
        live.ask("t", To::Container);
        // Other sessions read and write, and other tables are converted, whether or not the backend, which waits in
        // send, closes its files meanwhile.
        let change = "set statement_timeout = '20s'; update t set word = word || 'x' where id % 10 = 0;
            update t set word = left(word, -1) where id % 10 = 0; insert into t values (0, 'new'); delete from t where id = 0; checkpoint";
        live.sql(change);
        assert_eq!(live.sql(&sum("t")), expected);
        live.convert("other", To::Container);
        live.convert("other", To::Plain);
        live.sql(change);
        println!("the backend {} keeps this waiting: {:?}", stuck.backend, live.sql(STATE));
        assert_eq!(stuck.ends(), 20_000);
        live.wait("t");
        live.has_form("t", To::Container);
        assert_eq!(live.sql(&sum("t")), expected);
        live.is_clean();
    });
}

#[test]
fn a_conversion_waits_for_a_process_that_is_stopped_amid_its_reads() {
    on_each_major("a stopped process", |live| {
        live.sql(&table("t", 20_000));
        // The worker has looked at all descriptors for another file, and has found nobody.
        live.sql(&table("other", 3_000));
        live.convert("other", To::Container);
        let expected = live.sql(&sum("t"));
        for to in To::BOTH {
            let psql = live.cluster.psql();
            let reader = std::thread::spawn(move || {
                psql.sql("set max_parallel_workers_per_gather = 0; select sum(length(repeat(a.word, 3))) from t a, generate_series(1, 40) g where g % 2 = a.id % 2").unwrap()
            });
            let query = "select pid from pg_stat_activity where query like 'select sum(length(%' and pid <> pg_backend_pid()";
            let mut pid = String::new();
            wait_until(PATIENCE, "the reader", || {
                pid = live.sql(query);
                !pid.is_empty()
            })
            .unwrap();
            std::thread::sleep(Duration::from_millis(50));
            signal(&pid, "STOP");
            live.ask("t", to);
            if to == To::Container {
                waits_for(live, &pid);
                // It is called off, written to, and asked for again.
                live.sql("select cfs_cancel('t')");
                live.wait("t");
                live.has_form("t", To::Plain);
                live.sql("update t set word = word || 'x' where id = 6; checkpoint");
                live.ask("t", to);
                waits_for(live, &pid);
                live.sql("update t set word = left(word, -1) where id = 6; checkpoint");
            }
            // Others do not wait for a process that is stopped, wherever it was.
            live.sql("set statement_timeout = '20s'; update t set word = word || 'x' where id = 5; update t set word = left(word, -1) where id = 5");
            signal(&pid, "CONT");
            reader.join().unwrap();
            live.wait("t");
            live.has_form("t", to);
            assert_eq!(live.sql(&sum("t")), expected);
        }
        live.is_clean();
    });
}
