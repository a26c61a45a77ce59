//! Real files, real locks, real memory: who is kept out, what is allocated, and what many open segments cost.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use pgshrink_cfs::slots::{Access, Evicted, Member, Segment, Slots};
use pgshrink_cfs::{Container, Error, Scratch, Stored};
use pgshrink_testkit::allocations;
use pgshrink_testkit::scratch::TempDir;

use super::*;
use crate::shell::{FileDevice, FileFolder, Pids, allocated_bytes, anonymous};
use crate::updates::Memory;

/// This very process, and others by what the kernel says of them.
#[derive(Clone, Copy)]
pub struct Running;

/// When a process started, in clock ticks. None: there is none.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may have spaces and parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

impl Host for Running {
    fn me(&self) -> ProcessName {
        let pid = std::process::id();
        ProcessName::new(pid, start_ticks(pid).unwrap()).unwrap()
    }

    fn is_running(&self, process: ProcessName) -> bool {
        start_ticks(process.pid()) == Some(process.start_ticks())
    }

    fn relax(&self) {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}

/// The same, where evicted segments' memory goes back to the kernel.
#[derive(Clone, Copy)]
struct Punching(&'static std::fs::File);

impl Host for Punching {
    fn me(&self) -> ProcessName {
        Running.me()
    }

    fn is_running(&self, process: ProcessName) -> bool {
        Running.is_running(process)
    }

    fn relax(&self) {
        Running.relax();
    }

    fn give_back(&self, words: std::ops::Range<usize>) -> bool {
        use rustix::fs::FallocateFlags as Flags;
        let (offset, length) = (words.start as u64 * 8, words.len() as u64 * 8);
        rustix::fs::fallocate(self.0, Flags::PUNCH_HOLE | Flags::KEEP_SIZE, offset, length).is_ok()
    }
}

fn join_punching(capacity: Capacity) -> (&'static std::fs::File, Member<'static, Punching, AtomicU64>) {
    let (memory, words) = anonymous(capacity.words());
    let memory: &'static std::fs::File = Box::leak(Box::new(memory));
    (memory, Member::enter(Slots::over(words, capacity).unwrap(), Punching(memory)).unwrap())
}

#[test]
fn the_memory_of_what_is_evicted_goes_back_to_the_kernel() {
    let files = files(2, 131_072);
    let capacity = Capacity { geometry: files.1.geometry, segments_max: 2, processes_max: 4 };
    let (memory, member) = join_punching(capacity);
    let mut handles = [0, 1].map(|relation| Segment::new(&member, key(relation)).unwrap());
    for handle in &mut handles {
        handle.pin(Access::Read, &files).unwrap().read(0, &mut Scratch::new()).unwrap();
    }
    let full = allocated_bytes(memory);
    assert!(full < 64 << 10, "{full} bytes for two segments of one page");
    assert_eq!(member.evict(&key(0)), Ok(Evicted::Done));
    let left = allocated_bytes(memory);
    assert!(left < full * 3 / 4, "{left} of {full} bytes are left");
    handles[0].pin(Access::Read, &files).unwrap().read(0, &mut Scratch::new()).unwrap();
    assert_eq!(allocated_bytes(memory), full);
}

#[test]
fn the_memory_of_a_busy_segments_idle_leaves_goes_back_to_the_kernel() {
    let files = files(1, 131_072);
    let capacity = Capacity { geometry: files.1.geometry, segments_max: 1, processes_max: 4 };
    let (memory, member) = join_punching(capacity);
    let mut handle = Segment::new(&member, key(0)).unwrap();
    let mut scratch = Scratch::new();
    let pinned = handle.pin(Access::Write, &files).unwrap();
    for block in 0..100 * 512 {
        pinned.write(block, 1, 0, &block.to_le_bytes(), &mut scratch).unwrap();
    }
    pinned.commit().unwrap();
    let full = allocated_bytes(memory);
    assert_eq!(pinned.unload_idle(), Ok(100), "nobody has read any");
    assert_eq!(full - allocated_bytes(memory), 100 * 4096);
    for block in 0..100 * 512 {
        let Stored::Record { payload, .. } = pinned.read(block, &mut scratch).unwrap() else { panic!() };
        assert_eq!(payload, block.to_le_bytes());
    }
    assert_eq!(pinned.unload_idle(), Ok(0), "all were read");
}

/// A server's files, locked by its number.
pub struct Server {
    pub root: PathBuf,
    pub number: u32,
    pub options: Options<'static>,
}

/// A folder whose files are the server's.
struct Of<'a>(&'a Server, FileFolder);

impl Folder for Of<'_> {
    type File = FileDevice;

