//! Two servers on one tablespace directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pgshrink_testkit::run::output_with_input;
use pgshrink_testkit::{Server, TempDir, wait_until};

use super::{Compressed, MAJORS, on_each_major, sum, table};

/// A copy of a server's data directory, whose tablespaces lead to the same places.
struct Second<'a> {
    first: &'a Compressed,
    home: TempDir,
}

impl<'a> Second<'a> {
    fn copy_of(first: &'a Compressed) -> Second<'a> {
        let home = TempDir::owned_by(first.cluster.owner()).unwrap();
        let second = Second { first, home };
        second.copy();
        second
    }

    /// Makes the copy anew.
    fn copy(&self) {
        let _ = fs::remove_dir_all(self.data());
        let mut copy = Command::new("cp");
        // Files of a running server may go meanwhile; whether this copy can start does not depend on them.
        let _ = copy.arg("-a").arg(self.first.cluster.data_dir()).arg(self.data()).output().unwrap();
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.first.cluster.owner().command(self.first.cluster.server().program("postgres"));
        command.args(arguments).arg("-D").arg(self.data());
        command
    }

    /// Starts it as a server, which must be refused; what it says.
    #[track_caller]
    fn refused(&self) -> String {
        let sockets = format!("unix_socket_directories={}", self.home.path().display());
        let arguments = ["-c", "listen_addresses=", "-c", "logging_collector=off", "-c", &sockets];
        let said = self.home.path().join("said");
        let (out, err) = (fs::File::create(&said).unwrap(), fs::File::create(&said).unwrap());
        let mut second = self.command(&arguments).stdout(out).stderr(err).spawn().unwrap();
        let ended = wait_until(Duration::from_secs(30), "the second server to end", || {
            second.try_wait().unwrap().is_some()
        });
        if ended.is_err() {
            kill(second.id());
        }
        let status = second.wait().unwrap();
        let said = fs::read_to_string(said).unwrap();
        assert!(ended.is_ok() && !status.success(), "a second server started: {said}");
        said
    }

    /// The same as a single-user server.
    #[track_caller]
    fn refused_single(&self) -> String {
        let mut single = self.command(&["--single"]);
        let said = output_with_input(single.arg("postgres"), b"select 1\n");
        said.expect_err("a second single-user server").to_string()
    }

    /// What a single-user server answers.
    #[track_caller]
    fn answers(&self, query: &str) -> String {
        let mut single = self.command(&["--single"]);
        output_with_input(single.arg("postgres"), format!("{query}\n").as_bytes()).unwrap()
    }
}

/// The message names the directory, who has it, and what to do.
#[track_caller]
fn names(said: &str, directory: &Path, pid: Option<u32>, data: &Path) {
    let found = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    let owner = match pid {
        Some(pid) => format!("process {pid}, data directory \"{}\"", data.display()),
        None => format!("data directory \"{}\"", data.display()),
    };
    for part in
        ["FATAL", "in use by another server", "Stop that server", &found.display().to_string(), &owner]
    {
        assert!(said.contains(part), "{part} in: {said}");
    }
}

#[test]
fn a_second_server_on_a_tablespace_directory_is_refused_at_its_start() {
    on_each_major("two servers on one directory", |server| {
        server.sql(&table("t", 2_000));
        let (before, data) = (server.sql(&sum("t")), server.cluster.data_dir());
        let fast = server.location.path().join("fast");
        server.sql("checkpoint");
        let second = Second::copy_of(server);
        // Postmasters hold the directories that there are when they start, the launcher those that were made later.
        wait_for_holder(&fast);
        names(&second.refused(), &fast, None, &data);
        names(&second.refused_single(), &fast, None, &data);
        server.cluster.restart().unwrap();
        second.copy();
        names(&second.refused(), &fast, server.cluster.pid(), &data);
        // Its backends end and begin again, it does not.
        super::crashes::kill_one(server, "checkpointer");
        wait_until(Duration::from_secs(60), "the server to be back", || {
            server.cluster.sql("select 1").is_ok()
        })
        .unwrap();
        names(&second.refused(), &fast, server.cluster.pid(), &data);
        assert_eq!(server.sql(&sum("t")), before);
        server.cluster.stop(pgshrink_testkit::Stop::Fast).unwrap();
        second.copy();
        assert!(second.answers("select count(*) as n from t").contains("n = \"2000\""));
        // The first one comes back: locks are gone with their processes.
        server.cluster.start().unwrap();
        assert_eq!(server.sql(&sum("t")), before);
    });
}

#[test]
fn a_tablespace_that_redo_made_anew_is_held_too_and_one_that_was_dropped_is_let_go() {
    on_each_major("directories that redo makes", |server| {
        let later = server.directory("later");
        server.sql("checkpoint");
        server.sql(&format!(
            "create tablespace later location '{}' with (compression = 'zstd:1')",
            later.display()
        ));
        server.sql("create table t tablespace later as select generate_series(1, 1000) i");
        server.cluster.kill().unwrap();
        server.cluster.start().unwrap();
        assert_eq!(server.sql("select sum(i) from t"), "500500");
        let second = Second::copy_of(server);
        // As a second data directory in which only this tablespace leads to the first server's.
        for entry in fs::read_dir(second.data().join("pg_tblspc")).unwrap().map(Result::unwrap) {
            if fs::read_link(entry.path()).unwrap() != later {
                fs::remove_file(entry.path()).unwrap();
                symlink(second.home.path().join("nowhere"), entry.path()).unwrap();
            }
        }
        wait_for_holder(&later);
        names(&second.refused(), &later, None, &server.cluster.data_dir());
        server.sql("drop table t; drop tablespace later");
        wait_until(Duration::from_secs(40), "the dropped directory to be let go", || {
            // The postmaster looks when it makes a process.
            server.sql("select 1");
            holders(&later).is_empty()
        })
        .unwrap();
    });
}

#[test]
fn a_backend_that_outlives_its_postmaster_keeps_another_server_out() {
    Server::each_with_extensions("orphaned backends", &MAJORS, |binaries| {
        let server = Compressed::start(binaries, &[]);
        server.sql(&table("t", 20_000));
        server.sql("checkpoint");
        let fast = server.location.path().join("fast");
        let data = server.cluster.data_dir();
        let second = Second::copy_of(&server);
        // It neither waits nor looks whether the postmaster lives.
        let query = "select count(*) from t a, t b where a.id * b.id % 7 = -1";
        let mut busy: Child = server
            .cluster
            .psql()
            .arg("-c")
            .arg(query)
            .command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = "select pid from pg_stat_activity where query like 'select count(*) from t a%' and pid <> pg_backend_pid() and state = 'active'";
        wait_until(Duration::from_secs(30), "the query to run", || !server.sql(pid).is_empty()).unwrap();
        let orphan: u32 = server.sql(&format!("{pid} and backend_type = 'client backend'")).parse().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        kill(server.cluster.pid().unwrap());
        // The others end by themselves.
        let own = PathBuf::from(format!("/proc/{orphan}"));
        wait_until(Duration::from_secs(30), "the orphan to be alone", || holders(&fast) == [own.clone()])
            .unwrap();
        names(&second.refused(), &fast, Some(orphan), &data);
        names(&second.refused_single(), &fast, Some(orphan), &data);
        kill(orphan);
        busy.wait().unwrap();
        wait_until(Duration::from_secs(30), "the orphan to end", || {
            !Path::new(&format!("/proc/{orphan}")).exists()
        })
        .unwrap();
        assert!(second.answers("select count(*) as n from t").contains("n = \"20000\""));
    });
}

/// Processes that have something below a tablespace's location open.
fn holders(location: &Path) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let has_open = |process: &PathBuf| {
        let Ok(open) = fs::read_dir(process.join("fd")) else { return false };
        let mut targets = open.flatten().filter_map(|link| fs::read_link(link.path()).ok());
        targets.any(|target| target.starts_with(location))
    };
    processes.filter(has_open).collect()
}

/// Waits until a process that lives long has the location's directory.
fn wait_for_holder(location: &Path) {
    let name = |process: PathBuf| fs::read_to_string(process.join("cmdline")).unwrap_or_default();
    wait_until(Duration::from_secs(30), "the launcher to have the directory", || {
        holders(location).into_iter().any(|process| name(process).contains("cfs launcher"))
    })
    .unwrap();
}

fn kill(pid: u32) {
    let status = Command::new("sh").args(["-c", "kill -KILL $0", &pid.to_string()]).status().unwrap();
    assert!(status.success());
}
