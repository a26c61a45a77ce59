//! Fsyncs of a checkpoint.
// An end of a process without its handlers.
#![allow(unsafe_code)]

use std::time::Duration;

use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs_server::work;
use pgshrink_interpose::{Advice, Front};

use crate::server::{
    FRONT, TABLESPACE, be_checkpointer, close, create, in_a_server, open, open_control_file, page, path,
    process, read, real, restart, restart_without_fsync, write,
};

/// Ends a process as a kill would: nothing is closed.
fn end() -> ! {
    // SAFETY: takes a number.
    unsafe { libc::_exit(0) }
}

fn names() -> impl Iterator<Item = String> {
    (16401..16441).map(|number| number.to_string())
}

/// Makes all files with one page, and syncs the first one as a checkpointer.
fn written_and_first_synced() {
    be_checkpointer();
    for name in names() {
        let file = create(&name);
        write(file, 0, &[page(1)]).unwrap();
        close(file);
    }
    sync("16401");
}

fn sync(name: &str) {
    let file = open(name);
    FRONT.sync(file).unwrap();
    close(file);
}

fn first_page_is(name: &str, seed: u32) -> bool {
    let file = open(name);
    let found = read(file, 0, 1).unwrap();
    close(file);
    found == [page(seed)]
}

#[test]
fn the_first_fsync_of_a_checkpoint_commits_everything_and_another_processes_commits_one() {
    in_a_server(|| {
        process(|| {
            written_and_first_synced();
            end();
        });
        restart();
        process(|| assert!(names().all(|name| first_page_is(&name, 1))));
        process(|| {
            for name in names() {
                let file = open(&name);
                write(file, 0, &[page(2)]).unwrap();
                close(file);
            }
            sync("16401");
            end();
        });
        restart();
        process(|| {
            assert!(first_page_is("16401", 2));
            assert!(names().skip(1).all(|name| first_page_is(&name, 1)));
        });
    });
}

#[test]
fn a_checkpoint_commits_through_the_files_that_its_process_has_open() {
    in_a_server(|| {
        process(|| {
            be_checkpointer();
            let mut kept = Vec::new();
            for name in names() {
                let file = create(&name);
                write(file, 0, &[page(1)]).unwrap();
                kept.push(file);
                // Once more, and for reading.
                kept.push(open(&name));
                kept.push(FRONT.open(&path(&name), libc::O_RDONLY, 0).unwrap().unwrap());
            }
            let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
            let before = descriptors();
            FRONT.sync(kept[0]).unwrap();
            assert_eq!(descriptors(), before);
            end();
        });
        restart();
        process(|| assert!(names().all(|name| first_page_is(&name, 1))));
    });
}

fn key(name: &str) -> SegmentKey {
    let relation = name.parse().unwrap();
    SegmentKey { tablespace: TABLESPACE, database: 5, relation, fork: 0, segment: 0 }
}

/// Bytes that the kernel was asked to write before a commit.
fn writeback_bytes(name: &str) -> u64 {
    match work::info(&key(name)).unwrap().unwrap().form {
        work::Form::Container { stats, .. } => stats.writeback_bytes,
        form => panic!("{form:?}"),
    }
}

#[test]
fn the_kernel_writes_what_a_checkpoint_has_written_before_its_fsync_asks() {
    in_a_server(|| {
        process(|| {
            let file = create("16401");
            let pages: Vec<_> = (0..40).map(page).collect();
            write(file, 0, &pages).unwrap();
            FRONT.advise(file, 0, 40, Advice::WriteBack);
            assert_eq!(writeback_bytes("16401"), 0, "not worth a request");
            let pages: Vec<_> = (0..200).map(page).collect();
            write(file, 0, &pages).unwrap();
            FRONT.advise(file, 0, 1, Advice::WillNeed);
            assert_eq!(writeback_bytes("16401"), 0);
            FRONT.advise(file, 0, 1, Advice::WriteBack);
            assert!(writeback_bytes("16401") > 256 << 10);
            // By a collector, once there is as much again.
            let begun = || work::begin_writeback(&key("16401"), 256 << 10).unwrap();
            assert!(!begun());
            write(file, 0, &pages).unwrap();
            assert!(begun());
            close(file);
            assert!(!work::begin_writeback(&key("16499"), 1).unwrap(), "there is no such file");
        });
    });
}

