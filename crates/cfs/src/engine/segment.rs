//! A segment's folder: making the container, and what must succeed on one that is damaged.
//!
//! A server that cannot drop, stat or size a relation stops in a loop of recoveries. So these need no valid
//! root and no key; only reading a page does.

use crate::device::{Device, DeviceError, Folder, ProcessTable};
use crate::engine::container::{Container, Options};
use crate::engine::recovery::Birth;
use crate::format::error::Error;
use crate::format::root::{Base, DISK_BLOCK_BYTES, Identity, KEY_BYTES, Root, SUPERBLOCK_SLOTS, peek};
use crate::format::units::ContainerId;
use crate::shared::word::Word;

/// The container's name. Its end is no number, so that no tool takes it for a segment.
pub const FILE_NAME: &str = "segment.pgshrink";
/// The name it has until its first root is durable.
pub const NEW_FILE_NAME: &str = "segment.pgshrink-new";
/// The base's name, beside the container.
pub const BASE_NAME: &str = "base.pgshrink";
/// Segments of no more pages stay plain files: as a container they would be larger.
pub const PLAIN_PAGES_MAX: u32 = 4;

/// Makes a container in the folder. Its name appears when a durable root is in it, so that a named file
/// without one is damaged, never unborn; the name itself is durable with the first commit.
///
/// # Errors
/// [`Error::Device`] where the folder fails; as [`Container::create`].
pub fn create<'m, F: Folder, P: ProcessTable, W: Word>(
    folder: &F,
    processes: P,
    words: &'m [W],
    birth: &Birth,
    options: Options<'m>,
) -> Result<Container<'m, F::File, P, W>, Error> {
    let named = |source| Error::device("create", 0, 0, source);
    match folder.unlink(NEW_FILE_NAME) {
        Ok(()) | Err(DeviceError::NotFound) => {}
        Err(source) => return Err(named(source)),
    }
    let file = folder.create(NEW_FILE_NAME).map_err(named)?;
    let container = Container::create(file, processes, words, birth, options)?;
    folder.rename(NEW_FILE_NAME, FILE_NAME).map_err(named)?;
    Ok(container)
}

/// What the roots show to everybody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clear {
    /// The container's random id.
    pub id: ContainerId,
    /// Which segment it says it is.
    pub identity: Identity,
    /// Pages of the segment.
    pub pages: u32,
    /// Pages at most.
    pub pages_max: u32,
    /// The root's number.
    pub sequence: u64,
    /// How often the container was opened.
    pub epoch: u32,
    /// Whether nothing was written after this root.
    pub is_closed: bool,
    /// Whether the file's name was durable before this root was written.
    pub is_named: bool,
    /// What the base is.
    pub base: Base,
    /// What the caller keeps about how pages are written; 0: nothing.
    pub policy: u32,
    /// Which master key wraps the data key; zeros: not sealed.
    pub key_id: [u8; 16],
    /// The wrapped data key.
    pub key: [u8; KEY_BYTES],
    /// Whether the slot's check sum is right.
    pub is_whole: bool,
}

/// What the newest root shows without its key, whole ones before broken ones: for the key that opening needs,
/// and for those who ask for the size of a container that does not open. None: no root can be made out.
pub fn clear(device: &impl Device) -> Option<Clear> {
    let slots = (0..SUPERBLOCK_SLOTS).filter_map(|index| {
        let mut slot = [0; DISK_BLOCK_BYTES];
        device.pread(&mut slot, (index * DISK_BLOCK_BYTES) as u64).ok()?;
        peek(&slot)
    });
    let (root, is_whole) = slots.max_by_key(|(root, is_whole)| (*is_whole, root.sequence))?;
    let Root { container: id, identity, pages, pages_max, epoch, base, policy, key_id, key, .. } = root;
    let (is_closed, is_named, sequence) = (root.closed, root.named, root.sequence.0);
    Some(Clear {
        id,
        identity,
        pages,
        pages_max,
        sequence,
        epoch,
        is_closed,
        is_named,
        base,
        policy,
        key_id,
        key,
        is_whole,
    })
}

/// Pages of the segment as far as can be made out; 0 otherwise.
pub fn peek_pages(device: &impl Device) -> u32 {
    clear(device).map_or(0, |clear| clear.pages)
}

/// Removes the container, whatever state it is in. The folder itself is the caller's to remove.
///
/// # Errors
/// What the folder says, but not that there is no such file.
pub fn unlink(folder: &impl Folder) -> Result<(), DeviceError> {
    for name in [NEW_FILE_NAME, FILE_NAME, BASE_NAME] {
        match folder.unlink(name) {
            Ok(()) | Err(DeviceError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
