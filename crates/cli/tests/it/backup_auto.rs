//! `pgshrink backup --compression auto` with real servers.

use crate::backup::{SUMS, boot, done, refused, repository, restored, start};
use pgshrink_testkit::relay::{Cut, Direction, Endpoint, Shape};
use pgshrink_testkit::{Cluster, Relay, Server, ServerBinaries, TempDir};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

const AUTO: [&str; 4] = ["--compression", "auto", "--checkpoint", "fast"];
/// A link that nobody would leave uncompressed.
const SLOW: Shape =
    Shape { bytes_per_second: Some(1_000_000), delay: std::time::Duration::ZERO, piece_size_max: None };

/// A backup by these words: its report, and what it says on standard error.
#[track_caller]
fn taken(conninfo: &str, to: &str, words: &[&str]) -> (Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.args(["backup", conninfo, "--to", to, "--json"]).args(AUTO).args(words);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

/// The same through a relay that is slow until the choice was made.
#[track_caller]
fn taken_over_a_slow_link(cluster: &Cluster, role: &str, to: &str, words: &[&str]) -> (Value, String) {
    let relay = Relay::to(Endpoint::local(cluster.port())).shape(SLOW).start().unwrap();
    let conninfo = cluster.conninfo_at("127.0.0.1", relay.port(), "postgres") + role;
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.args(["backup", &conninfo, "--to", to, "--json"]).args(AUTO).args(words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut said, mut lines) = (String::new(), BufReader::new(child.stderr.take().unwrap()));
    while !said.contains("compression: ") && lines.read_line(&mut said).unwrap() > 0 {}
    Direction::BOTH.into_iter().for_each(|direction| relay.shape(direction, Shape::default()));
    lines.read_to_string(&mut said).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

fn strings(value: &Value) -> String {
    let strings = value.as_array().unwrap().iter();
    strings.map(|text| text.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Only 15 has zstd and LZ4 among the servers of these tests.
fn has_zstd(server: &ServerBinaries) -> bool {
    server.major == 15
}

#[test]
fn over_a_slow_link_it_compresses_and_says_what_and_why() {
    Server::each("auto over a slow link", &[15, 18], |server| {
        let cluster = start(server);
        let keep = TempDir::new().unwrap();
        let expected = cluster.sql(SUMS).unwrap();
        let (report, said) = taken_over_a_slow_link(&cluster, "", &repository(&keep), &[]);
        let choice = &report["choice"];
        let compression = choice["compression"].as_str().unwrap();
        let algorithm = if has_zstd(server) { "zstd" } else { "gzip" };
        assert!(compression.starts_with(algorithm), "{choice:#}");
        assert_eq!(said.contains("built without zstd"), !has_zstd(server), "{said}");
        assert_eq!((&choice["route"], &choice["connections"]), (&"stream".into(), &1.into()));
        assert_eq!(choice["limited_by"], "the link");
        assert_eq!(choice["processors"]["shared"], true, "a superuser may ask which machine it is");
        let link = choice["link_bytes_per_second"].as_f64().unwrap();
        assert!(link < 2e6, "the relay carries 1 MB/s: {choice:#}");
        let none = &choice["candidates"][0];
        assert_eq!((&none["compression"], &none["limited_by"]), (&"none".into(), &"the link".into()));
        let expected_rate = choice["expected_bytes_per_second"].as_f64().unwrap();
        assert!(expected_rate > 1.5 * none["expected_bytes_per_second"].as_f64().unwrap(), "{choice:#}");
        let measured = strings(&choice["measured"]);
        assert!(measured.contains("random bytes over SQL"), "{measured}");
        assert!(measured.contains("of relation files"), "a superuser may read them: {measured}");
        for part in [&format!("compression: {compression} over one connection: about"), "limited by the link"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(said.contains("measured: the link carries"), "{said}");
        let name = report["backup"].as_str().unwrap();
        let copy = restored(server, &repository(&keep), name, &[]);
        assert_eq!(copy.sql(SUMS).unwrap(), expected);
    });
}

#[test]
fn every_format_is_taken_with_what_it_chose_on_one_machine() {
    Server::each("auto on one machine", &[15, 18], |server| {
        let cluster = start(server);
        let keep = TempDir::new().unwrap();
        let to = |name: &str| keep.path().join(name).to_str().unwrap().to_owned();
        let conninfo = cluster.conninfo_unix("postgres");
        let expected = cluster.sql(SUMS).unwrap();
        let formats = if server.major == 15 { &["archive", "plain", "tar"][..] } else { &["plain"] };
        for format in formats.iter().copied() {
            let (report, said) = taken(&conninfo, &to(format), &["--format", format]);
            let choice = &report["choice"];
            assert_eq!(choice["processors"]["shared"], true, "a Unix socket: {choice:#}");
            assert!(said.contains("share this machine's"), "{said}");
            if format != "archive" {
                assert_eq!(choice["compression"], report["compression"], "what it says is what it did");
            }
            if format == "tar" {
                let routes = choice["candidates"].as_array().unwrap().iter();
                assert!(routes.clone().all(|candidate| candidate["route"] == "stream"), "{choice:#}");
            }
        }
        if server.major != 15 {
            return;
        }
        let copy = boot(server, |into| {
            done(&["restore", "latest", "--from", &to("archive"), "--into", into.to_str().unwrap()]);
        });
        assert_eq!(copy.sql(SUMS).unwrap(), expected);
        // A route that is named is taken.
        let words = ["--route", "parallel", "--connections", "2", "--format", "plain"];
        let (report, _) = taken(&conninfo, &to("parallel"), &words);
        let choice = &report["choice"];
        assert_eq!((&choice["route"], &choice["connections"]), (&"parallel".into(), &2.into()));
        assert_eq!((&choice["compression"], &report["compression"]), (&"none".into(), &"none".into()));
        let words = ["--route", "stream", "--format", "plain", "-q"];
        let (report, said) = taken(&conninfo, &to("stream"), &words);
        assert!(!said.contains("measured") && !said.contains("compression"), "{said}");
        let routes = report["choice"]["candidates"].as_array().unwrap().iter();
        assert!(routes.clone().all(|candidate| candidate["route"] == "stream"), "{report:#}");
        // The server's host: no link is measured.
        let folder = cluster.data_dir().parent().unwrap().join("on_server");
        let (report, said) = taken(&conninfo, &format!("server:{}", folder.display()), &[]);
        assert_eq!(report["choice"]["link_bytes_per_second"], Value::Null);
        assert!(said.contains("the server's disk writes") && !said.contains("the link carries"), "{said}");
    });
}

#[test]
fn a_role_with_replication_alone_is_measured_by_wal_and_hears_what_was_not() {
    Server::each("auto with REPLICATION alone", &[15, 18], |server| {
        // As few WAL senders as a backup needs: what measured must be gone before.
        let cluster = Cluster::builder().server(server).hba("host all narrow all reject");
        let cluster = cluster.conf("max_wal_senders", "2").start().unwrap();
        let sql = "create role narrow login replication;
             create table t as select n, 0 as customer, md5(n::text) as note from generate_series(1, 60000) n;
             create table toasted as select n, 'x' as value from generate_series(1, 10) n; create table empty ()";
        cluster.sql(sql).unwrap();
        let keep = TempDir::new().unwrap();
        let expected = cluster.sql(SUMS).unwrap();
        let conninfo = format!("{} user=narrow", cluster.conninfo("postgres"));
        let (report, said) = taken(&conninfo, &repository(&keep), &[]);
        let choice = &report["choice"];
        let (measured, not) = (strings(&choice["measured"]), strings(&choice["not_measured"]));
        assert!(measured.contains("(recent WAL)") && measured.contains("the data, from"), "{choice:#}");
        assert!(not.contains("no ordinary connection") && said.contains("not measured: "), "{said}");
        assert_eq!(choice["route"], "stream", "it has no rights for more");
        if server.major != 15 {
            return;
        }
        let copy = restored(server, &repository(&keep), report["backup"].as_str().unwrap(), &[]);
        assert_eq!(copy.sql(SUMS).unwrap(), expected);
        drop(copy);

        // Over a slow link, what the newest WAL says of the data decides.
        let text = "insert into t select n, n % 9, md5((n % 99)::text) from generate_series(1, 300000) n";
        let random = "create table r (b bytea); alter table r alter b set storage external;
             insert into r select string_agg(sha512((n * m)::text::bytea), '') from generate_series(1, 700) n,
             generate_series(1, 1000) m group by n";
        for (newest, is_compressed) in [(text, true), (random, false)] {
            cluster.sql(newest).unwrap();
            let to = keep.path().join(is_compressed.to_string());
            let words = ["--format", "plain"];
            let (report, said) =
                taken_over_a_slow_link(&cluster, " user=narrow", to.to_str().unwrap(), &words);
            let choice = &report["choice"];
            assert!(strings(&choice["measured"]).contains("(recent WAL)"), "{said}");
            assert_eq!(choice["compression"] != "none", is_compressed, "{newest}: {choice:#}");
            assert_eq!(
                choice["processors"]["shared"], false,
                "a role that may not ask: a slow link leads elsewhere"
            );
        }

        // Compressed pages in WAL are no sample.
        cluster.set_conf("wal_compression", "on").unwrap();
        cluster.reload().unwrap();
        let plain = keep.path().join("plain");
        let (report, _) = taken(&conninfo, plain.to_str().unwrap(), &["--format", "plain"]);
        let not = strings(&report["choice"]["not_measured"]);
        assert!(not.contains("compresses its WAL") && not.contains("typical tables"), "{not}");
    });
}

#[test]
fn what_cannot_be_measured_never_ends_a_backup() {
    let cluster = start(&Server::find(15).unwrap());
    let keep = TempDir::new().unwrap();
    let to = |name: &str| keep.path().join(name).to_str().unwrap().to_owned();
    // May connect, and read nothing.
    cluster.sql("create role narrow login replication").unwrap();
    let narrow = format!("{} user=narrow", cluster.conninfo("postgres"));
    let (report, said) = taken(&narrow, &to("narrow"), &["--format", "plain"]);
    assert!(said.contains("random bytes over SQL") && said.contains("of recent WAL"), "{said}");
    assert!(said.contains("the role may not read files"), "{said}");
    assert_eq!(report["choice"]["route"], "stream");
    // The connection that measures breaks in the middle of it.
    let relay = Relay::to(Endpoint::local(cluster.port())).start().unwrap();
    let conninfo = cluster.conninfo_at("127.0.0.1", relay.port(), "postgres");
    relay.cut_after(Direction::ToClient, 50_000, Cut::Reset);
    let (report, said) = taken(&conninfo, &to("cut"), &["--format", "plain"]);
    assert!(said.contains("no random bytes over SQL"), "{said}");
    assert!(strings(&report["choice"]["measured"]).contains("(recent WAL)"), "{report:#}");
    // Nothing at all may be measured: what does not fit is refused in the usual words, and the rest is the default.
    let text = refused(&["backup", "host=/nonexistent", "--to", &to("none"), "--compression", "auto"]);
    assert!(text.contains("/nonexistent") && text.contains("using the default"), "{text}");
    assert!(text.contains("compression: zstd:level=1 over one connection"), "{text}");
}

#[test]
fn what_auto_cannot_do_is_refused_before_it_measures() {
    let start = ["backup", "host=/nonexistent", "--to", "/nonexistent/x", "--compression", "auto"];
    for (words, why) in [
        (&["--route", "parallel", "--format", "tar"][..], "--route stream"),
        (&["--route", "stream", "--connections", "2"], "only --route parallel"),
        (&["--connections", "0"], "from 1 to 32"),
        (&["--max-rate", "1", "--format", "tar"], "from 32"),
    ] {
        let text = refused(
            &[&start[..], words, if words.contains(&"tar") { &[] } else { &["--format", "plain"] }].concat(),
        );
        assert!(text.contains(why) && !text.contains("measured"), "{words:?}: {text}");
    }
}
