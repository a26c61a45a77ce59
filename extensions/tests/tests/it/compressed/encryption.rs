//! Encrypted tablespaces: keys at start and in use, what is on the disk, standbys, and changes of the master key.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pgshrink_testkit::{Cluster, Server, ServerBinaries, Stop, wait_until};

use super::crashes::{ACCOUNTS, TABLES, check, load};
use super::{Compressed, MAJORS, sum, table};

/// A file of the server's user, with a key of 32 bytes that are all this one.
pub fn key(cluster: &Cluster, byte: u8) -> PathBuf {
    let path = cluster.socket_dir().join(format!("key{byte}"));
    fs::write(&path, format!("{byte:02x}").repeat(32)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let owner = cluster.owner();
    if owner.step_down {
        std::os::unix::fs::chown(&path, Some(owner.uid), Some(owner.gid)).unwrap();
    }
    path
}

/// A server with a key and the library.
fn with_key(server: &ServerBinaries, byte: u8) -> Cluster {
    let builder = Cluster::builder().server(server).fsync(true).conf("shared_preload_libraries", "cfs");
    let builder = builder.conf("autovacuum", "off").conf("allow_in_place_tablespaces", "on");
    let cluster = builder.create().unwrap();
    cluster.set_conf("cfs.key_file", key(&cluster, byte).display()).unwrap();
    cluster.start().unwrap();
    cluster
}

/// With an encrypted tablespace `fast`, and the key of sevens.
pub fn encrypted(server: &ServerBinaries) -> Compressed {
    Compressed::of(with_key(server, 7), "compression = 'zstd:1', encryption = on")
}

fn on_each(test: &str, mut run: impl FnMut(&Compressed)) {
    Server::each_with_extensions(test, &MAJORS, |server| run(&encrypted(server)));
}

/// Whether any file below a directory has these bytes.
fn shows(directory: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(directory).unwrap().map(Result::unwrap).any(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => shows(&entry.path(), bytes),
        _ => fs::read(entry.path()).unwrap().windows(bytes.len()).any(|found| found == bytes),
    })
}

/// Why the server does not start.
fn refusal(cluster: &Cluster) -> String {
    let before = cluster.log().unwrap().len();
    cluster.start().expect_err("the server starts");
    cluster.log().unwrap().split_off(before)
}

fn key_of(server: &Compressed, is_current: bool) -> String {
    server.sql(&format!("select id from cfs_known_keys() where is_current = {is_current}"))
}

#[test]
fn nothing_of_an_encrypted_table_is_readable_on_the_disk_and_it_works_as_any_other() {
    on_each("encrypted tables", |server| {
        let plain = server.directory("plain");
        server.sql(&format!(
            "create tablespace plain location '{}' with (compression = 'zstd:1')",
            plain.display()
        ));
        // Random bytes, which no codec changes; in the heap, an index and TOAST.
        let rows = "select i, decode(md5(i::text), 'hex') as word, (select string_agg(decode(md5((i * j)::text), 'hex'), '') from generate_series(1, 300) j) as big from generate_series(1, 1000) i";
        for tablespace in ["fast", "plain"] {
            server.sql(&format!(
                "create table in_{tablespace} tablespace {tablespace} as {rows};
                alter table in_{tablespace} alter big set storage external;
                create index on in_{tablespace} (word) tablespace {tablespace};
                update in_{tablespace} set big = big || '\\x00' where i % 3 = 0; checkpoint"
            ));
        }
        assert_eq!(server.sql(&sum("in_fast")), server.sql(&sum("in_plain")));
        let bytes = |column: &str| {
            let hex = server
                .sql(&format!("select encode(substr({column}, 3, 10), 'hex') from in_plain where i = 4"));
            (0..10).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect::<Vec<_>>()
        };
        let (word, big) = (bytes("word"), bytes("substr(big, 2000)"));
        let fast = server.location.path().join("fast");
        assert!(shows(&plain, &word) && shows(&plain, &big), "the search finds nothing");
        assert!(!shows(&fast, &word) && !shows(&fast, &big));
        // Its visibility map is plain.
        server.sql("vacuum in_fast; create unlogged table passing (i int primary key using index tablespace fast) tablespace fast");
        let found = server
            .sql("select relation, encrypted from cfs_relations where not encrypted and tablespace = 'fast'");
        assert_eq!(found, "");
        assert_eq!(
            server.sql("select bool_or(encrypted) from cfs_relations where tablespace = 'plain'"),
            "f"
        );
        server.sql("vacuum full in_fast; cluster in_fast using in_fast_word_idx; reindex table in_fast; select cfs_gc_relation('in_fast')");
        server.cluster.kill().unwrap();
        server.cluster.start().unwrap();
        assert_eq!(server.sql(&sum("in_fast")), server.sql(&sum("in_plain")));
        server.sql("truncate in_fast; insert into in_fast select * from in_plain; checkpoint");
        assert!(!shows(&fast, &word) && !shows(&fast, &big));
        assert_eq!(server.sql(&sum("in_fast")), server.sql(&sum("in_plain")));
    });
}

