//! Connections that are cut at random points, to the server and to an object store, and processes that are killed.
//!
//! Each test takes a seed from the clock and prints it; `PGSHRINK_SEED` replays one. What cannot be replayed is where threads
//! are when a connection is cut, so a test says what must hold wherever that was.

use crate::backup::{Running, SUMS, boot, repository, start};
use pgshrink_testkit::relay::{Cut, Direction, Endpoint, Shape};
use pgshrink_testkit::{Cluster, Relay, Rng, S3, Seed, Server, TempDir};
use pgshrink_testkit::{skipped, wait_until};
use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Whoever has not ended by then hangs.
const HANG: Duration = Duration::from_secs(240);

/// A server, the way to it, and a repository.
struct Scene {
    cluster: Cluster,
    to_server: Relay,
    keep: TempDir,
    store: Option<Store>,
    expected: String,
}

/// An object store, and the way to it.
struct Store {
    relay: Relay,
    variables: Vec<(String, String)>,
    /// It ends when this is dropped, after the relay.
    _server: S3,
}

impl Store {
    fn new() -> Store {
        let server = S3::start().unwrap();
        let relay = Relay::to(Endpoint::local(server.port())).start().unwrap();
        let mut variables = server.variables("secret");
        let endpoint = variables.iter_mut().find(|(name, _)| name == "AWS_ENDPOINT_URL").unwrap();
        endpoint.1 = format!("http://127.0.0.1:{}", relay.port());
        Store { relay, variables, _server: server }
    }
}

impl Scene {
    fn new(store: Option<Store>) -> Scene {
        let cluster = start(&Server::find(15).unwrap());
        let to_server = Relay::to(Endpoint::local(cluster.port())).start().unwrap();
        let expected = cluster.sql(SUMS).unwrap();
        Scene { cluster, to_server, keep: TempDir::new().unwrap(), store, expected }
    }

    fn place(&self) -> String {
        match &self.store {
            Some(_) => "s3://backups/db".to_owned(),
            None => repository(&self.keep),
        }
    }

