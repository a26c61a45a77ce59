//! Files as the hooks see them.
// The server's own calls on directories.
#![allow(unsafe_code)]

use std::ffi::CString;

use pgshrink_cfs_server::server::{begin, set};
use pgshrink_cfs_server::setting::Setting;
use pgshrink_cfs_server::{GUARD_NAME, Problem, RESERVE_NAME};
use pgshrink_interpose::{Errno, Front, Listed};

use crate::server::{
    FRONT, TABLESPACE, VERSION, close, create, in_a_server, in_two_servers, open, page, path, process, read,
    real, restart, restart_without_fsync, setting, write,
};

#[test]
fn pages_that_one_process_wrote_are_read_by_another_and_survive_a_restart_when_synced() {
    in_a_server(|| {
        let pages: Vec<_> = (0..300).map(page).collect();
        process(|| {
            let file = create("16401");
            assert_eq!(write(file, 0, &pages), Ok(300));
            FRONT.sync(file).unwrap();
            assert_eq!(write(file, 0, &[page(1000)]), Ok(1));
            close(file);
        });
        process(|| {
            let file = open("16401");
            assert_eq!(FRONT.pages(file), Ok(300));
            assert!(read(file, 0, 2) == Ok(vec![page(1000), page(1)]));
            assert!(read(file, 1, 299).unwrap() == pages[1..]);
            assert!(read(file, 299, 5).unwrap() == pages[299..]);
            assert_eq!(read(file, 300, 1), Ok(vec![]));
            close(file);
        });
        assert!(std::fs::metadata(real("16401/segment.pgshrink")).unwrap().len() < 300 * 8192 * 3 / 4);
        // What was not synced never was.
        restart();
        process(|| {
            let file = open("16401");
            assert!(read(file, 0, 300).unwrap() == pages);
        });
    });
}

#[test]
fn files_grow_by_writing_behind_the_end_and_by_being_extended() {
    in_a_server(|| {
        process(|| {
            let file = create("16401");
            assert_eq!(write(file, 5, &[page(5)]), Ok(1));
            FRONT.extend(file, 9).unwrap();
            FRONT.extend(file, 2).unwrap();
            assert_eq!(FRONT.pages(file), Ok(9));
            let read_back = read(file, 0, 9).unwrap();
            assert!(
                read_back
                    .iter()
                    .enumerate()
                    .all(|(at, found)| *found == if at == 5 { page(5) } else { [0; _] })
            );
            FRONT.truncate(file, 3).unwrap();
            assert_eq!(FRONT.pages(file), Ok(3));
            FRONT.truncate(file, 6).unwrap();
            assert!(read(file, 0, 9).unwrap() == vec![[0; 8192]; 6]);
            let attributes = FRONT.attributes(&path("16401")).unwrap().unwrap();
            assert_eq!(attributes.size, 6 * 8192);
        });
    });
}

#[test]
fn a_file_that_is_emptied_as_it_is_opened_is_empty() {
    in_a_server(|| {
        process(|| {
            let file = create("16401");
            write(file, 0, &[page(1), page(2)]).unwrap();
            for flags in [libc::O_RDWR | libc::O_TRUNC, libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC] {
                write(file, 0, &[page(1), page(2)]).unwrap();
                let again = FRONT.open(&path("16401"), flags, 0o600).unwrap().unwrap();
                assert_eq!((FRONT.pages(again), FRONT.pages(file)), (Ok(0), Ok(0)), "{flags:o}");
                close(again);
            }
        });
    });
}

#[test]
fn a_file_that_is_cut_by_name_is_cut_for_good() {
    in_a_server(|| {
        process(|| {
            let file = create("16401");
            write(file, 0, &(0..600).map(page).collect::<Vec<_>>()).unwrap();
            FRONT.sync(file).unwrap();
            // The server is dropping the relation, and wants the space now: the file goes with the next checkpoint.
            FRONT.truncate_path(&path("16401"), 0).unwrap().unwrap();
        });
        restart();
        process(|| assert_eq!(FRONT.pages(open("16401")), Ok(0)));
    });
}

