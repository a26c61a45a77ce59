//! R gets another form: what is made beforehand, the exchange of names, what is removed afterwards.

use crate::convert::error::During;
use crate::convert::{ConvertError, Found, Holders, Inode, Kind, Name, Site, remove_leftover};
use crate::device::DeviceError;
use crate::fault::Fault;
use crate::format::error::Error;

/// A segment that is a container and has, or had, a base: as a worker knows it. It is this very container
/// whatever R is by now.
pub struct Exchanged<D> {
    /// Its directory, open.
    pub directory: D,
    /// The directory's number, which is no other's while it is open.
    pub container: Inode,
    /// The base's number, which is no other's while it has a name in the directory.
    pub base: Inode,
    /// Who had the file open before, for an injected fault.
    pub(super) before: Option<Holders>,
}

impl<D> Exchanged<D> {
    /// The container that R is, with its base: for a worker that goes on with what another has begun.
    ///
    /// # Errors
    /// [`ConvertError::Base`] where there is no base.
    pub fn open<S: Site<Directory = D>>(site: &S) -> Result<Self, ConvertError> {
        let directory = site.open_directory(Name::Segment).during("open", Name::Segment)?;
        let container = site.look_at(&directory).during("look at", Name::Segment)?.inode;
        let base = base_of(site, &directory)?;
        Ok(Exchanged { directory, container, base: base.inode, before: None })
    }

    /// Whether R is still this container. It may be another a moment later, unless a lock is held.
    ///
    /// # Errors
    /// [`ConvertError::OtherFile`] if not.
    pub fn check_name<S: Site<Directory = D>>(&self, site: &S) -> Result<(), ConvertError> {
        check(site, Name::Segment, self.container)
    }
}

/// Makes R, a plain file, a container whose base is that file. The caller holds a lock of the relation that
/// keeps it from being dropped, and has seen in the catalog, under that lock, that R is the relation's and
/// that its file is `expected`. Nobody is waited for.
///
/// 1. What an earlier attempt of this process has left is removed. A file with a second name is refused: it
///    could be written by that name.
/// 2. The container is made, its root saying that the base has all pages, and the base's name. It must be the
///    file that was looked at: that R was dropped and made again is excluded by the lock, and checked.
/// 3. The directory is synced. After the exchange it is the only way to the file, in whatever state the power
///    leaves it.
/// 4. An exchange is under way from now on: calls by path look again.
/// 5. The names are exchanged, and it is looked at what the new name has: if not that file, they are
///    exchanged back.
/// 6. The old file's second name goes, so that its descriptors say "deleted".
///
/// The directory above is not synced: R may be either until [`make_durable`](super::make_durable), as both
/// lead to the same file.
///
/// # Errors
/// R is what it was, but for [`ConvertError::NotExchangedBack`]. Something may be left beside it.
pub fn exchange_in<S: Site>(site: &S, expected: Inode) -> Result<Exchanged<S::Directory>, ConvertError> {
    let (fault, new) = (site.fault(), Name::New(site.me()));
    remove_leftover(site, new)?;
    if !fault.is(Fault::NameNotChecked) {
        check(site, Name::Segment, expected)?;
    }
    let found = site.look(Name::Segment).during("look at", Name::Segment)?;
    match found {
        Some(Found { kind: Kind::Plain, links: 1, .. }) => {}
        Some(Found { kind: Kind::Plain, links, .. }) => {
            return Err(ConvertError::OtherNames { name: Name::Segment, found: links });
        }
        _ => return Err(ConvertError::OtherFile { name: Name::Segment, expected, found }),
    }

    let directory = site.make_directory().during("make", new)?;
    let made = fill(site, &directory, expected).and_then(|base| {
        let before = fault.is(Fault::ScanBeforeExchange).then(|| site.holders(base).unwrap_or_default());
        let container = site.look_at(&directory).during("look at", new)?.inode;
        exchange(site, base)?;
        Ok((container, base, before))
    });
    match made {
        Ok((container, base, before)) => {
            // A second name is in nobody's way, and the next attempt removes it.
            let _ = site.unlink(new);
            Ok(Exchanged { directory, container, base, before })
        }
        Err(error @ ConvertError::NotExchangedBack { .. }) => Err(error),
        Err(error) => {
            drop(directory);
            let _ = remove_leftover(site, new);
            Err(error)
        }
    }
}

/// Steps 2 and 3 of [`exchange_in`].
fn fill<S: Site>(site: &S, directory: &S::Directory, expected: Inode) -> Result<Inode, ConvertError> {
    let new = Name::New(site.me());
    site.make_container(directory)?;
    site.link_segment(directory).during("link the segment into", new)?;
    let base = base_of(site, directory)?;
    if base.inode != expected && !site.fault().is(Fault::NameNotChecked) {
        return Err(ConvertError::OtherFile { name: Name::Segment, expected, found: Some(base) });
    }
    if !site.fault().is(Fault::LinkNotSynced) {
        site.sync_directory(directory).during("sync", new)?;
    }
    Ok(base.inode)
}