#[test]
fn encrypted_tables_survive_kills_under_load() {
    on_each("kills of encrypted tables", |server| {
        server.sql(&format!("{TABLES} insert into account (id) select generate_series(1, {ACCOUNTS})"));
        for how in [None, Some(Stop::Immediate)] {
            let sessions = load(server, 3);
            std::thread::sleep(Duration::from_millis(700));
            match how {
                None => server.cluster.kill().unwrap(),
                Some(how) => server.cluster.stop(how).unwrap(),
            }
            sessions.into_iter().for_each(|session| session.join().unwrap());
            server.cluster.start().unwrap();
            check(server);
        }
    });
}

/// Statements, and what is said of them.
const REFUSED: [(&str, &str); 10] = [
    (
        "alter tablespace fast set (compression = none)",
        "cannot encrypt a tablespace with \"compression\" = \"none\"",
    ),
    ("alter tablespace fast set (encryption = maybe)", "encryption requires a Boolean value"),
    (
        "alter tablespace fast set (encryption = on, encryption = off)",
        "parameter \"encryption\" specified more than once",
    ),
    ("alter tablespace fast reset (encryption = on)", "RESET must not include values for parameters"),
    ("create database d tablespace fast", "an encrypted tablespace cannot be a database's default"),
    (
        "alter database template1 set tablespace fast",
        "an encrypted tablespace cannot be a database's default",
    ),
    (
        "alter tablespace pg_default set (encryption = on)",
        "tablespace \"pg_default\" cannot be compressed as a whole",
    ),
    (
        "alter tablespace pg_global set (compression = 'zstd:1')",
        "tablespace \"pg_global\" cannot be compressed as a whole",
    ),
    (
        "security label for cfs on tablespace pg_default is 'compression=zstd:1'",
        "tablespace \"pg_default\" cannot be compressed as a whole",
    ),
    (
        "security label for cfs on tablespace fast is 'compression=none, encryption=on'",
        "invalid security label",
    ),
];

#[test]
fn options_that_cannot_be_are_refused_and_labels_come_back_from_a_dump() {
    on_each("options of encryption", |server| {
        let label = "select label from pg_shseclabel where provider = 'cfs'";
        assert_eq!(server.sql(label), "compression=zstd:1, encryption=on");
        assert_eq!(
            server.sql("select compression, encryption, in_force from cfs_tablespaces"),
            "zstd:1|t|zstd:1, encrypted"
        );
        for (statement, error) in REFUSED {
            let said = server.fails(statement);
            assert!(said.contains(error), "{statement}\n{said}");
        }
        assert_eq!(server.sql(label), "compression=zstd:1, encryption=on");
        for (options, expected) in [
            ("set (compression = 'lz4')", "compression=lz4:1, encryption=on"),
            ("set (encryption = off)", "compression=lz4:1"),
            ("reset (compression)", "compression=none"),
            ("set (encryption)", "compression=zstd:1, encryption=on"),
            ("reset (encryption)", "compression=zstd:1"),
            ("set (compression = none, encryption = off)", "compression=none"),
            ("set (compression = 'zstd:3', encryption = on)", "compression=zstd:3, encryption=on"),
        ] {
            server.sql(&format!("alter tablespace fast {options}"));
            assert_eq!(server.sql(label), expected, "{options}");
        }
        let mut dump = server.cluster.owner().command(server.cluster.server().program("pg_dumpall"));
        dump.args(["--globals-only", "-d"]).arg(server.cluster.conninfo_unix("postgres"));
        let dumped = pgshrink_testkit::run::output(&mut dump).unwrap();
        let line = "SECURITY LABEL FOR cfs ON TABLESPACE fast IS 'compression=zstd:3, encryption=on';";
        assert!(dumped.contains(line), "{dumped}");
        server.sql(&format!("alter tablespace fast set (encryption = off); {line}"));
        assert_eq!(server.sql(label), "compression=zstd:3, encryption=on");
        // Files that are there stay as they are.
        server.sql("alter tablespace fast set (encryption = off)");
        server.sql(&table("t", 100));
        let mut psql =
            server.cluster.psql().arg("-c").arg("alter tablespace fast set (encryption = on)").command();
        let said = String::from_utf8_lossy(&psql.output().unwrap().stderr).into_owned();
        assert!(said.contains("files in the tablespace that are already compressed do not change"), "{said}");
        assert_eq!(server.sql("select encrypted from cfs_relations where relation = 't'::regclass"), "f");
        server.sql("vacuum full t");
        assert_eq!(server.sql("select encrypted from cfs_relations where relation = 't'::regclass"), "t");
    });
}

