//! Variables of the environment that look like settings and are none.

use crate::args;
use clap::Command;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// What the name of every variable of this product begins with.
const PREFIX: &str = "PGSHRINK_";
/// Names that begin so are no settings of an operator: `pgshrink cfs exec` passes its own to the program that it runs,
/// and tests have theirs.
const OWN_PREFIXES: [&str; 3] = ["PGSHRINK_CFS_", "PGSHRINK_TEST", "PGSHRINK_POWER_"];
/// The same, of the tests, benchmarks and scripts of a checkout.
const OF_CHECKOUT: [&str; 16] = [
    "PGSHRINK_BENCH_MOUNTS",
    "PGSHRINK_CORPORA",
    "PGSHRINK_DEMO_WORKER",
    "PGSHRINK_LARGE_GB",
    "PGSHRINK_PG",
    "PGSHRINK_POSTGRES_DBA",
    "PGSHRINK_PROGRAM",
    "PGSHRINK_RECORD",
    "PGSHRINK_RECORD_ROOTS",
    "PGSHRINK_REQUIRE",
    "PGSHRINK_SEED",
    "PGSHRINK_SETUP_ROOT",
    "PGSHRINK_TWIN_SECONDS",
    "PGSHRINK_WALG",
    "PGSHRINK_WITH_EXTENSIONS",
    "PGSHRINK_WRITE_GOLDEN",
];

/// A warning for each variable whose name begins as ours do and that nothing reads. Their values are not in it: they may
/// be secrets.
pub fn warnings(names: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let names = names.into_iter().filter_map(|name| name.into_string().ok());
    let mut found: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).collect();
    if found.is_empty() {
        return found;
    }
    found.sort_unstable();
    let known = known();
    let is_known = |name: &String| {
        known.contains(name)
            || OF_CHECKOUT.contains(&name.as_str())
            || OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let unknown = found.into_iter().filter(|name| !is_known(name));
    unknown.map(|name| warning(&name, &known)).collect()
}

/// Those of every flag of every command.
fn known() -> BTreeSet<String> {
    fn add(command: &Command, known: &mut BTreeSet<String>) {
        let variables = command.get_arguments().filter_map(|arg| arg.get_env());
        known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
        command.get_subcommands().for_each(|command| add(command, known));
    }
    let mut known = BTreeSet::new();
    add(&args::command(), &mut known);
    known
}

fn warning(name: &str, known: &BTreeSet<String>) -> String {
    // Without the prefix that all share, which would make everything look similar.
    let rest = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    let distance = |known: &&String| strsim::damerau_levenshtein(&rest(name), &rest(known));
    // Of what is farther, nothing would be meant.
    let near = known.iter().filter(|known| 3 * distance(known) <= rest(name).len());
    match near.min_by_key(distance) {
        Some(nearest) => {
            format!("environment variable {name} is unknown and ignored; the nearest known one is {nearest}")
        }
        None => format!("environment variable {name} is unknown and ignored"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(names: &[&str]) -> Vec<String> {
        warnings(names.iter().map(OsString::from))
    }

    #[test]
    fn a_misspelled_variable_is_warned_about_with_the_nearest_known_one() {
        for (name, nearest) in [
            ("PGSHRINK_LISTN", "PGSHRINK_LISTEN"),
            ("PGSHRINK_LOGIN_TIMEOUT", "PGSHRINK_LOGIN_TIMEOUT_S"),
            ("PGSHRINK_WINDOWLOG", "PGSHRINK_WINDOW_LOG"),
            ("PGSHRINK_BACKUP_KEYFILE", "PGSHRINK_BACKUP_KEY_FILE"),
        ] {
            let warnings = warned(&["HOME", name]);
            assert_eq!(warnings.len(), 1, "{name}: {warnings:?}");
            let text = &warnings[0];
            assert!(text.contains(&format!("variable {name} is unknown")), "{text}");
            assert!(text.ends_with(&format!(" {nearest}")), "{text}");
        }
    }

    #[test]
    fn a_variable_that_is_like_no_other_is_not_compared_with_any() {
        for name in ["PGSHRINK_FOO", "PGSHRINK_STATS_USERS", "PGSHRINK_MEMORY_LIMIT"] {
            assert_eq!(warned(&[name]), [format!("environment variable {name} is unknown and ignored")]);
        }
    }

    #[test]
    fn known_variables_and_those_of_others_are_not_warned_about() {
        let names = ["PGHOST", "PGSHRINK", "PGSHRINK_LISTEN", "PGSHRINK_BACKUP_TO", "PGSHRINK_CFS_EXEC_DATA"];
        assert_eq!(warned(&names), [""; 0]);
        assert_eq!(warned(&OF_CHECKOUT), [""; 0]);
    }
}