/// Exchanges R, which must have `expected`, with the new name.
fn exchange<S: Site>(site: &S, expected: Inode) -> Result<(), ConvertError> {
    let new = Name::New(site.me());
    let generation = site.generation();
    let _under_way = generation.begin();
    let checks = !site.fault().is(Fault::NameNotChecked);
    if checks {
        check(site, Name::Segment, expected)?;
    }
    site.exchange().during("exchange the segment with", new)?;
    let checked = if checks { check(site, new, expected) } else { Ok(()) };
    if let Err(other) = checked {
        site.exchange().map_err(|source| ConvertError::NotExchangedBack { name: new, source })?;
        return Err(other);
    }
    Ok(())
}

/// Makes R, a container whose durable root says that the base has all pages, the base. The caller holds a
/// lock as for [`exchange_in`]; no fsync of the container has failed, as fsyncs of the plain file would
/// succeed. `leave` says in shared memory that the container has left
/// ([`Container::leave`](crate::Container::leave)).
///
/// 1. What an earlier attempt has left is removed; R must be this container.
/// 2. The base gets the new name, and that is exchanged with R. Who still uses the container goes to the same
///    file.
/// 3. The container is marked as left: who had no descriptor of its base opens the segment by its name.
/// 4. The directory above is synced: only then may the container lose its files, as R may be the container
///    again after a loss of power.
/// 5. What was R is removed. If something fails from here on, [`remove_leftover`] does it later.
///
/// # Errors
/// As [`exchange_in`]. After [`ConvertError::System`] of step 4 or 5 R is the plain file, and something is
/// left beside it: [`ConvertError::OtherFile`] tells on the next attempt.
pub fn exchange_out<S: Site>(
    site: &S,
    exchanged: Exchanged<S::Directory>,
    leave: impl FnOnce(),
) -> Result<Inode, ConvertError> {
    let new = Name::New(site.me());
    remove_leftover(site, new)?;
    exchanged.check_name(site)?;
    let Exchanged { directory, container, base, .. } = exchanged;
    let found = base_of(site, &directory)?;
    if found.inode != base {
        return Err(ConvertError::Base { expected: "the one that contains all pages", found: Some(found) });
    }

    let linked = site.link_base(&directory).during("link the base to", new);
    let exchanged = linked.and_then(|()| check(site, new, base)).and_then(|()| exchange(site, container));
    if let Err(error) = exchanged {
        if !matches!(error, ConvertError::NotExchangedBack { .. }) {
            let _ = remove_leftover(site, new);
        }
        return Err(error);
    }
    leave();
    drop(directory);
    remove_leftover(site, new)?;
    Ok(base)
}

/// An empty base, for pages to return to. The root says that there is none, so what an earlier one has left
/// is removed: a descriptor of it must not write into the new one.
///
/// 1. The old name goes, and a new file is made.
/// 2. The directory is synced: a root that needs the base comes later.
///
/// # Errors
/// There may be a base, which nothing needs.
pub fn make_base<S: Site>(
    site: &S,
    directory: S::Directory,
) -> Result<Exchanged<S::Directory>, ConvertError> {
    let name = Name::Segment;
    let container = site.look_at(&directory).during("look at", name)?.inode;
    check(site, name, container)?;
    absent(site.unlink_base(&directory)).during("remove the old base of", name)?;
    site.make_base(&directory).during("make the base of", name)?;
    site.sync_directory(&directory).during("sync", name)?;
    let base = base_of(site, &directory)?.inode;
    Ok(Exchanged { directory, container, base, before: None })
}

/// Gives the base's space back. No entry of the map needs it.
///
/// 1. `commit` writes a root that says that there is no base, after all that it refers to is durable.
/// 2. The base's name goes, in this container's directory: R may be another's by now.
/// 3. The directory is synced.
/// 4. A barrier: who has the base open closes it.
///
/// # Errors
/// The base may still be there; the next call removes it.
pub fn finish<S: Site>(
    site: &S,
    directory: &S::Directory,
    commit: impl FnOnce() -> Result<(), Error>,
) -> Result<(), ConvertError> {
    let name = Name::Segment;
    let unlink = || absent(site.unlink_base(directory)).during("remove the base of", name);
    if site.fault().is(Fault::BaseUnlinkedEarly) {
        unlink()?;
        site.sync_directory(directory).during("sync", name)?;
    }
    commit()?;
    unlink()?;
    site.sync_directory(directory).during("sync", name)?;
    site.emit_barrier();
    Ok(())
}

fn base_of<S: Site>(site: &S, directory: &S::Directory) -> Result<Found, ConvertError> {
    let found = site.look_at_base(directory).during("look at the base of", Name::Segment)?;
    match found {
        Some(found) if found.kind == Kind::Plain => Ok(found),
        _ => Err(ConvertError::Base { expected: "a plain file", found }),
    }
}

fn check<S: Site>(site: &S, name: Name, expected: Inode) -> Result<(), ConvertError> {
    let found = site.look(name).during("look at", name)?;
    if found.is_some_and(|found| found.inode == expected) {
        return Ok(());
    }
    Err(ConvertError::OtherFile { name, expected, found })
}

fn absent(result: Result<(), DeviceError>) -> Result<(), DeviceError> {
    if result == Err(DeviceError::NotFound) { Ok(()) } else { result }
}
