//! How far the demo is: a bar on a terminal, one line per phase elsewhere.

use std::cell::Cell;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::{self, Charset};

const TICK: Duration = Duration::from_millis(120);
const BAR: &str = "{spinner} [{bar:28}] {elapsed:>4}  {wide_msg}";

/// Progress over a known number of phases.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Cell<u64>,
    count: u64,
}

impl Progress {
    /// For so many phases.
    pub(crate) fn new(count: u64) -> Progress {
        let bar = terminal::can_redraw().then(|| new_bar(count));
        Progress { bar, started: Cell::new(0), count }
    }

    /// The next phase begins, and all before have ended.
    pub(crate) fn phase(&self, what: &str) {
        let nth = self.started.get() + 1;
        self.started.set(nth);
        match &self.bar {
            Some(bar) => {
                bar.set_position(nth.saturating_sub(1).min(self.count));
                bar.set_message(what.to_owned());
            }
            None => eprintln!("[{nth:2}/{}] {what}", self.count),
        }
    }

    /// The phases of a step that failed count as done: `started` of all are behind.
    pub(crate) fn skip_to(&self, started: u64) {
        self.started.set(started);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(count: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(count), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(match Charset::detect() {
        Charset::Unicode => style.progress_chars("━╸ ").tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "),
        Charset::Ascii => style.progress_chars("=> ").tick_chars("-\\|/ "),
    });
    bar.enable_steady_tick(TICK);
    bar
}
