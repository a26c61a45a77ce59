//! Tests that cannot run here, told where everybody sees it.
//!
//! The test harness hides what a passing test prints, and a test that returns early passes. A skip is therefore
//! written straight to stderr and appended to `target/test-skips`, which `make test` prints at its end. With
//! `PGSHRINK_REQUIRE=all` in the environment (CI sets it) a skip is a failure instead.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use crate::error::Missing;

/// The root of the checkout the tests were built from.
pub fn checkout() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap_or_default()
}

/// Reports that `test` was skipped because of `missing`.
///
/// # Panics
/// When `PGSHRINK_REQUIRE=all`: the machine promised to have everything.
pub fn skipped(test: &str, missing: &Missing) {
    if std::env::var("PGSHRINK_REQUIRE").is_ok_and(|what| what == "all") {
        panic!("{test} must not be skipped here (PGSHRINK_REQUIRE=all), but {missing}");
    }
    let line = format!("SKIPPED {test}: {missing}\n");
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
