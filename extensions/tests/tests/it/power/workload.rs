//! What is done to the server, and what it acknowledged.
//!
//! Everything that a transaction does follows from its client and its number, so a server that has come back can be
//! compared, row by row, with what it must have after so many transactions of each client. Tables that are made, changed and
//! dropped are listed, by the same transactions, with their rows and a sum over them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pgshrink_testkit::{Cluster, Psql, Rng, Seed};

use super::{check, conversions};

pub const CLIENTS: usize = 4;
const TABLES: usize = 6;

/// What is done beside payments and changes of tables.
const OTHERS: usize = 2;

/// Tables, and functions that pay and say what was to be paid. Where payments are is a matter of chance.
pub fn setup(rng: &mut Rng) -> String {
    let mut setup = SETUP.to_owned();
    for place in ["@account", "@history", "@note"] {
        setup = setup
            .replace(place, rng.pick::<&str>(&["fast", "fast", "pg_default", "pg_default", "inner_one"]));
    }
    setup
}

const SETUP: &str = "
    create tablespace inner_one location '' with (compression = 'lz4');
    create function h(c int, s int, i int) returns int immutable parallel safe language sql
        as $$ select (hashtextextended(c || '/' || s || '/' || i, 0) & 1073741823)::int $$;
    create function body(c int, s int) returns text immutable language sql
        as $$ select string_agg(md5(c || '.' || s || '.' || g), '') from generate_series(1, 1 + h(c, s, 99) % 200) g $$;
    create table account (id int primary key using index tablespace @account, balance bigint not null default 0,
        filler text default repeat('filler ', 10)) with (fillfactor = 90) tablespace @account;
    create index on account (balance) tablespace @account;
    create table history (client int, seq int, nth int, account int, delta int,
        primary key (client, seq, nth) using index tablespace @history) tablespace @history;
    create table note (client int primary key using index tablespace @note, seq int, body text) tablespace @note;
    create table made (name text primary key using index tablespace fast, rows bigint, sum numeric, clock int)
        tablespace fast;
    create table database (name text primary key);
    create table step (n int); insert into step values (0);
    create unlogged table fleeting (i int primary key using index tablespace fast, t text) tablespace fast;
    create function pay(c int, s int) returns void language plpgsql as $$
        declare a int; d int;
        begin
            for i in 1 .. 1 + h(c, s, 0) % 4 loop
                a := h(c, s, 2 * i) % (8000 / 4) * 4 + c; d := h(c, s, 2 * i + 1) % 1000 - 500;
                update account set balance = balance + d where id = a;
                insert into history values (c, s, i, a, d);
            end loop;
            update note set seq = s, body = body(c, s) where client = c;
        end $$;
    create function note_made(t text) returns void language plpgsql as $$
        begin
            delete from made where name = t;
            execute format('insert into made select %L, count(*), coalesce(sum(hashtext(x::text)::bigint), 0) from %I x', t, t);
        end $$;
    insert into account (id) select generate_series(0, 7999);
    insert into note select c, 0, '' from generate_series(0, 3) c;
    create database pattern;";

/// What the database has that others are copied from.
pub const PATTERN: &str =
    "create table kept (i int primary key using index tablespace fast, t text) tablespace fast;
    insert into kept select i, 'row ' || i from generate_series(1, 3000) i";

/// psql as a process that answers one script after the other.
pub struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: PathBuf,
}

impl Session {
    /// `errors` is where it says what went wrong.
    pub fn new(psql: &Psql, errors: PathBuf) -> Session {
        let said = std::fs::File::create(&errors).unwrap();
        let mut command = psql.command();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Session { child, input, output, errors }
    }

    /// Runs a script; the last line that it prints. `None` where it fails, or the server has gone.
    pub fn run(&mut self, script: &str) -> Option<String> {
        self.input.write_all(format!("{script};\n\\echo =done=\n").as_bytes()).ok()?;
        let mut last = String::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.trim_end() == "=done=" {
                return Some(last);
            }
            last = line.trim_end().to_owned();
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where in the run something was: the length of the recording, or a time.
pub type Position = u64;

/// When the server acknowledged what: for each client, where its transactions 1, 2, ... were acknowledged. The
/// last one is the client of DDL, whose transactions are steps.
#[derive(Default, Debug)]
pub struct Acknowledged(Mutex<Vec<Vec<Position>>>);

impl Acknowledged {
    /// As many transactions of each client as had been acknowledged.
    pub fn until(&self, position: Position) -> Vec<usize> {
        let all = self.0.lock().unwrap();
        all.iter().map(|of_client| of_client.partition_point(|at| *at <= position)).collect()
    }

    fn push(&self, client: usize, position: Position) {
        let mut all = self.0.lock().unwrap();
        if all.len() <= CLIENTS {
            all.resize(CLIENTS + 1, Vec::new());
        }
        all[client].push(position);
    }
}

/// Sessions at work.
pub struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    pub acknowledged: Arc<Acknowledged>,
}

impl Running {
    /// Begins all sessions. `position` is asked when the server has acknowledged something. `first` are the
    /// transactions that there are already.
    pub fn start(
        cluster: &Cluster,
        errors: &Path,
        seed: Seed,
        position: impl Fn() -> Position + Send + Sync + 'static,
    ) -> Running {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(Acknowledged::default());
        let position = Arc::new(position);
        let mut threads = Vec::new();
        for client in 0..=CLIENTS + OTHERS {
            let session = Session::new(&cluster.psql(), errors.join(format!("client{client}")));
            let (stop, acknowledged, position) = (stop.clone(), acknowledged.clone(), position.clone());
            let mut rng = Seed(seed.0 ^ (client as u64) << 56).rng();
            let log = cluster.log_path().to_owned();
            threads.push(std::thread::spawn(move || {
                let is_over = || stop.load(Ordering::Relaxed);
                let done = || acknowledged.push(client, position());
                let mut work = Work { session, log, is_over: &is_over, done: &done };
                match client {
                    CLIENTS => work.change_tables(&mut rng),
                    client if client == CLIENTS + 1 => work.make_checkpoints(&mut rng),
                    client if client > CLIENTS => work.convert(&mut rng),
                    client => work.pay(client),
                }
            }));
        }
        Running { stop, threads, acknowledged }
    }

