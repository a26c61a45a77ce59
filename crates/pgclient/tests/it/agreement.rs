//! Our reading against libpq's own, on tables and on random strings.

use crate::oracle::{Answer, Oracle};
use crate::world::Disk;
use crate::world::text;
use pgshrink_pgclient::keyword::{COMPRESSION, KEYWORDS};
use pgshrink_pgclient::passfile::{self, Alias};
use pgshrink_pgclient::{Conninfo, Parameters, Source, Surroundings, target};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What we make of a string, in the oracle's terms.
fn ours(string: &[u8]) -> Answer {
    let info = Conninfo::parse_strict(string).map_err(|error| error.to_string())?;
    let pair = |s: pgshrink_pgclient::conninfo::Setting| (text(&s.keyword), s.value);
    Ok(info.settings().into_iter().map(pair).collect())
}

fn compare(string: &[u8], libpq: &Answer) {
    match (ours(string), libpq) {
        (Ok(ours), Ok(theirs)) => assert_eq!(&ours, theirs, "{}", text(string)),
        (Err(ours), Err(theirs)) => {
            let hidden = ours.contains("***") || ours.contains('…') || ours.contains("after the password");
            // libpq cuts a character that takes several bytes.
            let cut = theirs.contains('\u{fffd}');
            let same = hidden || cut || ours.starts_with(theirs.as_str());
            assert!(same, "{}\nours:   {ours}\ntheirs: {theirs}", text(string));
        }
        (ours, theirs) => panic!("{}\nours:   {ours:?}\ntheirs: {theirs:?}", text(string)),
    }
}

/// Pieces that strings are made of: everything that has a meaning, and some that do not.
const KEYVALUE: &[&str] = &[
    "host",
    "user",
    "dbname",
    "port",
    "options",
    "requiressl",
    "zzz",
    "=",
    "=",
    "=",
    " ",
    " ",
    "\t",
    "\n",
    "'",
    "'",
    "\\",
    "\\'",
    "a",
    "b c",
    "1",
    "x=y",
    "\u{e9}",
    ",",
    "''",
];
const URI: &[&str] = &[
    "u", "p", "h", "@", ":", ":", "/", "/", "?", "?", "&", "&", "=", "=", ",", "[", "]", "::1", "%41", "%2F",
    "%", "%00", "%zz", "host", "user", "dbname", "port", "sslmode", "ssl=true", "zzz", "1", "d", "x=y",
    "\u{e9}",
];

/// A linear congruential generator: enough to pick pieces, and the seed tells everything.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn string(&mut self, pieces: &[&str]) -> String {
        let count = self.below(14);
        (0..count).map(|_| pieces[self.below(pieces.len())]).collect()
    }
}

