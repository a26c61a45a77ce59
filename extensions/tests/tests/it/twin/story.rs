//! What was done, for whoever has to find out why it went wrong.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Instant;

/// Lines of a failure's report at most.
const SHOWN: usize = 60;

/// All statements of a run, in the order in which they were sent.
#[derive(Debug)]
pub struct Story {
    start: Instant,
    lines: Mutex<Vec<Line>>,
}

#[derive(Debug)]
struct Line {
    seconds: f64,
    session: usize,
    what: String,
}

impl Line {
    fn show(&self) -> String {
        let who = if self.session == SERVER { "---".to_owned() } else { format!("s{}:", self.session) };
        format!("{:8.3} {who} {}\n", self.seconds, self.what)
    }
}

/// The number that says that a line is about the server, and no session's.
pub const SERVER: usize = usize::MAX;

impl Story {
    pub fn new() -> Story {
        Story { start: Instant::now(), lines: Mutex::default() }
    }

    pub fn tell(&self, session: usize, what: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        self.lines.lock().unwrap().push(Line { seconds, session, what });
    }

    pub fn len(&self) -> usize {
        self.lines.lock().unwrap().len()
    }

    /// The story of what `why` names, as short as it gets; and the whole one in a file.
    pub fn report(&self, name: &str, why: &str) -> String {
        let lines = self.lines.lock().unwrap();
        let file = pgshrink_testkit::checkout().join(format!("target/twin-{name}.story"));
        let _ = std::fs::write(&file, lines.iter().map(Line::show).collect::<String>() + why);
        let last = |lines: &[&Line], many: usize| -> String {
            lines[lines.len().saturating_sub(many)..].iter().map(|line| line.show()).collect()
        };
        let mut told = String::new();
        if let Some(name) = relation_in(why) {
            let about = |line: &&Line| line.session == SERVER || has_word(&line.what, name);
            let about: Vec<&Line> = lines.iter().filter(about).collect();
            let _ = writeln!(told, "what {name} went through:\n{}", last(&about, SHOWN));
        }
        let all: Vec<&Line> = lines.iter().collect();
        let _ = writeln!(told, "the last statements of all {}:\n{}", all.len(), last(&all, SHOWN / 2));
        format!("{told}the whole story: {}\n", file.display())
    }
}

/// The first word of `text` that looks like a relation of the run: a letter and digits.
fn relation_in(text: &str) -> Option<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.into_iter().find(|word| {
        let mut letters = word.chars();
        letters.next().is_some_and(|c| "tuipmd".contains(c))
            && word.len() > 1
            && letters.all(|c| c.is_ascii_digit() || c == '_')
    })
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .any(|other| other == word || other.strip_prefix(word).is_some_and(|rest| rest.starts_with('_')))
}
