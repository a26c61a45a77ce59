//! PostgreSQL servers of several majors, found and never installed.
//!
//! A test names the majors it wants; the one that is lacking is reported with the way to get it, and at least one
//! must have run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Kind, Missing};
use crate::run::{self, Owner};
use crate::scratch::traversable;
use crate::skip::{checkout, note, partly_skipped};

/// Where to look for servers.
#[derive(Debug)]
pub struct Server;

/// The programs of one installed server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerBinaries {
    /// The major version: 15.
    pub major: u32,
    /// The whole version as the server prints it: `15.18`.
    pub version: String,
    /// The directory that holds `postgres`, `initdb`, `psql` and the others.
    pub bin: PathBuf,
}

impl Server {
    /// The server of this major: from `PGSHRINK_PG<major>_BIN`, what this checkout fetched (`tools/fetch-servers`,
    /// `tools/unpack-server`), or Debian's place.
    ///
    /// What was fetched comes first, as it has the headers that the extensions are built with.
    pub fn find(major: u32) -> Result<ServerBinaries, Missing> {
        let variable = format!("PGSHRINK_PG{major}_BIN");
        let what = format!("PostgreSQL {major}");
        if let Some(bin) = std::env::var_os(&variable) {
            return probe(Path::new(&bin), major).map_err(|why| {
                let get = format!("a right {variable}");
                Missing::new(&what, format!("{variable}: {why}"), get).of(Kind::Server)
            });
        }
        let debian = PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"));
        let fetched = checkout().join(format!("target/servers/pg{major}/bin"));
        let mut refused = Vec::new();
        for bin in [fetched, debian] {
            match probe(&bin, major) {
                Ok(server) => return Ok(server),
                Err(why) => refused.push(why),
            }
        }
        Err(Missing::new(what, refused.join(", "), way_to_get(major, &variable)).of(Kind::Server))
    }

    /// The private copy of the server of this major that has the extensions of this checkout: from
    /// `tools/extensions`, which must be run again when they change. `PGSHRINK_WITH_EXTENSIONS` names the directory of other
    /// copies.
    pub fn with_extensions(major: u32) -> Result<ServerBinaries, Missing> {
        let copies = std::env::var_os("PGSHRINK_WITH_EXTENSIONS").map(PathBuf::from);
        let copies = copies.unwrap_or_else(|| checkout().join("target/servers/with-extensions"));
        let bin = copies.join(format!("pg{major}/bin"));
        probe(&bin, major).map_err(|why| {
            let what = format!("PostgreSQL {major} with our extensions");
            let fetch = if major == 15 { "tools/setup test" } else { "tools/fetch-servers" };
            Missing::new(what, why, format!("{fetch}, then tools/extensions {major}")).of(Kind::Server)
        })
    }

    /// Runs `test` on each of `majors` that is here ([`Server::chosen`] may name others), and says which ran and which were skipped and why.
    ///
    /// ```no_run
    /// pgshrink_testkit::Server::each("a copy survives the gateway", &[15, 18], |server| {
    ///     let cluster = pgshrink_testkit::Cluster::builder().server(server).start().unwrap();
    ///     assert_eq!(cluster.sql("select 1").unwrap(), "1");
    /// });
    /// ```
    ///
    /// # Panics
    /// When none of the majors is here: nothing was tested.
    pub fn each(test: &str, majors: &[u32], run: impl FnMut(&ServerBinaries)) {
        each(test, majors, Server::find, run);
    }

    /// As [`Server::each`], on the copies of [`Server::with_extensions`].
    ///
    /// # Panics
    /// When none of the majors is here: nothing was tested.
    pub fn each_with_extensions(test: &str, majors: &[u32], run: impl FnMut(&ServerBinaries)) {
        each(test, majors, Server::with_extensions, run);
    }

