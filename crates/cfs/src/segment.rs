//! A segment's folder: making the container, and what must succeed on one that is damaged.
//!
//! A server that cannot drop, stat or size a relation stops in a loop of recoveries. So these need no valid root and no
//! key; only reading a page does.

use crate::container::{Container, Options};
use crate::device::{Device, DeviceError, Folder, Peers};
use crate::error::Error;
use crate::live::Word;
use crate::recovery::Birth;
use crate::root::{ROOT_SHEETS, SHEET_BYTES, glance};

/// The container's name. Its end is no number, so that no tool takes it for a segment.
pub const FILE_NAME: &str = "segment.pgshrink";
/// The name it has until its first root is durable.
pub const NEW_FILE_NAME: &str = "segment.pgshrink-new";
/// Segments of no more pages stay plain files: as a container they would be larger.
pub const PLAIN_PAGES_MAX: u32 = 4;

/// Makes a container in the folder. Its name appears when a durable root is in it, so that a named file without one is
/// damaged, never unborn; the name itself is durable with the first commit.
pub fn create<'m, F: Folder, P: Peers, W: Word>(
    folder: &F,
    peers: P,
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
    let container = Container::create(file, peers, words, birth, options)?;
    folder.rename(NEW_FILE_NAME, FILE_NAME).map_err(named)?;
    Ok(container)
}

/// Pages of the segment as the newest root that can be made out says, whole or not, with or without its key; 0 if none can
/// be made out. For those who ask for the size of a container that does not open.
pub fn pages_at_a_glance(device: &impl Device) -> u32 {
    let mut newest = (0, 0);
    for index in 0..ROOT_SHEETS {
        let mut sheet = [0; SHEET_BYTES];
        if device.pread(&mut sheet, (index * SHEET_BYTES) as u64).is_ok()
            && let Some((_, sequence, pages)) = glance(&sheet)
        {
            newest = newest.max((sequence, pages));
        }
    }
    newest.1
}

/// Removes the container, whatever state it is in. The folder itself is the caller's to remove.
pub fn unlink(folder: &impl Folder) -> Result<(), DeviceError> {
    for name in [NEW_FILE_NAME, FILE_NAME] {
        match folder.unlink(name) {
            Ok(()) | Err(DeviceError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
