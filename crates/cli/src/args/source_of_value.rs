//! Where a value that clap refuses comes from: its errors name the flag, also for a value of a variable or a file.

use crate::backup_config::Places;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};
use std::ffi::OsString;

/// What to name instead of the flag: a variable, or file, line and key; none if the flag was given. `command` was built
/// for these arguments.
pub(super) fn of(
    error: &clap::Error,
    command: &Command,
    args: &[OsString],
    places: &Places,
) -> Option<String> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let mut words = args.get(1..)?.iter();
    let mut command = command;
    while let Some(inner) = words.as_slice().first().and_then(|word| command.find_subcommand(word)) {
        command = inner;
        words.next();
    }
    let arg = command.get_arguments().find(|arg| arg.to_string() == *shown)?;
    if words.take_while(|word| *word != "--").any(|word| is_of(arg, word)) {
        return None;
    }
    // As strong as clap has them: a variable, then the file.
    match arg.get_env().filter(|name| std::env::var_os(name).is_some()) {
        Some(name) => Some(name.to_string_lossy().into_owned()),
        None => places.iter().find(|(id, _)| arg.get_id() == id).map(|(_, place)| place.clone()),
    }
}

/// Whether a word of the command line gives a value to an argument. Of one without a flag nothing is known.
fn is_of(arg: &Arg, word: &OsString) -> bool {
    let Some(long) = arg.get_long() else { return true };
    let word = word.to_string_lossy();
    let is_long = word.strip_prefix("--").is_some_and(|name| name.split('=').next() == Some(long));
    let is_short = |short| !word.starts_with("--") && word.starts_with('-') && word.contains(short);
    is_long || arg.get_short().is_some_and(is_short)
}