    fn create(&self, name: &str) -> Result<FileDevice, DeviceError> {
        Ok(self.1.create(name)?.of_server(self.0.number))
    }

    fn open(&self, name: &str) -> Result<FileDevice, DeviceError> {
        Ok(self.1.open(name)?.of_server(self.0.number))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.1.rename(from, to)
    }

    fn unlink(&self, name: &str) -> Result<(), DeviceError> {
        self.1.unlink(name)
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        self.1.sync_dir()
    }
}

impl Server {
    pub fn folder_of(&self, key: &SegmentKey) -> PathBuf {
        self.root.join(key.relation.to_string())
    }

    pub fn create<'p>(
        &self,
        member: &'p Member<'static, Running, AtomicU64>,
        relation: u32,
        id: u64,
    ) -> Result<Segment<'p, 'static, FileDevice, Running, AtomicU64>, Error> {
        let folder = Of(self, FileFolder(self.folder_of(&key(relation))));
        Segment::create(member, key(relation), &folder, &birth(id), self, self.options)
    }
}

impl Opener<'static> for Server {
    type File = FileDevice;

    fn open(&self, key: &SegmentKey) -> Result<Opened<'static, FileDevice>, DeviceError> {
        let device = Of(self, FileFolder(self.folder_of(key))).open(segment::FILE_NAME)?;
        Ok(Opened { device, options: self.options, recovery: Recovery::Discard })
    }
}

fn join(capacity: Capacity) -> Member<'static, Running, AtomicU64> {
    let (_, words) = anonymous(capacity.words());
    Member::enter(Slots::over(words, capacity).unwrap(), Running).unwrap()
}

#[test]
fn another_server_is_kept_out_and_the_own_processes_are_not() {
    let scratch = TempDir::new().unwrap();
    let server = |number| Server { root: scratch.path().to_owned(), number, options: options() };
    std::fs::create_dir(scratch.path().join("7")).unwrap();
    let (ours, theirs) = (join(capacity(2, 4)), join(capacity(2, 4)));
    let mut handle = server(1).create(&ours, 7, 1).unwrap();
    handle.pin(Access::Write, &server(1)).unwrap().commit().unwrap();
    let mut other = Segment::new(&theirs, key(7)).unwrap();
    for access in [Access::Read, Access::Write] {
        assert_eq!(other.pin(access, &server(2)).map(drop), Err(Error::InUse));
    }
    // Evicted and opened again, beside a handle that still has the file open and locked.
    let mut beside = Segment::new(&ours, key(7)).unwrap();
    assert_eq!(ours.evict(&key(7)), Ok(Evicted::Done));
    beside.pin(Access::Write, &server(1)).unwrap().commit().unwrap();
    assert_eq!(other.pin(Access::Write, &server(2)).map(drop), Err(Error::InUse));
    handle.pin(Access::Write, &server(1)).unwrap().commit().unwrap();
    // A command that reads is in nobody's way, and one that writes is kept out.
    let path = FileFolder(scratch.path().join("7"));
    let reads = path.open(segment::FILE_NAME).unwrap();
    use pgshrink_cfs::{Device, LockMode};
    assert_eq!(reads.try_lock(LockMode::Shared), Ok(true));
    assert_eq!(ours.evict(&key(7)), Ok(Evicted::Done));
    drop((handle, beside));
    let mut anew = Segment::new(&ours, key(7)).unwrap();
    anew.pin(Access::Write, &server(1)).unwrap().commit().unwrap();
    assert_eq!(path.open(segment::FILE_NAME).unwrap().try_lock(LockMode::Exclusive), Ok(false));
    drop((reads, anew));
    // The lock has died with its owners.
    other.pin(Access::Write, &server(2)).unwrap().commit().unwrap();
}

