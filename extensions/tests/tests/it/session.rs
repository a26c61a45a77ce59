//! A psql that stays connected: transactions that overlap.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use pgshrink_testkit::Psql;

/// One session.
#[derive(Debug)]
pub struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    /// Connects.
    pub fn new(psql: Psql) -> Session {
        let mut command = psql.arg("-f").arg("-").command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Session { child, input, output }
    }

    /// Has it run SQL, without waiting.
    pub fn send(&mut self, sql: &str) {
        writeln!(self.input, "{sql}\n;\n\\echo {DONE}").unwrap();
        self.input.flush().unwrap();
    }

    /// Waits for what was sent and returns what it printed.
    #[track_caller]
    pub fn wait(&mut self) -> String {
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                let mut said = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("the session ended: {printed}{said}");
            }
            if line.trim_end() == DONE {
                return printed.trim_end().to_owned();
            }
            printed.push_str(&line);
        }
    }

    /// Runs SQL that must succeed and returns what it printed.
    #[track_caller]
    pub fn sql(&mut self, sql: &str) -> String {
        self.send(sql);
        self.wait()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const DONE: &str = "=====done=====";
