//! `pgshrink cfs` on the files of a real server.

use pgshrink_testkit::{Cluster, Stop, TempDir};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub(crate) const CONTAINER: &str = "segment.pgshrink";

/// A database directory as a stopped server left it, with what is in it.
pub(crate) struct Database {
    pub(crate) dir: PathBuf,
    /// Relfilenode of the table `orders`.
    pub(crate) orders: u32,
    _keep: TempDir,
}

const SCHEMA: &str = "
    create table orders (id bigint, customer integer, state text, noted timestamptz);
    insert into orders select n, n % 977, 'state ' || n % 7, timestamptz '2026-01-01' + n * interval '1 minute'
      from generate_series(1, 40000) n;
    create index orders_by_customer on orders (customer);
    create table gone (n integer);
    insert into gone select generate_series(1, 20000);
    delete from gone where n % 3 = 0;
    create table small (n integer);
    insert into small values (1);
    create sequence numbers;
    vacuum;
    checkpoint;";

/// The data directory is copied, so that it outlives the server and belongs to the test.
pub(crate) fn database() -> &'static Database {
    static DATABASE: OnceLock<Database> = OnceLock::new();
    DATABASE.get_or_init(|| {
        let cluster = Cluster::builder().major(15).initdb_arg("--data-checksums").start().unwrap();
        cluster.sql(SCHEMA).unwrap();
        let number = |sql: &str| cluster.sql(sql).unwrap().trim().parse::<u32>().unwrap();
        let orders = number("select pg_relation_filenode('orders')");
        let oid = number("select oid from pg_database where datname = current_database()");
        cluster.stop(Stop::Fast).unwrap();
        let keep = TempDir::new().unwrap();
        let base = keep.path().join("base");
        fs::create_dir(&base).unwrap();
        let from = cluster.data_dir().join("base").join(oid.to_string());
        let dir = base.join(oid.to_string());
        assert!(Command::new("cp").arg("-r").arg(from).arg(&dir).status().unwrap().success());
        Database { dir, orders, _keep: keep }
    })
}

pub(crate) fn cfs(words: &[&dyn AsRef<std::ffi::OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.arg("cfs").env_remove("PG_CIPHER_KEY");
    words.iter().for_each(|word| {
        command.arg(word);
    });
    command
}

pub(crate) fn run(words: &[&dyn AsRef<std::ffi::OsStr>], code: i32) -> String {
    ended(&cfs(words).output().unwrap(), code)
}

pub(crate) fn ended(output: &Output, code: i32) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    format!("{out}{err}")
}

