//! What pages of backup and cfs commands say of variables that are no option's, and of files that nobody names.

use super::command_page::FileNote;

/// A variable, and what it means.
type Meaning = (&'static str, &'static str);

/// Variables that are no option's.
pub(super) fn variables(name: &str) -> Vec<Meaning> {
    let mut found = Vec::new();
    if is_backup(name) {
        found.push((
            "AWS_ACCESS_KEY_ID, AZURE_STORAGE_ACCOUNT_KEY, GOOGLE_APPLICATION_CREDENTIALS and others",
            "Access to an object store.",
        ));
    }
    if name == "pgshrink-verify" {
        found.push(("TMPDIR", "Where --boot puts scratch space and the server's socket. Default: /tmp."));
    }
    found
}

/// Files that a command reads or writes beside those that are named.
pub(super) fn files(name: &str) -> Vec<FileNote> {
    let container = ("segment.pgshrink", "A container, in a directory with the name of the relation's file.");
    let base =
        ("base.pgshrink", "Beside it while a server converts the file: pages that are not in the container.");
    let manifest = ("pgshrink-manifest.json", "List of all files of a packed directory.");
    let incomplete = ("DEST.incomplete", "What is being made, until it is complete.");
    match name {
        "pgshrink-cfs-info" | "pgshrink-cfs-rekey" => vec![container, base],
        "pgshrink-cfs-verify" => vec![container, base, manifest],
        "pgshrink-cfs-pack" | "pgshrink-cfs-unpack" | "pgshrink-cfs-salvage" => {
            vec![container, base, manifest, incomplete]
        }
        "pgshrink-cfs-accept" => {
            let guard = "In each directory with compressed files: shows whether they were copied from a running server.";
            vec![container, base, (pgshrink_cfs_server::GUARD_NAME, guard)]
        }
        "pgshrink-cfs-exec" => vec![
            container,
            base,
            (
                "../lib/pgshrink/libpgshrink_cfs_exec.so",
                "The preloaded library, seen from the program's directory.",
            ),
        ],
        _ => Vec::new(),
    }
}

fn is_backup(name: &str) -> bool {
    ["pgshrink-backup", "pgshrink-restore", "pgshrink-verify", "pgshrink-list", "pgshrink-expire"]
        .contains(&name)
}
