//! Where a data directory and its tablespaces are made, by `restore` and by a plain backup.
//!
//! Invariants:
//! 1. Nothing is written into a directory that has something in it.
//! 2. `global/pg_control` has another name until everything else is there and durable: no server starts before that.
//! 3. Files go below the data directory or, by a link, into the version's directory of a tablespace of the list.

use super::Failure;
use super::destination::Destination;
use super::room::{check_empty, check_space, is_empty};
use pgshrink_backup::pack::Permissions;
use pgshrink_backup::record::Record;
use pgshrink_backup::wal::{WalSegmentName, WalSegmentSize};
use pgshrink_backup::{BackupPath, Lsn};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What `global/pg_control` is called until all else is there.
const CONTROL: &str = "global/pg_control";
const CONTROL_UNTIL_THEN: &str = "global/pg_control.pgshrink";

/// The same for `backup_manifest`.
pub(super) const MANIFEST_UNTIL_THEN: &str = "backup_manifest.tmp";

/// Bytes that are written to a file at a time. For more of them the kernel takes larger pieces of memory, which on a virtual
/// machine are often new to it: writes of 512 KiB took four times the processor time of these.
const WRITE_BYTES: usize = 64 << 10;

/// Who may read what is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// The owner alone.
    Owner,
    /// Its group too, as after `initdb --allow-group-access`.
    Group,
}

impl Access {
    /// Of the data directory of a server, by its `data_directory_mode`.
    pub(super) fn of_mode(mode: &str) -> Access {
        match u32::from_str_radix(mode, 8) {
            Ok(mode) if mode & 0o050 == 0o050 => Access::Group,
            _ => Access::Owner,
        }
    }

    /// What a record says.
    pub(super) fn of_record(record: &Record) -> Access {
        if record.group_access { Access::Group } else { Access::Owner }
    }

    /// Of a file with these permissions; without, of one that a server makes.
    fn file_mode(self, permissions: Option<Permissions>) -> u32 {
        match (permissions, self) {
            (Some(permissions), _) => permissions.mode(),
            (None, Access::Owner) => 0o600,
            (None, Access::Group) => 0o640,
        }
    }

    fn folder_mode(self) -> u32 {
        match self {
            Access::Owner => 0o700,
            Access::Group => 0o750,
        }
    }

    /// Makes a file that is not there yet.
    pub(super) fn create(self, path: &Path) -> io::Result<File> {
        self.open(OpenOptions::new().read(true).create_new(true), path, None)
    }

    /// Opens a file to write to it.
    fn open(self, how: &mut OpenOptions, path: &Path, permissions: Option<Permissions>) -> io::Result<File> {
        let mode = self.file_mode(permissions);
        let file = how.write(true).mode(mode).open(path)?;
        // The process's umask may have taken away what others than the owner may do, or all that is not the usual.
        if mode != 0o600 && file.metadata()?.permissions().mode() & 0o777 != mode {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        Ok(file)
    }

    fn create_folder(self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(self.folder_mode()).create(path)?;
        match self {
            Access::Owner => Ok(()),
            Access::Group => fs::set_permissions(path, fs::Permissions::from_mode(self.folder_mode())),
        }
    }
}

/// A directory that a backup or restore fills, and what to take away if it fails.
pub(super) struct Place {
    path: PathBuf,
    /// Directories above it, and itself, that were not there, the lowest first.
    made: Vec<PathBuf>,
}

impl Place {
    /// Makes a directory, or takes an empty one, whose permissions become these.
    pub(super) fn make(path: &Path, access: Access) -> Result<Place, Failure> {
        check_empty(path)?;
        let made: Vec<_> = path.ancestors().take_while(|above| !above.exists()).map(Path::to_owned).collect();
        let made = made.into_iter().filter(|above| !above.as_os_str().is_empty()).collect();
        DirBuilder::new()
            .recursive(true)
            .mode(access.folder_mode())
            .create(path)
            .map_err(Failure::at(path))?;
        // A server refuses a data directory that others may read. Whoever does not own it cannot start one there.
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(access.folder_mode()));
        Ok(Place { path: path.to_owned(), made })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes away all that is in it, and the directories that were made for it. What cannot be removed stays.
    pub(super) fn remove(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let _ = match entry.file_type() {
                Ok(kind) if kind.is_dir() => fs::remove_dir_all(entry.path()),
                _ => fs::remove_file(entry.path()),
            };
        }
        for made in &self.made {
            let _ = fs::remove_dir(made);
        }
    }
}

