//! `pgshrink advise --sql --online`: its script, run by psql on servers that are in use, and killed in the middle of each step.

#[path = "../../../advisor/tests/it/plan/compared.rs"]
#[allow(dead_code, reason = "some of it is for plans that are no scripts")]
mod compared;

use crate::advise::start;
use crate::advise_definitions::NoFiles;
use crate::backup::{pgshrink, refused};
use compared::{ORDER, RELATIONS, assert_same, assert_same_dump, catalogs, cluster, dump, load, rows};
use pgshrink_pgclient::connection::{Connection, Options};
use pgshrink_pgclient::{Error, Surroundings};
use pgshrink_testkit::{Cluster, Rng, Seed, Server, TempDir};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Rules whose findings a rewrite is for, whatever the data are.
const LAYOUT: [&str; 2] = ["--rules", "column_order,dropped_columns"];
const STEPS: [&str; 6] = ["prepare", "copy", "catch_up", "exchange", "finish", "drop"];

/// The script for a database, in a file.
struct Script {
    folder: TempDir,
}

impl Script {
    fn of(cluster: &Cluster, words: &[&str]) -> Script {
        let conninfo = cluster.conninfo("postgres");
        let own = ["advise", &conninfo, "--sql", "--online", "--min-size", "0", "--no-progress"];
        let output = pgshrink(&[&own, words].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("script.sql"), output.stdout).unwrap();
        Script { folder }
    }

