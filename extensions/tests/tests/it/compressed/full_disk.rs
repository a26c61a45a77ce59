//! A tablespace on a filesystem that is full.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pgshrink_testkit::{
    Kind, Missing, Server, ServerBinaries, Stop, TempDir, left_out, or_skip, run, wait_until,
};

use super::{Compressed, MAJORS};

/// Large enough for a reserve, the rows to be kept, and some that fill it.
const BYTES: u64 = 96 << 20;
const ROWS: u32 = 50_000;

/// A filesystem of its own.
pub struct Filesystem {
    scratch: TempDir,
}

/// What kind it is.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    Ext4,
    /// In memory.
    Tmpfs,
}

impl Filesystem {
    pub fn new() -> Result<Filesystem, Missing> {
        let owner = run::Owner::find()?;
        // As root, servers run as somebody else.
        if !owner.step_down {
            let why = "mounting needs root";
            return Err(Missing::new("a filesystem of its own", why, "root").of(Kind::Privilege));
        }
        let filesystem = Filesystem { scratch: TempDir::owned_by(&owner).unwrap() };
        fs::create_dir(filesystem.root()).unwrap();
        Ok(filesystem)
    }

    pub fn root(&self) -> PathBuf {
        self.scratch.path().join("mounted")
    }

    pub fn mount(&self, format: Format) -> Result<(), String> {
        let image = self.scratch.path().join("image");
        let mut mount = Command::new("mount");
        match format {
            Format::Ext4 => {
                File::create(&image).and_then(|file| file.set_len(BYTES)).unwrap();
                run_quietly(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))?;
                mount.args(["-o", "loop"]).arg(image).arg(self.root());
            }
            Format::Tmpfs => {
                mount.args(["-t", "tmpfs", "-o", &format!("size={BYTES}"), "tmpfs"]).arg(self.root());
            }
        }
        run_quietly(&mut mount)
    }

    /// As an administrator does it: nobody may have anything open there.
    fn unmount(&self) -> Result<(), String> {
        run_quietly(Command::new("umount").arg(self.root()))
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        let _ = run_quietly(Command::new("umount").arg("-l").arg(self.root()));
    }
}

fn run_quietly(command: &mut Command) -> Result<(), String> {
    run::output(command).map(drop).map_err(|error| error.to_string())
}

/// Takes every block that is left.
fn fill_up(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        let bytes = vec![7; size];
        while file.write_all(&bytes).is_ok() {}
    }
    let _ = file.sync_all();
}

#[test]
fn on_a_full_ext4_growing_fails_and_all_that_gives_space_back_succeeds() {
    on_each_major("a full ext4", Format::Ext4);
}

#[test]
#[ignore = "as on ext4: make soak"]
fn on_a_full_tmpfs_growing_fails_and_all_that_gives_space_back_succeeds() {
    on_each_major("a full tmpfs", Format::Tmpfs);
}

fn on_each_major(test: &str, format: Format) {
    drop(or_skip!(test, Filesystem::new()));
    Server::each_with_extensions(test, &MAJORS, |binaries| {
        let filesystem = Filesystem::new().unwrap();
        match filesystem.mount(format) {
            Ok(()) => on_a_full_filesystem(binaries, &filesystem),
            Err(why) => left_out(test, &why),
        }
    });
}

