//! Variables of the environment that look like settings and have no effect.
//!
//! | variable | warning |
//! |---|---|
//! | that no command reads | always |
//! | of one command in the name, such as `PGSHRINK_BACKUP_TO` | never: they may be exported for all commands |
//! | that the gateway reads and the connector does not, or the reverse | by the one that does not |
//! | of a service, with the name of a flag of `run` that has no variable | by `run` |

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
const OF_CHECKOUT: [&str; 15] = [
    "PGSHRINK_BENCH_MOUNTS",
    "PGSHRINK_CORPORA",
    "PGSHRINK_DEMO_WORKER",
    "PGSHRINK_LARGE_GB",
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

/// Commands whose variables do not have the command in their names.
const SERVICES: [&str; 2] = ["gateway", "connect"];

/// A warning for each variable whose name begins as ours do and that has no effect on a command. Their values are not in
/// it: they may be secrets.
pub fn warnings(command: &str, names: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let names = names.into_iter().filter_map(|name| name.into_string().ok());
    let mut found: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).collect();
    if found.is_empty() {
        return found;
    }
    found.sort_unstable();
    let all = args::command();
    let known = known(&all);
    let warning = |name: String| match known.contains(&name) {
        true => of_another(&all, command, &name),
        false if is_of_checkout(&name) => None,
        false => Some(unknown(&name, &known)),
    };
    found.into_iter().filter_map(warning).collect()
}

fn is_of_checkout(name: &str) -> bool {
    // A directory of servers, such as PGSHRINK_PG15_BIN.
    let major = name.strip_prefix("PGSHRINK_PG").and_then(|rest| rest.strip_suffix("_BIN"));
    major.is_some_and(|major| major.bytes().all(|byte| byte.is_ascii_digit()))
        || OF_CHECKOUT.contains(&name)
        || OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Those of every flag of every command.
fn known(command: &Command) -> BTreeSet<String> {
    let mut known = read_by(command);
    command.get_subcommands().for_each(|command| known.extend(self::known(command)));
    known
}

/// Those of a command's own flags.
fn read_by(command: &Command) -> BTreeSet<String> {
    let variables = command.get_arguments().filter_map(|arg| arg.get_env());
    variables.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// A warning if a variable is of another command, and somebody may have meant it for this one.
fn of_another(all: &Command, command: &str, name: &str) -> Option<String> {
    let this = all.find_subcommand(command)?;
    let is_read = |command: &Command| read_by(command).contains(name);
    let reader = SERVICES.iter().filter_map(|service| all.find_subcommand(service)).find(|c| is_read(c))?;
    if is_read(this) {
        return None;
    }
    let flag = name.strip_prefix(PREFIX)?.to_lowercase().replace('_', "-");
    let same = this.get_arguments().find(|arg| arg.get_long() == Some(&flag));
    let text = format!(
        "environment variable {name} is read by pgshrink {}, not by pgshrink {command}",
        reader.get_name()
    );
    match (command, same) {
        ("run", Some(_)) => Some(format!("{text}: use --{flag}")),
        _ => SERVICES.contains(&command).then_some(text),
    }
}

fn unknown(name: &str, known: &BTreeSet<String>) -> String {
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
        warnings("gateway", names.iter().map(OsString::from))
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
        assert_eq!(warned(&["PGSHRINK_PG15_BIN", "PGSHRINK_PG18_BIN"]), [""; 0]);
        assert_eq!(warned(&["PGSHRINK_PGX_BIN"]).len(), 1);
    }

    #[test]
    fn a_variable_of_another_command_is_warned_about_where_it_may_be_meant() {
        let warned = |command: &str, name: &str| warnings(command, [OsString::from(name)]);
        for (command, name, warning) in [
            ("connect", "PGSHRINK_SERVER", "read by pgshrink gateway, not by pgshrink connect"),
            ("connect", "PGSHRINK_OBSERVE", "read by pgshrink gateway, not by pgshrink connect"),
            ("gateway", "PGSHRINK_TARGET", "read by pgshrink connect, not by pgshrink gateway"),
            ("gateway", "PGSHRINK_COMPRESSION", "read by pgshrink connect, not by pgshrink gateway"),
            (
                "run",
                "PGSHRINK_COMPRESSION",
                "read by pgshrink connect, not by pgshrink run: use --compression",
            ),
            ("run", "PGSHRINK_REQUIRED", "read by pgshrink connect, not by pgshrink run: use --required"),
        ] {
            assert_eq!(warned(command, name), [format!("environment variable {name} is {warning}")]);
        }
        for (command, name) in [
            ("connect", "PGSHRINK_METRICS_LISTEN"),
            ("run", "PGSHRINK_DIALECT"),
            ("run", "PGSHRINK_LISTEN"),
            ("gateway", "PGSHRINK_BACKUP_KEY_FILE"),
            ("gateway", "PGSHRINK_BACKUP_TO"),
            ("backup", "PGSHRINK_TARGET"),
            ("backup", "PGSHRINK_COMPRESSION"),
            ("cfs", "PGSHRINK_BACKUP_TO"),
        ] {
            assert_eq!(warned(command, name), [""; 0], "{command} {name}");
        }
    }
}
