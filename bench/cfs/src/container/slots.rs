//! What open segments of a server cost: shared memory, page tables, address space, and time.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use pgshrink_bench_report::{Result, Table, Unit};
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::slots::{
    Access, Capacity, Host, Member, Opened, Opener, ProcessName, Segment, SegmentKey, Slots,
};
use pgshrink_cfs::{
    Birth, DeviceError, Folder, Geometry, Identity, KEY_BYTES, Options, PAGES_MAX, Recovery, Scratch, segment,
};
use pgshrink_testkit::TempDir;

use crate::shell::{FileDevice, FileFolder, allocated_bytes, anonymous};

const SEGMENTS_MAX: u32 = 10_000;
const PAYLOAD: [u8; 3000] = [7; 3000];
const HITS: u32 = 1_000_000;

/// This process, alone in its server. The memory of what is evicted goes back to the kernel.
#[derive(Clone, Copy)]
struct Server<'a>(&'a File);

impl Host for Server<'_> {
    fn me(&self) -> ProcessName {
        ProcessName::new(std::process::id(), 1).unwrap_or_else(|_| unreachable!("a process id is below 2^22"))
    }

    fn is_running(&self, process: ProcessName) -> bool {
        process.pid() == std::process::id()
    }

    fn relax(&self) {
        std::thread::sleep(Duration::from_micros(50));
    }

    fn give_back(&self, words: Range<usize>) -> bool {
        use rustix::fs::FallocateFlags as Flags;
        let (offset, length) = (words.start as u64 * 8, words.len() as u64 * 8);
        rustix::fs::fallocate(self.0, Flags::PUNCH_HOLE | Flags::KEEP_SIZE, offset, length).is_ok()
    }
}

/// A folder for each segment.
struct Segments(PathBuf);

impl Segments {
    fn folder(&self, key: &SegmentKey) -> FileFolder {
        FileFolder(self.0.join(key.relation.to_string()))
    }
}

impl Opener<'static> for Segments {
    type File = FileDevice;

    fn open(&self, key: &SegmentKey) -> std::result::Result<Opened<'static, FileDevice>, DeviceError> {
        let device = self.folder(key).open(segment::FILE_NAME)?;
        Ok(Opened { device, options: Options::new(PAGES_MAX), recovery: Recovery::Discard })
    }
}

fn key(relation: u32) -> SegmentKey {
    SegmentKey { tablespace: 1, database: 5, relation, fork: 0, segment: 0 }
}

/// One page in each.
fn create(folder: &Path) -> Result<Segments> {
    let segments = Segments(folder.to_owned());
    let words: Vec<AtomicU64> = (0..Geometry::of(PAGES_MAX).words()).map(|_| AtomicU64::new(0)).collect();
    for relation in 0..SEGMENTS_MAX {
        let home = segments.folder(&key(relation));
        std::fs::create_dir(&home.0)?;
        let id = (u128::from(relation) + 1).to_le_bytes();
        let birth = Birth { id, identity: Identity::default(), key: [0; KEY_BYTES] };
        let made = segment::create(&home, Alone, &words, &birth, Options::new(PAGES_MAX))?;
        made.write(0, 1, 0, &PAYLOAD, &mut Scratch::new())?;
        made.close()?;
    }
    Ok(segments)
}

/// Kilobytes that the kernel says this process has of something.
fn status(what: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find(|line| line.starts_with(what)).and_then(|line| line.split_whitespace().nth(1));
    Ok(line.ok_or("no such line in /proc/self/status")?.parse()?)
}

/// Opens so many segments in as many slots as there may be; a row for each step. Returns the bytes of memory
/// that are left at the end.
fn measure(table: &mut Table, opener: &Segments, segments: u32, segments_max: u32) -> Result<()> {
    let geometry = Geometry::of(PAGES_MAX);
    let capacity = Capacity { geometry, segments_max, processes_max: 1000 };
    let (space_before, tables_before) = (status("VmSize:")?, status("VmPTE:")?);
    let (memory, words) = anonymous(capacity.words());
    let member = Member::enter(Slots::over(words, capacity)?, Server(&memory))?;
    let space_mb = (status("VmSize:")? - space_before) / 1024.0;
    let mut handles: Vec<_> = (0..segments)
        .map(|relation| Segment::new(&member, key(relation)))
        .collect::<std::result::Result<_, _>>()?;
    let mut scratch = Scratch::new();
    let mut report = |what: &str, seconds: f64, times: u32| -> Result<()> {
        table.row([
            u64::from(segments).into(),
            u64::from(segments_max).into(),
            what.into(),
            (seconds * 1e6 / f64::from(times)).into(),
            u64::from(member.usage().segments).into(),
            (allocated_bytes(&memory) as f64 / 1e6).into(),
            ((status("VmPTE:")? - tables_before) / 1e3).into(),
            space_mb.into(),
        ]);
        Ok(())
    };
    let begun = Instant::now();
    for handle in &mut handles {
        handle.pin(Access::Read, opener)?.read(0, &mut scratch)?;
    }
    report("opened for reading, a page read", begun.elapsed().as_secs_f64(), segments)?;
    let begun = Instant::now();
    for handle in &mut handles {
        handle.pin(Access::Write, opener)?.write(0, 1, 0, &PAYLOAD, &mut scratch)?;
    }
    report("opened for writing, the page written", begun.elapsed().as_secs_f64(), segments)?;
    let begun = Instant::now();
    for _ in 0..HITS {
        std::hint::black_box(handles[segments as usize - 1].pin(Access::Read, opener)?.pages());
    }
    report("pinned while open", begun.elapsed().as_secs_f64(), HITS)?;
    for handle in &mut handles {
        handle.pin(Access::Write, opener)?.commit()?;
    }
    let begun = Instant::now();
    let evicted = member.evict_idle(0)?;
    report("evicted", begun.elapsed().as_secs_f64(), evicted)
}

/// A thousand and ten thousand segments of a gigabyte each, one page in use of each.
pub fn table() -> Result<Table> {
    let folder = TempDir::new()?;
    super::raise_descriptors()?;
    let about = "Segments of up to 1 GB, one page in use of each, opened by one process through slots. `slots`: as many as may be open at a time (`Capacity::segments_max`); where \
        there are fewer than segments, each opening evicts another, and commits it if it was written to. `memory`: what the kernel has allocated of the shared region; `page tables`: of \
        this process; `address space`: of the region, reserved once.";
    let columns = [
        ("segments", Unit::Count),
        ("slots", Unit::Count),
        ("each is", Unit::Text),
        ("us each", Unit::Ms),
        ("open", Unit::Count),
        ("memory, MB", Unit::Average),
        ("page tables, MB", Unit::Average),
        ("address space, MiB", Unit::Average),
    ];
    let mut table = Table::new("slots", "Open segments of a server", about, &columns);
    let segments = create(folder.path())?;
    measure(&mut table, &segments, 1000, 1000)?;
    measure(&mut table, &segments, SEGMENTS_MAX, SEGMENTS_MAX)?;
    measure(&mut table, &segments, SEGMENTS_MAX, 1000)?;
    Ok(table)
}
