//! The list of what scripts print otherwise on a server with the library, and why that is right.
//!
//! ```text
//! = 15 18: why these differ           majors, where it is not all of them
//! regress security_label              the suite and the script
//!   - ERROR:  what the stock server says
//!   + ERROR:  what the one with the library says
//! isolation stats: any                as the stock server says something else from one run to the next
//! ```

use std::collections::BTreeMap;

use super::runner::{Results, Suite};

const LIST: &str = include_str!("differences.txt");

/// What comparing has found.
pub struct Found {
    /// How much was compared.
    pub summary: String,
    /// What was not as it should be; empty if all was.
    pub wrong: String,
}

/// What may differ in a script's output.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    /// These lines, in this order.
    Lines(Vec<String>),
    /// Anything.
    Any,
}

/// Compares what two servers said.
pub fn check(major: u32, suite: &Suite, plain: &Results, compressed: &Results) -> Found {
    let allowed = listed(LIST, major, &suite.kind.to_string());
    let scripts = suite.scripts();
    let (mut wrong, mut equal, mut explained) = (String::new(), 0, 0);
    for script in &scripts {
        let (Some(one), Some(other)) = (plain.outputs.get(script), compressed.outputs.get(script)) else {
            wrong.push_str(&format!("{} {script}: did not run\n", suite.kind));
            continue;
        };
        let lines = difference(one, other);
        match allowed.get(script) {
            _ if lines.is_empty() => equal += 1,
            Some(Allowed::Any) => explained += 1,
            Some(Allowed::Lines(listed)) if *listed == lines => explained += 1,
            _ => wrong.push_str(&format!("{} {script}\n{}\n", suite.kind, lines.join("\n"))),
        }
    }
    // Scripts that fail everywhere would be equal everywhere.
    let as_expected = scripts.len() - plain.unexpected.len().min(scripts.len());
    if as_expected * 10 < scripts.len() * 8 {
        let unexpected = plain.unexpected.join(" ");
        wrong.push_str(&format!("the stock server itself said something unexpected: {unexpected}\n"));
    }
    let [time, with_library] = [plain, compressed].map(|results| results.time.as_secs());
    let summary = format!(
        "{} scripts ({time} s, {with_library} s): {equal} equal, {explained} with listed differences; {as_expected} as PostgreSQL expects, others: {}",
        scripts.len(),
        plain.unexpected.join(" "),
    );
    Found { summary, wrong }
}

/// Entries of the list for a major and a suite, by script.
fn listed(list: &str, major: u32, kind: &str) -> BTreeMap<String, Allowed> {
    let mut found = BTreeMap::new();
    let (mut applies, mut current) = (false, None::<String>);
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(reason) = line.strip_prefix("= ") {
            let majors = reason.split(':').next().unwrap_or_default();
            let majors: Vec<u32> = majors.split(' ').filter_map(|word| word.parse().ok()).collect();
            applies = majors.is_empty() || majors.contains(&major);
            current = None;
        } else if line.starts_with("  ") {
            if let Some(Allowed::Lines(lines)) = current.as_ref().and_then(|script| found.get_mut(script)) {
                lines.push(line.to_owned());
            }
        } else {
            current = line.strip_prefix(kind).map(str::trim).filter(|_| applies).map(str::to_owned);
            if let Some(script) = &mut current {
                let allowed = match script.strip_suffix(": any") {
                    Some(name) => {
                        *script = name.to_owned();
                        Allowed::Any
                    }
                    None => Allowed::Lines(Vec::new()),
                };
                found.insert(script.clone(), allowed);
            }
        }
    }
    found
}

/// Lines that only one of two texts has, `-` those of the first and `+` those of the second.
fn difference(one: &str, other: &str) -> Vec<String> {
    if one == other {
        return Vec::new();
    }
    let (mut one, mut other): (Vec<&str>, Vec<&str>) = (one.lines().collect(), other.lines().collect());
    let mut found = Vec::new();
    // The next line that both have, wherever it is nearest.
    while !one.is_empty() || !other.is_empty() {
        let (removed, added) = next_common(&one, &other);
        found.extend(one[..removed].iter().map(|line| format!("  - {line}").trim_end().to_owned()));
        found.extend(other[..added].iter().map(|line| format!("  + {line}").trim_end().to_owned()));
        one.drain(..removed);
        other.drain(..added);
        let same = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
        one.drain(..same);
        other.drain(..same);
    }
    found
}

/// How many lines of each come before the first pair of equal ones.
fn next_common(one: &[&str], other: &[&str]) -> (usize, usize) {
    for distance in 0..one.len() + other.len() {
        for removed in 0..=distance.min(one.len()) {
            let added = distance - removed;
            if added < other.len() && removed < one.len() && one[removed] == other[added] {
                return (removed, added);
            }
        }
    }
    (one.len(), other.len())
}

#[test]
fn differences_are_lines_and_a_list_names_them_by_major_and_suite() {
    assert!(difference("a\nb\n", "a\nb\n").is_empty());
    assert_eq!(difference("a\nb\nc\n", "a\nx\ny\nc\nd\n"), ["  - b", "  + x", "  + y", "  + d"]);
    let list =
        "# c\n= 15: why\nregress one\n  - b\n  + x\nisolation one: any\n= all of them\nregress two: any\n";
    let lines = Allowed::Lines(vec!["  - b".to_owned(), "  + x".to_owned()]);
    let regress = listed(list, 15, "regress");
    assert_eq!((regress.get("one"), regress.get("two")), (Some(&lines), Some(&Allowed::Any)));
    assert_eq!(listed(list, 18, "regress").len(), 1);
    assert_eq!(listed(list, 15, "isolation").get("one"), Some(&Allowed::Any));
}
