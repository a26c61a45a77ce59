//! The command line's definition: help, defaults, completions, manual pages.

use clap::{Arg, Command};
use pgshrink_cli::args::{self, Cli};
use pgshrink_gateway::GatewayConfig;
use std::collections::BTreeMap;

fn subcommand(name: &str) -> Command {
    let mut command = args::command();
    command.build();
    command.find_subcommand(name).expect("a subcommand").clone()
}

fn help(arg: &Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}

/// `[default: …]` of every flag.
fn stated_defaults(command: &Command) -> BTreeMap<String, String> {
    let flags = command.get_arguments().filter_map(|arg| {
        let help = help(arg);
        let stated = help.split("[default: ").nth(1)?.split(']').next()?;
        Some((arg.get_long()?.to_owned(), stated.to_owned()))
    });
    flags.collect()
}

#[test]
fn the_definition_is_consistent() {
    args::command().debug_assert();
}

/// Flags whose absence means that there is nothing, or that the text explains.
const WITHOUT_DEFAULT: &[&str] = &[
    "help",
    "version",
    "check",
    "config",
    "listen",
    "tls-cert",
    "tls-key",
    "tls-client-ca",
    "message-types",
    "server",
    "trusted-proxies",
    "ignore-startup-parameters",
    "metrics-listen",
    "admin-password-file",
    "admin-stats-users",
    "target",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "verbose",
];

#[test]
fn the_help_states_every_default() {
    for name in ["gateway", "connect"] {
        let command = subcommand(name);
        let stated = stated_defaults(&command);
        for long in command.get_arguments().filter_map(Arg::get_long) {
            assert_eq!(stated.contains_key(long), !WITHOUT_DEFAULT.contains(&long), "{name} --{long}");
        }
    }
    let stated = stated_defaults(&subcommand("gateway"));
    let in_force = GatewayConfig::default();
    assert_eq!(stated["window-log"], in_force.policy.window_log.to_string());
    assert_eq!(stated["libpq-compression"], in_force.libpq_compression);
    assert_eq!(stated_defaults(&subcommand("run"))["dialect"], "ack");
    // In the short help as well as in the long one.
    for help in [subcommand("gateway").render_help(), subcommand("gateway").render_long_help()] {
        let words: Vec<String> = help.to_string().split_whitespace().map(str::to_owned).collect();
        assert!(words.join(" ").contains(&format!("[default: {}]", in_force.policy.frame_size)));
    }
}

#[test]
fn every_flag_of_a_service_has_a_variable_named_after_it() {
    for name in ["gateway", "connect"] {
        for arg in subcommand(name).get_arguments() {
            let Some(long) = arg.get_long().filter(|long| !["help", "check", "version"].contains(long))
            else {
                continue;
            };
            let expected = format!("PGSHRINK_{}", long.to_uppercase().replace('-', "_"));
            assert_eq!(
                arg.get_env().map(|env| env.to_string_lossy().into_owned()),
                Some(expected),
                "{name} --{long}"
            );
            assert!(!help(arg).is_empty() && arg.get_help_heading().is_some(), "{name} --{long}");
        }
    }
}

#[test]
fn every_command_has_examples_and_fits_a_terminal() {
    let mut command = args::command();
    command.build();
    for sub in command
        .get_subcommands()
        .filter(|sub| ["gateway", "connect", "run", "cfs", "decode"].contains(&sub.get_name()))
    {
        let text = sub.clone().render_long_help().to_string();
        assert!(text.contains("Examples:\n"), "{}", sub.get_name());
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(longest <= 100, "{}: a line of {longest}", sub.get_name());
    }
}

