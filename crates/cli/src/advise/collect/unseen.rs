//! The list of what could not be seen, which does not grow with the number of tables.

use pgshrink_advisor::snapshot::Unseen;
use pgshrink_codec::counted;
use std::collections::BTreeMap;

/// Tables with the same reason that are listed one by one.
const LISTED_MAX: usize = 20;

/// What could not be seen.
#[derive(Debug, Default)]
pub(super) struct Unseens {
    role: String,
    list: Vec<Unseen>,
    /// How many entries have a reason.
    counts: BTreeMap<String, usize>,
}

impl Unseens {
    /// For a role, quoted.
    pub(super) fn new(role: &str) -> Unseens {
        Unseens { role: role.to_owned(), ..Unseens::default() }
    }

    pub(super) fn role(&self) -> &str {
        &self.role
    }

    pub(super) fn push(&mut self, unseen: Unseen) {
        let count = self.counts.entry(unseen.why.clone()).or_default();
        *count += 1;
        if *count <= LISTED_MAX {
            self.list.push(unseen);
        }
    }

    pub(super) fn extend(&mut self, list: Vec<Unseen>) {
        list.into_iter().for_each(|unseen| self.push(unseen));
    }

    /// A thing, a reason, and what to do about it.
    pub(super) fn add(&mut self, what: String, why: impl Into<String>, remedy: impl Into<String>) {
        self.push(Unseen { what, why: why.into(), remedy: remedy.into() });
    }

    /// All of it.
    pub(super) fn done(mut self) -> Vec<Unseen> {
        for (why, count) in self.counts.into_iter().filter(|(_, count)| *count > LISTED_MAX) {
            let what = counted((count - LISTED_MAX) as u64, "more table", "more tables");
            let is_right = why.contains("SELECT") || why.contains("USAGE");
            let remedy =
                if is_right { format!("GRANT pg_read_all_data TO {};", self.role) } else { String::new() };
            self.list.push(Unseen { what, why, remedy });
        }
        self.list
    }
}

#[test]
fn a_thousand_tables_with_one_reason_are_not_a_thousand_lines() {
    let mut unseens = Unseens::new("\"Ann\"");
    for n in 0..1000 {
        unseens.add(format!("public.t{n}"), "no SELECT", "");
    }
    unseens.add("raw pages".to_owned(), "no EXECUTE", "GRANT EXECUTE");
    let list = unseens.done();
    assert_eq!(list.len(), LISTED_MAX + 2);
    let last = list.last().unwrap();
    assert_eq!(
        (last.what.as_str(), last.remedy.as_str()),
        ("980 more tables", "GRANT pg_read_all_data TO \"Ann\";")
    );
}
