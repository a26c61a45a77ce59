//! The real libpq behind a pipe.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

pub struct Oracle {
    child: Child,
    ask: ChildStdin,
    hear: BufReader<ChildStdout>,
}

pub type Answer = Result<BTreeMap<String, Vec<u8>>, String>;

impl Oracle {
    /// Starts libpq with exactly this environment, or says why it cannot.
    pub fn start(env: &[(&str, &str)]) -> Option<Self> {
        let program = program()?;
        // Another major's libpq can be given to see whether the rules hold there too.
        let library = std::env::var_os("PGSHRINK_TEST_LIBPQ").unwrap_or("libpq.so.5".into());
        let mut command = Command::new(program);
        command.arg(library).env_clear().envs(env.iter().copied());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program we just built");
        let ask = child.stdin.take().expect("piped");
        let hear = BufReader::new(child.stdout.take().expect("piped"));
        let mut oracle = Self { child, ask, hear };
        if oracle.request("parse", b"").is_none() {
            println!("skipped: libpq.so.5 cannot be loaded (Debian's libpq5 has it)");
            return None;
        }
        Some(oracle)
    }

    pub fn parse(&mut self, text: &[u8]) -> Answer {
        self.request("parse", text).expect("the oracle answers")
    }

    pub fn connect(&mut self, text: &[u8]) -> Answer {
        self.request("connect", text).expect("the oracle answers")
    }

    fn request(&mut self, verb: &str, text: &[u8]) -> Option<Answer> {
        let sent = writeln!(self.ask, "{verb} {}", hex(text)).and_then(|()| self.ask.flush());
        let mut line = String::new();
        if sent.is_err() || self.hear.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut words = line.split_whitespace();
        if words.next() == Some("!") {
            let message = unhex(words.next().unwrap_or("-"));
            return Some(Err(String::from_utf8_lossy(&message).trim_end().to_owned()));
        }
        let words: Vec<Vec<u8>> = words.map(unhex).collect();
        let pair = |pair: &[Vec<u8>]| (String::from_utf8_lossy(&pair[0]).into_owned(), pair[1].clone());
        Some(Ok(words.chunks(2).map(pair).collect()))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/libpq.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libpq-oracle");
        let built = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).arg("-ldl").status();
        match built {
            Ok(status) if status.success() => Some(program),
            other => {
                println!("skipped: no C compiler to reach libpq with (cc: {other:?})");
                None
            }
        }
    };
    PROGRAM.get_or_init(build).as_deref()
}

fn hex(bytes: &[u8]) -> String {
    match bytes {
        b"" => "-".to_owned(),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}