/// Writes to a file at an offset, in pieces of [`WRITE_BYTES`].
pub(super) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    (offset..)
        .step_by(WRITE_BYTES)
        .zip(bytes.chunks(WRITE_BYTES))
        .try_for_each(|(at, piece)| file.write_all_at(piece, at))
}

/// Makes everything below a directory durable, with all else in its filesystem.
pub(super) fn sync(folder: &Path) -> Result<(), Failure> {
    let open = File::open(folder).map_err(Failure::at(folder))?;
    rustix::fs::syncfs(&open).map_err(|error| Failure::at(folder)(error.into()))
}

/// Makes the names in a directory durable.
pub(super) fn sync_names(folder: &Path) -> Result<(), Failure> {
    File::open(folder).and_then(|open| open.sync_all()).map_err(Failure::at(folder))
}

/// A tablespace.
struct Space {
    place: PathBuf,
    /// Whether `pg_tblspc` has a link to it. In-place tablespaces are directories there.
    is_linked: bool,
    /// Whether the user named the place.
    is_mapped: bool,
}

/// A data directory and its tablespaces.
pub(super) struct Places {
    into: PathBuf,
    spaces: BTreeMap<u32, Space>,
    access: Access,
}

impl Places {
    /// `spaces`: OID and location of each tablespace, as the server has them.
    pub(super) fn new<'l>(
        to: &Destination,
        spaces: impl Iterator<Item = (u32, &'l [u8])> + Clone,
        access: Access,
    ) -> Result<Places, Failure> {
        let is_known = |from: &String| spaces.clone().any(|(_, location)| location == from.as_bytes());
        if let Some(unknown) = to.mapping.keys().find(|from| !is_known(from)) {
            let known: Vec<_> =
                spaces.map(|(_, location)| String::from_utf8_lossy(location).into_owned()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let what = format!("{unknown}: the cluster has no tablespace there; it has {known}");
            return Err(Failure::new("--tablespace-mapping", what));
        }
        let space = |location: &[u8]| -> Result<Space, Failure> {
            let mapped = std::str::from_utf8(location).ok().and_then(|location| to.mapping.get(location));
            match (mapped, location.starts_with(b"/")) {
                (Some(place), _) => Ok(Space { place: place.clone(), is_linked: true, is_mapped: true }),
                (None, true) => {
                    let place = OsStr::from_bytes(location).into();
                    Ok(Space { place, is_linked: true, is_mapped: false })
                }
                // `pg_tblspc/16385`, of an in-place tablespace.
                (None, false) => {
                    let below = BackupPath::new(location)?;
                    let place = to.into.join(OsStr::from_bytes(below.as_bytes()));
                    Ok(Space { place, is_linked: false, is_mapped: false })
                }
            }
        };
        let spaces = spaces.map(|(oid, location)| Ok((oid, space(location)?)));
        let places =
            Places { into: to.into.clone(), spaces: spaces.collect::<Result<_, Failure>>()?, access };
        places.check_apart(|place| std::path::absolute(place))?;
        Ok(places)
    }

    /// Refuses two places that are one directory, or one inside of the other, by what `whole` makes of their names. A server
    /// would take files of one for the other's, and who removes one removes both.
    fn check_apart(&self, whole: impl Fn(&Path) -> io::Result<PathBuf>) -> Result<(), Failure> {
        let names = self.all().map(|place| whole(place).map_err(Failure::at(place)));
        let mut names = names.collect::<Result<Vec<_>, _>>()?;
        // By components: what is inside of a directory comes right behind it.
        names.sort_unstable();
        let inside = names.windows(2).find(|pair| pair[1].starts_with(&pair[0]));
        let Some([outer, inner]) = inside else { return Ok(()) };
        let what = match outer == inner {
            true => "two tablespaces, or a tablespace and the data directory, would be there".to_owned(),
            false => format!(
                "it is inside {}, which is the place of the data directory or of another tablespace",
                outer.display()
            ),
        };
        Err(Failure::new(
            inner.display(),
            format!("{what}; give each a directory of its own outside of the others"),
        ))
    }

    /// The data directory, and places of tablespaces outside of it.
    fn all(&self) -> impl Iterator<Item = &Path> {
        let linked = self.spaces.values().filter(|space| space.is_linked);
        std::iter::once(&*self.into).chain(linked.map(|space| &*space.place))
    }

    /// OIDs of tablespaces and where they go.
    pub(super) fn spaces(&self) -> impl Iterator<Item = (u32, &Path)> {
        self.spaces.iter().map(|(oid, space)| (*oid, &*space.place))
    }

    /// Refuses directories that have something in them.
    pub(super) fn check_empty(&self) -> Result<(), Failure> {
        check_empty(&self.into)?;
        for space in self.spaces.values().filter(|space| space.is_linked) {
            match is_empty(&space.place)? {
                true => {}
                // Nobody named it.
                false if !space.is_mapped => {
                    let place = space.place.display();
                    let what = format!(
                        "a tablespace has to be restored to this original location, but it is not empty; \
                         name another one: --tablespace-mapping {place}=NEW"
                    );
                    return Err(Failure::new(place, what));
                }
                false => check_empty(&space.place)?,
            }
        }
        Ok(())
    }

    /// Looks whether so many bytes, by the OID of their tablespace, fit where they go.
    pub(super) fn check_space(&self, bytes: impl Iterator<Item = (Option<u32>, u64)>) -> Result<(), Failure> {
        let place = |space: Option<u32>| match space {
            None => Some(&*self.into),
            Some(oid) => self.spaces.get(&oid).map(|space| &*space.place),
        };
        let unknown =
            || Failure::damage("backup_manifest", "it has files of a tablespace that is not in the list");
        let placed = bytes.map(|(space, bytes)| Ok((place(space).ok_or_else(unknown)?, bytes)));
        check_space(placed.collect::<Result<Vec<_>, Failure>>()?.into_iter())
    }

    /// Makes the directories, those that every data directory has, and links to tablespaces.
    pub(super) fn make(&self) -> Result<Made, Failure> {
        let mut made = Made(Vec::new());
        for path in self.all() {
            match Place::make(path, self.access) {
                Ok(place) => made.0.push(place),
                Err(error) => {
                    made.remove();
                    return Err(error);
                }
            }
        }
        // Now that they are there: by `..` or a symbolic link, two names may be one directory.
        match self.check_apart(|place| fs::canonicalize(place)).and_then(|()| self.make_links()) {
            Ok(()) => Ok(made),
            Err(error) => {
                made.remove();
                Err(error)
            }
        }
    }

    /// Makes what is missing of them, where a restore was interrupted. Links must go where they went.
    pub(super) fn make_again(&self) -> Result<(), Failure> {
        for (oid, space) in self.spaces.iter().filter(|(_, space)| space.is_linked) {
            let link = self.into.join(format!("pg_tblspc/{oid}"));
            let place = std::path::absolute(&space.place).map_err(Failure::at(&space.place))?;
            match fs::read_link(&link) {
                Ok(found) if found == place => {}
                Ok(found) => {
                    let what = format!(
                        "the tablespace was restored into {}; give the same --tablespace-mapping again",
                        found.display()
                    );
                    return Err(Failure::new(link.display(), what));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => check_empty(&place)?,
                Err(error) => return Err(Failure::at(&link)(error)),
            }
            self.folder(&place)?;
        }
        self.check_apart(|place| fs::canonicalize(place))?;
        self.make_links()
    }

    fn make_links(&self) -> Result<(), Failure> {
        for folder in ["pg_tblspc", "pg_wal", "pg_wal/archive_status"] {
            self.folder(&self.into.join(folder))?;
        }
        for (oid, Space { place, is_linked, .. }) in &self.spaces {
            if *is_linked {
                let link = self.into.join(format!("pg_tblspc/{oid}"));
                let place = std::path::absolute(place).map_err(Failure::at(place))?;
                match symlink(&place, &link) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(Failure::at(&link)(error));
                    }
                    _ => {}
                }
            } else {
                self.folder(place)?;
            }
        }
        Ok(())
    }