#[test]
fn a_server_without_the_key_or_with_another_one_does_not_start_and_says_which_it_needs() {
    on_each("wrong keys", |server| {
        server.sql(&table("t", 2_000));
        let before = server.sql(&sum("t"));
        let id = key_of(server, true);
        server.cluster.stop(Stop::Fast).unwrap();
        let cluster = &server.cluster;
        let right = key(cluster, 7);
        cluster.set_conf("cfs.key_file", key(cluster, 8).display()).unwrap();
        let said = refusal(cluster);
        assert!(
            said.contains("FATAL") && said.contains(&id) && said.contains("cfs.key_command or cfs.key_file"),
            "{said}"
        );
        cluster.set_conf("cfs.key_file", "").unwrap();
        assert!(refusal(cluster).contains(&id));
        fs::set_permissions(&right, fs::Permissions::from_mode(0o644)).unwrap();
        cluster.set_conf("cfs.key_file", right.display()).unwrap();
        let said = refusal(cluster);
        assert!(
            said.contains("other users may read this key file; change its permissions with chmod 600"),
            "{said}"
        );
        fs::set_permissions(&right, fs::Permissions::from_mode(0o600)).unwrap();
        cluster.set_conf("cfs.key_file", "").unwrap();
        cluster.set_conf("cfs.key_command", format!("cat {}", right.display())).unwrap();
        cluster.start().unwrap();
        assert_eq!(server.sql(&sum("t")), before);
        cluster.stop(Stop::Fast).unwrap();
        // The original's variable, last.
        cluster.set_conf("cfs.key_command", "").unwrap();
        cluster.set_env("PG_CIPHER_KEY", "07".repeat(32));
        cluster.start().unwrap();
        assert_eq!(server.sql(&sum("t")), before);
        // The server's commands do not get it.
        let seen = server.sql(
            "create temp table seen (v text); copy seen from program 'echo \"[$PG_CIPHER_KEY]\"'; table seen",
        );
        assert_eq!(seen, "[]");
        // A backend's crash ends all processes; the key is still there.
        let pid = server.sql("select pid from pg_stat_activity where backend_type = 'background writer'");
        let mut kill = cluster.owner().command("/bin/sh");
        pgshrink_testkit::run::output(kill.args(["-c", &format!("kill -9 {pid}")])).unwrap();
        wait_until(Duration::from_secs(60), "the server after a crash", || {
            cluster.sql(&sum("t")).is_ok_and(|found| found == before)
        })
        .unwrap();
        server.sql("create table more tablespace fast as select * from t");
        assert_eq!(server.sql("select encrypted from cfs_relations where relation = 'more'::regclass"), "t");
    });
}

#[test]
fn the_setting_of_a_tablespace_that_is_gone_asks_for_no_key() {
    on_each("a setting that is left over", |server| {
        let oid = server.sql("select oid from pg_tablespace where spcname = 'fast'");
        let file = server.cluster.data_dir().join("pg_cfs").join(oid);
        let setting = fs::read(&file).unwrap();
        server.sql("drop tablespace fast");
        server.cluster.stop(Stop::Fast).unwrap();
        // As on a standby, where redo has dropped it and nobody has looked since.
        fs::write(&file, setting).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        server.cluster.set_conf("cfs.key_file", "").unwrap();
        server.cluster.start().unwrap();
        server.sql("create table t as select 1 as i");
    });
}