#[test]
fn a_removed_file_reads_as_empty_through_old_descriptors_and_its_name_is_free() {
    in_a_server(|| {
        process(|| {
            let old = create("16401");
            write(old, 0, &[page(1)]).unwrap();
            FRONT.truncate_path(&path("16401"), 0).unwrap().unwrap();
            assert_eq!(FRONT.pages(old), Ok(0));
            FRONT.unlink(&path("16401")).unwrap().unwrap();
            assert!(!real("16401").exists());
            assert!(FRONT.attributes(&path("16401")).is_none());
            let new = create("16401");
            write(new, 0, &[page(2)]).unwrap();
            assert_eq!(read(old, 0, 1), Ok(vec![]));
            assert_eq!(FRONT.sync(old), Ok(()));
            assert_eq!(write(old, 0, &[page(3)]).map_err(|Errno(errno)| errno), Err(libc::EIO));
            assert!(read(new, 0, 2) == Ok(vec![page(2)]));
        });
    });
}

#[test]
fn a_directory_that_a_dead_process_left_counts_as_an_empty_file() {
    in_a_server(|| {
        process(|| {
            std::fs::create_dir(real("16401_fsm")).unwrap();
            assert_eq!(FRONT.attributes(&path("16401_fsm")).unwrap().unwrap().size, 0);
            let exclusive = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            assert_eq!(FRONT.open(&path("16401_fsm"), exclusive, 0o600), Some(Err(Errno(libc::EEXIST))));
            let file = open("16401_fsm");
            assert_eq!(FRONT.pages(file), Ok(0));
            write(file, 0, &[page(1)]).unwrap();
            assert!(read(file, 0, 2) == Ok(vec![page(1)]));
            // Nothing refers to a relation whose first file was not made, unless somebody removed it.
            std::fs::create_dir(real("16403")).unwrap();
            assert_eq!(FRONT.open(&path("16403"), libc::O_RDWR, 0), Some(Err(Errno(libc::ENOENT))));
            assert!(FRONT.open(&path("16403"), libc::O_RDWR | libc::O_CREAT, 0o600).unwrap().is_ok());
            std::fs::create_dir(real("16402_fsm")).unwrap();
            FRONT.unlink(&path("16402_fsm")).unwrap().unwrap();
            assert!(!real("16402_fsm").exists());
        });
    });
}

#[test]
fn a_damaged_page_is_one_that_the_server_refuses_and_an_error_to_those_who_copy() {
    in_a_server(|| {
        process(|| {
            let file = create("16401");
            let pages: Vec<_> = (0..20).map(page).collect();
            write(file, 0, &pages).unwrap();
            FRONT.sync(file).unwrap();
        });
        let container = real("16401/segment.pgshrink");
        let mut bytes = std::fs::read(&container).unwrap();
        // All behind the roots: the first pages' records are there, one after the other.
        bytes[12 << 10..].fill(0x55);
        std::fs::write(&container, bytes).unwrap();
        restart();
        process(|| {
            let file = open("16401");
            assert!(read(file, 0, 1) == Ok(vec![[0xff; _]]));
            let copying = FRONT.open(&path("16401"), libc::O_RDONLY, 0).unwrap().unwrap();
            assert_eq!(read(copying, 0, 1), Err(Errno(libc::EIO)));
            write(file, 0, &[page(100)]).unwrap();
            assert!(read(copying, 0, 1) == Ok(vec![page(100)]));
        });
    });
}

#[test]
fn a_container_that_does_not_open_can_be_sized_emptied_and_dropped() {
    in_a_server(|| {
        process(|| {
            for name in ["16401", "16402", "16403", "16404"] {
                let file = create(name);
                write(file, 0, &[page(1), page(2)]).unwrap();
                FRONT.sync(file).unwrap();
            }
        });
        restart();
        std::fs::write(real("16401/segment.pgshrink"), "something else").unwrap();
        std::fs::write(real("16402/segment.pgshrink"), vec![0x55; 100_000]).unwrap();
        std::fs::copy(real("16404/segment.pgshrink"), real("16403/segment.pgshrink")).unwrap();
        process(|| {
            // One page at least: an empty file would be read as a table without rows.
            for (name, pages) in [("16401", 1), ("16402", 1), ("16403", 2)] {
                let size = FRONT.attributes(&path(name)).unwrap().unwrap().size;
                assert_eq!(size, pages * 8192, "{name}");
                let file = open(name);
                assert_eq!(FRONT.pages(file), Ok(pages as u32), "{name}");
                assert!(read(file, 0, 1).unwrap() == [[0xff; _]], "{name}");
                assert!(write(file, 0, &[page(1)]).is_err(), "{name}");
                assert!(FRONT.access(&path(name), libc::F_OK).unwrap().is_ok());
            }
            FRONT.truncate_path(&path("16401"), 0).unwrap().unwrap();
            FRONT.unlink(&path("16401")).unwrap().unwrap();
            FRONT.unlink(&path("16402")).unwrap().unwrap();
            assert!(!real("16401").exists() && !real("16402").exists());
            let file = create("16401");
            write(file, 0, &[page(9)]).unwrap();
        });
    });
}

