//! Completion scripts and manual pages.
//!
//! Pages of section 1 are made from the command line's own definition, those of section 5 from the commented sample files of
//! `packaging/`: nothing is written twice.

mod command_page;
mod exit_status;
mod roff;
mod settings_page;
mod storage;
mod synopsis;

use crate::args;
use crate::error::Error;
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::Path;

/// A sample configuration file, and what its page of section 5 says of it.
struct Sample {
    /// In `/etc/pgshrink`, where its page and the systemd units expect it.
    file: &'static str,
    about: &'static str,
    text: &'static str,
    /// The commands that read it.
    commands: &'static [&'static str],
}

const SAMPLES: [Sample; 3] = [
    Sample {
        file: "gateway.toml",
        about: "configuration file of pgshrink gateway",
        text: include_str!("../../../packaging/gateway.toml"),
        commands: &["pgshrink-gateway"],
    },
    Sample {
        file: "connect.toml",
        about: "configuration file of pgshrink connect",
        text: include_str!("../../../packaging/connect.toml"),
        commands: &["pgshrink-connect"],
    },
    Sample {
        file: "backup.toml",
        about: "configuration file of pgshrink's backup commands",
        text: include_str!("../../../packaging/backup.toml"),
        commands: &[
            "pgshrink-backup",
            "pgshrink-restore",
            "pgshrink-verify",
            "pgshrink-list",
            "pgshrink-expire",
        ],
    },
];

/// Prints a completion script.
pub(crate) fn completions(shell: Shell, out: &mut impl Write) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "pgshrink", &mut script);
    write(out, &script, "the completion script")
}

/// Prints the page of the whole program, or writes all pages into `man1` and `man5` below a directory.
pub(crate) fn man(dir: Option<&Path>, out: &mut impl Write) -> Result<(), Error> {
    let mut command = args::command();
    command.build();
    let Some(dir) = dir else {
        return write(out, &command_page::page(&command, "pgshrink")?, "the manual page");
    };
    let mut pages = Vec::new();
    collect(&command, "pgshrink".to_owned(), &mut pages);
    for (name, command) in pages {
        put(&dir.join("man1"), &format!("{name}.1"), &command_page::page(command, &name)?)?;
    }
    for sample in &SAMPLES {
        let name = format!("pgshrink-{}.5", sample.file);
        put(&dir.join("man5"), &name, settings_page::page(sample).as_bytes())?;
    }
    Ok(())
}

fn put(dir: &Path, name: &str, page: &[u8]) -> Result<(), Error> {
    let failed = |path: &Path| {
        let what = path.display().to_string();
        move |source| Error::Write { what, source }
    };
    std::fs::create_dir_all(dir).map_err(failed(dir))?;
    let path = dir.join(name);
    std::fs::write(&path, page).map_err(failed(&path))
}

/// A command and all below it, named as in `pgshrink-cfs-verify`.
fn collect<'c>(command: &'c clap::Command, name: String, pages: &mut Vec<(String, &'c clap::Command)>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        collect(sub, format!("{name}-{}", sub.get_name()), pages);
    }
    pages.push((name, command));
}

fn write(out: &mut impl Write, text: &[u8], what: &str) -> Result<(), Error> {
    match out.write_all(text).and_then(|()| out.flush()) {
        // `pgshrink man | head` is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|source| Error::Write { what: what.to_owned(), source }),
    }
}
