//! `--to server:/path`: the server writes a tar into a directory of its own host (`TARGET 'server'`).
//!
//! WAL cannot be streamed beside it, as it would arrive here. So the server puts the WAL into `base.tar` when the files are
//! done, and the slot of the other connection keeps it until then.

use super::Failure;
use super::formats::{Asked, Member, Written};
use super::interrupt;
use super::source::Server;
use super::stream::Stream;
use super::transfer::{Progress, Route, Step, total};
use pgshrink_backup::base_backup::{ArchiveName, CompressionAlgorithm, Event, Options, Target};
use pgshrink_pgclient::Error as ServerError;

/// ERRCODE_INSUFFICIENT_PRIVILEGE.
const NOT_ALLOWED: &str = "42501";

/// How the server is to be asked.
pub(super) fn options<'a>(folder: &'a str, options: Options<'a>) -> Options<'a> {
    Options { target: Target::Server(folder), wal: true, tablespace_map: true, ..options }
}

/// Has the server take a backup. If it fails amid it, what the server has written stays.
pub(super) fn take(
    server: &mut Server,
    asked: &Asked<'_>,
    folder: &str,
    progress: Progress<'_>,
) -> Result<Written, Failure> {
    let mut written = Written::new(asked, server);
    let major = server.major;
    let (connection, wal) = server.stream()?;
    let begun = Stream::begin((connection, wal.silence), major, &asked.options);
    let route = begun.map_err(|error| match &error {
        Failure::Server(said) if said.sqlstate() == Some(NOT_ALLOWED) => not_allowed(folder, said),
        _ => {
            // The server may have begun to write before it answers.
            if interrupt::check().is_err() {
                say_what_is_left(folder);
            }
            error
        }
    })?;
    let start = route.start();
    let tablespaces = route.tablespaces().to_vec();
    progress(Step::Total(total(&tablespaces)));
    let mut members = Vec::new();
    let suffix = asked.options.compression.algorithm;
    let taken = route.pass(
        &mut |event| {
            match event {
                Event::ArchiveBegins(index) => {
                    let space = tablespaces.get(index).and_then(|found| found.space.as_ref());
                    members.push(Member { name: name(space.map(|(oid, _)| *oid), suffix), bytes: None });
                }
                Event::ManifestBegins => {
                    members.push(Member { name: "backup_manifest".to_owned(), bytes: None });
                }
                _ => {}
            }
            Ok(())
        },
        progress,
    );
    let stop = taken.inspect_err(|_| say_what_is_left(folder))?;
    written.add_positions(start, stop);
    written.add_members(members);
    Ok(written)
}

/// Not a part of the error: where a signal has come, that is said instead of it.
fn say_what_is_left(folder: &str) {
    eprintln!(
        "pgshrink: server:{folder}: its content is not a backup unless there is a backup_manifest; remove it"
    );
}

fn not_allowed(folder: &str, said: &ServerError) -> Failure {
    let grant =
        "a backup on the server's host needs a superuser, or: GRANT pg_write_server_files TO the role";
    Failure::new(format!("server:{folder}"), format!("{said}; {grant}"))
}

/// What the server calls the archive of a tablespace or the data directory.
pub(super) fn name(tablespace: Option<u32>, compression: CompressionAlgorithm) -> String {
    ArchiveName { tablespace, compression }.to_string()
}
