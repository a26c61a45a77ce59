//! A segment's folder: making the container, and what must succeed on one that is damaged.
//!
//! A server that cannot drop, stat or size a relation stops in a loop of recoveries. So these need no valid
//! root and no key; only reading a page does.

use crate::device::{Device, DeviceError, Folder, ProcessTable};
use crate::engine::container::{Container, Options};
use crate::engine::recovery::Birth;
use crate::fault::Fault;
use crate::format::error::{Error, Reason};
use crate::format::root::{
    Base, DISK_BLOCK_BYTES, FIRST_SLOT, HEAD_BYTES, Identity, KEY_BYTES, Root, SUPERBLOCK_SLOTS, peek,
};
use crate::format::units::{ContainerId, UNIT_BYTES};
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
    /// The first byte behind everything that the root leads to, or a later one.
    pub end: u64,
    /// Slots whose check sum is right.
    pub whole_roots: u32,
    /// Of each slot that is neither empty nor whole, and of the first one if it is empty, why not. One that only its key proves to be forged counts as whole.
    pub broken_roots: [Option<Reason>; SUPERBLOCK_SLOTS],
}

/// What the newest root shows without its key, whole ones before broken ones: for the key that opening needs,
/// and for those who ask for the size of a container that does not open. None: no root can be made out.
pub fn clear(device: &impl Device) -> Option<Clear> {
    let (mut whole_roots, mut broken_roots) = (0, [None; SUPERBLOCK_SLOTS]);
    let slots = broken_roots.iter_mut().enumerate().filter_map(|(index, broken)| {
        let mut slot = [0; DISK_BLOCK_BYTES];
        let got = device.pread(&mut slot, (index * DISK_BLOCK_BYTES) as u64).ok()?;
        if slot != [0; DISK_BLOCK_BYTES] {
            *broken = broken_reason(&slot[..got]);
            whole_roots += u32::from(broken.is_none());
        } else if index == FIRST_SLOT {
            *broken = Some(Reason::NoRoot);
        }
        peek(&slot)
    });
    let (root, is_whole) = slots.max_by_key(|(root, is_whole)| (*is_whole, root.sequence))?;
    let end = root.end.saturating_mul(UNIT_BYTES as u64);
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
        end,
        whole_roots,
        broken_roots,
    })
}

/// Why a slot is not whole, as far as that can be seen without its key.
fn broken_reason(slot: &[u8]) -> Option<Reason> {
    match Root::decode(slot, None, Fault::None) {
        Err(Error::Damaged(damage)) => Some(damage.reason),
        Err(Error::Foreign { .. }) => Some(Reason::NoRoot),
        _ => None,
    }
}

impl Clear {
    /// Bytes that the root proves to be missing from a file of this size: what lies below a root's end is durable before
    /// the root is written, and is cut off only after a newer root with a lower end. A container that never had a page
    /// may lack slots of its ring.
    pub fn missing_bytes(&self, file_bytes: u64) -> u64 {
        if self.is_whole && self.end > HEAD_BYTES as u64 { self.end.saturating_sub(file_bytes) } else { 0 }
    }

    /// Whether later roots may have been lost, as [`OpenReport::may_be_older`](crate::OpenReport::may_be_older).
    pub fn may_be_older(&self, file_bytes: u64) -> bool {
        self.whole_roots == 1 && self.discarded_bytes(file_bytes) > 0
    }

    /// Bytes of a file of this size behind what the root leads to, in whole disk blocks.
    pub fn discarded_bytes(&self, file_bytes: u64) -> u64 {
        let end = self.end.max(HEAD_BYTES as u64).checked_next_multiple_of(DISK_BLOCK_BYTES as u64);
        end.map_or(0, |end| file_bytes.saturating_sub(end))
    }
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
