//! Pages of section 1, made from the definition of a command.
//!
//! clap_mangen writes options and subcommands. What `--help` has below its options is written here, because every line of an
//! example must stay as it is; and the synopsis, because clap_mangen's has every option, but no values.

use super::roff::Roff;
use super::{SAMPLES, exit_status, storage, synopsis};
use crate::error::Error;
use std::io;

/// A file, and what it is for.
pub(super) type FileNote = (&'static str, &'static str);

const PASSWORDS: FileNote = ("~/.pgpass", "Passwords, as for libpq.");
const BACKUP_TOML: FileNote =
    ("/etc/pgshrink/backup.toml", "Configuration, where the systemd unit expects it.");
const BACKUP_ENV: FileNote =
    ("/etc/pgshrink/backup.env", "Variables for the systemd unit, such as AWS_ACCESS_KEY_ID.");
const CERTIFICATES: FileNote = ("~/.postgresql", "Certificates, keys and CA certificates, as for libpq.");
const SERVICES: FileNote = ("~/.pg_service.conf", "Connection parameters by service name, as for libpq.");

/// The heading of exit codes in a help.
const EXIT_CODES: &str = "Exit codes:";

/// Commands that read libpq's variables.
const WITH_LIBPQ: [&str; 4] = ["pgshrink-run", "pgshrink-advise", "pgshrink-backup", "pgshrink"];

/// The page of a command, which is named as in `pgshrink-cfs-verify`.
pub(super) fn page(command: &clap::Command, name: &str) -> Result<Vec<u8>, Error> {
    let mut text =
        generated(command, name).map_err(|source| Error::Write { what: format!("{name}.1"), source })?;
    let mut page = Roff::default();
    let help = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let help = help.unwrap_or_default();
    after_help(&mut page, &help);
    if !help.contains(EXIT_CODES) {
        exit_status::section(&mut page, name);
    }
    environment(&mut page, command, name);
    files(&mut page, name);
    page.see_also(&related(command, name));
    text.extend_from_slice(page.into_text().as_bytes());
    Ok(text)
}

fn generated(command: &clap::Command, name: &str) -> io::Result<Vec<u8>> {
    let has_options = command.get_arguments().any(|argument| !argument.is_hide_set());
    let has_subcommands = command.get_subcommands().any(|sub| !sub.is_hide_set());
    let description = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    let built = command.clone();
    let command = command.clone().name(name.to_owned()).display_name(name.to_owned());
    let man = clap_mangen::Man::new(command);
    let mut page = Roff::default();
    page.title(name, 1);
    let mut text = page.into_text().into_bytes();
    man.render_name_section(&mut text)?;
    let mut page = Roff::default();
    synopsis::section(&mut page, &built, name);
    page.section("DESCRIPTION");
    prose(&mut page, &description.unwrap_or_default());
    text.extend_from_slice(page.into_text().as_bytes());
    if has_options {
        man.render_options_section(&mut text)?;
    }
    if has_subcommands {
        man.render_subcommands_section(&mut text)?;
    }
    Ok(text)
}

/// Paragraphs; lines that are indented are kept as they are.
fn prose(page: &mut Roff, text: &str) {
    let is_code = |line: &str| line.starts_with("  ");
    for paragraph in text.split("\n\n") {
        let lines: Vec<_> = paragraph.lines().collect();
        for run in lines.chunk_by(|a, b| is_code(a) == is_code(b)) {
            if is_code(run[0]) {
                page.verbatim(&run.join("\n"));
            } else {
                page.paragraph(&run.join(" "));
            }
        }
    }
}

/// Examples and exit codes, line by line.
fn after_help(page: &mut Roff, help: &str) {
    let mut lines = String::new();
    let finish = |page: &mut Roff, lines: &mut String| {
        if !lines.trim().is_empty() {
            page.verbatim(lines.trim_matches('\n'));
        }
        lines.clear();
    };
    for line in help.lines() {
        let heading = match line {
            "Examples:" => "EXAMPLES",
            EXIT_CODES => "EXIT STATUS",
            line => {
                lines += line.strip_prefix("  ").unwrap_or(line);
                lines.push('\n');
                continue;
            }
        };
        finish(page, &mut lines);
        page.section(heading);
    }
    finish(page, &mut lines);
}

