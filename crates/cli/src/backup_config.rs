//! The table `[backup]` of a configuration file: defaults for `backup`, `restore`, `verify`, `list` and `expire`.
//!
//! Its keys are the names of flags with `_` for `-`, and `conninfo` and `repository` (which stands for `--to` and `--from`).
//! Values become defaults of the command line, so they are checked as flags are, and a flag or a variable is stronger.

use crate::args::{BackupArgs, BackupFormat, BackupRoute};
use crate::toml_words;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The commands that the table is for.
const COMMANDS: [&str; 5] = ["backup", "restore", "verify", "list", "expire"];
/// Not for a file.
const NO_KEYS: [&str; 8] =
    ["backup", "config", "configuration_into", "dry_run", "help", "into", "json", "remove"];
const VARIABLE: &str = "PGSHRINK_BACKUP_CONFIG";
/// Most bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where each default of a file stands: the flag's id, and `backup.toml:4: backup.level`.
pub(crate) type Places = Vec<(String, String)>;

/// Takes the table's values into the command that these arguments run, as defaults.
pub(crate) fn apply(command: Command, args: &[OsString]) -> Result<(Command, Places), clap::Error> {
    let Some(name) = COMMANDS.into_iter().find(|name| args.get(1).is_some_and(|arg| arg == name)) else {
        return Ok((command, Places::new()));
    };
    let Some(path) = file(&args[2..]) else { return Ok((command, Places::new())) };
    let wrong = |reason: String| clap::Error::raw(ErrorKind::ValueValidation, format!("{reason}\n"));
    let text = read(&path).map_err(wrong)?;
    let values = values(&command, &path, &text).map_err(wrong)?;
    let mut places = Places::new();
    let command = command.mut_subcommand(name, |mut command| {
        for Setting { key, place, values } in values {
            let ids = if key == "repository" { &["to", "from"][..] } else { &[key.as_str()] };
            for id in
                ids.iter().copied().filter(|id| has(&command, id)).map(str::to_owned).collect::<Vec<_>>()
            {
                let values = values.clone();
                places.push((id.clone(), format!("{place}: backup.{key}")));
                command = command.mut_arg(id, |arg| arg.default_values(values).required(false));
            }
        }
        command
    });
    Ok((command, places))
}

/// A key of the table.
struct Setting {
    key: String,
    /// File and line.
    place: String,
    /// As a command line would have them.
    values: Vec<String>,
}

/// The file that arguments or the environment name.
fn file(args: &[OsString]) -> Option<PathBuf> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--config" {
            return args.next().map(PathBuf::from);
        }
        if let Some(path) = arg.to_str().and_then(|arg| arg.strip_prefix("--config=")) {
            return Some(PathBuf::from(path));
        }
        if arg == "--" {
            break;
        }
    }
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn read(path: &Path) -> Result<String, String> {
    let unreadable = |reason: &dyn std::fmt::Display| {
        format!("cannot read configuration file {}: {reason}", path.display())
    };
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(unreadable(&format!("it has {} bytes, the limit is {FILE_BYTES_MAX}", metadata.len())));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(&error))
}

fn values(command: &Command, path: &Path, text: &str) -> Result<Vec<Setting>, String> {
    let place = |at: usize| {
        let line = text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{}:{line}", path.display())
    };
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        format!("{}: {}", place(at), toml_words::of_syntax(text, at, error.message()))
    })?;
    let document = document.into_inner();
    if let Some((key, value)) = document.iter().find(|(key, _)| key.get_ref() != "backup") {
        let (place, name) = (place(key.span().start), key.get_ref());
        let next = match value.get_ref() {
            DeValue::Table(_) => "remove this table, or put its settings into [backup]",
            _ => "put it below a line [backup]",
        };
        return Err(format!("{place}: {name}: only the table [backup] is read; {next}"));
    }
    let Some((key, table)) = document.into_iter().next() else {
        return Err(format!("{}: it has no [backup] table; add the line [backup]", path.display()));
    };
    let DeValue::Table(table) = table.into_inner() else {
        let place = place(key.span().start);
        return Err(format!("{place}: backup: expected a table; write [backup] and its settings below"));
    };
    let known = keys(command);
    let mut values = Vec::new();
    for (key, value) in table {
        let place = place(key.span().start);
        let key = key.into_inner().into_owned();
        if !known.contains(&key) {
            let known = known.join(", ");
            return Err(format!("{place}: backup.{key}: unknown; known are {known}"));
        }
        if matches!(value.get_ref(), DeValue::Array(_)) && !takes_several(command, &key) {
            return Err(format!("{place}: backup.{key}: expected one value, found a list; keep one of them"));
        }
        let found = words(value.get_ref()).ok_or_else(|| {
            format!("{place}: backup.{key}: expected a string, a number, true or false, or a list of them")
        })?;
        values.push(Setting { key, place, values: found });
    }
    Ok(values)
}

fn words(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::Array(list) => list.iter().map(|value| word(value.get_ref())).collect(),
        value => word(value).map(|word| vec![word]),
    }
}

fn word(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Boolean(is) => Some(is.to_string()),
        _ => None,
    }
}

fn has(command: &Command, id: &str) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == id)
}

/// Whether a flag of this name may be repeated.
fn takes_several(command: &Command, key: &str) -> bool {
    let commands = command.get_subcommands().filter(|command| COMMANDS.contains(&command.get_name()));
    let mut args = commands.flat_map(Command::get_arguments).filter(|arg| arg.get_id() == key);
    args.any(|arg| matches!(arg.get_action(), ArgAction::Append))
}

/// Leaves out what the file says about another kind of backup than this one. A flag or a variable that says so is an error
/// of whoever gave it; the file is for all backups and restores.
pub(crate) fn leave_out(args: &mut BackupArgs, matches: &ArgMatches) {
    let is_of_file = |id: &str| matches.value_source(id) == Some(ValueSource::DefaultValue);
    let is_archive =
        matches!(args.format, None | Some(BackupFormat::Archive)) && !args.to.starts_with("server:");
    let may_be_parallel = match args.route {
        Some(route) => route == BackupRoute::Parallel,
        None => args.compression.as_deref() == Some("auto"),
    };
    if is_of_file("connections") && !may_be_parallel {
        args.connections = None;
    }
    if is_of_file("tablespace_mapping") && args.format != Some(BackupFormat::Plain) {
        args.tablespace_mapping.clear();
    }
    if is_of_file("level") && !is_archive {
        args.level = None;
    }
}

/// Whether flags of `verify` that are for a boot were given with `--boot`, or with a file that says so.
pub(crate) fn check_boot(matches: &ArgMatches) -> Result<(), String> {
    let is_given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
    match BOOT.iter().find(|id| is_given(id)) {
        Some(id) if !matches.get_flag("boot") => {
            Err(format!("--{} has an effect only with --boot; add --boot", id.replace('_', "-")))
        }
        _ => Ok(()),
    }
}

/// Flags of a boot, but that of the server's programs, which may be needed at all times.
const BOOT: [&str; 5] = ["scratch", "keep_scratch", "set", "boot_timeout_s", "report"];

/// All keys that the table may have.
fn keys(command: &Command) -> Vec<String> {
    let commands = command.get_subcommands().filter(|command| COMMANDS.contains(&command.get_name()));
    let ids = commands.flat_map(|command| command.get_arguments().map(|arg| arg.get_id().to_string()));
    let mut keys: Vec<String> = ids.filter(|id| !NO_KEYS.contains(&id.as_str())).collect();
    keys.push("repository".to_owned());
    keys.sort_unstable();
    keys.dedup();
    keys
}