    fn path(&self) -> String {
        self.folder.path().join("script.sql").to_str().unwrap().to_owned()
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    fn psql(&self, cluster: &Cluster, variables: &[&str]) -> pgshrink_testkit::Psql {
        let with = |psql: pgshrink_testkit::Psql, variable: &&str| psql.arg("-v").arg(*variable);
        variables.iter().fold(cluster.psql(), with).arg("-f").arg(self.path())
    }

    #[track_caller]
    fn run(&self, cluster: &Cluster, variables: &[&str]) {
        if let Err(error) = self.psql(cluster, variables).run() {
            panic!("{variables:?}: {error}\n{}", self.text());
        }
    }

    #[track_caller]
    fn fails(&self, cluster: &Cluster, variables: &[&str], message: &str) {
        let error = self.psql(cluster, variables).run().unwrap_err().to_string();
        assert!(error.contains(message), "{variables:?}: {error}");
    }

    /// Begins a step, after those before it, and kills psql some time later.
    fn kill_in(&self, cluster: &Cluster, step: &str, after: Duration) -> Killed {
        let said = self.folder.path().join("said");
        let place = STEPS.iter().position(|other| *other == step).unwrap();
        let mut command = self.psql(cluster, &[&format!("steps={}", STEPS[..=place].join(","))]).command();
        let mut child = command.stderr(File::create(&said).unwrap()).spawn().unwrap();
        let is_begun = || fs::read_to_string(&said).unwrap().contains(&format!("public.t: {step}\n"));
        while !is_begun() {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{step}: {}", fs::read_to_string(&said).unwrap());
                return Killed::TooLate;
            }
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(after);
        let is_done = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        if is_done { Killed::TooLate } else { Killed::InTheMiddle }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    InTheMiddle,
    TooLate,
}

#[test]
fn a_table_with_everything_is_written_anew_by_the_printed_script() {
    Server::each("the online script for a table with everything", &[15, 18], |server| {
        let cluster = cluster(server);
        load(&cluster, include_str!("../../../advisor/tests/it/plan/rich.sql"), server.major);
        let script = Script::of(&cluster, &[&LAYOUT[..], &["--table", "shop.order"]].concat());
        let seen = || (catalogs(&cluster), RELATIONS.map(|relation| rows(&cluster, relation)));
        let (before, dump_before) = (seen(), dump(&cluster));
        let attributes = format!(
            "select count(*) from pg_attribute where attrelid = '{ORDER}'::regclass and attisdropped"
        );
        assert_eq!(cluster.sql(&attributes).unwrap(), "2");
        script.run(&cluster, &[]);
        assert_eq!(cluster.sql(&attributes).unwrap(), "0", "it is another table");
        // All of it was done: nothing happens.
        script.run(&cluster, &[]);
        script.run(&cluster, &["steps=undo"]);
        script.fails(&cluster, &["table=shop.order", "steps=undo"], "cannot be undone");
        script.run(&cluster, &["steps=drop"]);
        script.run(&cluster, &["steps=drop"]);
        let after = seen();
        assert_same(&before.0, &after.0, &server.major.to_string());
        assert_eq!(before.1, after.1);
        assert_same_dump(&dump_before, &dump(&cluster), &["positional", "clashing", "together", "pub order"]);
        let left = "select relname from pg_class where relname ~ 'pgshrink|_old'
            union all select proname from pg_proc where proname ~ 'pgshrink'";
        assert_eq!(cluster.sql(left).unwrap(), "", "nothing is left behind");
    });
}

const TABLES: &str = "
    create sequence u_seq start 1000000; create sequence key_seq start 5000000;
    create table shadow (id bigint, body text, n int, u bigint);
    create table t (flag bool default true, id bigint generated by default as identity primary key, gone int, body text,
      small bool not null default false, n int not null default 0, u bigint unique, serial serial);
    create table child (id bigint references t on update cascade on delete cascade, x int);
    create view v as select id, body from t where flag;
    create materialized view m as select flag, count(*) from t where id < 0 group by flag;
    create function copy_it() returns trigger language plpgsql as $$ begin
      if tg_op <> 'INSERT' then delete from shadow where id = old.id; end if;
      if tg_op <> 'DELETE' then insert into shadow values (new.id, new.body, new.n, new.u); end if; return null; end $$;
    create trigger copy_it after insert or update or delete on t for each row execute function copy_it();
    insert into t (body, u) select md5(n::text), n from generate_series(1, 40000) n; alter table t drop gone;
    insert into child select id, 1 from t where id % 50 = 0;
    create index on t (body, n); create index on shadow (id); analyze;";

/// A writer's transaction.
const WRITE: [&str; 8] = [
    "begin",
    // Who has a number holds the sequence.
    "select nextval('t_serial_seq'), nextval('t_id_seq')",
    "insert into t (body, u) select repeat('x', (random() * 300)::int), nextval('u_seq') from generate_series(1, 3)",
    "update t set body = body || 'y', n = n + 1 where id in (select (random() * 40000)::bigint from generate_series(1, 4))",
    "update t set id = nextval('key_seq') where id = (random() * 40000)::bigint",
    "insert into child select id, 2 from t where id = (random() * 40000)::bigint for key share",
    "delete from t where id = (random() * 40000)::bigint",
    "commit",
];

/// Writes until it is told to stop. Only deadlocks with another writer may be in its way.
fn write(cluster: &Cluster, stop: &AtomicBool, written: &AtomicU32) {
    let around = Surroundings { env: BTreeMap::new(), home: None, files: &NoFiles };
    let options = Options { read_timeout: Some(Duration::from_secs(60)), ..Options::default() };
    let conninfo = cluster.conninfo("postgres");
    let mut connection = Connection::open(conninfo.as_bytes(), &around, &options).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let done: Result<Vec<_>, Error> = WRITE.iter().map(|sql| connection.simple_query(sql)).collect();
        match done {
            Ok(_) => {
                written.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::Server { report, .. }) if report.sqlstate == "40P01" => {
                connection.simple_query("rollback").unwrap();
            }
            Err(error) => panic!("a writer is in trouble: {error}"),
        }
    }
}

/// The longest that somebody waited for a lock of the table, of waits above `deadlock_timeout`.
fn longest_wait_ms(cluster: &Cluster, oid: &str) -> f64 {
    let log = cluster.log().unwrap();
    let waits = log.lines().filter(|line| line.contains(&format!("on relation {oid} of")));
    let waited = waits.filter_map(|line| {
        let (_, rest) = line.split_once(" acquired RowExclusiveLock")?;
        rest.split_once(" after ")?.1.split(' ').next()?.parse::<f64>().ok()
    });
    waited.fold(0.0, f64::max)
}

#[test]
fn psql_is_killed_in_every_step_while_writers_are_at_work() {
    Server::each("the online script under writers and kills", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).conf("log_lock_waits", "on").start().unwrap();
        cluster.sql(TABLES).unwrap();
        let script = Script::of(&cluster, &[&LAYOUT[..], &["--table", "t"]].concat());
        assert!(script.text().contains("public.t, exchange"), "{}", script.text());
        let oid = cluster.sql("select 't'::regclass::oid").unwrap();
        let named = || catalogs(&cluster).into_iter().filter(|line| !line.starts_with("sequence|"));
        let before: Vec<String> = named().collect();
        let mut rng = Seed(u64::from(server.major)).rng();
        let (stop, written) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| write(&cluster, &stop, &written));
            }
            let _stop = Stop(&stop);
            kill_in_every_step(&cluster, &script, &mut rng);
            thread::sleep(Duration::from_millis(300));
        });
        assert!(written.load(Ordering::Relaxed) > 50, "there were writers: {written:?}");
        let wait = longest_wait_ms(&cluster, &oid);
        println!("{written:?} transactions, {wait} ms for a lock at most");
        assert!(wait < 3_000.0, "a writer waited for {wait} ms");
        let difference = "select count(*) from (
            (select id, body, n, u from t except all select id, body, n, u from shadow) union all
            (select id, body, n, u from shadow except all select id, body, n, u from t)) x";
        assert_eq!(cluster.sql(difference).unwrap(), "0");
        assert_ne!(cluster.sql("select 't'::regclass::oid").unwrap(), oid);
        assert_same(&before, &named().collect::<Vec<_>>(), &server.major.to_string());
        let left = "select relname from pg_class where relname ~ 'pgshrink|_old'";
        assert_eq!(cluster.sql(left).unwrap(), "", "nothing is left behind");
    });
}

