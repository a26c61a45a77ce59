//! A kernel: directories, files, descriptors, and what a loss of power leaves of them.
//!
//! What it does that a program does not expect:
//! * A path is resolved at one moment and the rest is done later. Another process may run in between.
//! * A file's number is used again as soon as no name and no descriptor has it.
//! * Until a directory is synced, the medium has any subset of what was done to its names, each call whole or
//!   not at all; a call that needs another one has no effect without it. Until a file is synced, it has any
//!   subset of what was written.
//! * An fsync of a file covers what was written before it was called. One that fails leaves a part on the
//!   medium and calls all clean; who had the file open learns of it, once. One of a directory leaves all to
//!   be done.
//! * A descriptor is shown under the name that it was opened by, as that name is now.

mod medium;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use pgshrink_cfs::DeviceError;
use pgshrink_cfs::convert::{Found, Inode, Kind};
use pgshrink_testkit::seed::Rng;

use self::medium::{NameChange, Names, Pages};
use super::slot::Root;
use crate::schedule::clock;

/// A file, for ever. Programs see numbers, which are used again.
pub type File = usize;
pub type Descriptor = u64;
pub const ABOVE: File = 0;
pub const IS_DIRECTORY: DeviceError = DeviceError::Io(21);
pub const NOT_DIRECTORY: DeviceError = DeviceError::Io(20);
pub const NOT_EMPTY: DeviceError = DeviceError::Io(39);
pub const FAILED: DeviceError = DeviceError::Io(5);

/// A container's file: its newest root.
struct Container {
    cache: Root,
    medium: Root,
    pending: Vec<Root>,
}

enum Body {
    Plain(Pages),
    Directory(Names),
    Container(Container),
}

struct Node {
    number: u64,
    body: Body,
    /// Calls under way that have resolved it.
    in_use: u32,
}

struct Dentry {
    directory: File,
    name: String,
    file: File,
    is_deleted: bool,
}

struct Opened {
    process: u64,
    file: File,
    dentry: usize,
    is_writable: bool,
    failures_seen: u64,
}

struct State {
    nodes: Vec<Node>,
    dentries: Vec<Dentry>,
    descriptors: BTreeMap<Descriptor, Opened>,
    next: Descriptor,
    rng: Rng,
    /// How many syncs of a hundred fail that a worker asks for.
    failing: usize,
}

pub struct Kernel(RefCell<State>);

type Done<T> = Result<T, DeviceError>;