#[test]
fn what_was_written_between_a_group_and_the_files_own_fsync_is_durable_at_the_next_checkpoints_end() {
    in_a_server(|| {
        process(|| {
            written_and_first_synced();
            // The server counts requests by file: this one is served by the turn that comes.
            process(|| {
                let file = open("16405");
                write(file, 0, &[page(2)]).unwrap();
            });
            sync("16405");
            open_control_file().unwrap();
            // Nobody asks for anything in the next checkpoint.
            open_control_file().unwrap();
            end();
        });
        restart();
        process(|| assert!(first_page_is("16405", 2)));
    });
}

#[test]
fn a_checkpoint_that_follows_a_failed_one_commits_anew() {
    // By its own writes, and by the time that has passed.
    for waits in [false, true] {
        in_a_server(move || {
            process(|| {
                written_and_first_synced();
                process(|| {
                    let file = open("16405");
                    write(file, 0, &[page(2)]).unwrap();
                });
                if waits {
                    std::thread::sleep(Duration::from_millis(600));
                } else {
                    let file = open("16406");
                    write(file, 0, &[page(3)]).unwrap();
                    close(file);
                }
                sync("16405");
                end();
            });
            restart();
            process(|| assert!(first_page_is("16405", 2)));
        });
    }
}

#[test]
fn a_checkpointer_that_ends_well_leaves_closed_containers() {
    in_a_server(|| {
        process(|| {
            be_checkpointer();
            let file = create("16401");
            // Without any fsync, as a server with fsync = off.
            write(file, 0, &[page(1)]).unwrap();
        });
        restart();
        process(|| assert!(first_page_is("16401", 1)));
    });
}

#[test]
fn a_checkpoint_without_fsync_has_in_the_roots_what_was_written_before_it() {
    in_a_server(|| {
        restart_without_fsync();
        process(|| {
            let file = create("16401");
            write(file, 0, &[page(1), page(2)]).unwrap();
        });
        process(|| {
            be_checkpointer();
            open_control_file().unwrap();
            end();
        });
        // What no root has is not taken over by a server with fsync.
        restart();
        process(|| assert!(read(open("16401"), 0, 2).unwrap() == [page(1), page(2)]));
    });
}

/// Pages of a file that the kernel has to write yet; `None`: it does not say.
fn dirty_pages(path: &std::path::Path) -> Option<u64> {
    use std::os::fd::AsRawFd;
    const CACHESTAT: i64 = 451;
    let file = std::fs::File::open(path).unwrap();
    let (range, mut found) = ([0u64; 2], [0u64; 5]);
    // SAFETY: two numbers are read and five written; a kernel before 6.5 knows no such call.
    let done = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0) };
    let [_, dirty, writeback, ..] = found;
    (done == 0).then_some(dirty + writeback)
}

#[test]
fn what_was_written_before_a_crash_is_on_the_disk_after_an_fsync_though_it_was_opened_for_a_hint() {
    in_a_server(|| {
        process(|| {
            be_checkpointer();
            let file = create("16401");
            write(file, 0, &[page(1)]).unwrap();
            FRONT.sync(file).unwrap();
            write(file, 0, &[page(2)]).unwrap();
            end();
        });
        restart();
        process(|| {
            let container = real("16401").join("segment.pgshrink");
            if dirty_pages(&container).is_none_or(|dirty| dirty == 0) {
                // A kernel that does not say, or a disk that was faster.
                return;
            }
            // As recovery begins: a hint for each file, and then an fsync.
            let file = open("16401");
            FRONT.advise(file, 0, 1, Advice::WriteBack);
            assert_ne!(dirty_pages(&container), Some(0), "the hint alone is not to write");
            FRONT.sync(file).unwrap();
            assert_eq!(dirty_pages(&container), Some(0));
            end();
        });
    });
}