/// Says that it is over, whatever happens.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn kill_in_every_step(cluster: &Cluster, script: &Script, rng: &mut Rng) {
    let mut readers = Vec::new();
    for step in STEPS {
        let mut killed = 0;
        // A reader that is in the way for longer than one try.
        let reader = (step == "exchange").then(|| {
            let sql = "begin; select from t limit 1; select pg_sleep(10)";
            cluster.psql().arg("-c").arg(sql).command().spawn().unwrap()
        });
        for _ in 0..4 {
            // A step that was done once has nothing more to do.
            let after = match killed {
                0 => 0,
                _ => rng.below(if step == "exchange" { 150 } else { 40 }),
            };
            let after = Duration::from_millis(after as u64);
            killed += u32::from(script.kill_in(cluster, step, after) == Killed::InTheMiddle);
        }
        println!("{step}: killed {killed} times");
        assert!(killed > 0 || step == "drop" || step == "finish", "{step} was never killed");
        readers.extend(reader);
    }
    script.run(cluster, &[]);
    for mut reader in readers {
        reader.wait().unwrap();
    }
    script.run(cluster, &["steps=drop"]);
}

#[test]
fn steps_and_tables_are_chosen_by_name_and_undone() {
    Server::each("steps of the online script", &[15], |server| {
        let cluster = start(server);
        cluster
            .sql(
                "create table a (x bool, id bigint primary key, y bool, z bigint); create table \"o'dd \"\"$pgshrink$\" (like a including all);
                 create table keyless (x bool, id bigint, y bool, z bigint);
                 insert into a select true, n, true, n from generate_series(1, 9000) n;
                 insert into \"o'dd \"\"$pgshrink$\" table a; insert into keyless table a; vacuum analyze",
            )
            .unwrap();
        let script = Script::of(&cluster, &LAYOUT);
        let text = script.text();
        assert!(
            text.contains(
                "Not while it is in use: public.keyless: cannot be rewritten: it has no primary key"
            ),
            "{text}"
        );
        let seen = || (catalogs(&cluster), ["a", "keyless"].map(|table| rows(&cluster, table)));
        let before = seen();
        let a = "table=public.a";
        script.fails(&cluster, &["steps=prepare,copying"], "unknown step");
        script.fails(&cluster, &["table=b"], "no such table");
        script.fails(&cluster, &[a, "steps=copy"], "comes too early");
        script.fails(&cluster, &[a, "steps=exchange,copy"], "comes too early");
        script.run(&cluster, &[a, "steps=prepare,copy"]);
        script.fails(&cluster, &[a, "steps=exchange"], "was not compared");
        script.run(&cluster, &[a, "steps=undo"]);
        assert_eq!(seen(), before);
        // Somebody changes the copy: the comparison finds it.
        script.run(&cluster, &[a, "steps=prepare,copy"]);
        let oid = cluster.sql("select 'a'::regclass::oid").unwrap();
        cluster.sql(&format!("delete from pgshrink_{oid}_new where id = 5")).unwrap();
        script.fails(&cluster, &[a, "steps=catch_up"], "differs from the original");
        script.run(&cluster, &[a, "steps=undo"]);
        // Somebody changes the table: the exchange sees it.
        script.run(&cluster, &[a, "steps=prepare,copy,catch_up"]);
        cluster.sql("comment on table a is 'new'").unwrap();
        script.fails(&cluster, &[a, "steps=exchange"], "has changed since");
        cluster.sql("comment on table a is null").unwrap();
        let first = "select attname from pg_attribute where attrelid = 'keyless'::regclass and attnum = 1";
        script.run(&cluster, &[]);
        assert_eq!(cluster.sql(first).unwrap(), "x", "what makes everybody wait is only done by name");
        script.run(&cluster, &["table=public.keyless", "steps=in_place"]);
        assert_eq!(cluster.sql(first).unwrap(), "id");
        script.run(&cluster, &["steps=drop"]);
        assert_eq!(seen().1, before.1);
        let moved =
            "select count(*) from pg_attribute where attname = 'x' and attnum > 2 and attrelid >= 16384";
        assert_eq!(cluster.sql(moved).unwrap(), "3");
    });
}

#[test]
fn online_is_a_way_to_print_sql() {
    assert!(refused(&["advise", "host=/nowhere", "--online"]).contains("--sql"));
}
