//! Memory of open compressed relations: of the region that all processes share, and of a backend.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use pgshrink_testkit::{Server, wait_until};

use super::{Compressed, on_each_major};

/// Bytes of the region that a small segment has in use at most, its share of what does not grow included.
const SEGMENT_BYTES_MAX: u64 = 48 << 10;
/// Bytes of the region before any segment is open: its head, and the table of slots and processes.
const REGION_BYTES_MAX: u64 = 8 << 20;

/// Bytes of a server's region that are in memory, whichever process has touched them.
fn region_bytes(server: &Compressed) -> u64 {
    let postmaster = server.cluster.pid().unwrap();
    let files = fs::read_dir(format!("/proc/{postmaster}/fd")).unwrap().map(|entry| entry.unwrap().path());
    let is_region = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("memfd:pgshrink-cfs"))
    };
    let region = files.into_iter().find(is_region).expect("the postmaster has the region open");
    fs::metadata(region).unwrap().blocks() * 512
}

/// Relations of a page in a tablespace.
fn make(server: &Compressed, name: &str, tablespace: &str, count: u32) {
    server.sql(&format!(
        "set synchronous_commit = off;
        do $$ begin for i in 1..{count} loop
        execute format('create table {name}_%s tablespace {tablespace} as select i as n from generate_series(1, 100) i', i);
        end loop; end $$; checkpoint"
    ));
}

/// Reads every relation in one backend, and has the backend wait until its own memory was read: bytes that are its own.
fn backend_bytes(server: &Compressed, name: &str, count: u32) -> u64 {
    let printed = server.sql(&format!(
        "do $$ declare s bigint := 0; m bigint; begin for i in 1..{count} loop
        execute format('select sum(n) from {name}_%s', i) into m; s := s + m; end loop;
        if s <> {count} * 5050::bigint then raise exception '% of {count}', s; end if; end $$;
        select pg_read_file('/proc/self/smaps_rollup')"
    ));
    let line = printed.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect(&printed);
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn memory_is_bounded_by_the_setting_and_not_by_the_number_of_relations() {
    const RELATIONS: u32 = 300;
    const SEGMENTS: u64 = 64;
    Server::each_with_extensions("memory of open segments", &super::MAJORS, |binaries| {
        let settings = [("cfs.max_open_segments", "64"), ("max_locks_per_transaction", "256")];
        let server = Compressed::start(binaries, &settings);
        make(&server, "many", "fast", RELATIONS);
        backend_bytes(&server, "many", RELATIONS);
        let bytes = region_bytes(&server);
        assert!(bytes <= REGION_BYTES_MAX + SEGMENTS * SEGMENT_BYTES_MAX, "{bytes}");
    });
}

#[test]
fn the_region_is_given_back_after_the_crash_of_a_backend() {
    const RELATIONS: u32 = 300;
    on_each_major("memory after a crash", |server| {
        server.cluster.set_conf("max_locks_per_transaction", "256").unwrap();
        // Recovery would open every file to sync it, and a dispatcher to see what it holds: they would be open again.
        server.cluster.set_conf("recovery_init_sync_method", "syncfs").unwrap();
        server.cluster.set_conf("cfs.convert", "off").unwrap();
        server.cluster.restart().unwrap();
        make(server, "many", "fast", RELATIONS);
        backend_bytes(server, "many", RELATIONS);
        // Nor does redo open one: the first to read a page sets hints, which are logged where pages have checksums.
        server.sql("checkpoint");
        let before = region_bytes(server);
        assert!(before >= u64::from(RELATIONS) * (16 << 10), "{before}");
        // It ends itself: the shell is its child.
        let killed = server.cluster.sql("copy (select 1) to program 'kill -9 $PPID'");
        killed.expect_err("the backend is gone");
        let is_over = || server.cluster.log().unwrap().contains("reinitializing");
        wait_until(Duration::from_secs(60), "the others to be terminated", is_over).unwrap();
        let is_back = || server.cluster.sql("select 1").is_ok();
        wait_until(Duration::from_secs(60), "the server to be back", is_back).unwrap();
        let after = region_bytes(server);
        assert!(after < before / 2, "{after} of {before}");
        // And all is as it was.
        backend_bytes(server, "many", RELATIONS);
    });
}

/// Makes the table of docs/operating/cfs.md.
#[test]
#[ignore = "minutes: ten thousand relations"]
fn memory_at_a_thousand_and_ten_thousand_open_relations() {
    Server::each_with_extensions("memory of many relations", &super::MAJORS, |binaries| {
        // Enough for each backend to keep all files open.
        let files = [("max_files_per_process", "12000"), ("max_locks_per_transaction", "256")];
        let settings = [files[0], files[1], ("shared_buffers", "512MB"), ("cfs.max_open_segments", "12000")];
        let server = Compressed::start(binaries, &settings);
        let empty = region_bytes(&server);
        for (name, tablespace) in [("plain", "pg_default"), ("many", "fast")] {
            make(&server, name, tablespace, 10_000);
        }
        server.cluster.restart().unwrap();
        for count in [1_000, 10_000] {
            let plain = backend_bytes(&server, "plain", count);
            let ours = backend_bytes(&server, "many", count);
            let region = region_bytes(&server) - empty;
            let (segment, more) = (region / u64::from(count), ours.saturating_sub(plain));
            println!(
                "{}, {count} relations: region {} kB, {segment} bytes a segment; a backend has {} kB with plain relations and \
                 {} kB with compressed ones, {} bytes more for each",
                server.cluster.server().version,
                region >> 10,
                plain >> 10,
                ours >> 10,
                more / u64::from(count)
            );
            assert!(segment <= SEGMENT_BYTES_MAX, "{segment}");
            // The codecs of the process, and what it knows of each file.
            assert!(more <= (16 << 20) + u64::from(count) * 2048, "{more}");
        }
    });
}

/// A setting of the machine, which has its old value again afterwards.
struct Kernel(&'static str, String);

impl Kernel {
    fn set(path: &'static str, value: &str) -> Option<Kernel> {
        let before = fs::read_to_string(path).ok()?;
        fs::write(path, value).ok()?;
        Some(Kernel(path, before))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        fs::write(self.0, &self.1).unwrap();
    }
}

#[test]
#[ignore = "changes a setting of the whole machine for a minute"]
fn a_server_works_where_memory_is_not_promised_twice() {
    let ratio = Kernel::set("/proc/sys/vm/overcommit_ratio", "95");
    let Some(_strict) = Kernel::set("/proc/sys/vm/overcommit_memory", "2") else {
        pgshrink_testkit::left_out("strict overcommit", "vm.overcommit_memory cannot be set here");
        return;
    };
    on_each_major("strict overcommit", |server| {
        make(server, "many", "fast", 100);
        backend_bytes(server, "many", 100);
        server.cluster.restart().unwrap();
        backend_bytes(server, "many", 100);
        assert!(!server.cluster.log().unwrap().contains("Cannot allocate memory"));
    });
    drop(_strict);
    drop(ratio);
}
