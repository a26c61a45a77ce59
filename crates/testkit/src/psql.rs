//! psql as a process: the reference client of every test.

use std::path::PathBuf;
use std::process::Command;

use crate::error::Error;
use crate::run;

/// One psql call, built up and run.
///
/// ```no_run
/// # fn f(cluster: &pgshrink_testkit::Cluster) -> Result<(), pgshrink_testkit::Error> {
/// let rows = cluster.psql().database("shop").sql("select count(*) from item")?;
/// let copied = cluster.psql().arg("-c").arg("\\copy t from stdin").input("1\n2\n").run()?;
/// # let _ = (rows, copied); Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Psql {
    program: PathBuf,
    conninfo: Vec<(String, String)>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    input: Option<Vec<u8>>,
}

impl Psql {
    /// A call of `program` with nothing decided yet.
    pub fn new(program: impl Into<PathBuf>) -> Psql {
        Psql {
            program: program.into(),
            conninfo: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            input: None,
        }
    }

    /// Sets a connection keyword: `.set("sslmode", "verify-full")`.
    pub fn set(mut self, keyword: &str, value: impl ToString) -> Psql {
        self.conninfo.retain(|(set, _)| set != keyword);
        self.conninfo.push((keyword.to_owned(), value.to_string()));
        self
    }

    /// Connects to `host`, a name or a socket directory, at `port`.
    pub fn at(self, host: impl ToString, port: u16) -> Psql {
        self.set("host", host).set("port", port)
    }

    /// Connects to this database.
    pub fn database(self, name: &str) -> Psql {
        self.set("dbname", name)
    }

    /// Connects as this user.
    pub fn user(self, name: &str) -> Psql {
        self.set("user", name)
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl Into<String>) -> Psql {
        self.arguments.push(argument.into());
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl ToString) -> Psql {
        self.environment.push((name.to_owned(), value.to_string()));
        self
    }

    /// Gives it standard input.
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Psql {
        self.input = Some(input.into());
        self
    }

    /// The connection string it will use.
    pub fn conninfo(&self) -> String {
        conninfo(&self.conninfo)
    }

    /// The command, for a caller that wants to run or wrap it itself. The connection string is `-d`'s argument.
    pub fn command(&self) -> Command {
        let mut command = run::command(&self.program);
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d"]).arg(self.conninfo()).args(&self.arguments);
        // A test must never wait at a prompt, nor read the developer's password file.
        command.arg("-w").env("PGPASSFILE", "/nonexistent").env("PGCONNECT_TIMEOUT", "20");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs it and returns what it printed, without the last newline. A failure carries stderr.
    pub fn run(&self) -> Result<String, Error> {
        let mut command = self.command();
        let printed = match &self.input {
            Some(input) => run::output_with_input(&mut command, input)?,
            None => run::output(&mut command)?,
        };
        Ok(printed.strip_suffix('\n').unwrap_or(&printed).to_owned())
    }

    /// Runs `sql`, which may hold several statements and psql commands, and returns what it printed.
    pub fn sql(self, sql: &str) -> Result<String, Error> {
        // As a script: each statement commits by itself and \copy works.
        self.arg("-f").arg("-").input(sql).run()
    }
}

/// A libpq connection string of these keywords.
pub(crate) fn conninfo(keywords: &[(String, String)]) -> String {
    let quoted = |value: &str| value.replace('\\', "\\\\").replace('\'', "\\'");
    keywords
        .iter()
        .map(|(keyword, value)| format!("{keyword}='{}'", quoted(value)))
        .collect::<Vec<_>>()
        .join(" ")
}
