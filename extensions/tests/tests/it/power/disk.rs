//! The files of a server as a recording shows them, and what a power failure may leave of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pgshrink_testkit::Rng;
use pgshrink_testkit::run::Owner;

use super::contents::{Change, Contents, Survival};
use super::guards;
use super::names::{self, Names, Node, Rule, Tree};
use super::recording::{Kind, Record};

/// What a node is.
enum What {
    Directory,
    Link(String),
    File { durable: Contents, pending: Vec<(u64, Change)> },
}

struct Thing {
    what: What,
    mode: u32,
    /// The name that it was made under.
    made_as: String,
    /// The system's number.
    inode: u64,
}

/// The files below some directories.
pub struct Disk {
    roots: Vec<(PathBuf, Node)>,
    things: Vec<Thing>,
    /// By the system's numbers, of files that are there now.
    inodes: HashMap<u64, Node>,
    now: Tree,
    names: [Names; 2],
    syncs: HashMap<u64, u64>,
    sequence: u64,
}

/// What is left of what was not synced.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub rule: Rule,
    pub names: usize,
    pub data: Survival,
    /// Whether each file has a share of its own: all of one may survive, and nothing of another.
    pub by_file: bool,
}

impl Failure {
    /// Nothing that was not synced survives.
    pub fn total(rule: Rule) -> Failure {
        Failure { rule, names: 0, data: Survival { blocks: 0, torn: 0 }, by_file: false }
    }

    pub fn random(rng: &mut Rng) -> Failure {
        let percent = [0, 0, 5, 50, 50, 95, 100];
        Failure {
            rule: *rng.pick(&[Rule::Journal, Rule::Loose]),
            names: *rng.pick(&percent),
            data: Survival { blocks: *rng.pick(&percent), torn: *rng.pick(&[0, 20, 100]) },
            by_file: rng.chance(50),
        }
    }
}

impl Disk {
    /// What is below these directories now, all of it durable. The first one is what relative paths start from.
    pub fn read(roots: &[&Path]) -> Disk {
        let mut disk = Disk {
            roots: Vec::new(),
            things: Vec::new(),
            inodes: HashMap::new(),
            now: Tree::default(),
            names: [Names::new(Rule::Journal, &Tree::default()), Names::new(Rule::Loose, &Tree::default())],
            syncs: HashMap::new(),
            sequence: 0,
        };
        for root in roots {
            let node = disk.read_one(root);
            disk.roots.push((root.to_path_buf(), node));
        }
        disk.names = [Rule::Journal, Rule::Loose].map(|rule| Names::new(rule, &disk.now));
        disk
    }

