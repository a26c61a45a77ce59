//! The list of statements that give something else with zson, and why that is right.
//!
//! ```text
//! = 15 16: why these differ                majors, where it is not all of them
//! jsonb.sql: SELECT ...;                   the script and the statement, on one line
//!   - ERROR:  what jsonb says              lines that only jsonb gives
//!   + ERROR:  what zson says               lines that only zson gives
//! ```

use std::fmt;

const LIST: &str = include_str!("differences.txt");

/// A statement whose outcome differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    statement: String,
    lines: Vec<String>,
}

impl Difference {
    /// Of what the two types say.
    pub fn new(script: &str, statement: &str, jsonb: &str, zson: &str) -> Difference {
        let (jsonb, zson): (Vec<&str>, Vec<&str>) = (jsonb.lines().collect(), zson.lines().collect());
        let same = jsonb.iter().zip(&zson).take_while(|(a, b)| a == b).count();
        let (jsonb, zson) = (&jsonb[same..], &zson[same..]);
        let end = jsonb.iter().rev().zip(zson.iter().rev()).take_while(|(a, b)| a == b).count();
        let removed =
            jsonb[..jsonb.len() - end].iter().map(|line| format!("  - {line}").trim_end().to_owned());
        let added = zson[..zson.len() - end].iter().map(|line| format!("  + {line}").trim_end().to_owned());
        Difference { statement: format!("{script}: {statement}"), lines: removed.chain(added).collect() }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.statement)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// The listed differences of these scripts on this major.
pub fn listed(major: u32, scripts: &[&str]) -> Vec<Difference> {
    let mut applies = false;
    let mut found: Vec<Difference> = Vec::new();
    for line in LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(reason) = line.strip_prefix("= ") {
            let majors: Vec<u32> = reason
                .split(':')
                .next()
                .unwrap_or_default()
                .split(' ')
                .filter_map(|word| word.parse().ok())
                .collect();
            applies = majors.is_empty() || majors.contains(&major);
        } else if line.starts_with("  ") {
            if let Some(last) = found.last_mut().filter(|_| applies) {
                last.lines.push(line.to_owned());
            }
        } else if applies {
            found.push(Difference { statement: line.to_owned(), lines: Vec::new() });
        }
    }
    found.retain(|difference| {
        scripts.iter().any(|script| difference.statement.starts_with(&format!("{script}: ")))
    });
    found
}