fn environment(page: &mut Roff, command: &clap::Command, name: &str) {
    let mut variables: Vec<_> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .filter_map(|argument| argument.get_env().map(|variable| (argument, variable.to_string_lossy())))
        .collect();
    variables.sort_by(|(_, a), (_, b)| a.cmp(b));
    let reads_libpq = WITH_LIBPQ.contains(&name);
    let reads_key = name == "pgshrink-cfs"
        || (name.starts_with("pgshrink-cfs-")
            && command.get_arguments().any(|arg| arg.get_long() == Some("key-file")));
    let others = storage::variables(name);
    if variables.is_empty() && !reads_libpq && !reads_key && others.is_empty() {
        return;
    }
    page.section("ENVIRONMENT");
    for (argument, variable) in &variables {
        let meaning = argument.get_long().map_or_else(
            || argument.get_help().map(|help| format!("{help}.")).unwrap_or_default(),
            |long| format!("The same as --{long}, which overrides it."),
        );
        page.item(&[variable], &meaning);
    }
    match name {
        "pgshrink" => {
            page.paragraph(
                "Most options have a variable, such as PGSHRINK_LISTEN. The pages of the commands list them.",
            );
        }
        "pgshrink-run" => {
            page.item(&["PGCOMPRESSION"], "Algorithms to ask for, if nothing else names any.");
        }
        _ => {}
    }
    others.iter().for_each(|(variable, meaning)| page.item(&[variable], meaning));
    if reads_key {
        page.item(&["PG_CIPHER_KEY"], "The key of encrypted files, if no option names one.");
    }
    if reads_libpq {
        page.item(
            &["PGHOST, PGPORT, PGUSER and others of libpq"],
            "Connection parameters that are not given otherwise.",
        );
    }
}

fn files(page: &mut Roff, name: &str) {
    let files: &[FileNote] = match name {
        "pgshrink" => &[("/etc/pgshrink", "Configuration files, where the systemd units expect them.")],
        "pgshrink-gateway" => &[
            ("/etc/pgshrink/gateway.toml", "Configuration, where the systemd unit expects it."),
            ("/run/pgshrink/.s.PGSQL.6432", "Unix socket of the packaged gateway, also for the console."),
            ("/var/run/postgresql", "Directory of the Unix socket, if nothing else is configured."),
            ("/var/lib/pgshrink", "State of the packaged gateway: a place for --observe-file."),
        ],
        "pgshrink-connect" => &[
            ("/etc/pgshrink/connect.toml", "Configuration, where the systemd unit expects it."),
            ("/run/pgshrink", "Directory for the Unix socket of the packaged connector."),
        ],
        "pgshrink-run" | "pgshrink-advise" => &[PASSWORDS, SERVICES, CERTIFICATES],
        "pgshrink-backup" => &[BACKUP_TOML, BACKUP_ENV, PASSWORDS, SERVICES, CERTIFICATES],
        "pgshrink-expire" => &[BACKUP_TOML, BACKUP_ENV],
        "pgshrink-restore" | "pgshrink-verify" | "pgshrink-list" => &[BACKUP_TOML],
        _ => &[],
    };
    let files = [files, &storage::files(name)].concat();
    if !files.is_empty() {
        page.section("FILES");
    }
    for (path, meaning) in &files {
        page.item(&[path], meaning);
    }
}