    /// Ends all sessions, each after what it is doing.
    pub fn end(self) -> Arc<Acknowledged> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.acknowledged
    }
}

/// What one session does.
struct Work<'w> {
    session: Session,
    /// The server's log, for who wants to know why it has gone.
    log: PathBuf,
    is_over: &'w dyn Fn() -> bool,
    done: &'w dyn Fn(),
}

impl Work<'_> {
    fn run(&mut self, script: &str) -> String {
        let done = self.session.run(script);
        done.unwrap_or_else(|| {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            panic!("{script}\n{}\n{}", self.session.said(), check::troubles(&log).join("\n"))
        })
    }

    fn pay(&mut self, client: usize) {
        for number in 1.. {
            if (self.is_over)() {
                return;
            }
            self.run(&format!("select pay({client}, {number})"));
            (self.done)();
        }
    }

    fn make_checkpoints(&mut self, rng: &mut Rng) {
        while !(self.is_over)() {
            std::thread::sleep(Duration::from_millis(rng.between(20, 900) as u64));
            self.run("checkpoint");
        }
    }

    /// Some of it is refused: tables that are not there, and what is encrypted and cannot become plain.
    fn convert(&mut self, rng: &mut Rng) {
        self.run("\\set ON_ERROR_STOP 0\nselect 1");
        for table in ["account", "history", "note"] {
            self.run(&conversions::other_form(table));
        }
        while !(self.is_over)() {
            let (sql, pause) = conversions::next(rng);
            self.run(&sql);
            std::thread::sleep(pause);
        }
    }

    /// Makes, changes and drops tables. Each step is one transaction, or a statement that changes no row, after which the
    /// number of steps is raised.
    fn change_tables(&mut self, rng: &mut Rng) {
        self.run("set client_min_messages = warning");
        for number in 1.. {
            if (self.is_over)() {
                return;
            }
            let table = format!("d{}", rng.below(TABLES));
            let exists = self.run(&format!("select count(*) from made where name = '{table}'")) == "1";
            let step = format!("update step set n = {number}");
            match change(&table, exists, rng) {
                Step::Transaction(sql) => {
                    self.run(&format!("begin; {sql}; {step}; commit"));
                }
                Step::Statement(sql) => {
                    self.run(&format!("{sql}; {step}"));
                }
            }
            (self.done)();
        }
    }
}

enum Step {
    Transaction(String),
    Statement(String),
}

/// A change of this table, or of something else.
fn change(table: &str, exists: bool, rng: &mut Rng) -> Step {
    let place = *rng.pick(&["fast", "fast", "inner_one", "pg_default"]);
    let rows = *rng.pick(&[0, 1, 30, 500, 4000]);
    let seed = rng.below(1000);
    let noted = format!("; select note_made('{table}')");
    if !exists {
        return Step::Transaction(format!(
            "create table {table} (i int, t text) tablespace {place};
            insert into {table} select i, repeat(md5((i + {seed})::text), 1 + i % 3 * 40) from generate_series(1, {rows}) i;
            create index {table}_i on {table} (i) tablespace {place}{noted}"
        ));
    }
    match rng.below(20) {
        0..=2 => Step::Transaction(format!("drop table {table}; delete from made where name = '{table}'")),
        3 | 4 => Step::Transaction(format!("truncate {table}{noted}")),
        5 | 6 => Step::Transaction(format!(
            "insert into {table} select i, 'more' || i from generate_series(1, {rows}) i{noted}"
        )),
        7 => Step::Transaction(format!("update {table} set t = t || 'x' where i % 3 = {}{noted}", seed % 3)),
        8 => Step::Statement(format!("delete from {table} where false; vacuum {table}")),
        9 => Step::Transaction(format!("delete from {table} where i > {seed}{noted}")),
        10 | 11 => Step::Statement(format!("vacuum (full) {table}")),
        12 | 13 => Step::Transaction(format!("alter table {table} set tablespace {place}")),
        14 => Step::Statement(format!("alter index {table}_i set tablespace {place}")),
        15 => Step::Statement(format!("reindex table {table}")),
        16 => Step::Transaction(format!(
            "savepoint s; truncate {table}; create table gone (i) tablespace fast as select generate_series(1, 900); rollback to s;
            insert into fleeting select i, 'row ' || i from generate_series(1, 300) i on conflict (i) do update set t = 'again'"
        )),
        17 => Step::Statement(format!(
            "alter tablespace fast set (compression = {})",
            rng.pick(&["'zstd:1'", "'zstd:9'", "lz4", "zstd, encryption = on", "none, encryption = off", "pglz"])
        )),
        18 => Step::Statement(
            "create tablespace short_lived location '' with (compression = 'zstd:2');
            create table brief (i) tablespace short_lived as select generate_series(1, 2000); drop table brief;
            drop tablespace short_lived"
                .to_owned(),
        ),
        _ => {
            let (name, strategy) = *rng.pick(&[("one", "wal_log"), ("two", "file_copy")]);
            Step::Statement(format!(
                "delete from database where name = '{name}'; drop database if exists {name};
                create database {name} template pattern strategy {strategy};
                insert into database values ('{name}')"
            ))
        }
    }
}