#[test]
fn plain_tablespaces_databases_own_directories_and_other_forks_stay_plain() {
    in_a_server(|| {
        process(|| {
            let creating = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            let is_ours = |name: &str| FRONT.open(&path(name), creating, 0o600).is_some();
            assert!(is_ours("16401") && is_ours("16401_fsm") && is_ours("16401.1"));
            for other in ["16401_vm", "16402_init", "t3_16403", "PG_VERSION", "pg_internal.init"] {
                assert!(!is_ours(other), "{other}");
            }
            // A later segment of a plain file.
            std::fs::write(real("16404"), "plain").unwrap();
            assert!(!is_ours("16404.1"));
            set(TABLESPACE, Setting::PLAIN).unwrap();
            assert!(!is_ours("16405"));
            // What is compressed stays so.
            close(open("16401"));
            set(TABLESPACE, setting(false)).unwrap();
            std::fs::write(real("PG_VERSION"), "15\n").unwrap();
            assert!(!is_ours("16406"));
        });
    });
}

#[test]
fn a_database_that_is_copied_here_stays_plain_before_its_version_file_is_there() {
    in_a_server(|| {
        process(|| {
            let creating = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            let source =
                |name: &str| assert!(FRONT.open(&CString::new(name).unwrap(), libc::O_RDONLY, 0).is_none());
            source("base/5/1259");
            assert!(FRONT.open(&path("1259"), creating, 0o600).is_none());
            // Another name: not a copy.
            assert!(FRONT.open(&path("1260"), creating, 0o600).is_some());
            std::fs::create_dir_all("base/6").unwrap();
            source("base/6/1261");
            assert!(FRONT.open(&path("1261"), creating, 0o600).is_some());
        });
    });
}

#[test]
fn listings_show_containers_as_files_and_hide_what_is_not_the_servers() {
    in_a_server(|| {
        process(|| {
            create("16401");
            let directory = CString::new(format!("pg_tblspc/{TABLESPACE}/{VERSION}/5")).unwrap();
            let number = FRONT.open_directory(&directory).unwrap();
            let listed = |name: &str, kind| FRONT.listed(number, &CString::new(name).unwrap(), kind);
            assert_eq!(listed("16401", libc::DT_DIR), Listed::File);
            assert_eq!(listed("16401", libc::DT_REG), Listed::Shown);
            assert_eq!(listed("16401_vm", libc::DT_REG), Listed::Shown);
            assert_eq!(listed(GUARD_NAME, libc::DT_REG), Listed::Hidden);
            assert_eq!(listed("else", libc::DT_DIR), Listed::Shown);
            let above =
                CString::new(format!("{}/location/{VERSION}", std::env::current_dir().unwrap().display()));
            let above = FRONT.open_directory(&above.unwrap()).unwrap();
            assert_eq!(
                FRONT.listed(above, &CString::new(RESERVE_NAME).unwrap(), libc::DT_REG),
                Listed::Hidden
            );
            assert_eq!(FRONT.listed(above, c"5", libc::DT_DIR), Listed::Shown);
            assert!(FRONT.open_directory(c"global").is_none());
        });
    });
}

#[test]
fn a_directory_is_removed_with_its_guard_and_keeps_it_while_files_are_left() {
    in_a_server(|| {
        process(|| {
            create("16401");
            assert!(real(GUARD_NAME).exists());
            let directory = CString::new(format!("pg_tblspc/{TABLESPACE}/{VERSION}/5")).unwrap();
            assert_eq!(FRONT.remove_directory(&directory), Some(Err(Errno(libc::ENOTEMPTY))));
            assert!(real(GUARD_NAME).exists());
            FRONT.unlink(&path("16401")).unwrap().unwrap();
            assert_eq!(FRONT.remove_directory(&directory), Some(Ok(())));
            assert!(!real("").exists());
        });
    });
}