#[test]
fn without_any_key_a_tablespace_cannot_be_encrypted() {
    super::on_each_major("encryption without a key", |server| {
        let place = server.directory("secret");
        for statement in [
            format!("create tablespace secret location '{}' with (encryption = on)", place.display()),
            "alter tablespace fast set (encryption = on)".to_owned(),
            "security label for cfs on tablespace fast is 'compression=zstd:1, encryption=on'".to_owned(),
        ] {
            let said = server.fails(&statement);
            assert!(
                said.contains("the server has no key") && said.contains("openssl rand -hex 32"),
                "{said}"
            );
        }
        assert_eq!(server.sql("select count(*) from cfs_known_keys()"), "0");
        assert!(server.fails("select cfs_rotate_key()").contains("no key is configured"));
    });
}

#[test]
fn the_master_key_changes_under_load_and_the_old_one_opens_nothing_any_more() {
    on_each("a change of the master key", |server| {
        server.sql(&format!("{TABLES} insert into account (id) select generate_series(1, {ACCOUNTS})"));
        let sessions = load(server, 2);
        let old = key_of(server, true);
        server.cluster.set_conf("cfs.key_file", key(&server.cluster, 8).display()).unwrap();
        server.cluster.reload().unwrap();
        // The session has the new setting when the server has told it.
        wait_until(Duration::from_secs(30), "the setting", || {
            server.cluster.sql("show cfs.key_file").is_ok_and(|file| file.ends_with("key8"))
        })
        .unwrap();
        let files: u32 = server.sql("select cfs_rotate_key()").parse().unwrap();
        assert!(files >= 3, "{files}");
        let new = key_of(server, true);
        assert!(new != old && key_of(server, false).is_empty());
        server.sql("create table made_after tablespace fast as select 1 as i");
        let ids = "select string_agg(distinct key_id, ',') from pg_class c, cfs_segments(c.reltablespace, pg_relation_filenode(c.oid)) where c.reltablespace <> 0 and relkind in ('r', 'i', 't')";
        assert_eq!(server.sql(ids), new);
        server.cluster.kill().unwrap();
        sessions.into_iter().for_each(|session| session.join().unwrap());
        server.cluster.start().unwrap();
        check(server);
        server.cluster.stop(Stop::Fast).unwrap();
        server.cluster.set_conf("cfs.key_file", key(&server.cluster, 7).display()).unwrap();
        assert!(refusal(&server.cluster).contains(&new));
        // Nobody but superusers changes it or sees where it is.
        server.cluster.set_conf("cfs.key_file", key(&server.cluster, 8).display()).unwrap();
        server.cluster.start().unwrap();
        server.sql("create role some_user");
        assert!(server.fails("set role some_user; select cfs_rotate_key()").contains("permission denied"));
        let hidden = server.fails("set role some_user; show cfs.key_file");
        assert!(hidden.contains("must be superuser") || hidden.contains("permission denied"), "{hidden}");
        // A command that takes too long is cancelled with its statement, and that is what the error says.
        server.cluster.set_conf("cfs.key_command", "sleep 60").unwrap();
        server.cluster.reload().unwrap();
        wait_until(Duration::from_secs(30), "the setting", || {
            server.cluster.sql("show cfs.key_command").is_ok_and(|command| command == "sleep 60")
        })
        .unwrap();
        let said = server.fails("set statement_timeout = 500; select cfs_rotate_key()");
        assert!(said.contains("canceling statement due to statement timeout"), "{said}");
    });
}

