//! One run: sessions in turn, sessions at the same time, and crashes between and within.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pgshrink_testkit::{Cluster, Rng, Seed, ServerBinaries, Stop, TempDir};

use super::check;
use super::choose::{self, Relations, SESSIONS};
use super::conversions::{self, Conversions};
use super::crash::{self, Crash};
use super::databases::{self, Job};
use super::pair::{Doing, Halt, PATIENCE, Pair, Step, Twins};
use super::story::{SERVER, Story};
use super::variant::Variant;

/// Rows that COPY reads, on both servers.
const COPIED: usize = 61_000;

#[derive(Debug)]
pub struct Run {
    pub twins: Arc<Twins>,
    pub location: PathBuf,
    rng: Rng,
    pub pairs: Vec<Pair>,
    job: Option<Job>,
    conversions: Option<Conversions>,
    node: bool,
    calm: usize,
    /// Rows lie in the same places: no crash yet, nor sessions at the same time.
    exact: bool,
    /// What crashes have left, as they do in any server: files of transactions that were lost.
    tolerated: BTreeSet<String>,
    pub crashes: usize,
    file: PathBuf,
    _places: [TempDir; 3],
}

/// Starts one of the two.
fn start(server: &ServerBinaries, variant: &Variant, library: bool) -> (Cluster, TempDir) {
    let mut builder = Cluster::builder().server(server).fsync(library && variant.fsync);
    for argument in variant.initdb(server.major) {
        builder = builder.initdb_arg(argument);
    }
    for (name, value) in variant.settings(server.major, library) {
        builder = builder.conf(name, value);
    }
    let cluster = builder.start().unwrap();
    let place = TempDir::owned_by(cluster.owner()).unwrap();
    let with = match (library, variant.encrypted) {
        (false, _) => "",
        (true, false) => " with (compression = 'zstd:1')",
        (true, true) => " with (compression = 'zstd:1', encryption = on)",
    };
    let sql = format!("create tablespace fast location '{}'{with}", place.path().display());
    cluster.sql(&sql).unwrap();
    cluster.sql("create table marker (n bigint)").unwrap();
    if library {
        cluster.sql("create schema tools; create extension cfs schema tools").unwrap();
    }
    (cluster, place)
}

impl Run {
    pub fn new(server: &ServerBinaries, seed: u64, variant: &Variant) -> Run {
        let ((ours, our_place), (twin, place)) =
            (start(server, variant, true), start(server, variant, false));
        let shared = TempDir::owned_by(ours.owner()).unwrap();
        let file = shared.path().join("rows");
        let row = |i: usize| format!("{i}\t{}\tcopied {}\t{}\n", i % 97, i % 500, "x".repeat(i % 700));
        std::fs::write(&file, (0..COPIED).map(row).collect::<String>()).unwrap();
        let (story, marks) = (Arc::new(Story::new()), AtomicU64::new(1));
        let patience = if variant.converts.is_some() { "600ms" } else { PATIENCE };
        let twins = Arc::new(Twins { ours, twin, story, marks, patience });
        twins.story.tell(SERVER, &format!("seed {seed}, PostgreSQL {}, {variant:?}", server.version));
        let pairs = (0..SESSIONS).map(|number| Pair::new(&twins, number)).collect();
        let location = our_place.path().to_owned();
        Run {
            twins: twins.clone(),
            location,
            rng: Seed(seed).rng(),
            pairs,
            job: None,
            conversions: variant.converts.map(|_| Conversions::new(&twins, variant.node)),
            node: variant.node,
            calm: variant.calm,
            // A look for what is to be converted keeps rows from being removed.
            exact: variant.converts.is_none(),
            tolerated: BTreeSet::new(),
            crashes: 0,
            file,
            _places: [our_place, place, shared],
        }
    }

