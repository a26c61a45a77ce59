//! A filesystem that is really full: what must succeed from the reserve, and what fails for want of space.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::reserve::{Reserve, Rules, bytes_for_commits, bytes_for_pages};
use pgshrink_cfs::{
    Birth, Budget, Container, Error, Folder, Identity, KEY_BYTES, Options, Recovery, Scratch, Stored, segment,
};
use pgshrink_testkit::seed::Seed;
use pgshrink_testkit::{Kind, Missing, TempDir, left_out, or_skip};

use crate::shell::{FileDevice, FileFolder, FileReserve, Held, starting};

const IMAGE_BYTES: u64 = 192 << 20;
const PAGES: u32 = 3000;
/// What a server's shared buffers are here.
const DIRTY_PAGES: u32 = 2000;

type Open = Container<'static, FileDevice, Alone>;

/// An ext4 filesystem of its own, in a file.
struct Filesystem {
    scratch: TempDir,
}

impl Filesystem {
    /// Makes the image; [`mount_image`](Self::mount_image) may still be more than a container's root may do.
    fn new() -> Result<Filesystem, Missing> {
        let lacking =
            |why: &str, kind| Missing::new("an ext4 of its own", why, "root and e2fsprogs").of(kind);
        if !rustix::process::geteuid().is_root() {
            return Err(lacking("mounting needs root", Kind::Privilege));
        }
        let made = Filesystem { scratch: TempDir::new().unwrap() };
        let image = made.scratch.path().join("image");
        File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).unwrap();
        std::fs::create_dir(made.root()).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-m", "0"]).arg(&image))
            .map_err(|why| lacking(&why, Kind::Program))?;
        Ok(made)
    }

    fn mount_image(&self) -> Result<(), String> {
        let image = self.scratch.path().join("image");
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(self.root()))
    }

    /// What was only in the page cache is gone afterwards.
    fn mount_again(&self) {
        run(Command::new("umount").arg(self.root())).unwrap();
        self.mount_image().unwrap();
    }

    fn root(&self) -> PathBuf {
        self.scratch.path().join("mounted")
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("-l").arg(self.root()));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = starting(|| command.spawn()).and_then(Child::wait_with_output);
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{name}: {stderr}")) }
}

/// Takes every block that is left.
fn fill_up(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        let bytes = vec![7; size];
        while file.write_all(&bytes).is_ok() {}
    }
    file.sync_all().unwrap();
}

/// A tablespace: two segments and a reserve.
struct Tablespace {
    root: PathBuf,
    reserve: Arc<FileReserve>,
}

impl Tablespace {
    fn new(root: &Path, rules: Rules) -> Tablespace {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(root.join("reserve"));
        let reserve = Arc::new(Reserve::new(Held(file.unwrap()), rules));
        Tablespace { root: root.to_owned(), reserve }
    }

    fn folder(&self, name: &str) -> Owned {
        Owned { folder: FileFolder(self.root.join(name)), reserve: self.reserve.clone() }
    }

    fn create(&self, name: &str) -> Open {
        std::fs::create_dir(self.root.join(name)).unwrap();
        let birth = Birth { id: [name.len() as u8; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
        segment::create(&self.folder(name), Alone, words(), &birth, Options::new(PAGES)).unwrap()
    }

    fn open(&self, name: &str) -> Open {
        let file = self.folder(name).open(segment::FILE_NAME).unwrap();
        Container::open(file, Alone, words(), Recovery::Discard, Options::new(PAGES)).unwrap().0
    }
}

/// A folder whose files draw on the reserve.
struct Owned {
    folder: FileFolder,
    reserve: Arc<FileReserve>,
}

impl Folder for Owned {
    type File = FileDevice;

    fn create(&self, name: &str) -> Result<FileDevice, pgshrink_cfs::DeviceError> {
        Ok(self.folder.create(name)?.with_reserve(&self.reserve))
    }

    fn open(&self, name: &str) -> Result<FileDevice, pgshrink_cfs::DeviceError> {
        Ok(self.folder.open(name)?.with_reserve(&self.reserve))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), pgshrink_cfs::DeviceError> {
        self.folder.rename(from, to)
    }

    fn unlink(&self, name: &str) -> Result<(), pgshrink_cfs::DeviceError> {
        self.folder.unlink(name)
    }

    fn sync_dir(&self) -> Result<(), pgshrink_cfs::DeviceError> {
        self.folder.sync_dir()
    }
}

fn words() -> &'static [AtomicU64] {
    let words = Options::new(PAGES).geometry.words();
    Vec::leak((0..words).map(|_| AtomicU64::new(0)).collect())
}

/// A page that does not compress.
fn payload(block: u32, generation: u64) -> Vec<u8> {
    Seed(generation << 32 | u64::from(block)).rng().bytes(8192)
}

/// What each page should be, by its last write that succeeded.
struct Pages {
    container: Open,
    generations: Vec<u64>,
}

impl Pages {
    fn new(container: Open) -> Pages {
        Pages { container, generations: Vec::new() }
    }

