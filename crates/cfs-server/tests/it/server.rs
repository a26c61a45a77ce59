//! A server without SQL: a process that makes the shared memory, and processes that it forks.
// Forks, and pages at addresses.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use pgshrink_cfs_server::server::{Config, begin, set, start};
use pgshrink_cfs_server::setting::Setting;
use pgshrink_cfs_server::{Room, ServerFront};
use pgshrink_codec::Algorithm;
use pgshrink_interpose::{Errno, Front, Page, PagesToRead, PagesToWrite};
use pgshrink_testkit::TempDir;

pub const VERSION: &str = "PG_15_202209061";
pub const TABLESPACE: u32 = 16400;
/// One without a setting.
pub const PLAIN_TABLESPACE: u32 = 16500;
pub static FRONT: ServerFront = ServerFront;

static IS_CHECKPOINTER: AtomicBool = AtomicBool::new(false);
static IS_FSYNC_ON: AtomicBool = AtomicBool::new(true);

/// Runs a server of its own, in a data directory of its own; the test fails if the server panics.
pub fn in_a_server(test: impl FnOnce()) {
    let scratch = TempDir::new().unwrap();
    let root = scratch.path().to_owned();
    let code = exit_code_of(|| {
        make_directories(&root);
        std::env::set_current_dir(&root).unwrap();
        boot();
        test();
    });
    assert_eq!(code, 0, "the server failed (-1: by a signal)");
}

/// Runs a server with the data directory of another one: `beside` while `first` waits in the function that it is given,
/// and `after` when `first` has ended.
pub fn in_two_servers(first: impl FnOnce(&dyn Fn()), beside: impl FnOnce(), after: impl FnOnce()) {
    let scratch = TempDir::new().unwrap();
    let root = scratch.path().to_owned();
    let ended = forked(|| {
        make_directories(&root);
        std::env::set_current_dir(&root).unwrap();
        let (go, ready, done) = (Pipe::new(), Pipe::new(), Pipe::new());
        // SAFETY: the child runs the closure and ends without returning into the test's threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            go.wait();
            let run = std::panic::AssertUnwindSafe(|| {
                boot();
                first(&|| {
                    ready.send();
                    done.wait();
                });
            });
            let failed = std::panic::catch_unwind(run).is_err();
            // Nobody waits for one that failed.
            ready.send();
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(failed)) }
        }
        boot();
        go.send();
        ready.wait();
        beside();
        done.send();
        let mut status = 0;
        // SAFETY: a child of this process, and a number to be written to.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0, "the first server failed");
        after();
    });
    assert!(ended, "the server failed");
}

/// A way to wait for another process.
struct Pipe([i32; 2]);

impl Pipe {
    fn new() -> Pipe {
        let mut ends = [0; 2];
        // SAFETY: an array of two numbers.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        Pipe(ends)
    }

    fn send(&self) {
        // SAFETY: a buffer of one byte.
        unsafe { libc::write(self.0[1], [0u8].as_ptr().cast(), 1) };
    }

    fn wait(&self) {
        // SAFETY: a buffer of one byte.
        unsafe { libc::read(self.0[0], [0u8].as_mut_ptr().cast(), 1) };
    }
}

fn make_directories(root: &Path) {
    let location = root.join("location").join(VERSION).join("5");
    std::fs::create_dir_all(&location).unwrap();
    std::fs::create_dir_all(root.join("base/5")).unwrap();
    std::fs::write(root.join("base/5/PG_VERSION"), "15\n").unwrap();
    std::fs::create_dir(root.join("pg_tblspc")).unwrap();
    std::os::unix::fs::symlink(root.join("location"), root.join("pg_tblspc/16400")).unwrap();
    std::fs::create_dir_all(root.join("plain").join(VERSION).join("5")).unwrap();
    std::os::unix::fs::symlink(root.join("plain"), root.join("pg_tblspc/16500")).unwrap();
}

fn boot() {
    let config = Config {
        version: VERSION.into(),
        room: Room { segments_max: 64, processes_max: 32 },
        backend_memory: 8 << 20,
        dirty_pages_max: 128,
        reserve_bytes_max: 8 << 20,
        limit_percent: 100,
        is_checkpointer: || IS_CHECKPOINTER.load(Ordering::Relaxed),
        files_max: 1000,
        is_fsync_on: || IS_FSYNC_ON.load(Ordering::Relaxed),
        is_last: || IS_CHECKPOINTER.load(Ordering::Relaxed),
        is_redo: || false,
        is_recovering: || false,
        is_postmaster: true,
        tool: None,
    };
    start(config).unwrap();
    restart();
}