    fn folder(&self, path: &Path) -> Result<(), Failure> {
        match self.access.create_folder(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Failure::at(path)(error)),
            _ => Ok(()),
        }
    }

    /// Makes directories, parents first. Some may be there.
    pub(super) fn make_folders(&self, folders: &[BackupPath]) -> Result<(), Failure> {
        folders.iter().try_for_each(|path| self.folder(&self.path(path)))
    }

    /// Where a file is until [`finish`](Places::finish).
    pub(super) fn path(&self, path: &BackupPath) -> PathBuf {
        let name = match path.as_bytes() == CONTROL.as_bytes() {
            true => CONTROL_UNTIL_THEN.as_bytes(),
            false => path.as_bytes(),
        };
        self.into.join(OsStr::from_bytes(name))
    }

    /// Makes a file, and the directories above it where they are not there yet.
    pub(super) fn create(
        &self,
        path: &BackupPath,
        permissions: Option<Permissions>,
    ) -> Result<File, Failure> {
        check_place(path)?;
        let place = self.path(path);
        let create = || self.access.open(OpenOptions::new().read(true).create_new(true), &place, permissions);
        match create() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parents: Vec<_> = place.ancestors().skip(1).take_while(|above| !above.exists()).collect();
                parents.into_iter().rev().try_for_each(|parent| self.folder(parent))?;
                create().map_err(Failure::at(&place))
            }
            done => done.map_err(Failure::at(&place)),
        }
    }

    /// Opens a file to write to it, and makes it where it is not there.
    pub(super) fn open(&self, path: &BackupPath, permissions: Option<Permissions>) -> Result<File, Failure> {
        self.open_at(&self.path(path), permissions)
    }

    /// The same for a file by its place.
    pub(super) fn open_at(&self, place: &Path, permissions: Option<Permissions>) -> Result<File, Failure> {
        let how = &mut OpenOptions::new();
        self.access.open(how.create(true).truncate(false), place, permissions).map_err(Failure::at(place))
    }

    /// Marks those of the files of `pg_wal` as archived that the server will not go on in: they need not be archived again.
    pub(super) fn mark_archived<'n>(
        &self,
        names: impl Iterator<Item = &'n [u8]>,
        size: WalSegmentSize,
        stop: Lsn,
    ) -> Result<(), Failure> {
        for name in names.filter(|name| is_archived(name, size, stop)) {
            let mut done = OsStr::from_bytes(name).to_owned();
            done.push(".done");
            let path = self.into.join("pg_wal/archive_status").join(done);
            match self.access.create(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Failure::at(&path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes all of it durable, and then a data directory of it: the manifest is called `until_then` and the control file
    /// has another name.
    pub(super) fn finish(&self, until_then: &Path) -> Result<(), Failure> {
        self.all().try_for_each(sync)?;
        let manifest = self.into.join("backup_manifest");
        fs::rename(until_then, &manifest).map_err(Failure::at(&manifest))?;
        sync_names(&self.into)?;
        let control = self.into.join(CONTROL);
        fs::rename(self.into.join(CONTROL_UNTIL_THEN), &control).map_err(Failure::at(&control))?;
        sync_names(&self.into.join("global"))
    }
}

/// Directories that were filled.
pub(super) struct Made(Vec<Place>);

impl Made {
    /// Takes away all that was made.
    pub(super) fn remove(&self) {
        self.0.iter().for_each(Place::remove);
    }
}

/// Whether a file of `pg_wal` is a history, or a segment that ends before the backup does.
pub(super) fn is_archived(name: &[u8], size: WalSegmentSize, stop: Lsn) -> bool {
    let segment = std::str::from_utf8(name).ok().and_then(|name| name.parse::<WalSegmentName>().ok());
    match segment {
        Some(segment) => segment
            .start(size)
            .is_ok_and(|start| start.checked_add(size.bytes()).is_some_and(|end| end <= stop)),
        None => name.ends_with(b".history"),
    }
}

/// The OID of the tablespace that a file is in.
pub(super) fn tablespace(path: &BackupPath) -> Option<u32> {
    let mut parts = path.components();
    match (parts.next(), parts.next().map(std::str::from_utf8)) {
        (Some(b"pg_tblspc"), Some(Ok(oid))) => oid.parse().ok(),
        _ => None,
    }
}

/// In a tablespace's directory only that of a version is the server's: nothing else is written there.
pub(super) fn check_place(path: &BackupPath) -> Result<(), Failure> {
    if path.as_bytes() == CONTROL_UNTIL_THEN.as_bytes() {
        let what = "a server has no such file; pgshrink uses this name for global/pg_control until \
            everything else is restored";
        return Err(Failure::damage(path, what));
    }
    let mut parts = path.components();
    if parts.next() != Some(b"pg_tblspc") {
        return Ok(());
    }
    let is_version = parts.nth(1).is_some_and(|part| part.starts_with(b"PG_"));
    if is_version && tablespace(path).is_some() && parts.next().is_some() {
        return Ok(());
    }
    Err(Failure::damage(path, "a server has no file there"))
}

#[cfg(test)]
mod tests;
