//! What people and programs see: a progress bar on standard error, a table or one JSON document on standard
//! output.

use super::Failure;
use crate::args::OutputArgs;
use crate::ending;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
pub(crate) use pgshrink_codec::{counted, size};
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(150);
/// As long as nobody knows how much is to be done.
const WAITING: &str = "[{elapsed}]  {wide_msg}";
const BAR: &str = "[{bar:28}] {percent:>3}%  {done}/{all}  {rate}  {eta} left  {wide_msg}";

/// How far a subcommand is, in bytes. Shows nothing where standard error is no terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Over so many bytes.
    pub(crate) fn new(bytes: u64, args: &OutputArgs) -> Progress {
        let target = if args.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(bytes), target);
        bar.set_style(style(if bytes == 0 { WAITING } else { BAR }));
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Progress(bar)
    }

    /// Of what takes no time.
    pub(crate) fn hidden() -> Progress {
        Progress(ProgressBar::hidden())
    }

    /// What is worth knowing beside it. Only asked for where it is shown.
    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        if !self.0.is_hidden() {
            self.0.set_message(text());
        }
    }

    /// So many bytes are to be done in all, as is known by now.
    pub(crate) fn set_total(&self, bytes: u64) {
        self.0.set_length(bytes);
        self.0.set_style(style(BAR));
        self.0.set_message("");
    }

    /// What is looked at now.
    pub(crate) fn at(&self, path: &Path) {
        self.0.set_message(path.display().to_string());
    }

    /// So many more bytes are done.
    pub(crate) fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("done", |state: &ProgressState, to: &mut dyn fmt::Write| {
            let _ = to.write_str(&size(state.pos()));
        })
        .with_key("all", |state: &ProgressState, to: &mut dyn fmt::Write| {
            let _ = to.write_str(&size(state.len().unwrap_or(0)));
        })
        .with_key("rate", |state: &ProgressState, to: &mut dyn fmt::Write| {
            let _ = write!(to, "{:.1} MB/s", state.per_sec() / 1e6);
        })
        .progress_chars("=> ")
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Prints a report: as JSON if asked, else as `text` writes it.
pub(crate) fn print<R: Serialize>(
    args: &OutputArgs,
    report: &R,
    text: impl FnOnce(&R) -> String,
) -> Result<(), Failure> {
    let text = if args.json {
        let json = serde_json::to_string_pretty(report);
        json.map_err(|error| Failure::new(Path::new("the report"), error))? + "\n"
    } else {
        text(report)
    };
    ending::has_document();
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // `pgshrink cfs info | head` is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(Failure::reading(Path::new("standard output"))),
    }
}

/// Columns as wide as they need to be, the first to the left, the others to the right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    aligned(rows, |column| column == 0)
}

/// Columns of words first, to the left, then others to the right.
pub(crate) fn words_and_numbers(rows: &[Vec<String>], words: usize) -> String {
    aligned(rows, |column| column < words)
}

/// Columns of words, all to the left.
pub(crate) fn words(rows: &[Vec<String>]) -> String {
    aligned(rows, |_| true)
}

fn aligned(rows: &[Vec<String>], is_left: impl Fn(usize) -> bool) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if is_left(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[test]
fn tables_line_up() {
    let rows = [vec!["a".to_owned(), "bb".to_owned()], vec!["ccc".to_owned(), "d".to_owned()]];
    assert_eq!(table(&rows), "a    bb\nccc   d\n");
    assert_eq!(words(&rows), "a    bb\nccc  d\n");
}