fn on_a_full_filesystem(binaries: &ServerBinaries, filesystem: &Filesystem) {
    let server = Compressed::start(binaries, &[("shared_buffers", "4MB")]);
    let location = filesystem.root().join("small");
    fs::create_dir(&location).unwrap();
    let owner = server.cluster.owner();
    std::os::unix::fs::chown(&location, Some(owner.uid), Some(owner.gid)).unwrap();
    server.sql(&format!(
        "create tablespace small location '{}' with (compression = 'zstd:1')",
        location.display()
    ));
    server.sql(&format!(
        "create table keep (i int, m text) with (fillfactor = 80) tablespace small;
        insert into keep select i, md5(i::text) from generate_series(1, {ROWS}) i;
        create table junk (m bytea) tablespace small; create table more (m text) tablespace small;
        insert into more select md5(i::text) from generate_series(1, 20000) i; checkpoint"
    ));
    let reserve =
        |folder: fs::DirEntry| folder.path().join("pgshrink-reserve").metadata().map_or(0, |file| file.len());
    let is_filled = || fs::read_dir(&location).unwrap().flatten().map(reserve).sum::<u64>() > 4 << 20;
    wait_until(Duration::from_secs(30), "the launcher to fill the reserve", is_filled).unwrap();

    // What does not compress.
    let grow = "insert into junk select string_agg(sha512(random()::text::bytea), '') from generate_series(1, 100000) i group by i % 3000";
    let refused = loop {
        if let Err(refused) = server.cluster.sql(&format!("\\set VERBOSITY verbose\n{grow}")) {
            break refused.to_string();
        }
    };
    is_full(&refused);
    fill_up(&filesystem.root().join("ballast"));
    is_full(&server.fails(grow));
    server.sql("checkpoint");

    let change = "update keep set m = md5(m) where i % 100 = 0";
    for _ in 0..3 {
        server.sql(change);
        server.sql("checkpoint");
    }
    let before = server.sql(&super::sum("keep"));
    is_full(&server.fails("create index on keep (m) tablespace small"));
    server.cluster.restart().unwrap();
    assert_eq!(server.sql(&super::sum("keep")), before);
    server.sql("delete from keep where i % 100 = 1; vacuum keep; checkpoint; truncate more; insert into more values ('x'); checkpoint");
    server.sql("drop table more; checkpoint");
    let before = server.sql(&super::sum("keep"));
    server.cluster.stop(Stop::Immediate).unwrap();
    server.cluster.start().unwrap();
    assert_eq!(server.sql(&super::sum("keep")), before);
    server.sql("truncate junk; checkpoint");
    // A collector may have the old file in hand: its space is back when that is closed.
    let again = "insert into junk select sha512(i::text::bytea) from generate_series(1, 1000) i";
    wait_until(Duration::from_secs(30), "the space of a truncated table", || {
        server.cluster.sql(again).is_ok()
    })
    .unwrap();
    server.sql("drop table junk; checkpoint");
    server.cluster.restart().unwrap();
    fs::remove_file(filesystem.root().join("ballast")).unwrap();
    server.sql("create index on keep (m) tablespace small");
    assert_eq!(server.sql(&super::sum("keep")), before);
    assert!(!server.cluster.log_contains("PANIC"), "{}", server.cluster.log().unwrap());

    server.sql("drop table keep; drop tablespace small");
    wait_until(Duration::from_secs(60), "nothing to be open in a dropped tablespace", || {
        // Processes of the server close what was removed after a checkpoint, with or without the library.
        server.sql("checkpoint");
        filesystem.unmount().is_ok()
    })
    .unwrap();
}

/// PostgreSQL's own message for a file that cannot grow.
#[track_caller]
fn is_full(said: &str) {
    for part in ["53100", "could not extend file", "No space left on device"] {
        assert!(said.contains(part), "{part} in: {said}");
    }
}

#[test]
fn a_reserve_is_there_when_its_tablespace_is() {
    super::on_each_major("reserves of new tablespaces", |server| {
        for number in 0..3 {
            let location = server.directory(&format!("new{number}"));
            let place = location.display();
            server.sql(&format!("create tablespace new{number} location '{place}' with (compression = lz4)"));
            let version = fs::read_dir(&location).unwrap().next().unwrap().unwrap().path();
            assert!(fs::metadata(version.join("pgshrink-reserve")).unwrap().len() > 1 << 20);
            server.sql(&format!("drop tablespace new{number}"));
        }
    });
}
