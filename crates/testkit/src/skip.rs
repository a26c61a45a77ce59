//! Tests that cannot run here, reported where everybody sees it.
//!
//! The test harness hides what a passing test prints, and a test that returns early passes. A skip is therefore
//! written straight to stderr and appended to `target/test-skips`, which `make test` prints at its end. A machine
//! that promises to have things lists their sorts in `PGSHRINK_REQUIRE` (`program,browser,server,privilege,data`): lacking
//! one of them is a failure there, not a skip.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use crate::error::{Kind, Missing};

/// The root of the checkout the tests were built from.
pub fn checkout() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap_or_default()
}

/// Reports that `test` was skipped because of `missing`.
///
/// # Panics
/// When `PGSHRINK_REQUIRE` lists this sort of thing: the machine promised to have it.
pub fn skipped(test: &str, missing: &Missing) {
    report("SKIPPED", test, missing);
}

/// Reports that `test` ran, but not on everything it asks for. Panics as [`skipped`] does.
pub(crate) fn partly_skipped(test: &str, missing: &Missing) {
    report("PARTLY SKIPPED", test, missing);
}

/// Reports a part of `test` that no installation here could have supplied: never a failure, always said.
pub fn left_out(test: &str, why: &str) {
    let line = format!("PARTLY SKIPPED {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    note("test-skips", &line);
}

fn report(verb: &str, test: &str, missing: &Missing) {
    let promised = std::env::var("PGSHRINK_REQUIRE").unwrap_or_default();
    if promises(&promised, missing.kind) {
        panic!("{test} may not be skipped with PGSHRINK_REQUIRE={promised}, but {missing}");
    }
    let line = format!("{verb} {test}: {missing}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    note("test-skips", &line);
}

/// Appends a line to a file of `target` that `make test` prints at its end; one write, so that lines of parallel
/// tests do not mix. Losing it loses only the summary.
pub(crate) fn note(file: &str, line: &str) {
    let path = checkout().join("target").join(file);
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
        let _ = file.write_all(line.as_bytes());
    }
}

fn promises(promised: &str, kind: Kind) -> bool {
    let name = match kind {
        Kind::Program => "program",
        Kind::Browser => "browser",
        Kind::Server => "server",
        Kind::Privilege => "privilege",
        Kind::Data => "data",
    };
    promised.split(',').any(|sort| sort.trim() == name)
}

/// Unwraps a `Result<_, Missing>`, or reports the enclosing test as skipped and returns from it.
///
/// ```no_run
/// # fn a_test() {
/// let server = pgshrink_testkit::or_skip!("a standby of 18 follows", pgshrink_testkit::Server::find(18));
/// # let _ = server;
/// # }
/// ```
#[macro_export]
macro_rules! or_skip {
    ($test:expr, $found:expr) => {
        match $found {
            Ok(found) => found,
            Err(missing) => {
                $crate::skipped($test, &missing);
                return;
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_covers_the_sorts_it_lists_and_no_others() {
        assert!(
            promises("server, privilege", Kind::Server) && promises("server, privilege", Kind::Privilege)
        );
        assert!(!promises("server, privilege", Kind::Data) && !promises("", Kind::Program));
    }
}
