//! The report, as the arguments want it.

use super::{Failure, file};
use crate::args::{AdviseArgs, OutputArgs};
use crate::cfs::output;
use pgshrink_advisor::Report;
use pgshrink_advisor::report::{self, Charset, Colour, Extent, Picture, Style};
use std::io::{self, IsTerminal};
use std::path::Path;

/// Where nobody says how wide a terminal is.
const WIDTH: usize = 100;
/// Wider tables are hard to read.
const WIDTH_MAX: usize = 160;

/// Writes the file of `--html`, and prints.
pub(super) fn show(report: &Report, args: &AdviseArgs) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        let html = match &args.figures {
            Some(figures) => report::html_with_picture(report, &picture(figures)?),
            None => report::html(report),
        };
        file::write(path, html.as_bytes())?;
    }
    let style = style(args);
    let text = |report: &Report| match args.sql {
        true => report::sql(report),
        false => report::text(report, width(), style),
    };
    let output = OutputArgs { json: args.json, quiet: args.no_progress };
    output::print(&output, report, text).map_err(|error| Failure::new("output", error))
}

/// Writes the file of `--svg`.
pub(super) fn draw(figures: &Path, svg: &Path) -> Result<(), Failure> {
    file::write(svg, report::picture_svg(&picture(figures)?).as_bytes())
}

/// Bytes before and after, of every part of pgshrink.
fn picture(path: &Path) -> Result<Picture, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(path.display(), error);
    let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Failure::new(path.display(), format!("{error}; expected the report.json that make demo writes"))
    })
}

fn style(args: &AdviseArgs) -> Style {
    let is_asked_not_to = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = if io::stdout().is_terminal() && !is_asked_not_to { Colour::Ansi } else { Colour::Plain };
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    let is_utf8 = locale.is_some_and(|locale| locale.to_ascii_lowercase().replace('-', "").contains("utf8"));
    let charset = if is_utf8 { Charset::Unicode } else { Charset::Ascii };
    Style { colour, charset, extent: if args.all { Extent::All } else { Extent::Largest } }
}

fn width() -> usize {
    let of_terminal = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    of_terminal.filter(|columns| *columns > 0).map_or(WIDTH, |columns| columns.min(WIDTH_MAX))
}
