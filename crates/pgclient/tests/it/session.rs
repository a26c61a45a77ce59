//! Connections for tests against real servers.

use crate::world::Disk;
use pgshrink_pgclient::connection::{Connection, Options};
use pgshrink_pgclient::{Conninfo, Error, Parameters, Surroundings};
use pgshrink_testkit::cluster::ClusterBuilder;
use pgshrink_testkit::{Cluster, ServerBinaries, left_out};
use std::path::Path;
use std::time::Duration;

/// The majors that these tests want.
pub const MAJORS: [u32; 2] = [15, 18];

/// No variables but those given, and no home unless given.
pub fn around(env: &[(&str, &str)], home: Option<&Path>) -> Surroundings<'static> {
    let env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    Surroundings { env, home: home.map(Path::to_owned), files: &Disk }
}

pub fn options() -> Options {
    let timeout = Duration::from_secs(60);
    Options { connect_timeout: timeout, read_timeout: Some(timeout), ..Options::default() }
}

pub fn open(conninfo: &str) -> Result<Connection, Error> {
    Connection::open(conninfo.as_bytes(), &around(&[], None), &options())
}

/// A connection string with one setting changed.
pub fn with(conninfo: &str, keyword: &str, value: &str) -> String {
    let mut info = Conninfo::parse(conninfo.as_bytes()).unwrap();
    info.set(keyword, value.as_bytes());
    String::from_utf8(info.text()).unwrap()
}

pub fn open_in(conninfo: &str, around: &Surroundings<'_>) -> Result<Connection, Error> {
    let info = Conninfo::parse(conninfo.as_bytes()).unwrap();
    Connection::connect(&Parameters::of(&info, around)?, around, &options())
}

/// The first value of the last result.
pub fn value(connection: &mut Connection, sql: &str) -> String {
    let tables = connection.simple_query(sql).unwrap();
    tables.last().and_then(|table| table.text(0, 0)).unwrap().to_owned()
}

/// Whether the server is new enough to know something.
pub fn knows(server: &ServerBinaries, since: u32) -> bool {
    server.major >= since
}

/// `None`, said aloud, for a server that was built without TLS.
pub fn start_with_tls(test: &str, builder: ClusterBuilder) -> Option<Cluster> {
    match builder.start() {
        Ok(cluster) => Some(cluster),
        Err(pgshrink_testkit::Error::Missing(missing)) => {
            left_out(test, &missing.to_string());
            None
        }
        Err(other) => panic!("{other}"),
    }
}

pub fn open_with(conninfo: &str, options: &Options) -> Result<Connection, Error> {
    Connection::open(conninfo.as_bytes(), &around(&[], None), options)
}
