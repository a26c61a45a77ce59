//! Exit codes of commands whose help does not list them.

use super::roff::Roff;

const DONE: (&str, &str) = ("0", "Done.");
const FAILED: (&str, &str) = ("2", "Could not run: invalid arguments, or an error that is printed.");

/// The section of a page.
pub(super) fn section(page: &mut Roff, name: &str) {
    let codes: &[(&str, &str)] = match name {
        "pgshrink-list" => {
            &[DONE, ("1", "A backup is damaged, or is not encrypted although a key is given."), FAILED]
        }
        "pgshrink-decode" => &[DONE, ("1", "A part of the capture could not be decoded."), FAILED],
        "pgshrink-cfs-check-server" => &[
            ("0", "This server can have compressed tablespaces."),
            ("1", "It cannot; the reasons are printed."),
            ("2", "The binary could not be read."),
        ],
        "pgshrink-cfs-estimate" => &[DONE, FAILED],
        name if name.starts_with("pgshrink-cfs-") => &[
            DONE,
            ("1", "Found damage, or pages that cannot be recovered."),
            ("2", "Could not run, including a missing or wrong key."),
        ],
        _ => &[DONE, FAILED],
    };
    page.section("EXIT STATUS");
    codes.iter().for_each(|(code, meaning)| page.item(&[code], meaning));
}
