//! Copies of a tablespace's directory: which are taken for the real thing.
// A process that ends by itself.
#![allow(unsafe_code)]

use std::fs;
use std::path::Path;

use pgshrink_cfs_server::guard::{self, Content, State};
use pgshrink_cfs_server::server::begin;
use pgshrink_cfs_server::{GUARD_NAME, Problem};
use pgshrink_interpose::Front;

use crate::server::{
    FRONT, VERSION, be_checkpointer, create, exit_code_of, in_a_server, open, page, path, process, read,
    real, restart, write,
};

fn made() {
    process(|| {
        let file = create("16401");
        assert_eq!(write(file, 0, &[page(1), page(2)]), Ok(2));
        FRONT.sync(file).unwrap();
    });
}

/// Copies the tablespace file by file, as the superuser can, and puts the copy into the server's place.
fn replaced_by_a_copy() {
    fs::create_dir("copy").unwrap();
    copy(Path::new("location"), Path::new("copy"));
    // Otherwise the copy may be given the inodes of what it replaces.
    fs::rename("location", "original").unwrap();
    fs::rename("copy", "location").unwrap();
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else if entry.file_name() == GUARD_NAME {
            let text = guard_text(&entry.path());
            fs::write(&target, text).unwrap();
            set_mode(&target, 0);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

/// The content, also for a test that does not run as the superuser.
fn guard_text(path: &Path) -> Vec<u8> {
    set_mode(path, 0o400);
    let text = fs::read(path).unwrap();
    set_mode(path, 0);
    text
}

fn content() -> Option<Content> {
    guard::read(&real("")).unwrap()
}

fn refused() -> String {
    let problem = begin(true).expect_err("containers that may be a copy");
    assert!(matches!(problem, Problem::Copied { .. }), "{problem}");
    problem.to_string()
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_copy_of_a_running_servers_files_is_refused_until_it_is_accepted() {
    in_a_server(|| {
        made();
        assert_eq!(content(), Some(Content::Original(State::Running)));
        replaced_by_a_copy();
        let said = refused();
        assert!(
            said.contains("does not have the inode number") && said.contains(&format!("{VERSION}/5")),
            "{said}"
        );
        // Nothing was changed by the attempt.
        refused();
        guard::accept(&real("")).unwrap();
        assert_eq!(content(), Some(Content::Original(State::Stopped)));
        restart();
        assert_eq!(content(), Some(Content::Original(State::Running)));
        assert_eq!(mode(&real(GUARD_NAME)), 0);
        process(|| assert!(read(open("16401"), 0, 2).unwrap() == [page(1), page(2)]));
    });
}

#[test]
fn a_copy_of_a_stopped_servers_files_is_taken_for_the_files() {
    in_a_server(|| {
        made();
        process(be_checkpointer);
        assert_eq!(content(), Some(Content::Original(State::Stopped)));
        replaced_by_a_copy();
        assert_eq!(content(), Some(Content::Copy(State::Stopped)));
        restart();
        assert_eq!(content(), Some(Content::Original(State::Running)));
        process(|| assert!(read(open("16401"), 0, 2).unwrap() == [page(1), page(2)]));
    });
}

#[test]
fn a_directory_that_was_moved_or_whose_server_was_killed_is_no_copy() {
    in_a_server(|| {
        made();
        fs::rename("location", "elsewhere").unwrap();
        fs::create_dir("location").unwrap();
        fs::rename(format!("elsewhere/{VERSION}"), format!("location/{VERSION}")).unwrap();
        restart();
        process(|| assert!(read(open("16401"), 0, 2).unwrap() == [page(1), page(2)]));
        restart();
    });
}

#[test]
fn containers_without_a_whole_guard_are_refused_and_an_empty_directory_is_not() {
    in_a_server(|| {
        made();
        let guard = real(GUARD_NAME);
        let text = guard_text(&guard);
        for broken in [&b""[..], &text[..50], &text.to_ascii_uppercase()] {
            fs::remove_file(&guard).unwrap();
            fs::write(&guard, broken).unwrap();
            set_mode(&guard, 0);
            assert!(refused().contains("empty or damaged"));
        }
        fs::remove_file(&guard).unwrap();
        assert!(refused().contains("is missing"));
        fs::remove_dir_all(real("16401")).unwrap();
        restart();
        fs::write(&guard, "").unwrap();
        restart();
        assert_eq!(content(), Some(Content::Original(State::Running)));
    });
}

#[test]
fn a_guard_whose_maker_was_killed_is_not_there_and_its_rest_goes_at_the_next_start() {
    in_a_server(|| {
        let rest = real(&format!("{GUARD_NAME}.pgshrink-new.77"));
        fs::write(&rest, "half").unwrap();
        made();
        assert_eq!(content(), Some(Content::Original(State::Running)));
        assert_eq!(mode(&real(GUARD_NAME)), 0);
        restart();
        assert!(!rest.exists());
    });
}

#[test]
fn rests_go_from_a_directory_that_has_neither_container_nor_guard_yet() {
    in_a_server(|| {
        let rests = [format!("{GUARD_NAME}.pgshrink-new.77"), "16402.pgshrink-new.77".to_owned()];
        fs::write(real(&rests[0]), "half").unwrap();
        fs::create_dir(real(&rests[1])).unwrap();
        restart();
        assert!(rests.iter().all(|rest| !real(rest).exists()));
        assert_eq!(content(), None);
    });
}

#[test]
fn a_last_process_that_fails_does_not_say_that_all_is_closed() {
    in_a_server(|| {
        made();
        let code = exit_code_of(|| {
            be_checkpointer();
            // SAFETY: ends the process, whose handlers run.
            unsafe { libc::exit(3) }
        });
        assert_eq!(code, 3);
        assert_eq!(content(), Some(Content::Original(State::Running)));
    });
}

#[test]
fn what_dead_processes_left_goes_when_the_server_starts() {
    in_a_server(|| {
        made();
        fs::create_dir(real("16402.pgshrink-new.77")).unwrap();
        fs::write(real("16402.pgshrink-new.77/segment.pgshrink-new"), "half").unwrap();
        restart();
        assert!(!real("16402.pgshrink-new.77").exists());
        assert!(FRONT.attributes(&path("16401")).is_some());
    });
}
