//! Completion scripts and manual pages, made from the command line's own definition.

use crate::args;
use crate::error::Error;
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::Path;

/// Prints a completion script.
pub(crate) fn completions(shell: Shell, out: &mut impl Write) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "pgshrink", &mut script);
    write(out, &script, "the completion script")
}

/// Prints the page of the whole program, or writes one per command into a directory.
pub(crate) fn man(dir: Option<&Path>, out: &mut impl Write) -> Result<(), Error> {
    let mut command = args::command();
    command.build();
    let Some(dir) = dir else {
        return write(out, &page(&command, "pgshrink")?, "the manual page");
    };
    let failed = |path: &Path| {
        let what = path.display().to_string();
        move |source| Error::Write { what, source }
    };
    std::fs::create_dir_all(dir).map_err(failed(dir))?;
    let mut pages = Vec::new();
    collect(&command, "pgshrink".to_owned(), &mut pages);
    for (name, command) in pages {
        let path = dir.join(format!("{name}.1"));
        std::fs::write(&path, page(command, &name)?).map_err(failed(&path))?;
    }
    Ok(())
}

/// A command and all below it, named as in `pgshrink-cfs-verify`.
fn collect<'c>(command: &'c clap::Command, name: String, pages: &mut Vec<(String, &'c clap::Command)>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        collect(sub, format!("{name}-{}", sub.get_name()), pages);
    }
    pages.push((name, command));
}

fn page(command: &clap::Command, name: &str) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let command = command.clone().name(name.to_owned()).display_name(name.to_owned());
    let rendered = clap_mangen::Man::new(command).render(&mut text);
    rendered.map_err(|source| Error::Write { what: format!("{name}.1"), source })?;
    Ok(text)
}

fn write(out: &mut impl Write, text: &[u8], what: &str) -> Result<(), Error> {
    match out.write_all(text).and_then(|()| out.flush()) {
        // `pgshrink man | head` is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|source| Error::Write { what: what.to_owned(), source }),
    }
}