thread_local! {
    static TRACE: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Notes what happened, where a run is replayed with `CONVERT_TRACE` set.
pub fn note(what: impl FnOnce() -> String) {
    TRACE.with_borrow_mut(|trace| {
        if let Some(trace) = trace {
            trace.push(what());
        }
    });
}

/// Begins to note, or ends: then what was noted last is printed.
pub fn trace(is_on: bool) {
    let noted = TRACE.replace(is_on.then(Vec::new));
    for what in noted.iter().flat_map(|noted| &noted[noted.len().saturating_sub(150)..]) {
        println!("{what}");
    }
}

impl Kernel {
    pub fn new(rng: Rng) -> Kernel {
        let above = Node { number: 1, body: Body::Directory(Names::default()), in_use: 1 };
        Kernel(RefCell::new(State {
            nodes: vec![above],
            dentries: Vec::new(),
            descriptors: BTreeMap::new(),
            next: 3,
            rng,
            failing: 0,
        }))
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        clock::step();
        work(&mut self.0.borrow_mut())
    }

    pub fn set_failing(&self, percent: usize) {
        self.0.borrow_mut().failing = percent;
    }

    /// A call that resolves a name, is left, and goes on with what it has resolved.
    fn resolved<T>(
        &self,
        directory: File,
        name: &str,
        work: impl FnOnce(&mut State, usize) -> Done<T>,
    ) -> Done<T> {
        let dentry = self.with(|state| {
            let dentry = state.find(directory, name)?;
            let file = state.dentries[dentry].file;
            state.nodes[file].in_use += 1;
            Ok(dentry)
        })?;
        self.with(|state| {
            let file = state.dentries[dentry].file;
            let done = work(state, dentry);
            state.nodes[file].in_use = state.nodes[file].in_use.saturating_sub(1);
            done
        })
    }

    pub fn open(
        &self,
        process: u64,
        directory: File,
        name: &str,
        is_writable: bool,
    ) -> Done<(Descriptor, File)> {
        self.resolved(directory, name, |state, dentry| {
            let file = state.dentries[dentry].file;
            let failures_seen = match &state.nodes[file].body {
                Body::Directory(_) => return Err(IS_DIRECTORY),
                Body::Plain(pages) => pages.failures,
                Body::Container(_) => 0,
            };
            let descriptor = state.next;
            state.next += 1;
            let opened = Opened { process, file, dentry, is_writable, failures_seen };
            state.descriptors.insert(descriptor, opened);
            note(|| format!("{process} opens {name} as {descriptor}: file {file}"));
            Ok((descriptor, file))
        })
    }

    /// The directory that has the name, held open until [`release`](Self::release).
    pub fn open_directory(&self, directory: File, name: &str) -> Done<File> {
        self.with(|state| {
            let dentry = state.find(directory, name)?;
            let file = state.dentries[dentry].file;
            if !matches!(state.nodes[file].body, Body::Directory(_)) {
                return Err(NOT_DIRECTORY);
            }
            state.nodes[file].in_use += 1;
            Ok(file)
        })
    }

    pub fn release(&self, directory: File) {
        if !clock::is_dead() {
            let node = &mut self.0.borrow_mut().nodes[directory];
            node.in_use = node.in_use.saturating_sub(1);
        }
    }

    pub fn close(&self, descriptor: Descriptor) {
        self.with(|state| state.descriptors.remove(&descriptor));
    }

    pub fn stat(&self, directory: File, name: &str) -> Done<(Found, u64)> {
        self.resolved(directory, name, |state, dentry| {
            let file = state.dentries[dentry].file;
            Ok((state.found(file), state.size(file)))
        })
    }

    pub fn found(&self, file: File) -> Found {
        self.with(|state| state.found(file))
    }

    pub fn truncate(&self, directory: File, name: &str, pages: usize) -> Done<()> {
        self.resolved(directory, name, |state, dentry| {
            let file = state.dentries[dentry].file;
            note(|| format!("truncate {name}, file {file}, to {pages}"));
            match &mut state.nodes[file].body {
                Body::Plain(found) => {
                    found.set_length(pages);
                    Ok(())
                }
                _ => Err(IS_DIRECTORY),
            }
        })
    }

    /// What a write does once it is past the descriptor: the file, whatever its names are.
    pub fn pwrite(&self, descriptor: Descriptor, page: usize, value: u64) -> Done<()> {
        let file = self.with(|state| state.descriptors[&descriptor].file);
        self.with(|state| {
            note(|| format!("write {descriptor}, file {file}, page {page}: {value}"));
            state.pages(file).write(page, value);
            Ok(())
        })
    }

    /// None: past the end.
    pub fn pread(&self, descriptor: Descriptor, page: usize) -> Option<u64> {
        let file = self.with(|state| state.descriptors[&descriptor].file);
        self.with(|state| state.pages(file).cache.get(page).copied())
    }

    pub fn size_of(&self, descriptor: Descriptor) -> usize {
        self.with(|state| {
            let file = state.descriptors[&descriptor].file;
            state.pages(file).cache.len()
        })
    }

    pub fn ftruncate(&self, descriptor: Descriptor, pages: usize) {
        let file = self.with(|state| state.descriptors[&descriptor].file);
        note(|| format!("ftruncate {descriptor}, file {file}, to {pages}"));
        self.with(|state| state.pages(file).set_length(pages));
    }

    /// The file that a descriptor is of.
    pub fn file_behind(&self, descriptor: Descriptor) -> File {
        self.0.borrow().descriptors[&descriptor].file
    }

    pub fn fsync(&self, descriptor: Descriptor) -> Done<()> {
        let done = self.with(|state| {
            let Opened { file, failures_seen, .. } = state.descriptors[&descriptor];
            state.sync_file(file, failures_seen, 0)
        });
        clock::step();
        done
    }

    pub fn make_plain(&self, directory: File, name: &str, pages: &[u64]) -> Done<File> {
        let pages = Pages { cache: pages.to_vec(), medium: pages.to_vec(), ..Pages::default() };
        self.make(directory, name, Body::Plain(pages))
    }

    pub fn make_directory(&self, directory: File, name: &str) -> Done<File> {
        let made = self.make(directory, name, Body::Directory(Names::default()))?;
        self.0.borrow_mut().nodes[made].in_use += 1;
        Ok(made)
    }

    /// The file is synced, its name is not.
    pub fn make_container(&self, directory: File, name: &str, root: Root) -> Done<File> {
        let container = Container { cache: root.clone(), medium: root, pending: Vec::new() };
        self.make(directory, name, Body::Container(container))
    }

    fn make(&self, directory: File, name: &str, body: Body) -> Done<File> {
        self.with(|state| {
            if state.find(directory, name).is_ok() {
                return Err(DeviceError::Exists);
            }
            let number = state.free_number();
            state.nodes.push(Node { number, body, in_use: 0 });
            let file = state.nodes.len() - 1;
            state.enter(directory, name, file);
            Ok(file)
        })
    }

    pub fn link(&self, from: (File, &str), to: (File, &str)) -> Done<()> {
        self.resolved(from.0, from.1, |state, dentry| {
            let file = state.dentries[dentry].file;
            if matches!(state.nodes[file].body, Body::Directory(_)) {
                return Err(DeviceError::Io(1));
            }
            if state.links(file) == 0 {
                return Err(DeviceError::NotFound);
            }
            if state.find(to.0, to.1).is_ok() {
                return Err(DeviceError::Exists);
            }
            state.enter(to.0, to.1, file);
            Ok(())
        })
    }

    pub fn exchange(&self, directory: File, one: &str, other: &str) -> Done<()> {
        self.with(|state| {
            let (a, b) = (state.find(directory, one)?, state.find(directory, other)?);
            state.dentries[a].name = other.to_owned();
            state.dentries[b].name = one.to_owned();
            let (file_a, file_b) = (state.dentries[a].file, state.dentries[b].file);
            note(|| format!("exchange {one}, file {file_a}, and {other}, file {file_b}"));
            let names = state.names(directory);
            names.cache.insert(one.to_owned(), b);
            names.cache.insert(other.to_owned(), a);
            names.pending.push(NameChange::Exchanged(one.to_owned(), file_a, other.to_owned(), file_b));
            Ok(())
        })
    }

    pub fn unlink(&self, directory: File, name: &str) -> Done<()> {
        self.remove(directory, name, false)
    }

    pub fn remove_directory(&self, directory: File, name: &str) -> Done<()> {
        self.remove(directory, name, true)
    }

    fn remove(&self, directory: File, name: &str, is_directory: bool) -> Done<()> {
        self.with(|state| {
            let dentry = state.find(directory, name)?;
            let file = state.dentries[dentry].file;
            match &state.nodes[file].body {
                Body::Directory(_) if !is_directory => return Err(IS_DIRECTORY),
                Body::Directory(names) if !names.cache.is_empty() => return Err(NOT_EMPTY),
                Body::Directory(_) => {}
                _ if is_directory => return Err(NOT_DIRECTORY),
                _ => {}
            }
            note(|| format!("remove {name}, file {file}, from {directory}"));
            state.dentries[dentry].is_deleted = true;
            let names = state.names(directory);
            names.cache.remove(name);
            names.pending.push(NameChange::Removed(name.to_owned(), file));
            Ok(())
        })
    }

    pub fn names_in(&self, directory: File) -> Vec<String> {
        self.with(|state| state.names(directory).cache.keys().cloned().collect())
    }

    /// An fsync that a worker asks for, of a file or a directory.
    pub fn sync(&self, file: File) -> Done<()> {
        let done = self.with(|state| {
            let failing = state.failing;
            if let Body::Directory(_) = state.nodes[file].body {
                note(|| format!("fsync of directory {file}"));
                if state.rng.below(100) < failing {
                    note(|| "which fails".to_owned());
                    return Err(FAILED);
                }
                state.names(file).sync();
                return Ok(());
            }
            state.sync_file(file, u64::MAX, failing)
        });
        clock::step();
        done
    }

    /// The newest root of a container's file.
    pub fn root(&self, file: File) -> Option<Root> {
        self.with(|state| match &state.nodes[file].body {
            Body::Container(container) => Some(container.cache.clone()),
            _ => None,
        })
    }

    pub fn write_root(&self, file: File, root: Root) {
        self.with(|state| {
            note(|| format!("root of file {file}: {root:?}"));
            if let Body::Container(container) = &mut state.nodes[file].body {
                container.cache = root.clone();
                container.pending.push(root);
            }
        });
    }

    /// The descriptors that can write: of which process and file, and the names that they are shown under.
    pub fn writable_names(&self) -> Vec<(u64, Inode, String)> {
        // One process after the other, as a look into `/proc` goes.
        let processes: BTreeSet<u64> =
            self.with(|state| state.descriptors.values().map(|opened| opened.process).collect());
        let mut all = Vec::new();
        for process in processes {
            self.with(|state| {
                let own = state.descriptors.values().filter(|opened| opened.process == process);
                for opened in own.filter(|opened| opened.is_writable) {
                    let inode = Inode(state.nodes[opened.file].number);
                    all.push((process, inode, state.path(opened.dentry)));
                }
            });
        }
        all
    }

    /// The server is gone, with all its descriptors.
    pub fn kill_all(&self) {
        let state = &mut *self.0.borrow_mut();
        state.descriptors.clear();
        state.nodes.iter_mut().for_each(|node| node.in_use = 0);
        state.nodes[ABOVE].in_use = 1;
    }

    pub fn lose_power(&self) {
        self.kill_all();
        let state = &mut *self.0.borrow_mut();
        let style = state.rng.below(4);
        note(|| format!("the power fails, {style}"));
        for node in &mut state.nodes {
            let keeps = |rng: &mut Rng| match style {
                0 => false,
                1 => true,
                _ => rng.below(2) == 0,
            };
            match &mut node.body {
                Body::Plain(pages) => pages.lose_power(|| keeps(&mut state.rng)),
                Body::Directory(names) => names.lose_power(|| keeps(&mut state.rng)),
                Body::Container(container) => {
                    for root in std::mem::take(&mut container.pending) {
                        if keeps(&mut state.rng) {
                            container.medium = root;
                        }
                    }
                    container.cache = container.medium.clone();
                }
            }
        }
        state.dentries.clear();
        for directory in 0..state.nodes.len() {
            let Body::Directory(names) = &state.nodes[directory].body else { continue };
            for (name, file) in names.medium.clone() {
                state.dentries.push(Dentry { directory, name: name.clone(), file, is_deleted: false });
                let dentry = state.dentries.len() - 1;
                state.names(directory).cache.insert(name, dentry);
            }
        }
    }

    /// Everything is durable.
    pub fn sync_all(&self) {
        let state = &mut *self.0.borrow_mut();
        for node in &mut state.nodes {
            match &mut node.body {
                Body::Plain(pages) => pages.sync(),
                Body::Directory(names) => names.sync_with(|dentry| state.dentries[dentry].file),
                Body::Container(container) => {
                    container.medium = container.cache.clone();
                    container.pending.clear();
                }
            }
        }
    }

    /// The pages of a plain file.
    pub fn pages(&self, file: File) -> Option<Vec<u64>> {
        match &self.0.borrow().nodes[file].body {
            Body::Plain(pages) => Some(pages.cache.clone()),
            _ => None,
        }
    }

    /// What has a name.
    pub fn file_of(&self, directory: File, name: &str) -> Option<File> {
        let state = &*self.0.borrow();
        state.find(directory, name).ok().map(|dentry| state.dentries[dentry].file)
    }
}

impl State {
    fn find(&self, directory: File, name: &str) -> Done<usize> {
        match &self.nodes[directory].body {
            Body::Directory(names) => names.cache.get(name).copied().ok_or(DeviceError::NotFound),
            _ => Err(NOT_DIRECTORY),
        }
    }

    fn names(&mut self, directory: File) -> &mut Names {
        match &mut self.nodes[directory].body {
            Body::Directory(names) => names,
            _ => panic!("{directory} is no directory"),
        }
    }

    fn pages(&mut self, file: File) -> &mut Pages {
        match &mut self.nodes[file].body {
            Body::Plain(pages) => pages,
            _ => panic!("{file} has no pages"),
        }
    }

    fn enter(&mut self, directory: File, name: &str, file: File) {
        self.dentries.push(Dentry { directory, name: name.to_owned(), file, is_deleted: false });
        let dentry = self.dentries.len() - 1;
        note(|| format!("name {name} in {directory} for file {file}"));
        let names = self.names(directory);
        names.cache.insert(name.to_owned(), dentry);
        names.pending.push(NameChange::Made(name.to_owned(), file));
    }

    fn links(&self, file: File) -> u32 {
        self.dentries.iter().filter(|dentry| dentry.file == file && !dentry.is_deleted).count() as u32
    }

    fn found(&self, file: File) -> Found {
        let node = &self.nodes[file];
        let kind = if matches!(node.body, Body::Directory(_)) { Kind::Directory } else { Kind::Plain };
        Found { inode: Inode(node.number), kind, links: self.links(file) }
    }

    fn size(&self, file: File) -> u64 {
        match &self.nodes[file].body {
            Body::Plain(pages) => pages.cache.len() as u64,
            _ => 4096,
        }
    }

    fn free_number(&self) -> u64 {
        let mut taken = BTreeSet::new();
        let named = self.dentries.iter().filter(|dentry| !dentry.is_deleted).map(|dentry| dentry.file);
        let open = self.descriptors.values().map(|opened| opened.file);
        let in_use = (0..self.nodes.len()).filter(|file| self.nodes[*file].in_use > 0);
        taken.extend(named.chain(open).chain(in_use).map(|file| self.nodes[file].number));
        (1..).find(|number| !taken.contains(number)).unwrap()
    }

    fn path(&self, dentry: usize) -> String {
        let Dentry { directory, name, is_deleted, .. } = &self.dentries[dentry];
        let above = self.dentries.iter().rposition(|dentry| dentry.file == *directory);
        let mut path = match above {
            Some(above) if *directory != ABOVE => format!("{}/{name}", self.path(above)),
            _ => name.clone(),
        };
        if *is_deleted {
            path.push_str(" (deleted)");
        }
        path
    }

    fn sync_file(&mut self, file: File, failures_seen: u64, failing: usize) -> Done<()> {
        note(|| format!("fsync of file {file}"));
        let State { nodes, rng, .. } = self;
        match &mut nodes[file].body {
            Body::Plain(pages) if rng.below(100) < failing => {
                let kept = std::mem::take(&mut pages.cache);
                pages.lose_power(|| rng.below(2) == 0);
                pages.cache = kept;
                pages.failures += 1;
                note(|| "which fails".to_owned());
                Err(FAILED)
            }
            Body::Plain(pages) if pages.failures > failures_seen => Err(FAILED),
            Body::Plain(pages) => {
                pages.sync();
                Ok(())
            }
            Body::Container(container) => {
                container.medium = container.cache.clone();
                container.pending.clear();
                Ok(())
            }
            Body::Directory(_) => Err(IS_DIRECTORY),
        }
    }
}
