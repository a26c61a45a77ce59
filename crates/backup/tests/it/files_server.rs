//! The choice of files against what `pg_basebackup` takes.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pgshrink_backup::BackupPath;
use pgshrink_backup::base_backup::ServerMajor;
use pgshrink_backup::files::{Choice, FileKind, Reason, Rules};
use pgshrink_testkit::{Auth, Cluster, Server, TempDir};

use crate::connection::Connection;

/// Directories end with a slash.
type Paths = BTreeSet<String>;

#[test]
fn the_rules_choose_what_the_server_puts_into_a_backup() {
    Server::each("files", &Server::chosen(&[15, 16, 18]), |server| {
        let cluster =
            Cluster::builder().server(server).auth(Auth::Trust).conf("autovacuum", "off").start().unwrap();
        let home = TempDir::owned_by(cluster.owner()).unwrap();
        let inside = cluster.data_dir().join("inside");
        let locations = [home.path().join("outside"), inside];
        for (index, location) in locations.iter().enumerate() {
            std::fs::create_dir(location).unwrap();
            std::os::unix::fs::chown(location, Some(cluster.owner().uid), Some(cluster.owner().gid)).unwrap();
            cluster
                .sql(&format!("create tablespace space{index} location '{}'", location.display()))
                .unwrap();
        }
        let mut session = Connection::open(&cluster, "");
        fill(&cluster, &mut session);
        litter(&cluster, &locations[0]);

        let backup = home.path().join("backup");
        let mut command = cluster.command("pg_basebackup");
        command.args(["-X", "none", "-c", "fast", "--no-sync", "-w", "-d"]).arg(cluster.conninfo("postgres"));
        for (index, location) in locations.iter().enumerate() {
            command.arg("-T").arg(format!("{}={}/mapped{index}", location.display(), home.path().display()));
        }
        let done = command.arg("-D").arg(&backup).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut taken = Paths::new();
        walk(&backup, None, &mut taken);
        for made in ["backup_label", "backup_manifest"] {
            assert!(taken.remove(made), "{made}");
        }
        let catalog: u32 =
            cluster.sql("select catalog_version_no from pg_control_system()").unwrap().parse().unwrap();
        let major = ServerMajor::new(server.major).unwrap();
        let rules = Rules::new(major, catalog, vec![BackupPath::new(b"inside").unwrap()]);
        let (mut chosen, mut reasons) = (Paths::new(), Vec::new());
        choose(&rules, &cluster.data_dir(), None, &mut (&mut chosen, &mut reasons));
        let differ: Vec<&String> = chosen.symmetric_difference(&taken).collect();
        assert!(differ.is_empty(), "{}: {differ:?}", server.version);
        assert!(chosen.contains("backup_label.old") && chosen.contains("pg_replslot/"));

        for reason in [
            Reason::TemporaryFile,
            Reason::TemporaryRelation,
            Reason::Unlogged,
            Reason::ServerState,
            Reason::Cache,
            Reason::EarlierBackup,
            Reason::Tablespace,
            Reason::Foreign,
        ] {
            assert!(reasons.contains(&reason), "{reason:?} did not occur");
        }
        session.run("select 1");
    });
}

/// Relations of every persistence, in each tablespace.
fn fill(cluster: &Cluster, session: &mut Connection) {
    cluster.sql("select pg_create_physical_replication_slot('slot')").unwrap();
    for space in ["pg_default", "space0", "space1"] {
        for kind in ["", "unlogged"] {
            let table = format!("{space}_{kind}");
            cluster
                .sql(&format!(
                    "create {kind} table {table}(n int primary key using index tablespace {space}, t text) \
                     tablespace {space}; insert into {table} select n, repeat('x', 3000) || n from \
                     generate_series(1, 100) n"
                ))
                .unwrap();
            cluster.sql(&format!("vacuum {table}")).unwrap();
        }
        session.run(&format!(
            "create temp table temp_{space} tablespace {space} as select generate_series(1, 1000)"
        ));
    }
    cluster.sql("checkpoint").unwrap();
}