#[test]
fn a_tablespaces_directory_is_removed_while_its_reserve_is_made_anew() {
    in_a_server(|| {
        process(|| {
            let directory = format!("pg_tblspc/{TABLESPACE}/{VERSION}");
            let _ = std::fs::remove_dir_all(&directory);
            let name = CString::new(directory.clone()).unwrap();
            for _ in 0..50 {
                std::fs::create_dir(&directory).unwrap();
                std::thread::scope(|scope| {
                    // Until the directory has gone.
                    let reserve = format!("{directory}/{RESERVE_NAME}");
                    std::fs::write(&reserve, "").unwrap();
                    scope.spawn(move || while std::fs::write(&reserve, "").is_ok() {});
                    assert_eq!(FRONT.remove_directory(&name), Some(Ok(())));
                });
            }
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(format!("{directory}/else"), "").unwrap();
            assert_eq!(FRONT.remove_directory(&name), Some(Err(Errno(libc::ENOTEMPTY))));
        });
    });
}

#[test]
fn another_servers_files_are_refused() {
    // A copy of the data directory, with the same links.
    in_two_servers(
        |other_goes_on| {
            process(|| {
                let file = create("16401");
                write(file, 0, &[page(1)]).unwrap();
                FRONT.sync(file).unwrap();
                other_goes_on();
            });
        },
        || {
            process(|| {
                let opened = FRONT.open(&path("16401"), libc::O_RDWR, 0).unwrap();
                assert_eq!(opened, Err(Errno(libc::EBUSY)));
                assert!(matches!(begin(true), Err(Problem::InUse { .. })));
            });
        },
        || {
            process(|| {
                let file = open("16401");
                assert!(read(file, 0, 1) == Ok(vec![page(1)]));
                assert_eq!(write(file, 0, &[page(2)]), Ok(1));
            });
        },
    );
}

#[test]
fn a_file_that_is_being_made_is_not_there_to_others_until_it_is_whole() {
    in_a_server(|| {
        let mut others = Vec::new();
        for _ in 0..4 {
            // SAFETY: the child ends by itself.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // Each asks for files that the parent makes meanwhile.
                let done = std::panic::catch_unwind(|| {
                    for number in 0..200 {
                        let name = format!("{}", 16401 + number);
                        let descriptor = loop {
                            match FRONT.open(&path(&name), libc::O_RDWR, 0) {
                                Some(opened) => break opened.unwrap(),
                                None => std::thread::yield_now(),
                            }
                        };
                        // The count comes first: for a moment a new page reads as zeros, as in any file that grows.
                        let found = loop {
                            match read(descriptor, 0, 1).unwrap() {
                                found if found.is_empty() || found == [[0; _]] => std::thread::yield_now(),
                                found => break found,
                            }
                        };
                        assert!(found == [page(number)]);
                        close(descriptor);
                    }
                });
                // SAFETY: takes a number.
                unsafe { libc::_exit(i32::from(done.is_err())) }
            }
            others.push(child);
        }
        process(|| {
            for number in 0..200 {
                let file = create(&format!("{}", 16401 + number));
                write(file, 0, &[page(number)]).unwrap();
                close(file);
            }
        });
        for child in others {
            let mut status = 0;
            // SAFETY: a child of this process, and a number to be written to.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0);
        }
    });
}

#[test]
fn an_existing_plain_file_stays_plain_when_it_is_opened_to_be_made() {
    in_a_server(|| {
        process(|| {
            std::fs::write(real("16401"), "plain").unwrap();
            assert!(FRONT.open(&path("16401"), libc::O_RDWR | libc::O_CREAT, 0o600).is_none());
            assert!(FRONT.attributes(&path("16401")).is_none());
            assert!(FRONT.unlink(&path("16401")).is_none());
        });
    });
}