    fn write(&mut self, block: u32, generation: u64) -> Result<(), Error> {
        let mut scratch = Scratch::new();
        self.container.write(block, 0, 0, &payload(block, generation), &mut scratch)?;
        let length = self.generations.len().max(block as usize + 1);
        self.generations.resize(length, 0);
        self.generations[block as usize] = generation;
        Ok(())
    }

    fn check(&self) {
        assert_eq!(self.container.pages() as usize, self.generations.len());
        let mut scratch = Scratch::new();
        for (block, generation) in (0..).zip(&self.generations) {
            let Stored::Record { payload: found, .. } = self.container.read(block, &mut scratch).unwrap()
            else {
                panic!("block {block} reads as zeros")
            };
            assert!(found == payload(block, *generation), "block {block} is not generation {generation}");
        }
    }
}

fn is_full(result: &Result<(), Error>) -> bool {
    result.as_ref().is_err_and(Error::is_no_space)
}

fn budget() -> Budget {
    Budget { bytes: 1 << 20, garbage_percent: 1000 }
}

fn rules() -> Rules {
    let commit_bytes_max = commit_bytes_max();
    Rules::new(bytes_for_pages(DIRTY_PAGES.into()), bytes_for_commits(2, commit_bytes_max))
}

/// Of a segment of this size.
fn commit_bytes_max() -> u64 {
    let bench = crate::fixture::Bench::new(Options::new(PAGES));
    let container = bench.create(1);
    container.extend(PAGES).unwrap();
    container.commit_bytes_max()
}

#[test]
fn on_a_full_ext4_all_that_must_succeed_does_and_everything_reads_back() {
    const TEST: &str = "on_a_full_ext4_all_that_must_succeed_does_and_everything_reads_back";
    let filesystem = or_skip!(TEST, Filesystem::new());
    if let Err(why) = filesystem.mount_image() {
        return left_out(TEST, &why);
    }
    let root = filesystem.root();
    let space = Tablespace::new(&root, rules());
    assert_eq!(space.reserve.fill().unwrap(), rules().bytes());
    let (mut large, mut small) = (Pages::new(space.create("large")), Pages::new(space.create("small")));
    (0..PAGES - 100).for_each(|block| large.write(block, 1).unwrap());
    (0..200).for_each(|block| small.write(block, 1).unwrap());
    large.container.commit().unwrap();
    (0..50).for_each(|block| large.write(block, 2).unwrap());
    fill_up(&root.join("ballast"));

    let grown = (PAGES - 100..PAGES).map(|block| large.write(block, 1)).find(Result::is_err);
    assert!(grown.is_some_and(|refused| is_full(&refused)));
    assert_eq!(space.reserve.held().unwrap(), rules().bytes(), "growing drew on the reserve");
    small.container.commit().unwrap();
    large.container.commit().unwrap();

    // A checkpoint that writes all shared buffers.
    (0..DIRTY_PAGES - 150).for_each(|block| large.write(block, 3).unwrap());
    (0..150).for_each(|block| small.write(block, 3).unwrap());
    large.container.commit().unwrap();
    small.container.commit().unwrap();
    println!("after a checkpoint the reserve holds {} of {}", space.reserve.held().unwrap(), rules().bytes());

    // More than the reserve is for: writers commit by themselves, which frees what was replaced.
    let mut refused = 0;
    for generation in 4..10 {
        refused += (0..PAGES - 100).filter(|block| is_full(&large.write(*block, generation))).count();
        large.container.commit().unwrap();
        // What a server does then.
        large.container.collect(budget()).unwrap();
        assert!(space.reserve.fill().unwrap() >= rules().commits);
        large.check();
    }
    let room_made = large.container.stats().room_made;
    assert!(room_made > 0, "the reserve was never used up");
    assert_eq!(refused, 0, "refused, although {room_made} times a writer made room");
    (0..500).for_each(|block| large.write(block, 10).unwrap());

    large.container.truncate(PAGES / 2).unwrap();
    large.generations.truncate(PAGES as usize / 2);
    large.container.commit().unwrap();
    large.container.close().unwrap();
    small.container.close().unwrap();
    drop((large.container, small.container));
    let held = space.reserve.held().unwrap();
    // Its file holds the mount.
    drop(space);
    filesystem_keeps_it(&filesystem, held, large.generations, small.generations);
}

/// After the filesystem was mounted anew, so that nothing comes from memory; then there is space again.
fn filesystem_keeps_it(filesystem: &Filesystem, held: u64, large: Vec<u64>, small: Vec<u64>) {
    filesystem.mount_again();
    let (root, rules) = (filesystem.root(), rules());
    let space = Tablespace::new(&root, rules);
    assert_eq!(space.reserve.held().unwrap(), held);
    let large = Pages { container: space.open("large"), generations: large };
    let small = Pages { container: space.open("small"), generations: small };
    large.check();
    small.check();

    // DROP, of a segment that is open elsewhere.
    segment::unlink(&space.folder("small")).unwrap();
    std::fs::remove_dir(root.join("small")).unwrap();
    drop(small);
    large.container.collect(budget()).unwrap();
    large.check();
    std::fs::remove_file(root.join("ballast")).unwrap();
    assert_eq!(space.reserve.fill().unwrap(), rules.bytes());
    large.check();
}