    fn read_one(&mut self, path: &Path) -> Node {
        let meta = fs::symlink_metadata(path).unwrap();
        // Another name of a file that was seen by one.
        if let Some(node) = self.inodes.get(&meta.ino()).filter(|_| meta.is_file() && meta.nlink() > 1) {
            return *node;
        }
        let what = if meta.is_dir() {
            What::Directory
        } else if meta.is_symlink() {
            What::Link(fs::read_link(path).unwrap().to_str().unwrap().to_owned())
        } else {
            What::File { durable: Contents::new(&read(path).unwrap()), pending: Vec::new() }
        };
        let name = path.file_name().unwrap().to_str().unwrap();
        let node = self.make(what, meta.mode() & 0o777, name, meta.ino());
        if meta.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                let inside = self.read_one(&entry.path());
                let name = entry.file_name().to_str().unwrap().to_owned();
                self.now.apply(&names::Change::Add { directory: node, name, node: inside });
            }
        }
        node
    }

    fn make(&mut self, what: What, mode: u32, name: &str, inode: u64) -> Node {
        self.things.push(Thing { what, mode, made_as: name.to_owned(), inode });
        let node = self.things.len() - 1;
        if inode != 0 {
            self.inodes.insert(inode, node);
        }
        node
    }

    /// The directory and the name that a path leads to; `None` where it leads out of the roots.
    fn resolve(&self, path: &str) -> Option<(Node, String)> {
        let (mut node, rest) = if path.starts_with('/') {
            let (root, node) = self.roots.iter().find(|(root, _)| Path::new(path).starts_with(root))?;
            (*node, Path::new(path).strip_prefix(root).unwrap())
        } else {
            (self.roots[0].1, Path::new(path))
        };
        let mut parts: Vec<&str> =
            rest.iter().map(|part| part.to_str().unwrap()).filter(|part| *part != ".").collect();
        let last = parts.pop()?;
        for part in parts {
            node = self.follow(self.now.find(node, part)?)?;
        }
        Some((node, last.to_owned()))
    }

    fn follow(&self, node: Node) -> Option<Node> {
        match &self.things[node].what {
            What::Link(target) => Some(self.roots.iter().find(|(root, _)| root.to_str() == Some(target))?.1),
            _ => Some(node),
        }
    }

    /// The node of a path, as the running system sees it.
    pub fn find(&self, path: &str) -> Option<Node> {
        let (directory, name) = self.resolve(path)?;
        self.now.find(directory, &name)
    }

    /// The node that the record is about, where it has an inode.
    pub fn node_of(&self, record: &Record<'_>) -> Option<Node> {
        self.inodes.get(&record.inode).copied()
    }

    /// Makes the next change of the recording.
    pub fn apply(&mut self, record: &Record<'_>) {
        self.sequence += 1;
        match record.kind {
            Kind::Unknown => panic!("the recorder cannot follow {}", record.path()),
            Kind::Create | Kind::Mkdir | Kind::Symlink => self.add(record),
            Kind::Write | Kind::Truncate | Kind::Punch | Kind::Allocate => self.change_file(record),
            Kind::SyncBegin | Kind::SyncAllBegin => {
                self.syncs.insert(record.a, self.sequence);
            }
            Kind::SyncEnd => self.sync(record),
            Kind::SyncAllEnd => {
                let before = self.syncs.remove(&record.a).unwrap();
                for thing in &mut self.things {
                    thing.sync(before);
                }
                self.names.iter_mut().for_each(|names| names.sync_all(before));
            }
            Kind::Rename | Kind::Exchange | Kind::Link | Kind::Unlink | Kind::Rmdir => {
                self.change_name(record)
            }
        }
    }

    fn add(&mut self, record: &Record<'_>) {
        let (what, path) = match record.kind {
            Kind::Create => (What::File { durable: Contents::default(), pending: Vec::new() }, record.path()),
            Kind::Mkdir => (What::Directory, record.path()),
            _ => (What::Link(record.path().to_owned()), record.second_path()),
        };
        let (directory, name) = self.resolve(path).unwrap_or_else(|| panic!("made outside: {path}"));
        let mode = record.a as u32 & 0o700;
        let node = self.make(what, mode, &name, record.inode);
        self.change(names::Change::Add { directory, name, node });
    }

    fn change(&mut self, change: names::Change) {
        self.now.apply(&change);
        for names in &mut self.names {
            names.change(self.sequence, change.clone());
        }
    }

    fn change_file(&mut self, record: &Record<'_>) {
        let change = match record.kind {
            Kind::Write => Change::Write { at: record.a, bytes: record.first.into() },
            Kind::Truncate => Change::Size(record.a),
            Kind::Punch => Change::Zeros { at: record.a, length: record.b },
            _ => Change::Grow(record.a + record.b),
        };
        let node = self.inodes.get(&record.inode).copied();
        let node = node.unwrap_or_else(|| panic!("inode {} was changed and never made", record.inode));
        let What::File { pending, .. } = &mut self.things[node].what else { panic!("no file was written") };
        pending.push((self.sequence, change));
    }

    fn sync(&mut self, record: &Record<'_>) {
        let before = self.syncs.remove(&record.a).expect("an fsync ends that has begun");
        let Some(node) = self.inodes.get(&record.inode).copied() else { return };
        self.things[node].sync(before);
        for names in &mut self.names {
            names.sync(node, &self.things[node].made_as, before, &self.now);
        }
    }

    fn change_name(&mut self, record: &Record<'_>) {
        let from = self.resolve(record.path()).unwrap();
        let node = self.now.find(from.0, &from.1).unwrap_or_else(|| panic!("no {}", record.path()));
        let change = match record.kind {
            Kind::Rename | Kind::Link => {
                let to = self.resolve(record.second_path()).unwrap();
                match record.kind {
                    Kind::Rename => names::Change::Move { from, to, node },
                    _ => names::Change::Link { directory: to.0, name: to.1, node },
                }
            }
            Kind::Exchange => {
                let to = self.resolve(record.second_path()).unwrap();
                let other = self.now.find(to.0, &to.1);
                let other = other.unwrap_or_else(|| panic!("no {}", record.second_path()));
                names::Change::Exchange { places: [from, to], nodes: [node, other] }
            }
            _ => names::Change::Remove { directory: from.0, name: from.1, node },
        };
        self.change(change);
    }

    /// Writes what may be left after a power failure into other directories, which are emptied first.
    pub fn write_image(&self, failure: &Failure, rng: &mut Rng, roots: &[&Path], owner: &Owner) {
        let names = &self.names[(failure.rule == Rule::Loose) as usize];
        let tree = names.after_failure(failure.names, rng);
        let written = RefCell::new(HashMap::new());
        let image = Image { disk: self, tree, failure, roots, owner, written };
        for ((_, node), root) in self.roots.iter().zip(roots) {
            if root.exists() {
                fs::remove_dir_all(root).unwrap();
            }
            image.write(*node, root, rng);
        }
    }

    /// Names of files below the roots whose bytes are not those that the recording shows; also names that only one
    /// side has.
    pub fn differences(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (root, node) in &self.roots {
            self.compare(*node, root, &mut found);
        }
        found
    }

    fn compare(&self, node: Node, path: &Path, found: &mut Vec<String>) {
        let mut differs = |what: &str| found.push(format!("{}: {what}", path.display()));
        let Ok(meta) = fs::symlink_metadata(path) else { return differs("is not there") };
        match &self.things[node].what {
            What::Link(target) if fs::read_link(path).ok().as_deref() == Some(Path::new(target)) => {}
            What::Link(_) => differs("is no such link"),
            What::File { durable, pending } => {
                let mut contents = durable.clone();
                pending.iter().for_each(|(_, change)| contents.apply(change));
                if read(path).ok() != Some(contents.to_bytes()) {
                    differs("has other bytes");
                }
            }
            What::Directory if !meta.is_dir() => differs("is no directory"),
            What::Directory => {
                for entry in fs::read_dir(path).unwrap() {
                    let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
                    if self.now.find(node, &name).is_none() {
                        differs(&format!("has {name}"));
                    }
                }
                for (name, inside) in self.now.entries(node) {
                    self.compare(inside, &path.join(name), found);
                }
            }
        }
    }
}