#[test]
fn what_dead_processes_left_is_not_listed_and_goes_with_the_directory() {
    in_a_server(|| {
        process(|| {
            let leftover = |name: &str| {
                std::fs::create_dir_all(real(name)).unwrap();
                std::fs::write(real(name).join("segment.pgshrink"), "half").unwrap();
            };
            let own = std::process::id();
            for name in [format!("16401.pgshrink-new.{own}"), format!("16401.pgshrink-old.{own}")] {
                leftover(&name);
            }
            // Of a process with the same id.
            let file = create("16401");
            write(file, 0, &[page(1)]).unwrap();
            FRONT.unlink(&path("16401")).unwrap().unwrap();
            leftover("16402.pgshrink-new.77");
            let directory = CString::new(format!("pg_tblspc/{TABLESPACE}/{VERSION}/5")).unwrap();
            let number = FRONT.open_directory(&directory).unwrap();
            assert_eq!(FRONT.listed(number, c"16402.pgshrink-new.77", libc::DT_DIR), Listed::Hidden);
            assert_eq!(FRONT.remove_directory(&directory), Some(Ok(())));
        });
    });
}

#[test]
fn what_dead_processes_left_goes_at_the_next_start_and_containers_stay() {
    in_a_server(|| {
        process(|| {
            let file = create("16401");
            write(file, 0, &[page(1)]).unwrap();
            FRONT.sync(file).unwrap();
            for name in ["16402.pgshrink-new.77", "16403_fsm.1.pgshrink-old.4194303"] {
                std::fs::create_dir(real(name)).unwrap();
                std::fs::write(real(name).join("segment.pgshrink"), "whole or half").unwrap();
            }
        });
        restart();
        let left = std::fs::read_dir(real("16401").parent().unwrap()).unwrap();
        let left =
            left.map(|entry| entry.unwrap().file_name()).filter(|name| name.to_str() != Some(GUARD_NAME));
        assert_eq!(left.collect::<Vec<_>>(), ["16401"]);
        process(|| assert!(read(open("16401"), 0, 1) == Ok(vec![page(1)])));
    });
}

#[test]
fn a_tablespaces_directory_goes_while_a_worker_fills_its_reserve() {
    in_a_server(|| {
        process(|| {
            let version = std::path::Path::new("pg_tblspc").join(TABLESPACE.to_string()).join(VERSION);
            let directory = CString::new(version.to_str().unwrap()).unwrap();
            let is_over = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        let _ = std::fs::write(version.join(RESERVE_NAME), "reserve");
                    }
                });
                let is_removed = |_: &u32| {
                    std::fs::create_dir_all(&version).unwrap();
                    let _ = std::fs::remove_dir(version.join("5"));
                    FRONT.remove_directory(&directory) == Some(Ok(()))
                };
                let removed = (0..300).filter(is_removed).count();
                is_over.store(true, std::sync::atomic::Ordering::Relaxed);
                assert_eq!(removed, 300);
            });
        });
    });
}

#[test]
fn a_container_that_lost_its_name_with_the_power_counts_as_an_empty_file() {
    in_a_server(|| {
        process(|| {
            // The directory's name was durable, the one in it was not.
            std::fs::create_dir(real("16401_fsm")).unwrap();
            std::fs::write(real("16401_fsm").join("segment.pgshrink-new"), "half").unwrap();
            assert_eq!(FRONT.attributes(&path("16401_fsm")).unwrap().unwrap().size, 0);
            let file = open("16401_fsm");
            write(file, 0, &[page(1)]).unwrap();
            assert!(read(file, 0, 2) == Ok(vec![page(1)]));
            assert!(!real("16401_fsm").join("segment.pgshrink-new").exists());
        });
    });
}

#[test]
fn a_server_without_fsync_loses_nothing_when_its_processes_die() {
    in_a_server(|| {
        restart_without_fsync();
        let pages: Vec<_> = (0..50).map(page).collect();
        for round in 0..3 {
            process(|| {
                let file = if round == 0 { create("16401") } else { open("16401") };
                write(file, 0, &pages).unwrap();
                write(file, round, &[page(1000 + round)]).unwrap();
                // SAFETY: takes a number. As a kill: nothing is closed.
                unsafe { libc::_exit(0) }
            });
            restart_without_fsync();
            process(|| {
                // By its name before it is opened, as a base backup asks.
                assert_eq!(FRONT.attributes(&path("16401")).unwrap().unwrap().size, 50 * 8192);
                let file = open("16401");
                let found = read(file, 0, 60).unwrap();
                assert_eq!(found.len(), 50);
                let expected = |at: u32| if at == round { page(1000 + round) } else { page(at) };
                assert!((0..50).all(|at| found[at as usize] == expected(at)));
            });
        }
    });
}