    /// The majors that `PGSHRINK_TEST_MAJORS` names, such as `16,17`; the oldest and the newest of `majors` where it is
    /// `ends`, as `make test` sets it; all of them where it is `all` or not set.
    ///
    /// # Panics
    /// When the variable is something else.
    pub fn chosen(majors: &[u32]) -> Vec<u32> {
        chosen(std::env::var("PGSHRINK_TEST_MAJORS").ok().as_deref(), majors)
    }
}

fn chosen(text: Option<&str>, majors: &[u32]) -> Vec<u32> {
    let number = |word: &str| {
        word.trim().parse().unwrap_or_else(|_| {
            panic!(
                "PGSHRINK_TEST_MAJORS is {text:?}; expected ends, all, or majors of PostgreSQL, such as 16,17"
            )
        })
    };
    match text {
        None | Some("all") => majors.to_vec(),
        Some("ends") => {
            let ends = [majors.iter().min(), majors.iter().max()];
            majors.iter().filter(|major| ends.contains(&Some(*major))).copied().collect()
        }
        Some(text) => text.split(',').map(number).collect(),
    }
}

fn each(
    test: &str,
    majors: &[u32],
    find: fn(u32) -> Result<ServerBinaries, Missing>,
    mut run: impl FnMut(&ServerBinaries),
) {
    let mut ran = Vec::new();
    let mut lacking = Vec::new();
    for major in Server::chosen(majors) {
        match find(major) {
            Ok(server) => {
                println!("{test}: on PostgreSQL {}", server.version);
                run(&server);
                ran.push(server.version);
            }
            Err(missing) => {
                partly_skipped(&format!("{test} on {major}"), &missing);
                lacking.push(missing.to_string());
            }
        }
    }
    assert!(!ran.is_empty(), "{test} ran on no server at all: {}", lacking.join("; "));
    note("test-majors", &format!("{test}: {}\n", ran.join(", ")));
}

impl ServerBinaries {
    /// The path of one of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// A command for one of its programs, without the environment's `PG*` variables, as the test's own user.
    pub fn command(&self, name: &str) -> Command {
        run::command(self.program(name))
    }
}

fn probe(bin: &Path, major: u32) -> Result<ServerBinaries, String> {
    let program = bin.join("postgres");
    if !program.exists() {
        return Err(format!("no {}", program.display()));
    }
    // The server resolves links to find its libraries: what counts is the place behind them.
    let bin = bin.canonicalize().map_err(|error| format!("{}: {error}", bin.display()))?;
    let owner = Owner::find().map_err(|missing| missing.to_string())?;
    if owner.step_down && !traversable(&bin.join("postgres")) {
        return Err(format!("user {} cannot reach {}", owner.name, bin.display()));
    }
    let mut command = owner.command(bin.join("postgres"));
    let printed = run::output(command.arg("--version")).map_err(|error: Error| error.to_string())?;
    let version = printed.split_whitespace().nth(2).unwrap_or_default().to_owned();
    if version.split(|c: char| !c.is_ascii_digit()).next() != Some(&major.to_string()) {
        return Err(format!("{} is `{}`", bin.display(), printed.trim()));
    }
    Ok(ServerBinaries { major, version, bin })
}

fn way_to_get(major: u32, variable: &str) -> String {
    match major {
        15 => "tools/setup test (Debian 12's postgresql-15)".to_owned(),
        16 | 18 => format!("tools/fetch-servers {major}"),
        _ => format!("installing postgresql-{major}, or naming its programs in {variable}"),
    }
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn majors_are_those_of_the_variable_or_of_the_test() {
        for text in [None, Some("all")] {
            assert_eq!(chosen(text, &[15, 16, 18]), [15, 16, 18]);
        }
        assert_eq!(chosen(Some("ends"), &[15, 16, 18]), [15, 18]);
        assert_eq!(chosen(Some("ends"), &[15]), [15]);
        assert_eq!(chosen(Some("16, 17"), &[15, 18]), [16, 17]);
    }
}