#[test]
fn the_examples_in_the_help_are_accepted() {
    let mut command = args::command();
    command.build();
    let mut seen = 0;
    let texts = command.get_subcommands().chain([&command]).filter_map(|sub| sub.get_after_help());
    for text in texts.map(|text| text.to_string().replace("\\\n", " ")) {
        for line in text.lines().map(str::trim).filter(|line| line.starts_with("pgshrink ")) {
            // What stands behind a pipe is another program's, and where output goes is the shell's.
            let line = line.split(" | ").next().unwrap_or(line);
            let line = line.split(" > ").next().unwrap_or(line);
            let words = split_words(line);
            let parsed = Cli::read(&words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            seen += 1;
        }
    }
    assert!(seen >= 9, "only {seen} examples were found");
}

/// Splits as a shell does, quotes included.
fn split_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().expect("never empty").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn the_command_of_run_may_have_options_of_its_own() {
    for words in [
        &["pgshrink", "run", "--", "psql", "-c", "select 1", "--", "x"][..],
        &["pgshrink", "run", "--required", "psql", "--help"],
        &["pgshrink", "run", "-v", "psql", "-v", "a=b"],
    ] {
        let pgshrink_cli::args::Command::Run(args) = Cli::read(words).expect("accepted").command else {
            panic!("not run")
        };
        let at = words.iter().position(|word| *word == "psql").expect("in all of them");
        assert_eq!(args.command, words[at..].iter().map(std::ffi::OsString::from).collect::<Vec<_>>());
    }
    assert!(Cli::read(["pgshrink", "run"]).is_err());
}

#[test]
fn a_misspelled_flag_of_run_is_not_taken_for_the_command() {
    for (words, similar) in [
        (&["--compresion", "zstd", "--", "psql"][..], "--compression"),
        (&["--compresion=zstd", "psql"], "--compression"),
        (&["--requird", "psql", "-c", "select 1"], "--required"),
        (&["-x", "psql"], "-x"),
    ] {
        let error = Cli::read(["pgshrink", "run"].iter().chain(words)).expect_err("refused").to_string();
        let unexpected = format!("unexpected argument '{}' found", words[0].split('=').next().unwrap());
        assert!(error.contains(&unexpected) && error.contains(similar), "{words:?}: {error}");
    }
    // After `--`, nothing is a flag.
    let cli = Cli::read(["pgshrink", "run", "--", "--compresion", "--required"]).expect("accepted");
    let args::Command::Run(args) = cli.command else { panic!("not run") };
    assert_eq!((args.command, args.required), (vec!["--compresion".into(), "--required".into()], false));
}

#[test]
fn numbers_out_of_range_are_told_in_plain_words() {
    for (words, expected) in [
        (&["backup", "x", "--to", "/x", "--pack-size-mib", "513"][..], "must be between 1 and 512"),
        (&["backup", "x", "--to", "/x", "--server-timeout-s", "0"], "must be between 1 and 86400"),
        (&["backup", "x", "--to", "/x", "--max-rate", "fast"], "expected a number"),
        (&["backup", "x", "--to", "/x", "--level", "99999999999"], "must be between 1 and 19"),
        (&["backup", "x", "--to", "/x", "--threads", "257"], "must be between 1 and 256"),
        (&["restore", "x", "--from", "/x", "--into", "/y", "--threads", "0"], "must be between 1 and 256"),
        (&["expire", "--from", "/x", "--keep-last", "0"], "must be at least 1"),
        (&["cfs", "estimate", "--min-pages", "99999999999", "/x"], "must be between 0 and 4294967295"),
    ] {
        let error = Cli::read([&["pgshrink"][..], words].concat()).expect_err("a wrong number");
        let text = error.to_string();
        let (flag, value) = (words[words.len() - 2], words[words.len() - 1]);
        let flag = if value == "/x" { words[2] } else { flag };
        assert!(text.contains(expected) && text.contains(flag), "{text}");
        assert!(!text.contains("..") && !text.contains("digit"), "{text}");
    }
    let text = "threads = \"many\"\n";
    let wrong = pgshrink_cli::config_file::parse::<GatewayConfig>("gateway.toml".as_ref(), text);
    let text = wrong.expect_err("a word where a number belongs").to_string();
    assert!(text.contains("expected a number, 0 or more"), "{text}");
}
