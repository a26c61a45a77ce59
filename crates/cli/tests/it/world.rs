//! A command with surroundings that exist only in a test, and its plan as text.

use pgshrink_cli::run::plan::Plan;
use pgshrink_cli::run::rewrite::{Request, plan};
use pgshrink_pgclient::Surroundings;
use pgshrink_pgclient::surroundings::{Files, Stat};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// A command line, variables and files.
#[derive(Default, Clone)]
pub struct Case {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    files: BTreeMap<PathBuf, (Stat, Vec<u8>)>,
    compression: Option<String>,
    required: bool,
    speaks: bool,
}

pub fn command(argv: &[&str]) -> Case {
    Case { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..Case::default() }
        .dir("/var/run/postgresql")
}

impl Case {
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn file(mut self, path: &str, text: &str) -> Self {
        let stat = Stat { is_file: true, mode: 0o600, owned_by_root: false };
        self.files.insert(path.into(), (stat, text.into()));
        self
    }

    pub fn exposed_file(mut self, path: &str, text: &str) -> Self {
        let stat = Stat { is_file: true, mode: 0o644, owned_by_root: false };
        self.files.insert(path.into(), (stat, text.into()));
        self
    }

    fn dir(mut self, path: &str) -> Self {
        let stat = Stat { is_file: false, mode: 0o755, owned_by_root: true };
        self.files.insert(path.into(), (stat, Vec::new()));
        self
    }

    pub fn compression(mut self, list: &str) -> Self {
        self.compression = Some(list.to_owned());
        self
    }

    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub fn speaks(mut self) -> Self {
        self.speaks = true;
        self
    }

    pub fn plan(&self) -> Result<Plan, String> {
        let argv: Vec<Vec<u8>> = self.argv.iter().map(|word| word.clone().into_bytes()).collect();
        let env = self.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let around = Surroundings { env, home: Some("/home/ann".into()), files: self };
        let request = Request {
            argv: &argv,
            compression: self.compression.as_deref(),
            required: self.required,
            speaks: self.speaks,
            around: &around,
            private_dir: Path::new("/P"),
        };
        plan(&request).map_err(|error| error.to_string())
    }

    /// `words | stand-ins | variables | files`, the parts that are there.
    pub fn planned(&self) -> String {
        let plan = match self.plan() {
            Ok(plan) => plan,
            Err(error) => return format!("error: {error}"),
        };
        let mut parts = vec![plan.argv.iter().map(|word| text(word)).collect::<Vec<_>>().join(" ")];
        let mut part = |words: Vec<String>| {
            if !words.is_empty() {
                parts.push(words.join(" "));
            }
        };
        part(plan.stand_ins.iter().map(stand_in).collect());
        let variable = |(name, value): (&Vec<u8>, &Option<Vec<u8>>)| match value {
            Some(value) => format!("{}={}", text(name), text(value)),
            None => format!("-{}", text(name)),
        };
        part(plan.env.iter().map(variable).collect());
        let file = |file: &pgshrink_cli::run::plan::PrivateFile| {
            format!("{}:{:?}", file.path.display(), text(&file.text))
        };
        part(plan.files.iter().map(file).collect());
        parts.join(" | ")
    }
}

fn stand_in(stand_in: &pgshrink_cli::run::plan::StandIn) -> String {
    let target = &stand_in.target;
    let host = match (&target.host, &target.hostaddr) {
        (None, None) => "default".to_owned(),
        (Some(host), None) => host.clone(),
        (None, Some(addr)) => format!("@{addr}"),
        (Some(host), Some(addr)) => format!("{host}@{addr}"),
    };
    format!("{}->{host}:{},{}", stand_in.dir.display(), target.port, stand_in.compression)
}

impl Files for Case {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let found = self.files.get(path).filter(|(stat, _)| stat.is_file);
        found.map(|(_, text)| text.clone()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.files.get(path).map(|(stat, _)| *stat).ok_or(io::ErrorKind::NotFound.into())
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
