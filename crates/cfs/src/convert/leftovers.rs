//! What a worker that died, or a loss of power, has left beside R.

use crate::convert::error::During;
use crate::convert::{ConvertError, Kind, Name, Site};
use crate::device::DeviceError;
use crate::fault::Fault;

/// Removes what has a [`Name::New`]: of this process, or of one that does not run any more, as none does at
/// the server's start. True: there was something.
///
/// Whichever of the two was to be R, R has it or has what it was made from, so the other one may go. But:
///
/// 1. Only if R is there. Otherwise this may be all that is left of the segment.
/// 2. The directory above is synced first. An exchange that only the page cache knows may yet be lost, and
///    then what is removed here is R: a container without its base.
/// 3. A directory's files go before it does.
///
/// # Errors
/// [`ConvertError::NoSegment`] where R is not there.
pub fn remove_leftover<S: Site>(site: &S, name: Name) -> Result<bool, ConvertError> {
    let Some(found) = site.look(name).during("look at", name)? else { return Ok(false) };
    let segment = site.look(Name::Segment).during("look at", Name::Segment)?;
    if segment.is_none() && !site.fault().is(Fault::SweptWithoutSegment) {
        return Err(ConvertError::NoSegment { name });
    }
    if !site.fault().is(Fault::RemovedBeforeSynced) {
        site.sync_above().during("sync the directory of", name)?;
    }
    if found.kind == Kind::Directory {
        let directory = site.open_directory(name).during("open", name)?;
        site.empty(&directory).during("empty", name)?;
        drop(directory);
        done(site.remove_directory(name)).during("remove", name)?;
    } else {
        done(site.unlink(name)).during("remove", name)?;
    }
    Ok(true)
}

fn done(result: Result<(), DeviceError>) -> Result<(), DeviceError> {
    if result == Err(DeviceError::NotFound) { Ok(()) } else { result }
}