#[test]
fn random_strings_read_the_same_in_libpq() {
    let Some(mut libpq) = Oracle::start(&[]) else { return };
    let seed =
        std::env::var("PGSHRINK_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_240_117);
    println!("PGSHRINK_TEST_SEED={seed}");
    let mut dice = Dice(seed);
    for _ in 0..20_000 {
        let list = dice.string(KEYVALUE);
        let uri = format!("postgres{}://{}", ["", "ql"][dice.below(2)], dice.string(URI));
        for string in [list, uri] {
            compare(string.as_bytes(), &libpq.parse(string.as_bytes()));
        }
    }
}

#[test]
fn random_edits_leave_libpqs_reading_of_the_rest_alone() {
    let Some(mut libpq) = Oracle::start(&[]) else { return };
    let mut dice = Dice(7);
    let mut edited = 0;
    for _ in 0..20_000 {
        let string = match dice.below(2) {
            0 => dice.string(KEYVALUE),
            _ => format!("postgres://{}", dice.string(URI)),
        };
        let (Ok(before), Ok(mut info)) = (libpq.parse(string.as_bytes()), Conninfo::parse(string.as_bytes()))
        else {
            continue;
        };
        let removed = ["port", "user", "options", "dbname", "sslmode"][dice.below(5)];
        info.remove(removed);
        info.set("host", b"/run/a b,'\\");
        let after = libpq.parse(&info.text()).unwrap_or_else(|error| panic!("{string:?}: {error}"));
        let rest = |settings: &BTreeMap<String, Vec<u8>>| {
            let kept = settings.iter().filter(|(keyword, _)| *keyword != removed && *keyword != "host");
            kept.map(|(keyword, value)| (keyword.clone(), value.clone())).collect::<Vec<_>>()
        };
        assert_eq!(rest(&after), rest(&before), "{string:?} became {:?}", text(&info.text()));
        assert_eq!(after.get("host").map(Vec::as_slice), Some(&b"/run/a b,'\\"[..]), "{string:?}");
        assert_eq!(after.get(removed), None, "{string:?} became {:?}", text(&info.text()));
        edited += 1;
    }
    assert!(edited > 1000, "only {edited} of the random strings were valid");
}

#[test]
fn the_table_of_keywords_is_libpqs() {
    let Some(mut libpq) = Oracle::start(&[]) else { return };
    let mut unknown = Vec::new();
    for known in KEYWORDS {
        let answer = libpq.parse(format!("{}=x", known.name).as_bytes());
        match answer {
            Ok(settings) => assert_eq!(settings.get(known.name).map(|v| text(v)), Some("x".to_owned())),
            Err(_) => unknown.push((known.since, known.name)),
        }
    }
    assert!(unknown.iter().all(|(since, _)| *since > 15), "every libpq knows these: {unknown:?}");
    assert!(libpq.parse(format!("{}=x", COMPRESSION.name).as_bytes()).is_err(), "libpq must not know ours");
}

/// A directory for one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn surroundings(env: &[(&str, &str)]) -> Surroundings<'static> {
    let home = env.iter().find(|(name, _)| *name == "HOME").map(|(_, home)| PathBuf::from(home));
    let env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    Surroundings { env, home, files: &Disk }
}

fn compare_values(merged: &Parameters, theirs: &BTreeMap<String, Vec<u8>>, context: &str) {
    for keyword in
        ["host", "hostaddr", "port", "dbname", "sslmode", "ssl_min_protocol_version", "target_session_attrs"]
    {
        let ours = merged.get(keyword);
        // libpq puts the user's name for an absent database, and builds without TLS have their own default.
        let builds_own_default = keyword == "sslmode" && merged.source(keyword) == Some(Source::Default);
        if keyword == "dbname" && ours.is_none() || builds_own_default {
            continue;
        }
        let theirs = theirs.get(keyword).map(Vec::as_slice);
        assert_eq!(ours.map(text), theirs.map(text), "{keyword}: {context}");
    }
}

#[test]
fn service_environment_and_defaults_merge_the_same_in_libpq() {
    let scratch = Scratch::new("merge");
    let service = scratch.file(
        ".pg_service.conf",
        "[a]\nhost=127.0.0.1\nport=1\nuser=su\n\n[b]\nhost=127.0.0.1 \n port=1\nuser=first\nuser=second\n[bad]\nx\n[n]\nservice=a\n",
    );
    let other = scratch.file("other", "[o]\nhost=127.0.0.1\nport=1\n");
    let home = scratch.0.to_str().unwrap().to_owned();
    let sys = ("PGSYSCONFDIR", "/nonexistent");
    let base = ("HOME", home.as_str());
    let here = ("PGHOST", "/nonexistent");
    let table: &[(&[(&str, &str)], &str)] = &[
        (&[base, sys, here], ""),
        (&[base, sys, here, ("PGPORT", "7"), ("PGSSLMODE", "disable")], "port=8"),
        (&[base, sys, here, ("PGUSER", "")], "dbname=d"),
        (&[base, sys, ("PGSERVICE", "a")], ""),
        (&[base, sys, here, ("PGSERVICE", "a"), ("PGUSER", "eu")], "port=9 host=/nonexistent"),
        (&[base, sys, here], "service=b"),
        (&[base, sys, here], "service=none"),
        (&[base, sys, here], "service=bad"),
        (&[base, sys, here], "service=n"),
        (&[base, sys, here, ("PGSERVICEFILE", &other)], "service=o"),
        (&[base, sys, here, ("PGSERVICEFILE", &other)], "service=a"),
        (&[base, sys, here, ("PGSERVICEFILE", "/nonexistent/f")], "service=a"),
        (&[sys, here, ("PGSERVICEFILE", &service), ("HOME", "/nonexistent")], "service=a user=''"),
        (&[base, sys, here, ("PGREQUIRESSL", "1")], "hostaddr=''"),
        (&[base, sys], "host=/nonexistent,/nonexistent port=1,2,3"),
        (&[base, sys], "host=/nonexistent,/nonexistent hostaddr=127.0.0.1 port=1"),
        (&[base, sys], "host=/nonexistent port=0"),
        (&[base, sys], "host=/nonexistent port=70000"),
        (&[base, sys], "host=/nonexistent port=x"),
    ];
    for (env, string) in table {
        let Some(mut libpq) = Oracle::start(env) else { return };
        let theirs = libpq.connect(string.as_bytes());
        let around = surroundings(env);
        let merged = Parameters::of(&Conninfo::parse(string.as_bytes()).unwrap(), &around);
        let context = format!("{env:?} {string:?}\ntheirs: {theirs:?}\nours: {merged:?}");
        let (merged, theirs) = match (merged, theirs) {
            (Ok(merged), Ok(theirs)) => (merged, theirs),
            (Err(ours), Err(theirs)) => {
                let start: String = theirs.chars().take_while(|&c| c != ',').collect();
                assert!(ours.to_string().starts_with(&start), "{context}");
                continue;
            }
            _ => panic!("{context}"),
        };
        compare_values(&merged, &theirs, &context);
        if let Err(error) = target::targets(&merged, &around) {
            let message = text(&theirs["(message)"]);
            let error = error.to_string();
            let core = error.split(" (allowed").next().unwrap_or_default();
            assert!(message.contains(core), "{error}: {context}");
        }
    }
}

