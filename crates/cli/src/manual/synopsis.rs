//! The line that says how a command is called: what is needed, and that there are options.

use super::roff::Roff;
use clap::{Arg, Command};

/// The section of a page.
pub(super) fn section(page: &mut Roff, command: &Command, name: &str) {
    page.section("SYNOPSIS");
    page.usage(command.get_bin_name().unwrap_or(name), &words(command).join(" "));
}

fn words(command: &Command) -> Vec<String> {
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    let mut words = Vec::new();
    if shown().any(|arg| !arg.is_positional() && !arg.is_required_set()) {
        words.push("[OPTION]...".to_owned());
    }
    let needed = shown().filter(|arg| !arg.is_positional() && arg.is_required_set());
    words.extend(needed.filter_map(|arg| Some(format!("--{} {}", arg.get_long()?, value(arg)))));
    let alternatives = command.get_groups().filter(|group| group.is_required_set());
    words.extend(alternatives.map(|group| {
        let of_group = shown().filter(|arg| group.get_args().any(|id| id == arg.get_id()));
        let flags = of_group.filter_map(|arg| Some(format!("--{} {}", arg.get_long()?, value(arg))));
        format!("{{{}}}", flags.collect::<Vec<_>>().join(" | "))
    }));
    words.extend(shown().filter(|arg| arg.is_positional()).map(positional));
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        words.push("COMMAND".to_owned());
    }
    words
}

fn positional(arg: &Arg) -> String {
    let name = value(arg);
    if arg.is_trailing_var_arg_set() {
        return format!("[--] {name} [ARGUMENT]...");
    }
    let several = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
    let name = if arg.is_required_set() { name } else { format!("[{name}]") };
    if several { format!("{name}...") } else { name }
}

fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    match names {
        [] => arg.get_id().as_str().to_uppercase(),
        names => names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" "),
    }
}