impl Thing {
    fn sync(&mut self, before: u64) {
        let What::File { durable, pending } = &mut self.what else { return };
        let due = pending.iter().take_while(|(sequence, _)| *sequence < before).count();
        pending.drain(..due).for_each(|(_, change)| durable.apply(&change));
    }
}

/// What is in a file. Guards may be read by nobody, so their owner lets himself in.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o400))?;
            let read = fs::read(path);
            fs::set_permissions(path, fs::Permissions::from_mode(0o000))?;
            read
        }
        read => read,
    }
}

/// One image on its way to the disk.
struct Image<'d> {
    disk: &'d Disk,
    tree: Tree,
    failure: &'d Failure,
    roots: &'d [&'d Path],
    owner: &'d Owner,
    /// Where files are by now, for those with more names.
    written: RefCell<HashMap<Node, PathBuf>>,
}

impl Image<'_> {
    fn write(&self, node: Node, path: &Path, rng: &mut Rng) {
        let thing = &self.disk.things[node];
        match &thing.what {
            What::Directory => {
                fs::create_dir(path).unwrap();
                for (name, inside) in self.tree.entries(node) {
                    self.write(inside, &path.join(name), rng);
                }
                fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
            }
            What::Link(target) => {
                let root = self.disk.roots.iter().position(|(root, _)| root.to_str() == Some(target));
                let target = root.map_or(Path::new(target), |root| self.roots[root]);
                std::os::unix::fs::symlink(target, path).unwrap();
            }
            What::File { .. } if self.written.borrow().contains_key(&node) => {
                fs::hard_link(&self.written.borrow()[&node], path).unwrap();
            }
            What::File { durable, pending } => {
                self.written.borrow_mut().insert(node, path.to_owned());
                let mut survival = self.failure.data;
                if self.failure.by_file && survival.blocks != 0 {
                    survival.blocks = *rng.pick(&[0, 50, 100]);
                }
                let changes: Vec<Change> = pending.iter().map(|(_, change)| change.clone()).collect();
                let contents = durable.after_failure(&changes, survival, rng);
                let file = fs::File::create(path).unwrap();
                let bytes = guards::readdressed(contents.to_bytes(), thing.inode, &file.metadata().unwrap());
                file.write_all_at(&bytes, 0).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(thing.mode)).unwrap();
            }
        }
        if self.owner.step_down {
            std::os::unix::fs::lchown(path, Some(self.owner.uid), Some(self.owner.gid)).unwrap();
        }
    }
}