#[test]
fn a_standby_has_a_key_of_its_own_and_encrypts_what_it_makes_from_the_first_file_on() {
    Server::each_with_extensions("encrypted standbys", &MAJORS, |server| {
        let primary = with_key(server, 7);
        primary.sql("create extension cfs").unwrap();
        primary.sql("create tablespace fast location '' with (encryption = on)").unwrap();
        primary
            .sql("create table before tablespace fast as select i from generate_series(1, 5000) i")
            .unwrap();
        let standby = primary.standby().create().unwrap();
        standby.set_conf("cfs.key_file", key(&standby, 9).display()).unwrap();
        // What came with the backup is not to be converted meanwhile.
        standby.set_conf("cfs.convert", "off").unwrap();
        standby.start().unwrap();
        let catch_up = || {
            let here = primary.sql("select pg_current_wal_lsn()").unwrap();
            let replayed = format!("select pg_last_wal_replay_lsn() >= '{here}'");
            let told = || standby.sql(&replayed).is_ok_and(|said| said == "t");
            wait_until(Duration::from_secs(60), "the standby", told).unwrap();
        };
        catch_up();
        for round in 0..3 {
            primary
                .sql(&format!("create tablespace later{round} location '' with (encryption = on)"))
                .unwrap();
            primary
                .sql(&format!("create table after{round} tablespace later{round} as select i from generate_series(1, 5000) i"))
                .unwrap();
        }
        catch_up();
        let made = "select bool_and(encrypted) from cfs_relations where relation::text like 'after%'";
        assert_eq!(standby.sql(made).unwrap(), "t", "{}", standby.log().unwrap());
        // What came with the backup is plain until it is written anew.
        let before = "select encrypted from cfs_relations where relation = 'before'::regclass";
        assert_eq!(standby.sql(before).unwrap(), "f");
        primary.sql("vacuum full before").unwrap();
        catch_up();
        assert_eq!(standby.sql(before).unwrap(), "t");
        let current = "select id from cfs_known_keys()";
        assert_ne!(standby.sql(current).unwrap(), primary.sql(current).unwrap());
        // Its key is its own to change.
        let old = standby.sql(current).unwrap();
        standby.set_conf("cfs.key_file", key(&standby, 10).display()).unwrap();
        standby.restart().expect_err("the new key opens no file yet");
        standby.set_conf("cfs.old_key_file", key(&standby, 9).display()).unwrap();
        standby.start().unwrap();
        let files: u32 = standby.sql("select cfs_rotate_key()").unwrap().parse().unwrap();
        assert!(files >= 4 && standby.sql(current).unwrap() != old, "{files}");
        standby.set_conf("cfs.old_key_file", "").unwrap();
        standby.kill().unwrap();
        standby.start().unwrap();
        standby.promote().unwrap();
        assert_eq!(
            standby.sql("select count(*) from before, after2 where before.i = after2.i").unwrap(),
            "5000"
        );
        // Without a key it must not make plain files.
        standby.stop(Stop::Fast).unwrap();
        standby.set_conf("cfs.key_file", "").unwrap();
        assert!(refusal(&standby).contains("the container is encrypted"), "{}", standby.log().unwrap());
    });
}

#[test]
fn damage_of_an_encrypted_page_is_an_error_that_names_it() {
    on_each("damage of encrypted tables", |server| {
        server
            .sql("create table t tablespace fast as select i, md5(i::text) from generate_series(1, 20000) i");
        server.sql("checkpoint");
        let file = server.sql("select pg_relation_filepath('t')");
        let path = server.cluster.data_dir().join(file).join("segment.pgshrink");
        server.cluster.stop(Stop::Fast).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        server.cluster.start().unwrap();
        let said = server.fails("select count(*) from t");
        assert!(said.contains("XX001") && said.contains("damaged page"), "{said}");
        server.sql("drop table t");
    });
}

#[test]
fn an_encrypted_table_is_not_made_plain_whoever_asks() {
    on_each("encrypted tables asked to be plain", |server| {
        server.sql(&table("t", 3_000));
        server.sql("checkpoint");
        let word = "needle in the clear";
        server.sql(&format!("insert into t (id, word) values (-1, '{word}'); checkpoint"));
        for call in ["cfs_decompress_relation('t')", "cfs_set('t', 'none')"] {
            let said = server.fails(&format!("select {call}"));
            assert!(said.contains("are encrypted, and would be written unencrypted"), "{call}: {said}");
            assert_eq!(server.sql("select count(*) from pg_seclabel where provider = 'cfs'"), "0");
        }
        // A server's own setting is no question that could be refused.
        server.sql("create table other tablespace pg_default as select generate_series(1, 9000) i");
        server.sql("select cfs_compress_relation('other')");
        assert_eq!(server.sql("select cfs_wait('other', '1 min')"), "t");
        server.sql("alter system set cfs.node_compression = 'none'");
        server.cluster.reload().unwrap();
        // One look is at both.
        assert_eq!(server.sql("select cfs_wait('other', '1 min')"), "t");
        let forms = "select string_agg(distinct form, ' ') from cfs_segments(1663, pg_relation_filenode('other')) where fork = 'main'";
        assert_eq!(server.sql(forms), "plain");
        assert_eq!(
            server.sql("select bool_and(encrypted) from cfs_relations where relation::text like 't%'"),
            "t"
        );
        server.sql("update t set word = word || ' again' where id < 100; checkpoint");
        assert!(!shows(&server.location.path().join("fast"), word.as_bytes()));
    });
}
