//! A psql that stays connected and says of each statement what came of it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use pgshrink_testkit::Psql;

const DONE: &str = "=====done=====";

/// What a server said to one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub rows: String,
    /// SQLSTATE; `00000` for success.
    pub state: String,
    /// How many rows were returned or changed.
    pub count: String,
    /// Of an error, without numbers of objects and files.
    pub message: String,
}

impl Answer {
    pub fn failed(&self) -> bool {
        self.state != "00000"
    }

    /// In a few lines, for people.
    pub fn short(&self) -> String {
        let rows: String = self.rows.chars().take(300).collect();
        format!("{} {} rows {}\n{rows}", self.state, self.count, self.message)
    }
}

/// One session.
#[derive(Debug)]
pub struct Link {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Link {
    pub fn new(psql: Psql) -> Link {
        let mut command = psql.arg("-v").arg("ON_ERROR_STOP=0").arg("-f").arg("-").command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Link { child, input, output }
    }

    /// Runs one statement; nothing if the session has ended.
    pub fn ask(&mut self, sql: &str) -> Option<Answer> {
        let end = format!("\\echo {DONE}:SQLSTATE :ROW_COUNT :LAST_ERROR_MESSAGE");
        writeln!(self.input, "{sql};\n{end}").and_then(|()| self.input.flush()).ok()?;
        let mut rows = String::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let Some(end) = line.strip_prefix(DONE) else {
                rows.push_str(&line);
                continue;
            };
            let mut words = end.trim_end().splitn(3, ' ').map(str::to_owned);
            let mut word = || words.next().unwrap_or_default();
            let (state, count, said) = (word(), word(), word());
            // The connection broke, or the server said why it is about to.
            if state.is_empty() || state.starts_with("57P0") {
                return None;
            }
            let message = if state == "00000" { String::new() } else { without_numbers(&said) };
            return Some(Answer { rows: rows.trim_end().to_owned(), state, count, message });
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// OIDs, relation files and process ids differ between servers.
fn without_numbers(text: &str) -> String {
    let mut shorter = String::new();
    let mut digits = String::new();
    for c in text.chars().chain([' ']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        shorter.push_str(if digits.len() >= 4 { "N" } else { &digits });
        digits.clear();
        shorter.push(c);
    }
    shorter.trim_end().to_owned()
}
