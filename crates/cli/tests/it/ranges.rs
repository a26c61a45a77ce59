//! The numbers that settings may have are documented as they are enforced.

use clap::{Arg, Command};
use pgshrink_cli::args;
use pgshrink_codec::Algorithm;
use pgshrink_gateway::config::{RANGES, SettingRange};
use pgshrink_testkit::checkout;
use std::fs;

fn sample(name: &str) -> String {
    fs::read_to_string(checkout().join("packaging").join(format!("{name}.toml"))).expect("a sample")
}

/// What the comment above a setting says, in one line. Settings of routes do not count.
fn comment(sample: &str, key: &str) -> Option<String> {
    let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
    let mut here = "";
    let mut comment = String::new();
    for line in sample.lines() {
        let setting = line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line);
        if let Some(text) = line.strip_prefix("# ") {
            comment += text;
            comment.push(' ');
        } else if let Some(header) = setting.strip_prefix('[') {
            here = header.trim_matches(['[', ']']);
            comment.clear();
        } else if here == table && setting.starts_with(&format!("{name} = ")) {
            return Some(comment);
        } else if line.is_empty() {
            comment.clear();
        }
    }
    None
}

/// Whether a text has these numbers, and not as a part of others.
fn has(text: &str, range: &str) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
    text.match_indices(range).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|c| !c.is_ascii_digit() && c != '.') && is_end(&text[at + range.len()..])
    })
}

fn flag(command: &Command, range: &SettingRange) -> Option<Arg> {
    let long = range.key.rsplit('.').next().unwrap_or(range.key).replace('_', "-");
    command.get_arguments().find(|arg| arg.get_long() == Some(&long)).cloned()
}

#[test]
fn every_range_is_in_the_sample_and_in_the_help() {
    let mut command = args::command();
    command.build();
    let mut seen = 0;
    for name in ["gateway", "connect"] {
        let (sample, command) = (sample(name), command.find_subcommand(name).expect("a command"));
        for range in RANGES {
            if name == "connect" && range.key.starts_with("observe") {
                assert_eq!(comment(&sample, range.key), None);
                continue;
            }
            let text =
                comment(&sample, range.key).unwrap_or_else(|| panic!("{name}.toml has no {}", range.key));
            assert!(has(&text, &range.to_string()), "{name}.toml: {} is {range}: {text}", range.key);
            if let Some(arg) = flag(command, &range) {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(has(&help, &range.to_string()), "{name}: {} is {range}: {help}", range.key);
                seen += 1;
            }
        }
    }
    assert!(seen >= 21, "only {seen} flags");
    let meter = fs::read_to_string(checkout().join("docs/operating/wire.md")).expect("a page");
    for range in RANGES.iter().filter(|range| range.key.starts_with("observe")) {
        let row = meter
            .lines()
            .find(|line| line.starts_with("| `observe") && line.contains(&format!("`{}`", range.key)));
        assert!(row.is_some_and(|row| has(row, &range.to_string())), "{} is {range}: {row:?}", range.key);
    }
}

#[test]
fn levels_are_documented_as_they_are_enforced() {
    let mut command = args::command();
    command.build();
    let help = |name: &str, id: &str| {
        let command = command.find_subcommand(name).expect("a command");
        let arg = command.get_arguments().find(|arg| arg.get_id() == id).expect("a flag");
        arg.get_long_help().map(ToString::to_string).unwrap_or_default()
    };
    let page = |name: &str| fs::read_to_string(checkout().join("docs/operating").join(name)).expect("a page");
    let places = [
        comment(&sample("gateway"), "libpq_compression").expect("a setting"),
        comment(&sample("connect"), "compression").expect("a setting"),
        help("gateway", "libpq_compression"),
        help("connect", "compression"),
        page("wire.md"),
        page("cfs.md"),
    ];
    for text in places {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for algorithm in [Algorithm::Zstd, Algorithm::Lz4, Algorithm::Zlib] {
            let levels = algorithm.levels().to_string();
            assert!(has(&text, &levels), "{algorithm} has {levels}: {text}");
        }
    }
    // What stands for the default is accepted, and no other number outside.
    for algorithm in [Algorithm::Zstd, Algorithm::Lz4, Algorithm::Zlib] {
        let levels = algorithm.levels();
        assert_eq!(algorithm.level(levels.stands_for_default.0.into()).ok(), Some(levels.default));
        assert!(algorithm.level(i64::from(levels.max.0) + 1).is_err());
    }
}
