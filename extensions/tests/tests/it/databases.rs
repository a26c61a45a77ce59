//! Databases of their own for tests, in clusters that all tests of a process share: one per major.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use pgshrink_testkit::{Cluster, Error, Psql, Server, ServerBinaries};

/// The majors that a test of the extension asks for when it depends on the server's version.
pub const MAJORS: [u32; 3] = [15, 16, 18];

/// A database of one test.
#[derive(Clone, Debug)]
pub struct Database {
    /// The server it is in, which other tests use too.
    pub cluster: &'static Cluster,
    /// Its name.
    pub name: String,
}

/// Runs `test` with an empty database that has the extension, on every major of [`MAJORS`] that is here.
pub fn on_each_major(test: &str, mut run: impl FnMut(&Database)) {
    Server::each_with_extensions(test, &MAJORS, |server| run(&Database::with_zson(server)));
}

/// Runs `test` as [`on_each_major`] does, on 15 only: for what does not depend on the version.
pub fn on_one_major(test: &str, mut run: impl FnMut(&Database)) {
    Server::each_with_extensions(test, &[15], |server| run(&Database::with_zson(server)));
}

impl Database {
    /// An empty database.
    pub fn empty(server: &ServerBinaries) -> Database {
        Database::made_with(server, "")
    }

    /// An empty database with the extension.
    pub fn with_zson(server: &ServerBinaries) -> Database {
        let database = Database::empty(server);
        database.sql("create extension zson");
        database
    }

    /// An empty database, made with options of CREATE DATABASE.
    pub fn made_with(server: &ServerBinaries, options: &str) -> Database {
        Database::beside(shared(server), options)
    }

    /// As [`Database::made_with`], in a cluster that the test has for itself, and lets live as long as the process.
    pub fn beside(cluster: &'static Cluster, options: &str) -> Database {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        cluster.sql(&format!("create database {name} {options}")).unwrap();
        Database { cluster, name }
    }

    /// psql, connected to it as the superuser.
    pub fn psql(&self) -> Psql {
        self.cluster.psql().database(&self.name)
    }

    /// What a script prints that must succeed.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        self.psql().sql(sql).unwrap_or_else(|error| panic!("{sql}\n{error}"))
    }

    /// As [`Database::sql`], as another role.
    #[track_caller]
    pub fn sql_as(&self, role: &str, sql: &str) -> String {
        self.psql().user(role).sql(sql).unwrap_or_else(|error| panic!("{sql}\n{error}"))
    }

    /// What a script says that must fail with this SQLSTATE.
    #[track_caller]
    pub fn fails(&self, sqlstate: &str, sql: &str) -> String {
        failure(self.psql(), sqlstate, sql)
    }

    /// A role of this name, or one that other tests made before.
    pub fn role(&self, name: &str) {
        self.sql(&format!(
            "do $$ begin create role {name} login; exception when duplicate_object or unique_violation then end $$"
        ));
    }

    /// A program of the server with the connection's arguments, run to its end.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, Error> {
        let mut command = self.cluster.command(program);
        command.arg("-h").arg(self.cluster.socket_dir()).arg("-p").arg(self.cluster.port().to_string());
        command.args(["-U", "postgres"]).args(arguments);
        pgshrink_testkit::run::output(&mut command)
    }
}

/// What a script says that must fail with this SQLSTATE.
#[track_caller]
pub fn failure(psql: Psql, sqlstate: &str, sql: &str) -> String {
    let said = psql.sql(&format!("\\set VERBOSITY verbose\n{sql}")).expect_err(sql).to_string();
    assert!(said.contains(&format!("ERROR:  {sqlstate}: ")), "not {sqlstate} from {sql}\n{said}");
    said
}

/// The cluster of this server's major, started at first use; the testkit's guardian ends it with the process.
fn shared(server: &ServerBinaries) -> &'static Cluster {
    static CLUSTERS: Mutex<BTreeMap<u32, &'static OnceLock<Cluster>>> = Mutex::new(BTreeMap::new());
    let cluster = {
        let mut clusters = CLUSTERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *clusters.entry(server.major).or_insert_with(|| Box::leak(Box::default()))
    };
    cluster.get_or_init(|| {
        Cluster::builder()
            .server(server)
            .conf("wal_level", "logical")
            .conf("max_prepared_transactions", 20)
            .conf("max_connections", 150)
            .conf("autovacuum", "off")
            .start()
            .unwrap()
    })
}