/// As after a crash of a process: all others have ended.
pub fn restart() {
    restart_as(true);
}

/// The same of a server that runs without fsync.
pub fn restart_without_fsync() {
    restart_as(false);
}

fn restart_as(fsync: bool) {
    IS_FSYNC_ON.store(fsync, Ordering::Relaxed);
    begin(fsync).unwrap();
    set(TABLESPACE, setting(false)).unwrap();
}

/// Compressed, and encrypted or not.
pub fn setting(is_encrypted: bool) -> Setting {
    Setting { compression: Some(Algorithm::Zstd.into()), is_encrypted }
}

/// Runs a process of the server to its end; whether it ended well.
pub fn process(work: impl FnOnce()) {
    let work = || {
        IS_CHECKPOINTER.store(false, Ordering::Relaxed);
        work();
    };
    assert!(forked(work), "a process of the server failed");
}

/// From now on this process is the checkpointer.
pub fn be_checkpointer() {
    IS_CHECKPOINTER.store(true, Ordering::Relaxed);
}

/// What the checkpointer does at a checkpoint's end.
pub fn open_control_file() -> Result<(), Errno> {
    FRONT.open(c"/data/global/pg_control", libc::O_RDWR, 0).map_or(Ok(()), |opened| opened.map(drop))
}

fn forked(work: impl FnOnce()) -> bool {
    exit_code_of(work) == 0
}

/// Runs a process to its end; its exit code.
pub fn exit_code_of(work: impl FnOnce()) -> i32 {
    // SAFETY: the child runs the closure and ends without returning into the test's threads.
    match unsafe { libc::fork() } {
        0 => {
            // What a test prints is kept in the process that prints it, which ends here.
            std::panic::set_hook(Box::new(|panic| {
                let text = format!("process {}: {panic}\n", std::process::id());
                // SAFETY: bytes that are borrowed for the call.
                unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
            }));
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // As a server's process: handlers of exit run.
            unsafe { libc::exit(i32::from(done.is_err())) }
        }
        child => {
            let mut status = 0;
            // SAFETY: a child of this process, and a number to be written to.
            unsafe { libc::waitpid(child, &mut status, 0) };
            if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
        }
    }
}

/// A path in the tablespace's directory of database 5.
pub fn path(name: &str) -> CString {
    CString::new(format!("pg_tblspc/{TABLESPACE}/{VERSION}/5/{name}")).unwrap()
}

pub fn real(name: &str) -> PathBuf {
    PathBuf::from(format!("location/{VERSION}/5/{name}"))
}

pub fn create(name: &str) -> i32 {
    FRONT.open(&path(name), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600).unwrap().unwrap()
}

pub fn open(name: &str) -> i32 {
    FRONT.open(&path(name), libc::O_RDWR, 0).unwrap().unwrap()
}

pub fn close(descriptor: i32) {
    FRONT.close(descriptor);
    // SAFETY: given by the front, closed once.
    unsafe { libc::close(descriptor) };
}

pub fn write(descriptor: i32, first: u32, pages: &[Page]) -> Result<u32, Errno> {
    let buffers = [libc::iovec { iov_base: pages.as_ptr().cast_mut().cast(), iov_len: size_of_val(pages) }];
    // SAFETY: the buffers are borrowed for the call.
    FRONT.write(descriptor, first, &mut unsafe { PagesToWrite::over(&buffers) }.unwrap())
}

pub fn read(descriptor: i32, first: u32, count: usize) -> Result<Vec<Page>, Errno> {
    let mut pages = vec![[0xee; _]; count];
    let buffers = [libc::iovec { iov_base: pages.as_mut_ptr().cast(), iov_len: size_of_val(&pages[..]) }];
    // SAFETY: the buffers are borrowed for the call, and nobody else uses them.
    let got = FRONT.read(descriptor, first, &mut unsafe { PagesToRead::over(&buffers) }.unwrap())?;
    pages.truncate(got as usize);
    Ok(pages)
}

/// A page that compresses a little, different for every seed.
pub fn page(seed: u32) -> Page {
    let mut state = u64::from(seed) + 1;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        b"abcdefgh"[(state >> 61) as usize]
    })
}
