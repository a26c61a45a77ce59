//! How a command tells that it failed: a line on standard error, and with `--json` a document on standard output.
//!
//! The document's shape is that of `docs/operating/json.md`. A command prints it instead of its report, never after it.

use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard output has its one document: a report that tells the failure itself, such as that of a boot.
static IS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Why a command failed.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Ending {
    /// As on standard error.
    pub message: String,
    /// Of a server's error.
    pub sqlstate: Option<String>,
    /// Where stored data is not what was written.
    pub damage: Option<Fault>,
}

/// What is wrong with a file or with an object of a repository. All reports and errors have it with these names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fault {
    /// A path, or the object's name.
    pub path: String,
    #[serde(flatten)]
    pub damage: Damage,
}

/// The same where it is clear which file is meant. It is written as its message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Damage {
    /// As people read it: what was expected and found.
    pub message: String,
    /// `root`, `page` and so on (`pgshrink_cfs::Part`); none where the file as a whole is concerned.
    pub part: Option<&'static str>,
    /// The page; of a leaf of the map, the first of its pages.
    pub block: Option<u32>,
    /// First byte in the file, and how many are concerned.
    pub offset: Option<u64>,
    pub bytes: Option<u64>,
}

impl Fault {
    /// Without more than words.
    pub(crate) fn new(path: impl fmt::Display, message: impl fmt::Display) -> Fault {
        Fault { path: path.to_string(), damage: Damage::from(message.to_string()) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.damage)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<String> for Damage {
    fn from(message: String) -> Damage {
        Damage { message, part: None, block: None, offset: None, bytes: None }
    }
}

impl Ending {
    fn json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'e> {
            error: &'e Ending,
        }
        serde_json::to_string_pretty(&Document { error: self }).unwrap_or_default()
    }

    /// Tells it. Where nobody reads it, the exit code still says it.
    pub(crate) fn tell(&self, as_json: bool) {
        if as_json && !IS_WRITTEN.load(Ordering::Relaxed) {
            let _ = writeln!(io::stdout(), "{}", self.json());
        }
        let _ = writeln!(io::stderr(), "pgshrink: {}", self.message);
    }
}

/// A report was printed.
pub(crate) fn has_document() {
    IS_WRITTEN.store(true, Ordering::Relaxed);
}

/// For arguments that are not understood: the document, if they ask for JSON. The message for people is clap's.
pub(crate) fn tell_of_arguments(args: &[OsString], error: &clap::Error) {
    // What follows `run` or `--` is another program's.
    let own = args.iter().take_while(|arg| *arg != "--");
    let asks =
        args.get(1).is_some_and(|command| command != "run") && own.into_iter().any(|arg| arg == "--json");
    if asks && error.use_stderr() {
        let text = error.render().to_string();
        let message = text.split("\n\n").next().unwrap_or_default().trim();
        let message = message.strip_prefix("error: ").unwrap_or(message).to_owned();
        let _ = writeln!(io::stdout(), "{}", Ending { message, ..Ending::default() }.json());
    }
}

#[test]
fn an_error_is_one_json_document() {
    let ending = Ending { message: "a \"file\": is no snapshot".to_owned(), ..Ending::default() };
    let found: serde_json::Value = serde_json::from_str(&ending.json()).unwrap();
    assert_eq!(found["error"]["message"], "a \"file\": is no snapshot");
    assert!(found["error"]["sqlstate"].is_null() && found["error"]["damage"].is_null());
}