/// The socket directory this libpq was built with, which it tells when nobody listens there.
fn default_socket_dir(libpq: &mut Oracle) -> String {
    let message = text(&libpq.connect(b"port=1").unwrap()["(message)"]);
    let dir = message.split('"').nth(1).and_then(|socket| socket.strip_suffix("/.s.PGSQL.1"));
    dir.unwrap_or_else(|| panic!("no socket in: {message}")).to_owned()
}

#[test]
fn libpq_finds_in_the_copy_what_it_finds_in_the_original() {
    let scratch = Scratch::new("pgpass");
    let file = "\
        # comment:1:d:u:no\n\
        127.0.0.1:1:d:u:one\n\
        /nonexistent:1:d:u:dir\n\
        *:2:d:u:wild two\n\
        127.0.0.1:2:d:u:late\n\
        \\:\\:1:*:*:*:six\\:\\\\x\n\
        127.0.0.1:*:d:v:v\r\n\
        localhost:*:d:u:local\n\
        *:*:*:w:w";
    let Some(mut libpq) = Oracle::start(&[("HOME", "/nonexistent")]) else { return };
    let default = default_socket_dir(&mut libpq);
    let hosts = ["127.0.0.1", "::1", "/nonexistent", &default, "10.255.255.1"];
    let original = scratch.file("original", file);
    let private = |index: usize| format!("/nonexistent/private:{index}");
    let alias = |(index, host): (usize, &&str)| Alias {
        host: passfile::lookup_host(Some(host), None, &default).into(),
        stands_for: private(index).into(),
    };
    let aliases: Vec<Alias> = hosts.iter().enumerate().map(alias).collect();
    let copy = passfile::for_aliases(Path::new(&original), &aliases, &surroundings(&[])).unwrap().unwrap();
    let copy = scratch.file("copy", &text(&copy));
    let mut found = 0;
    for (index, host) in hosts.iter().enumerate() {
        for (port, user) in [(1, "u"), (2, "u"), (3, "u"), (3, "v"), (3, "w"), (3, "x")] {
            let mut ask = |host: &str, file: &str| {
                let string = format!("host='{host}' port={port} dbname=d user={user} passfile='{file}'");
                text(&libpq.connect(string.as_bytes()).unwrap()["(password)"])
            };
            // An unreachable address would take its time: ask for its password under another name.
            let asked = if *host == "10.255.255.1" { "/nonexistent/other" } else { host };
            let (expected, got) = (ask(asked, &original), ask(&private(index), &copy));
            assert_eq!(got, expected, "{host} {port} {user}");
            found += usize::from(!got.is_empty());
        }
    }
    assert!(found >= 12, "only {found} lookups found a password");
}