/// The pages that a reader of this one may want.
fn related(command: &clap::Command, name: &str) -> Vec<(String, u8)> {
    let mut pages = Vec::new();
    if let Some((parent, _)) = name.rsplit_once('-').filter(|_| name != "pgshrink") {
        // `pgshrink-cfs-check-server` is below `pgshrink-cfs`.
        pages.push((
            if parent.starts_with("pgshrink-cfs") { "pgshrink-cfs" } else { "pgshrink" }.to_owned(),
            1,
        ));
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        pages.push((format!("{name}-{}", sub.get_name()), 1));
    }
    let beside: &[&str] = match name {
        "pgshrink-gateway" => &["pgshrink-connect", "pgshrink-run", "pgshrink-decode"],
        "pgshrink-connect" => &["pgshrink-gateway", "pgshrink-run"],
        "pgshrink-run" => &["pgshrink-gateway", "pgshrink-connect", "psql"],
        "pgshrink-decode" => &["pgshrink-gateway"],
        "pgshrink-cfs-exec" => &["pg_rewind", "pg_checksums"],
        "pgshrink-backup" => &["pg_basebackup"],
        _ => &[],
    };
    pages.extend(beside.iter().map(|page| ((*page).to_owned(), 1)));
    for sample in SAMPLES.iter().filter(|sample| name == "pgshrink" || sample.commands.contains(&name)) {
        pages.extend(
            sample
                .commands
                .iter()
                .filter(|page| **page != name && name != "pgshrink")
                .map(|page| ((*page).to_owned(), 1)),
        );
        pages.push((format!("pgshrink-{}", sample.file), 5));
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(command: &clap::Command, name: &str, look: &mut impl FnMut(&clap::Command, &str)) {
        look(command, name);
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            each(sub, &format!("{name}-{}", sub.get_name()), look);
        }
    }

    /// Lines between `.nf` and `.fi`, as a terminal shows them.
    fn kept(page: &str) -> Vec<String> {
        let mut kept = Vec::new();
        let mut lines = page.lines();
        while lines.by_ref().any(|line| line == ".nf") {
            kept.extend(lines.by_ref().take_while(|line| *line != ".fi").map(shown));
        }
        kept
    }

    fn shown(line: &str) -> String {
        let known = [
            ("\\&", ""),
            ("\\-", "-"),
            ("\\(aq", "'"),
            ("\\(dq", "\""),
            ("\\(ga", "`"),
            ("\\(ha", "^"),
            ("\\(ti", "~"),
        ];
        known.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to)).replace("\\e", "\\")
    }

    #[test]
    fn every_line_of_an_example_stays_as_it_is() {
        let mut command = crate::args::command();
        command.build();
        let mut examples = 0;
        each(&command, "pgshrink", &mut |command, name| {
            let page = String::from_utf8(page(command, name).unwrap()).unwrap();
            let Some(help) = command.get_after_help().map(ToString::to_string) else { return };
            let kept = kept(&page);
            for line in help.lines().filter(|line| !matches!(*line, "Examples:" | "Exit codes:")) {
                let line = line.strip_prefix("  ").unwrap_or(line);
                assert!(line.is_empty() || kept.iter().any(|kept| kept == line), "{name}: {line}\n{page}");
                examples += usize::from(line.contains("pgshrink "));
            }
        });
        assert!(examples > 30, "{examples}");
    }

    #[test]
    fn pages_name_what_belongs_to_a_command() {
        let mut command = crate::args::command();
        command.build();
        let mut pages = std::collections::BTreeMap::new();
        each(&command, "pgshrink", &mut |command, name| {
            pages.insert(name.to_owned(), String::from_utf8(page(command, name).unwrap()).unwrap());
        });
        for (name, page) in &pages {
            assert!(page.contains(".SH \"SEE ALSO\"\n"), "{name}");
        }
        let gateway = pages["pgshrink-gateway"].replace("\\-", "-");
        for part in [
            "PGSHRINK_LISTEN",
            "/etc/pgshrink/gateway.toml",
            "pgshrink-gateway.toml\\fR(5)",
            "pgshrink-connect\\fR(1)",
        ] {
            assert!(gateway.contains(part), "{part}");
        }
        for (name, page) in &pages {
            assert_eq!(page.matches(".SH \"EXIT STATUS\"\n").count(), 1, "{name}");
            let reads = ["pgshrink-backup", "pgshrink-advise", "pgshrink-run"].contains(&name.as_str());
            assert_eq!(page.contains("pgpass\\fR"), reads, "{name}");
            assert_eq!(page.contains("PGHOST, PGPORT"), reads || name == "pgshrink", "{name}");
        }
        for (name, usage) in [
            ("pgshrink", "pgshrink\\fR [OPTION]... COMMAND"),
            ("pgshrink-gateway", "pgshrink gateway\\fR [OPTION]..."),
            ("pgshrink-run", "pgshrink run\\fR [OPTION]... [--] COMMAND [ARGUMENT]..."),
            ("pgshrink-backup", "pgshrink backup\\fR [OPTION]... --to REPOSITORY CONNINFO"),
            (
                "pgshrink-cfs-rekey",
                "pgshrink cfs rekey\\fR [OPTION]... {--new-key-file FILE | --new-key-command COMMAND} PATH...",
            ),
            ("pgshrink-cfs-verify", "pgshrink cfs verify\\fR [OPTION]... PATH..."),
        ] {
            let page = pages[name].replace("\\-", "-");
            assert!(page.contains(&format!(".SH \"SYNOPSIS\"\n\\fB{usage}\n")), "{name}: {page}");
        }
        for (name, part) in [
            ("pgshrink-list", "A backup is damaged"),
            ("pgshrink-cfs-check-server", "This server can have"),
            ("pgshrink-gateway", "--check"),
            ("pgshrink-cfs-info", "PG_CIPHER_KEY"),
        ] {
            assert!(pages[name].replace("\\-", "-").contains(part), "{name}");
        }
        let check = pages["pgshrink-cfs-check-server"].replace("\\-", "-");
        assert!(check.contains("\\fBpgshrink-cfs\\fR(1)"), "{check}");
        for (name, page) in &pages {
            let page = page.replace("\\-", "-");
            let has_key = name.starts_with("pgshrink-cfs-") && page.contains("--key-command");
            assert_eq!(page.contains("segment.pgshrink\\fR"), has_key, "{name}: {page}");
            let opens_a_repository = SAMPLES[2].commands.contains(&name.as_str());
            assert_eq!(page.contains("AWS_ACCESS_KEY_ID, "), opens_a_repository, "{name}: {page}");
        }
        let completions = kept(&pages["pgshrink-completions"]);
        assert!(
            completions.iter().any(|line| line.contains("completions bash > /usr/share/")),
            "{completions:?}"
        );
    }
}