    fn spawn(&self, words: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        command.args(words).args(["-q", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(self.store.iter().flat_map(|store| store.variables.iter().cloned()));
        command.spawn().unwrap()
    }

    /// Runs pgshrink, which has to come to an end.
    fn run(&self, words: &[&str]) -> Output {
        ended(self.spawn(words))
    }

    /// The words of a backup by the relay.
    fn backup<'w>(&self, conninfo: &'w str, place: &'w str, more: &[&'w str]) -> Vec<&'w str> {
        let words = [
            "backup",
            conninfo,
            "--to",
            place,
            "--checkpoint",
            "fast",
            "--pack-size-mib",
            "1",
            "--threads",
            "2",
        ];
        [&words[..], more].concat()
    }

    fn conninfo(&self) -> String {
        self.cluster.conninfo_at("127.0.0.1", self.to_server.port(), "postgres")
    }

    /// Runs it without a cut.
    #[track_caller]
    fn done(&self, words: &[&str]) -> Value {
        for relay in std::iter::once(&self.to_server).chain(self.store.as_ref().map(|store| &store.relay)) {
            relay.cut_after(Direction::ToServer, u64::MAX, Cut::Close);
        }
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// States of all backups but the first.
    fn later_states(&self, first: &str) -> Vec<String> {
        let listed = self.done(&["list", "--from", &self.place()]);
        let listed = listed.as_array().unwrap().iter();
        let listed: Vec<_> = listed
            .map(|found| [&found["backup"], &found["state"]].map(|text| text.as_str().unwrap()))
            .collect();
        assert!(listed.contains(&[first, "complete"]), "{listed:?}");
        let later = listed.iter().filter(|[name, _]| *name != first);
        later.map(|[_, state]| (*state).to_owned()).collect()
    }

    /// A backup has what the server has.
    fn check_contents(&self, name: &str) {
        let copy = boot(self.cluster.server(), |into| {
            self.done(&["restore", name, "--from", &self.place(), "--into", into.to_str().unwrap()]);
        });
        assert_eq!(copy.sql(SUMS).unwrap(), self.expected);
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits for its end.
fn ended(child: Child) -> Output {
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
    receiver.recv_timeout(HANG).unwrap_or_else(|_| {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        panic!("pgshrink hangs");
    })
}

fn name_in(report: &Value) -> String {
    report["backup"].as_str().unwrap().to_owned()
}

/// A point of a connection that surely delivers so many bytes to its client.
fn plan(relay: &Relay, rng: &mut Rng, bytes: u64) {
    let cut = *rng.pick(&[Cut::Reset, Cut::Close]);
    let (direction, bytes) = match rng.chance(20) {
        true => (Direction::ToServer, rng.between(1, 150) as u64),
        false => (Direction::ToClient, rng.between(1, bytes as usize) as u64),
    };
    println!("cut after {bytes} bytes {direction:?}, by {cut:?}");
    relay.cut_after(direction, bytes, cut);
}

/// Whether an error says which server or store was lost.
fn is_clear(text: &str, what: &str) -> bool {
    text.contains(what) && !text.contains("another thread failed") && !text.contains("panicked")
}

/// `bytes`: so many come over at least one of the connections.
fn cut_the_server(scene: &Scene, route: &[&str], bytes: u64, points: usize) {
    let mut rng = Seed::from_env_or_time().rng();
    let (conninfo, place) = (scene.conninfo(), scene.place());
    let first = name_in(&scene.done(&scene.backup(&conninfo, &place, route)));
    let mut last = first.clone();
    for _ in 0..points {
        plan(&scene.to_server, &mut rng, bytes);
        let output = scene.run(&scene.backup(&conninfo, &place, route));
        let text = said(&output);
        assert!(output.status.code() == Some(2) && is_clear(&text, "server"), "{text}");
        assert!(!scene.later_states(&last).iter().any(|state| state == "writing"));
        let listed = scene.done(&["list", "--from", &place]);
        let whole = listed.as_array().unwrap().iter().filter(|found| found["state"] == "complete").count();
        assert_eq!(name_in(&scene.done(&["verify", "latest", "--from", &place])), last, "{listed}");
        plan(&scene.to_server, &mut rng, bytes);
        let again = scene.backup(&conninfo, &place, &[route, &["--resume"]].concat());
        let output = scene.run(&again);
        assert!(output.status.code() == Some(2) && is_clear(&said(&output), "server"), "{}", said(&output));
        last = name_in(&scene.done(&again));
        let listed = scene.done(&["list", "--from", &place]);
        let now = listed.as_array().unwrap().iter().filter(|found| found["state"] == "complete").count();
        assert_eq!((now, listed.as_array().unwrap().len()), (whole + 1, whole + 1), "{listed}");
        assert_eq!(name_in(&scene.done(&["verify", "latest", "--from", &place])), last);
    }
}

#[test]
fn a_backup_whose_connection_is_cut_anywhere_is_not_whole_and_is_completed_by_a_resume() {
    let scene = Scene::new(None);
    cut_the_server(&scene, &["--compression", "zstd:1"], 1 << 20, 1);
    cut_the_server(&scene, &["--route", "parallel", "--connections", "2"], 3 << 20, 1);
    scene.check_contents("latest");
}

#[test]
#[ignore = "soak: 120 cuts"]
fn a_backup_whose_connection_is_cut_at_many_points_is_completed_by_a_resume() {
    let scene = Scene::new(None);
    cut_the_server(&scene, &["--compression", "none"], 20 << 20, 20);
    cut_the_server(&scene, &["--compression", "zstd:1"], 1 << 20, 20);
    cut_the_server(&scene, &["--route", "parallel", "--connections", "2"], 3 << 20, 20);
    scene.check_contents("latest");
}

#[test]
fn a_plain_backup_of_the_parallel_route_whose_connection_is_cut_leaves_nothing() {
    let scene = Scene::new(None);
    let mut rng = Seed::from_env_or_time().rng();
    let conninfo = scene.conninfo();
    let to = scene.keep.path().join("above/to").to_str().unwrap().to_owned();
    for _ in 0..3 {
        plan(&scene.to_server, &mut rng, 3 << 20);
        let words = ["--route", "parallel", "--connections", "2", "--format", "plain"];
        let output = scene.run(&scene.backup(&conninfo, &to, &words));
        assert!(output.status.code() == Some(2) && is_clear(&said(&output), "server"), "{}", said(&output));
        assert_eq!(scene.keep.path().read_dir().unwrap().count(), 0, "what was made is gone");
    }
}

/// Cuts connections one after the other while a program runs, and gives what it came to.
fn troubled(scene: &Scene, rng: &mut Rng, cuts: usize, words: &[&str]) -> Output {
    let relay = &scene.store.as_ref().unwrap().relay;
    let plans: Vec<_> = (0..cuts)
        .map(|_| {
            let direction = *rng.pick(&Direction::BOTH);
            let bytes = 1 << rng.between(4, 19);
            (direction, rng.between(1, bytes) as u64, *rng.pick(&[Cut::Reset, Cut::Close]))
        })
        .collect();
    println!("{}: {plans:?}", words[0]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let child = scene.spawn(words);
        scope.spawn(|| {
            for (direction, bytes, cut) in plans {
                relay.cut_after(direction, bytes, cut);
                for _ in 0..20 {
                    if !is_over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            }
        });
        let output = ended(child);
        is_over.store(true, Ordering::Relaxed);
        output
    })
}

/// A cut that heals: retries carry it.
fn cut_the_store(rounds: usize, cuts: usize) {
    if let Err(missing) = S3::find() {
        return skipped("backup_cuts: an object store behind a relay", &missing);
    }
    let scene = Scene::new(Some(Store::new()));
    let mut rng = Seed::from_env_or_time().rng();
    let (conninfo, place) = (scene.conninfo(), scene.place());
    let carried = |rng: &mut Rng, words: &[&str]| {
        let output = troubled(&scene, rng, cuts, words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
    };
    for round in 0..rounds {
        carried(&mut rng, &scene.backup(&conninfo, &place, &["--compression", "none"]));
        if round % 2 == 0 {
            carried(&mut rng, &["verify", "latest", "--from", &place]);
            let into = scene.keep.path().join(format!("into-{round}"));
            carried(&mut rng, &["restore", "latest", "--from", &place, "--into", into.to_str().unwrap()]);
        } else {
            carried(&mut rng, &["list", "--from", &place]);
            carried(&mut rng, &["expire", "--from", &place, "--keep-last", "1"]);
            assert_eq!(scene.done(&["list", "--from", &place]).as_array().unwrap().len(), 1);
        }
    }
    scene.done(&["verify", "latest", "--from", &place]);
    scene.check_contents("latest");
}

#[test]
fn cuts_on_the_way_to_an_object_store_that_heal_are_carried_by_retries() {
    cut_the_store(2, 2);
}

#[test]
#[ignore = "soak: many cuts"]
fn many_cuts_on_the_way_to_an_object_store_are_carried_by_retries() {
    cut_the_store(30, 3);
}

/// A store that is gone for good from a random point on, and comes back when pgshrink has given up.
#[test]
#[ignore = "soak: waits for the last retry"]
fn a_store_that_is_lost_during_a_backup_is_named_and_nothing_is_damaged() {
    if let Err(missing) = S3::find() {
        return skipped("backup_cuts: an object store that is lost", &missing);
    }
    let scene = Scene::new(Some(Store::new()));
    let store = scene.store.as_ref().unwrap();
    let mut rng = Seed::from_env_or_time().rng();
    let (conninfo, place) = (scene.conninfo(), scene.place());
    let before = store.relay.counts().to_server;
    let mut last = name_in(&scene.done(&scene.backup(&conninfo, &place, &["--compression", "none"])));
    let bytes = store.relay.counts().to_server - before;
    let lose = |words: &[&str], bytes: u64| {
        let at = store.relay.counts().to_server + bytes;
        let child = scene.spawn(words);
        wait_until(HANG, "bytes", || store.relay.counts().to_server >= at).unwrap();
        store.relay.refuse(true);
        store.relay.cut(Cut::Reset).unwrap();
        let output = ended(child);
        store.relay.refuse(false);
        assert!(output.status.code() == Some(2) && is_clear(&said(&output), "s3://"), "{}", said(&output));
    };
    for round in 0..6 {
        let words = scene.backup(&conninfo, &place, &["--compression", "none", "--resume"]);
        lose(&words, rng.below(bytes as usize * 3 / 4) as u64);
        assert!(!scene.later_states(&last).iter().any(|state| state == "complete" || state == "damaged"));
        let into = scene.keep.path().join(format!("into-{round}")).to_str().unwrap().to_owned();
        lose(&["verify", "latest", "--from", &place], rng.below(1000) as u64);
        lose(&["restore", "latest", "--from", &place, "--into", &into], rng.below(1000) as u64);
        assert!(!scene.keep.path().join(format!("into-{round}/global/pg_control")).exists());
        scene.done(&["restore", &last, "--from", &place, "--into", &into, "--resume"]);
        last = name_in(&scene.done(&words));
        lose(&["expire", "--from", &place, "--keep-last", "1"], rng.below(2000) as u64);
        assert_eq!(name_in(&scene.done(&["verify", "latest", "--from", &place])), last);
        scene.done(&["expire", "--from", &place, "--keep-last", "1"]);
        assert_eq!(scene.done(&["list", "--from", &place]).as_array().unwrap().len(), 1);
    }
    scene.check_contents(&last);
}

/// Nothing goes through any more, and nothing is closed.
fn stall(relay: &Relay) {
    let shape = Shape { bytes_per_second: Some(1), ..Shape::default() };
    Direction::BOTH.into_iter().for_each(|direction| relay.shape(direction, shape));
}

fn heal(relay: &Relay) {
    Direction::BOTH.into_iter().for_each(|direction| relay.shape(direction, Shape::default()));
}

#[test]
fn a_connection_to_an_object_store_that_stalls_is_given_up_and_the_request_is_repeated() {
    if let Err(missing) = S3::find() {
        return skipped("backup_cuts: an object store that stalls", &missing);
    }
    let mut store = Store::new();
    store.variables.push(("AWS_TIMEOUT".to_owned(), "1s".to_owned()));
    let scene = Scene::new(Some(store));
    let relay = &scene.store.as_ref().unwrap().relay;
    let (conninfo, place) = (scene.cluster.conninfo("postgres"), scene.place());
    let words = scene.backup(&conninfo, &place, &["--compression", "none"]);
    // In the middle of several packs, and from the beginning.
    for (words, bytes) in [(&words[..], 300_000), (&["verify", "latest", "--from", &place], 0)] {
        let begin = relay.counts().to_server + bytes;
        let stall = || wait_until(HANG, "packs", || relay.counts().to_server >= begin).map(|()| stall(relay));
        let child = match bytes {
            0 => {
                stall().unwrap();
                scene.spawn(words)
            }
            _ => {
                let child = scene.spawn(words);
                stall().unwrap();
                child
            }
        };
        let stalled = relay.counts().connections;
        let is_repeated = || relay.counts().connections > stalled + 1;
        let repeated = wait_until(Duration::from_secs(60), "a request that is repeated", is_repeated);
        heal(relay);
        let output = ended(child);
        repeated.unwrap_or_else(|error| panic!("{words:?}: {error}: {}", said(&output)));
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
    }
}

#[test]
fn a_server_that_falls_silent_ends_the_backup_by_a_timeout() {
    let scene = Scene::new(None);
    let (conninfo, place) = (scene.conninfo(), scene.place());
    for route in ["stream", "parallel"] {
        let before = scene.to_server.counts().to_client;
        let more = ["--route", route, "--server-timeout-s", "3", "--max-rate", "8000"];
        let child = scene.spawn(&scene.backup(&conninfo, &place, &more));
        let began = || scene.to_server.counts().to_client > before + (4 << 20);
        wait_until(HANG, "files", began).unwrap();
        // Bytes that come once a second would be signs of life.
        for direction in Direction::BOTH {
            let shape = Shape { delay: HANG * 2, ..Shape::default() };
            scene.to_server.shape(direction, shape);
        }
        let output = ended(child);
        heal(&scene.to_server);
        let text = said(&output);
        assert!(output.status.code() == Some(2) && is_clear(&text, "server"), "{text}");
        assert!(text.contains("--server-timeout-s"), "{text}");
    }
    scene.done(&scene.backup(&conninfo, &place, &["--resume"]));
    scene.done(&["verify", "latest", "--from", &place]);
}

#[test]
#[ignore = "soak: 60 kills"]
fn a_backup_that_is_killed_at_any_time_is_completed_by_a_resume() {
    let scene = Scene::new(None);
    let mut rng = Seed::from_env_or_time().rng();
    let (conninfo, place) = (scene.conninfo(), scene.place());
    let words = scene.backup(&conninfo, &place, &["--resume", "--compression", "none"]);
    let began = std::time::Instant::now();
    let mut last = name_in(&scene.done(&words));
    let takes = began.elapsed();
    for _ in 0..20 {
        for _ in 0..3 {
            let mut child = Running(scene.spawn(&words));
            std::thread::sleep(takes.mul_f64(rng.below(1000) as f64 / 1000.0));
            child.0.kill().unwrap();
        }
        let states = scene.later_states(&last);
        assert!(states.iter().all(|state| state == "complete" || state == "incomplete"), "{states:?}");
        last = name_in(&scene.done(&words));
        assert_eq!(name_in(&scene.done(&["verify", "latest", "--from", &place])), last);
    }
    scene.check_contents(&last);
}