pub(crate) fn json(words: &[&dyn AsRef<std::ffi::OsStr>], code: i32) -> Value {
    let output = cfs(words).arg("--json").output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Relative paths and contents of all files below.
pub(crate) fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push((path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn packed(dest: &Path, more: &[&str]) -> Value {
    let mut command = cfs(&[&"pack", &database().dir, &dest, &"--json"]);
    let output = command.args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_database_packed_and_unpacked_is_what_it_was_by_every_algorithm() {
    let plain = files(&database().dir);
    for algorithm in ["zstd:1", "lz4", "pglz", "snappy", "zlib:1", "lzfse"] {
        let dir = TempDir::new().unwrap();
        let (there, back) = (dir.path().join("1"), dir.path().join("2"));
        let report = packed(&there, &["--compression", algorithm]);
        assert!(report["converted"].as_u64().unwrap() > 30, "{report}");
        assert_eq!(report["failed"].as_array().unwrap().len(), 0);
        let container = there.join(database().orders.to_string()).join(CONTAINER);
        let before = fs::metadata(database().dir.join(database().orders.to_string())).unwrap().len();
        assert!(fs::metadata(container).unwrap().len() * 2 < before, "{algorithm}");
        assert!(run(&[&"verify", &there], 0).contains("all intact"));
        run(&[&"unpack", &there, &back], 0);
        assert!(files(&back) == plain, "{algorithm}: files differ");
    }
}

#[test]
fn what_is_there_is_never_written_to() {
    let dir = TempDir::new().unwrap();
    let there = dir.path().join("there");
    fs::create_dir(&there).unwrap();
    assert!(run(&[&"pack", &database().dir, &there], 2).contains("already exists"));
    let inside = database().dir.join("inside");
    assert!(run(&[&"pack", &database().dir, &inside], 2).contains("is inside the directory to be copied"));
    assert!(!inside.exists());
    assert!(run(&[&"verify", &there], 2).contains("no container there"));
}

#[test]
fn info_names_segment_modes_and_sizes() {
    let dir = TempDir::new().unwrap();
    let there = dir.path().join("packed");
    packed(&there, &[]);
    let orders = database().orders;
    let info = json(&[&"info", &there.join(orders.to_string())], 0);
    let info = &info[0];
    assert_eq!(info["relation"], orders);
    assert_eq!(
        (&info["tablespace"], &info["fork"], &info["closed"]),
        (&1663.into(), &0.into(), &true.into())
    );
    assert_eq!(info["key_id"], Value::Null);
    let modes = info["inside"]["modes"].as_object().unwrap();
    let pages: u64 = modes.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(pages, info["pages"].as_u64().unwrap());
    assert!(modes.keys().any(|mode| mode.starts_with("zstd, rearranged")), "{modes:?}");
    assert_eq!(info["inside"]["dictionaries"], 1);
    assert!(run(&[&"info", &there], 0).contains("none, not encrypted"));
}

#[test]
fn damage_is_named_and_what_is_left_is_salvaged() {
    let dir = TempDir::new().unwrap();
    let there = dir.path().join("packed");
    packed(&there, &[]);
    let segment = there.join(database().orders.to_string());
    let file = fs::OpenOptions::new().write(true).open(segment.join(CONTAINER)).unwrap();
    let size = file.metadata().unwrap().len();
    file.write_all_at(&[0xa5; 64], size / 2).unwrap();

    let verified = json(&[&"verify", &there], 1);
    let damaged: Vec<&Value> = verified["containers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["damages"][0].is_object())
        .collect();
    assert_eq!(damaged.len(), 1);
    let damage = &damaged[0]["damages"][0];
    assert!(damage["message"].as_str().unwrap().contains("block"), "{damage}");
    assert!(damage["part"].is_string() && damage["block"].is_u64(), "{damage}");
    let (offset, bytes) = (damage["offset"].as_u64().unwrap(), damage["bytes"].as_u64().unwrap());
    assert!(offset <= size / 2 + 64 && size / 2 <= offset + bytes, "{damage}");
    let lost = damaged[0]["damaged_pages"].as_u64().unwrap();
    assert!((1..=3).contains(&lost));
    assert!(run(&[&"info", &segment], 1).contains("damaged"));
    let said = run(&[&"verify", &there], 1);
    assert!(
        said.contains("next step: get the damaged containers from another copy, or run pgshrink cfs salvage")
    );

    // Unpacking leaves the relation out, says so, and what is left does not get the name of a whole one.
    let back = dir.path().join("unpacked");
    let said = run(&[&"unpack", &there, &back], 1);
    let partial = dir.path().join("unpacked.incomplete/made");
    assert!(
        said.contains("LEFT OUT") && said.contains(&format!("unpacked is in {}", partial.display())),
        "{said}"
    );
    assert!(!back.exists() && !partial.join(database().orders.to_string()).exists());

    let new = dir.path().join("salvaged");
    let report = json(&[&"salvage", &segment, &new], 1);
    assert_eq!(report["lost"].as_array().unwrap().len() as u64, lost);
    assert!(report["made"].is_null() && !new.exists());
    run(&[&"salvage", &"--zero-lost", &segment, &new], 1);
    run(&[&"verify", &new], 0);
    let plain = dir.path().join("plain");
    run(&[&"unpack", &new, &plain], 0);
    let (before, after) =
        (fs::read(database().dir.join(database().orders.to_string())).unwrap(), fs::read(plain).unwrap());
    let differing: Vec<usize> = before
        .chunks(8192)
        .zip(after.chunks(8192))
        .enumerate()
        .filter(|(_, (before, after))| before != after)
        .map(|(block, _)| block)
        .collect();
    let listed: Vec<usize> =
        report["lost"].as_array().unwrap().iter().map(|block| block.as_u64().unwrap() as usize).collect();
    assert_eq!(differing, listed, "all but the lost pages are what they were");
    assert!(listed.iter().all(|block| after[block * 8192..][..8192].iter().all(|byte| *byte == 0)));
}

#[test]
fn a_damaged_leaf_of_the_map_is_listed_once_and_all_its_pages_count() {
    // More pages than a root has room for.
    let dir = TempDir::new().unwrap();
    let (there, database) = (dir.path().join("packed"), dir.path().join("base/5"));
    fs::create_dir_all(&database).unwrap();
    fs::write(database.join("PG_VERSION"), "15\n").unwrap();
    let pages: String = (0..1_000_000).map(|row| format!("row {row}\n")).collect();
    fs::write(database.join("16385"), &pages.as_bytes()[..1200 * 8192]).unwrap();
    run(&[&"pack", &"--no-dictionary", &database, &there], 0);
    let segment = there.join("16385");
    let file = fs::OpenOptions::new().read(true).write(true).open(segment.join(CONTAINER)).unwrap();
    let size = file.metadata().unwrap().len();
    let mut whole = [0];
    // The leaf is one of the last records.
    let said = (1..).map(|back| size - 64 * back).find_map(|at| {
        file.read_exact_at(&mut whole, at).unwrap();
        file.write_all_at(&[!whole[0]], at).unwrap();
        let output = cfs(&[&"verify", &segment]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        file.write_all_at(&whole, at).unwrap();
        said.contains("damaged map leaf").then_some(said)
    });
    let said = said.unwrap();
    assert_eq!(said.matches("damaged map leaf of blocks").count(), 1, "{said}");
    assert!(!said.contains("more pages"), "{said}");
    // One that does not open at all: what to do is said there, too.
    file.set_len(size / 2).unwrap();
    let plain = dir.path().join("plain");
    let left_out = run(&[&"unpack", &"--no-manifest", &segment, &plain], 1);
    assert_eq!(left_out.matches("pgshrink cfs salvage").count(), 1, "{left_out}");
}

#[test]
fn without_any_whole_root_records_alone_give_everything_back() {
    let dir = TempDir::new().unwrap();
    let there = dir.path().join("packed");
    packed(&there, &[]);
    let segment = there.join(database().orders.to_string());
    let file = fs::OpenOptions::new().write(true).open(segment.join(CONTAINER)).unwrap();
    // A bit of each disk block.
    (0..3).for_each(|root_slot| file.write_all_at(&[0xff], root_slot * 4096 + 300).unwrap());
    assert!(run(&[&"verify", &segment], 1).contains("damaged root"));
    let (new, plain) = (dir.path().join("salvaged"), dir.path().join("plain"));
    let report = json(&[&"salvage", &segment, &new], 0);
    assert_eq!((&report["map_is_whole"], &report["lost"]), (&false.into(), &Value::Array(vec![])));
    run(&[&"unpack", &new, &plain], 0);
    assert!(
        fs::read(database().dir.join(database().orders.to_string())).unwrap() == fs::read(plain).unwrap()
    );
}

#[test]
fn the_root_of_the_empty_container_that_it_once_was_is_not_taken_for_the_last() {
    let dir = TempDir::new().unwrap();
    let there = dir.path().join("packed");
    packed(&there, &[]);
    let segment = there.join(database().orders.to_string());
    let file = fs::OpenOptions::new().write(true).open(segment.join(CONTAINER)).unwrap();
    let roots = fs::read(segment.join(CONTAINER)).unwrap();
    let sequence =
        |root_slot: usize| u64::from_le_bytes(roots[root_slot * 4096 + 40..][..8].try_into().unwrap());
    let oldest = (0..3).min_by_key(|root_slot| sequence(*root_slot)).unwrap();
    for root_slot in (0..3).filter(|root_slot| *root_slot != oldest) {
        file.write_all_at(&[0; 4096], root_slot as u64 * 4096).unwrap();
    }
    for command in ["verify", "info"] {
        let said = run(&[&command, &segment], 1);
        assert!(said.contains("expected at least two intact roots, found one"), "{said}");
    }
    let (new, plain) = (dir.path().join("salvaged"), dir.path().join("plain"));
    run(&[&"unpack", &"--no-manifest", &segment, &plain], 1);
    let report = json(&[&"salvage", &segment, &new], 0);
    assert_eq!((&report["map_is_whole"], &report["lost"]), (&false.into(), &Value::Array(vec![])));
    let plain = dir.path().join("again");
    run(&[&"unpack", &new, &plain], 0);
    assert!(
        fs::read(database().dir.join(database().orders.to_string())).unwrap() == fs::read(plain).unwrap()
    );
}

#[test]
fn sealed_containers_need_their_key_and_say_which() {
    let dir = TempDir::new().unwrap();
    let key = |name: &str, text: &str, mode| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let right = key("right", &"5a".repeat(32), 0o600);
    let wrong = key("wrong", &"5b".repeat(32), 0o600);
    let open = key("open", &"5a".repeat(32), 0o644);
    let table = database().dir.join(database().orders.to_string());
    let there = dir.path().join("sealed");
    assert!(run(&[&"pack", &"--seal", &table, &there], 2).contains("needs a key"));
    assert!(run(&[&"pack", &"--seal", &"--key-file", &open, &table, &there], 2).contains("chmod 600"));
    run(&[&"pack", &"--seal", &"--key-file", &right, &table, &there], 0);

    let id = json(&[&"info", &there], 0)[0]["key_id"].as_str().unwrap().to_owned();
    assert!(run(&[&"info", &there], 0).contains("needs the key"));
    let missing = run(&[&"verify", &there], 2);
    assert!(missing.contains("no key was given") && missing.contains(&id), "{missing}");
    let other = run(&[&"verify", &"--key-file", &wrong, &there], 2);
    assert!(other.contains("keys supplied matches") && other.contains(&id), "{other}");
    run(&[&"verify", &"--key-file", &wrong, &"--key-file", &right, &there], 0);
    let command = format!("cat '{}'", right.display());
    run(&[&"verify", &"--key-command", &command, &there], 0);
    assert!(run(&[&"verify", &"--key-command", &"exit 3", &there], 2).contains("key"));
    let output = cfs(&[&"verify", &there]).env("PG_CIPHER_KEY", "5a".repeat(32)).output().unwrap();
    ended(&output, 0);

    // Moved, it still opens; no plaintext is in it.
    let moved = dir.path().join("moved");
    fs::rename(&there, &moved).unwrap();
    let plain = dir.path().join("plain");
    run(&[&"unpack", &"--key-file", &right, &moved, &plain], 0);
    assert!(fs::read(&plain).unwrap() == fs::read(&table).unwrap());
    let stored = fs::read(moved.join(CONTAINER)).unwrap();
    assert!(!stored.windows(6).any(|window| window == b"state "));
}

#[test]
fn another_master_key_opens_what_the_first_sealed_and_the_first_no_more() {
    let dir = TempDir::new().unwrap();
    let key = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (old, new) = (key("old", &"5a".repeat(32)), key("new", "correct horse battery staple\n"));
    let table = database().dir.join(database().orders.to_string());
    let there = dir.path().join("sealed");
    run(&[&"pack", &"--seal", &"--key-file", &old, &table, &there], 0);
    let stored = fs::read(there.join(CONTAINER)).unwrap();
    let slot = stored[116..212].to_vec();
    assert!(run(&[&"rekey", &"--new-key-file", &new, &there], 2).contains("no old key was given"));
    assert!(run(&[&"rekey", &"--key-file", &old, &there], 2).contains("--new-key-file"));
    let first = json(&[&"rekey", &"--new-key-file", &new, &"--key-file", &old, &there], 0);
    assert_ne!(first[0]["key_before"], first[0]["key_after"]);
    // Again, as after an interruption: the same key, a slot of its own.
    let second = json(&[&"rekey", &"--new-key-file", &new, &there], 0);
    assert_eq!(second[0]["key_after"], first[0]["key_after"]);
    let after = fs::read(there.join(CONTAINER)).unwrap();
    assert!(!after.windows(96).any(|window| window == slot), "the old slot is gone");
    assert_eq!(after[3 * 4096..stored.len()], stored[3 * 4096..], "no record was written");
    assert!(run(&[&"verify", &"--key-file", &old, &there], 2).contains("derived from a passphrase"));
    let plain = dir.path().join("plain");
    run(&[&"unpack", &"--key-file", &new, &there, &plain], 0);
    assert!(fs::read(&plain).unwrap() == fs::read(&table).unwrap());
}

#[test]
fn estimates_name_tables_and_come_near_what_packing_gives() {
    let report =
        json(&[&"estimate", &database().dir, &"--algorithms", &"lz4,zstd:1,zstd:3", &"--pages", &"0"], 0);
    let relations = report["relations"].as_array().unwrap();
    let orders = relations.iter().find(|one| one["name"] == "orders" && one["fork"] == "main").unwrap();
    assert_eq!(orders["kind"], "heap");
    assert!(orders["path"].as_str().unwrap().ends_with(&database().orders.to_string()));
    assert!(relations.iter().any(|one| one["name"] == "orders_by_customer"));
    assert!(relations.iter().any(|one| one["name"] == "pg_class"), "a mapped relation");
    let zstd = &orders["algorithms"][1];
    assert_eq!(zstd["algorithm"], "zstd:1");
    assert!(zstd["dictionary"].is_boolean(), "one is used if it pays");
    assert!(zstd["compress_mb_s"].as_f64().unwrap() > 1.0 && zstd["decompress_mb_s"].as_f64().unwrap() > 1.0);

    let dir = TempDir::new().unwrap();
    let there = dir.path().join("one");
    run(&[&"pack", &database().dir.join(database().orders.to_string()), &there], 0);
    let real = fs::metadata(there.join(CONTAINER)).unwrap().len() as f64;
    let said = zstd["bytes"].as_f64().unwrap();
    assert!((0.8..1.25).contains(&(said / real)), "estimated {said}, is {real}");

    let text = run(&[&"estimate", &database().dir, &"--pages", &"20"], 0);
    assert!(
        text.contains("orders_by_customer") && text.lines().any(|line| line.starts_with("all ")),
        "{text}"
    );
    assert!(run(&[&"estimate", &dir.path()], 2).contains("no plain relation file"));
    assert!(run(&[&"estimate", &"--algorithms", &"brotli", &database().dir], 2).contains("--algorithms"));
}

#[test]
fn tables_in_tablespaces_are_estimated_by_name_and_packed() {
    let cluster = Cluster::builder().major(15).start().unwrap();
    let keep = TempDir::new().unwrap();
    fs::set_permissions(keep.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let location = keep.path().join("elsewhere");
    // By the server, so that it belongs to the server's user.
    let mkdir = format!("copy (select 1) to program 'cat > /dev/null; mkdir -m 700 {}'", location.display());
    cluster.sql(&mkdir).unwrap();
    cluster.sql(&format!("create tablespace elsewhere location '{}'", location.display())).unwrap();
    let schema = "create table faraway (n bigint, t text) tablespace elsewhere;
        insert into faraway select n, 'text ' || n % 100 from generate_series(1, 30000) n;
        create table nearby (n bigint); insert into nearby select generate_series(1, 10000);
        vacuum; checkpoint;";
    cluster.sql(schema).unwrap();
    let path = cluster.sql("select pg_relation_filepath('faraway')").unwrap().trim().to_owned();
    assert!(path.starts_with("pg_tblspc/"), "{path}");
    let file = fs::canonicalize(cluster.data_dir().join(&path)).unwrap();

    let of = |report: &Value, name: &str| {
        let relations = report["relations"].as_array().unwrap().clone();
        relations.into_iter().find(|one| one["name"] == name && one["fork"] == "main")
    };
    let report = json(&[&"estimate", &"--pages", &"20", &"--algorithms", &"zstd:1", &cluster.data_dir()], 0);
    let faraway = of(&report, "faraway").unwrap();
    assert!(faraway["path"].as_str().unwrap().ends_with(&path), "{faraway}");
    assert!(of(&report, "nearby").is_some() && of(&report, "pg_class").is_some());
    // The file alone, through the link: its database's catalog is not to be found from where it really is.
    let one = json(&[&"estimate", &"--algorithms", &"zstd:1", &cluster.data_dir().join(&path)], 0);
    assert_eq!(one["relations"].as_array().unwrap().len(), 1, "{one}");

    // Beside a running server nothing is packed.
    let (there, back) = (keep.path().join("all"), keep.path().join("all-back"));
    let refused = run(&[&"pack", &cluster.data_dir(), &there], 2);
    assert!(refused.contains("postmaster.pid") && refused.contains("a server is running here"), "{refused}");
    cluster.stop(Stop::Fast).unwrap();

    // The link in pg_tblspc is followed, and the report says so.
    let said = run(&[&"pack", &cluster.data_dir(), &there], 0);
    assert!(said.contains("is a link; its target") && said.contains("elsewhere"), "{said}");
    assert!(there.join(&path).join(CONTAINER).is_file());
    assert!(run(&[&"verify", &there], 0).contains("all intact"));
    let said = run(&[&"unpack", &there, &back], 0);
    assert!(said.contains("was a link to") && said.contains("here it is a directory"), "{said}");
    assert!(fs::read(back.join(&path)).unwrap() == fs::read(&file).unwrap());
    // But for what a path of files leaves out, nothing differs.
    assert!(files(&back) == files(&cluster.data_dir()));

    let there = keep.path().join("packed");
    run(&[&"pack", &location, &there], 0);
    let container = there.join(file.strip_prefix(fs::canonicalize(&location).unwrap()).unwrap());
    assert!(container.join(CONTAINER).is_file(), "{}", container.display());
    let known = json(&[&"info", &container], 0);
    println!("{known}");
    run(&[&"verify", &there], 0);
    let back = keep.path().join("back");
    run(&[&"unpack", &there, &back], 0);
    let restored = back.join(file.strip_prefix(fs::canonicalize(&location).unwrap()).unwrap());
    assert!(fs::read(restored).unwrap() == fs::read(&file).unwrap());
}
