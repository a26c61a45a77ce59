//! Where log messages go: standard error, as text or JSON.

use crate::args::{LogFormat, LogLevel};
use std::io;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Starts logging for the rest of the process.
pub(crate) fn start(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Where in the source a message comes from helps those who read that.
    let with_target = level >= LevelFilter::DEBUG;
    // The journal has its own time.
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let ansi = io::IsTerminal::is_terminal(&io::stderr()) && std::env::var_os("NO_COLOR").is_none();
    let layer = fmt::layer().with_target(with_target).with_writer(io::stderr);
    let layer = match (format, journal) {
        (LogFormat::Json, _) => layer.json().flatten_event(true).boxed(),
        (LogFormat::Text, true) => layer.without_time().with_ansi(false).boxed(),
        (LogFormat::Text, false) => layer.with_ansi(ansi).boxed(),
    };
    // Only a second start in one process fails, and then there is a log already.
    let _ = tracing_subscriber::registry().with(layer.with_filter(level)).try_init();
}