    /// Goes on for so long, and then checks everything. What went wrong, if anything.
    pub fn go(&mut self, length: Duration) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < length {
            self.phase()?;
        }
        self.end()
    }

    fn phase(&mut self) -> Result<(), String> {
        let calm = self.calm > 0;
        self.calm = self.calm.saturating_sub(1);
        let crashes = self.rng.chance(65) && !calm;
        let together = self.rng.chance(40) && !calm;
        let steps = self.rng.between(20, 120);
        let armed_at = if crashes { self.rng.below(steps) } else { usize::MAX };
        self.exact &= !crashes && !together;
        let went = if together { self.together(steps, armed_at) } else { self.in_turn(steps, armed_at) };
        match went {
            Ok(()) => self.settle().or_else(|halt| self.after(halt))?,
            Err(halt) => self.after(halt)?,
        }
        check::compare(&self.twins)?;
        if self.exact {
            check::sizes(&self.twins)?;
        }
        self.look()
    }

    /// Steps of all sessions, one at a time, on all tables.
    fn in_turn(&mut self, steps: usize, armed_at: usize) -> Step<()> {
        let mut crash = None;
        for step in 0..steps {
            if step == armed_at {
                crash = Some(Crash::arm(&self.twins, &mut self.rng));
            }
            self.one().or_else(|halt| expected(halt, crash.is_some()))?;
        }
        crash.map_or(Ok(()), |crash| self.await_crash(crash))
    }

    fn one(&mut self) -> Step<()> {
        if self.rng.chance(4) {
            let mark = self.twins.marks.fetch_add(1, Ordering::Relaxed);
            return databases::step(&self.twins, &mut self.rng, mark, &mut self.job);
        }
        if let Some(conversions) = &mut self.conversions
            && self.rng.chance(15)
        {
            let tables = Relations::of(&mut self.pairs[0].twin, None).convertible();
            return conversions.one(&self.twins, &mut self.rng, &tables);
        }
        let chosen = self.rng.below(SESSIONS);
        let quiet = self.pairs.iter().all(|pair| pair.is_idle() && pair.prepared.is_empty());
        step(&self.twins, &mut self.pairs[chosen], &mut self.rng, None, quiet, &self.file)
    }

    /// Sessions that run at the same time, each on tables of its own.
    fn together(&mut self, steps: usize, armed_at: usize) -> Step<()> {
        self.settle()?;
        self.twins.story.tell(SERVER, "all sessions at the same time");
        let (stop, file, twins) = (AtomicBool::new(false), &self.file, &self.twins);
        let crash = (armed_at < steps).then(|| Crash::arm(twins, &mut self.rng));
        let seeds: Vec<u64> = (0..SESSIONS).map(|_| self.rng.bits()).collect();
        let tables = Relations::of(&mut self.pairs[0].twin, None).convertible();
        let (conversions, seed, over) = (&mut self.conversions, self.rng.bits(), AtomicBool::new(false));
        let halts: Vec<Step<()>> = std::thread::scope(|scope| {
            let converting = conversions.as_mut().map(|conversions| {
                let (stop, over, crash) = (&stop, &over, &crash);
                scope.spawn(move || {
                    let mut rng = Seed(seed).rng();
                    let mut went = Ok(());
                    while !over.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) && went.is_ok() {
                        went = conversions
                            .one(twins, &mut rng, &tables)
                            .or_else(|halt| expected(halt, crash.is_some()));
                        std::thread::sleep(Duration::from_millis(rng.below(100) as u64));
                    }
                    went
                })
            });
            let sessions: Vec<_> = self
                .pairs
                .iter_mut()
                .zip(seeds)
                .map(|(pair, seed)| {
                    let (stop, crash) = (&stop, &crash);
                    scope.spawn(move || {
                        let mut rng = Seed(seed).rng();
                        let mut went = Ok(());
                        for _ in 0..steps / 2 {
                            if stop.load(Ordering::Relaxed) || went.is_err() {
                                break;
                            }
                            let owner = Some(pair.number);
                            went = step(twins, pair, &mut rng, owner, false, file)
                                .or_else(|halt| expected(halt, crash.is_some()));
                        }
                        if went.is_err() {
                            stop.store(true, Ordering::Relaxed);
                        }
                        went
                    })
                })
                .collect();
            let mut halts: Vec<_> = sessions.into_iter().map(|session| session.join().unwrap()).collect();
            over.store(true, Ordering::Relaxed);
            halts.extend(converting.map(|converting| converting.join().unwrap()));
            halts
        });
        // What is wrong counts more than that the server has gone.
        let (wrong, crashed): (Vec<_>, Vec<_>) =
            halts.into_iter().filter_map(Result::err).partition(|halt| matches!(halt, Halt::Wrong(_)));
        if let Some(halt) = wrong.into_iter().chain(crashed).next() {
            if let Some(crash) = crash {
                crash.wait();
            }
            return Err(halt);
        }
        crash.map_or(Ok(()), |crash| self.await_crash(crash))
    }

    /// A crash that has been armed happens while nobody does anything, or has had no effect.
    fn await_crash(&mut self, crash: Crash) -> Step<()> {
        crash.wait();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) {
            // Only ours is asked: the answer says nothing but that there is one.
            if self.pairs.iter_mut().any(|pair| pair.ours.ask("select 1").is_none()) {
                return Err(Halt::Crash);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.twins.story.tell(SERVER, "nothing has crashed");
        Ok(())
    }

    /// No transaction is left open, nor prepared.
    fn settle(&mut self) -> Step<()> {
        for pair in &mut self.pairs {
            let commit = self.rng.chance(80);
            pair.end(commit)?;
            while !pair.prepared.is_empty() {
                pair.finish(commit)?;
            }
        }
        Ok(())
    }

    /// After a crash: the server comes back, and the twin gets what was committed.
    fn after(&mut self, halt: Halt) -> Result<(), String> {
        if let Halt::Wrong(why) = halt {
            return Err(why);
        }
        self.crashes += 1;
        crash::recover(&self.twins, &mut self.rng)?;
        self.catch_up().map_err(|halt| match halt {
            Halt::Wrong(why) => why,
            Halt::Crash => "the server has gone by itself".to_owned(),
        })?;
        self.tolerated.extend(check::leftovers(&self.twins.ours, &self.location)?);
        check::examine(&self.twins.ours)
    }

    fn catch_up(&mut self) -> Step<()> {
        for pair in &mut self.pairs {
            pair.resolve(&self.twins)?;
        }
        if let Some(job) = self.job.take() {
            databases::resolve(&self.twins, job)?;
        }
        for pair in &mut self.pairs {
            pair.reconnect(&self.twins);
        }
        if let Some(conversions) = &mut self.conversions {
            *conversions = Conversions::new(&self.twins, self.node);
        }
        self.settle()?;
        let run = |cluster: &Cluster, sql: &str| {
            cluster.sql(sql).map_err(|error| Halt::Wrong(format!("{sql}: {error}")))
        };
        // Half-made indexes are the user's to remove; unlogged tables are empty after a crash.
        let broken = "select c.oid::regclass from pg_index join pg_class c on c.oid = indexrelid where not indisvalid and c.relkind = 'i'";
        for index in run(&self.twins.ours, broken)?.lines() {
            for cluster in [&self.twins.ours, &self.twins.twin] {
                run(cluster, &format!("drop index if exists {index}"))?;
            }
        }
        let unlogged = "select format('truncate %s', oid::regclass) from pg_class
            where relkind = 'r' and relpersistence = 'u' \\gexec\n";
        run(&self.twins.twin, unlogged).map(drop)
    }

    /// Files that should not be there, and words that should not be in the log.
    pub fn look(&mut self) -> Result<(), String> {
        check::log(&self.twins.ours)?;
        let left = check::leftovers(&self.twins.ours, &self.location)?;
        match check::intolerable(&left, &self.tolerated) {
            Some(file) => Err(format!("{file} is in the tablespace and belongs to no relation")),
            None => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.pairs.clear();
        let converts = self.conversions.take().is_some();
        self.twins.story.tell(SERVER, "stopped, started, and emptied");
        self.twins
            .ours
            .stop(Stop::Fast)
            .and_then(|()| self.twins.ours.start())
            .map_err(|error| error.to_string())?;
        check::compare(&self.twins)?;
        check::examine(&self.twins.ours)?;
        if converts {
            conversions::settle(&self.twins.ours)?;
            check::compare(&self.twins)?;
            check::examine(&self.twins.ours)?;
        }
        check::way_out(&self.twins, &self.location, &self.tolerated)?;
        check::log(&self.twins.ours)
    }
}

fn expected(halt: Halt, armed: bool) -> Step<()> {
    match halt {
        Halt::Crash if !armed => Err(Halt::Wrong("the server has gone by itself".to_owned())),
        halt => Err(halt),
    }
}

/// One statement of a session.
fn step(
    twins: &Twins,
    pair: &mut Pair,
    rng: &mut Rng,
    owner: Option<usize>,
    quiet: bool,
    file: &std::path::Path,
) -> Step<()> {
    if pair.failed {
        if pair.savepoints > 0 && rng.chance(60) {
            pair.failed = false;
            return pair.both("rollback to savepoint s").map(drop);
        }
        return pair.end(rng.chance(30));
    }
    let relations = Relations::of(&mut pair.twin, owner);
    if pair.is_idle() {
        return between(twins, pair, rng, &relations, owner, quiet);
    }
    match rng.below(100) {
        0..15 => pair.end(true),
        15..18 => pair.end(false),
        18 | 19 if pair.prepared.is_empty() => pair.prepare(),
        20..25 => {
            pair.savepoints += 1;
            pair.both("savepoint s").map(drop)
        }
        25..28 if pair.savepoints > 0 => pair.both("rollback to savepoint s").map(drop),
        28..30 if pair.savepoints > 0 => {
            pair.savepoints -= 1;
            pair.both("release savepoint s").map(drop)
        }
        30 if owner.is_none() => {
            let (ours, twin) = choose::compression(rng);
            pair.changed = true;
            pair.each(&ours, twin).map(drop)
        }
        31..33 => ordered_copy(pair, rng, &relations),
        _ => {
            let sql = choose::within(rng, &relations).replace("@@", &file.display().to_string());
            pair.both(&sql).map(drop)
        }
    }
}

/// A copy whose rows have the same order on both, and so the same size.
fn ordered_copy(pair: &mut Pair, rng: &mut Rng, relations: &Relations) -> Step<()> {
    let (name, sql) = choose::ordered_copy(rng, relations, pair.number);
    let said = pair.both(&sql)?;
    if said.failed() {
        return Ok(());
    }
    pair.both(&format!(
        "select pg_relation_size(oid), pg_relation_size(reltoastrelid) from pg_class where relname = '{name}'"
    ))?;
    pair.both(&format!("drop table {name}")).map(drop)
}

/// What a session does that is in no transaction.
fn between(
    twins: &Twins,
    pair: &mut Pair,
    rng: &mut Rng,
    relations: &Relations,
    owner: Option<usize>,
    quiet: bool,
) -> Step<()> {
    if !pair.prepared.is_empty() && rng.chance(50) {
        return pair.finish(rng.chance(70));
    }
    match rng.below(100) {
        0..22 => pair.alone(Doing::Upkeep, &choose::upkeep(rng, relations)),
        22..32 if quiet && owner.is_none() => {
            pair.both("set lock_timeout = '10s'")?;
            let sql = choose::concurrently(rng, relations);
            pair.alone(Doing::Concurrently(sql.clone()), &sql)?;
            pair.be_impatient()
        }
        _ => {
            let modes = ["", "", "", "", "isolation level repeatable read", "isolation level serializable"];
            // Whether sessions that run at the same time conflict is a matter of time.
            let modes = if owner.is_some() { &modes[..5] } else { &modes };
            pair.begin(twins, rng.pick::<&str>(modes))
        }
    }
}