#[test]
fn a_command_that_writes_is_waited_for_and_not_for_ever() {
    let scratch = TempDir::new().unwrap();
    let server = Server { root: scratch.path().to_owned(), number: 1, options: options() };
    std::fs::create_dir(scratch.path().join("7")).unwrap();
    let member = join(capacity(2, 4));
    server.create(&member, 7, 1).unwrap().pin(Access::Write, &server).unwrap().commit().unwrap();
    assert_eq!(member.evict(&key(7)), Ok(Evicted::Done));
    let open = || FileFolder(scratch.path().join("7")).open(segment::FILE_NAME).unwrap();
    let words: Vec<AtomicU64> = (0..options().geometry.words()).map(|_| AtomicU64::new(0)).collect();
    use pgshrink_cfs::{Device, LockMode};
    let (command, _) = Container::open(open(), Pids, &words, Recovery::Discard, options()).unwrap();
    command.close().unwrap();
    drop(command);
    let file = open();
    assert_eq!(file.try_lock(LockMode::Exclusive), Ok(true));
    let host = Ending { command: RefCell::new(None), waits: Cell::new(0) };
    let (_, memory) = anonymous(capacity(2, 4).words());
    let waits = Member::enter(Slots::over(memory, capacity(2, 4)).unwrap(), &host).unwrap();
    let mut handle = Segment::new(&waits, key(7)).unwrap();
    assert_eq!(handle.pin(Access::Read, &server).map(drop), Err(Error::InUse));
    assert_eq!(host.waits.replace(0), 500);
    host.command.replace(Some(file));
    handle.pin(Access::Read, &server).unwrap();
    assert_eq!(host.waits.get(), 3);
}

/// A process during whose third wait a command ends.
struct Ending {
    command: RefCell<Option<FileDevice>>,
    waits: Cell<u32>,
}

impl Host for Ending {
    fn me(&self) -> ProcessName {
        Running.me()
    }

    fn is_running(&self, process: ProcessName) -> bool {
        Running.is_running(process)
    }

    fn relax(&self) {
        self.waits.set(self.waits.get() + 1);
        if self.waits.get() == 3 {
            drop(self.command.take());
        }
    }
}

/// Files in memory.
struct Files(&'static [Memory], Options<'static>);

impl Opener<'static> for Files {
    type File = &'static Memory;

    fn open(&self, key: &SegmentKey) -> Result<Opened<'static, &'static Memory>, DeviceError> {
        let device = &self.0[key.relation as usize];
        Ok(Opened { device, options: self.1, recovery: Recovery::Discard })
    }
}

fn files(count: u32, pages_max: u32) -> Files {
    let options = Options::new(pages_max);
    let files: &'static [Memory] = Vec::leak((0..count).map(|_| Memory::default()).collect());
    let words: Vec<AtomicU64> = (0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect();
    for (id, file) in (0..).zip(files) {
        let container =
            Container::create(file, pgshrink_cfs::device::Alone, &words, &birth(id), options).unwrap();
        container.write(0, 1, 0, &[7; 3000], &mut Scratch::new()).unwrap();
        container.close().unwrap();
    }
    Files(files, options)
}

/// What a call may do in a critical section is what allocates nothing.
#[test]
fn reading_writing_truncating_and_pinning_allocate_nothing() {
    let files = files(1, 512);
    let member = join(Capacity { geometry: files.1.geometry, segments_max: 4, processes_max: 4 });
    let mut handle = Segment::new(&member, key(0)).unwrap();
    let mut scratch = Scratch::new();
    handle.pin(Access::Write, &files).unwrap().write(1, 1, 0, &[5; 4000], &mut scratch).unwrap();
    // What the file in memory allocates is not the engine's.
    handle.pin(Access::Write, &files).unwrap().write(300, 1, 0, &[5; 8000], &mut scratch).unwrap();
    let counted = |what: &str, allowed: usize, work: &mut dyn FnMut()| {
        let before = allocations::count();
        work();
        let found = allocations::count() - before;
        println!("{what}: {found} allocations");
        assert!(found <= allowed, "{what}: {found} allocations");
    };
    counted("pin and size", 0, &mut || drop(handle.pin(Access::Read, &files).map(|pinned| pinned.pages())));
    counted("read", 0, &mut || {
        handle.pin(Access::Read, &files).unwrap().read(1, &mut scratch).unwrap();
    });
    counted("extend", 0, &mut || handle.pin(Access::Write, &files).unwrap().extend(400).unwrap());
    counted("write zeros", 0, &mut || handle.pin(Access::Write, &files).unwrap().write_zeros(3).unwrap());
    counted("truncate", 0, &mut || handle.pin(Access::Write, &files).unwrap().truncate(4).unwrap());
    // One for each time that the file in memory grows.
    counted("write", 2, &mut || {
        handle.pin(Access::Write, &files).unwrap().write(2, 1, 0, &[5; 4000], &mut scratch).unwrap();
    });
    counted("commit", 100, &mut || assert!(handle.pin(Access::Write, &files).unwrap().commit().is_ok()));
    counted("invalidate", 0, &mut || assert_eq!(member.invalidate(&key(0)), Ok(true)));
}