/// Files that a server leaves behind, or that somebody else does.
fn litter(cluster: &Cluster, tablespace: &Path) {
    let data = cluster.data_dir();
    // A tablespace may have directories of several versions, while pg_upgrade runs.
    let inner = std::fs::read_dir(tablespace).unwrap().next().unwrap().unwrap().path();
    for directory in
        [data.join("base/pgsql_tmp/pgsql_tmp1.0.sharedfileset"), data.join("log/pg_notify"), inner.join("77")]
    {
        std::fs::create_dir_all(&directory).unwrap();
        // The server puts its manifest into base/pgsql_tmp while it makes the backup.
        let parent = directory.parent().unwrap();
        std::os::unix::fs::chown(parent, Some(cluster.owner().uid), Some(cluster.owner().gid)).unwrap();
        std::fs::write(directory.join("pgsql_tmp12.3"), "x").unwrap();
        std::fs::write(directory.join("t1_16384"), "x").unwrap();
    }
    std::fs::create_dir(tablespace.join("PG_14_202107181")).unwrap();
    let database = std::fs::read_dir(data.join("base")).unwrap().map(|entry| entry.unwrap().path());
    let database = database.filter(|path| path.join("PG_VERSION").exists()).max().unwrap();
    for path in [
        data.join(".DS_Store"),
        data.join("backup_label.old"),
        data.join("backup_manifest"),
        data.join("postgresql.auto.conf.tmp"),
        data.join("current_logfiles.tmp"),
        data.join("global/pg_internal.init.123"),
        data.join("log/16384_init"),
        data.join("log/16384"),
        data.join("log/pg_internal.initial"),
        data.join("pg_snapshots/00000003-00000001-1"),
        data.join("pg_stat_tmp/global.stat"),
        data.join("t1_16384"),
        database.join("900000_init"),
        database.join("900000.1"),
        database.join("900000_fsm.2"),
        database.join("t1_900001_vm.1"),
        database.join("t1_900001_other"),
        database.join("900000_other"),
        inner.join("77/900000_init"),
        inner.join("77/900000"),
    ] {
        std::fs::write(&path, "x").unwrap();
        std::os::unix::fs::chown(&path, Some(cluster.owner().uid), Some(cluster.owner().gid)).unwrap();
    }
}

fn entries(directory: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect()
}

/// Everything below a directory, links of tablespaces followed.
fn walk(root: &Path, path: Option<&BackupPath>, found: &mut Paths) {
    let directory = path.map_or(root.to_owned(), |path| root.join(path.as_str().unwrap()));
    for name in entries(&directory) {
        let relative = [path.map_or(&b""[..], BackupPath::as_bytes), &name].join(&b'/');
        let relative = BackupPath::new(relative.strip_prefix(b"/").unwrap_or(&relative)).unwrap();
        if root.join(relative.as_str().unwrap()).is_dir() {
            found.insert(format!("{relative}/"));
            walk(root, Some(&relative), found);
        } else {
            found.insert(relative.to_string());
        }
    }
}

/// What the rules choose of a data directory, and why they leave out the rest.
fn choose(rules: &Rules, root: &Path, path: Option<&BackupPath>, found: &mut (&mut Paths, &mut Vec<Reason>)) {
    let names = entries(&path.map_or(root.to_owned(), |path| root.join(path.as_str().unwrap())));
    let listed: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let directory = rules.directory(path.cloned(), &listed);
    for name in listed {
        let relative = directory.path_of(name).unwrap();
        let is_directory = root.join(relative.as_str().unwrap()).is_dir();
        match directory.choice(name) {
            Choice::Exclude(reason) => found.1.push(reason),
            Choice::EmptyDirectory => {
                found.0.insert(format!("{relative}/"));
                if relative.as_bytes() == b"pg_wal" {
                    found.0.extend(rules.wal_directories().iter().map(|name| format!("pg_wal/{name}/")));
                }
            }
            Choice::Include if is_directory => {
                found.0.insert(format!("{relative}/"));
                choose(rules, root, Some(&relative), found);
            }
            Choice::Include | Choice::Last => {
                let temporary = matches!(FileKind::of(&relative), FileKind::TemporaryRelation(_));
                assert!(!temporary, "{relative}");
                found.0.insert(relative.to_string());
            }
        }
    }
}
