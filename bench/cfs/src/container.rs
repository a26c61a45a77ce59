//! Containers in real files, shared by threads that open them as processes would: what a read waits for, what
//! updates write, what a checkpoint waits for, what open segments take, what a database of small relations takes, and what the interface
//! for pages costs.

pub mod checkpoint;
pub mod latency;
pub mod sample;
pub mod slots;
pub mod small;
pub mod store;
pub mod updates;

use std::path::Path;
use std::sync::atomic::AtomicU64;

use pgshrink_bench_report::Result;
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::{
    Birth, Container, Folder, Geometry, Identity, KEY_BYTES, Options, Recovery, Scratch, Stored, segment,
};

use crate::shell::{FileDevice, FileFolder};
use sample::Sample;

/// As many open files as the system lets this process have.
fn raise_descriptors() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

type Open<'m> = Container<'m, FileDevice, Alone>;

/// The pages of a sample in a container of their own.
struct Subject<'f> {
    folder: &'f Path,
    pages: u32,
    words: Vec<AtomicU64>,
}

impl<'f> Subject<'f> {
    /// Packs the sample: page after page, then a clean close.
    fn pack(folder: &'f Path, sample: &Sample) -> Result<Subject<'f>> {
        let pages = u32::try_from(sample.payloads.len())?;
        let words = (0..Geometry::of(pages).words()).map(|_| AtomicU64::new(0)).collect();
        let subject = Subject { folder, pages, words };
        let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
        let folder = FileFolder(folder.to_owned());
        let container = segment::create(&folder, Alone, &subject.words, &birth, Options::new(pages))?;
        let mut scratch = Scratch::new();
        for (block, (mode, payload)) in (0..).zip(&sample.payloads) {
            write(&container, block, *mode, payload, &mut scratch)?;
        }
        container.close()?;
        drop(container);
        Ok(subject)
    }

    /// The container, as one more process opens it.
    fn open(&self) -> Result<Open<'_>> {
        let file = FileFolder(self.folder.to_owned()).open(segment::FILE_NAME)?;
        Ok(Container::open(file, Alone, &self.words, Recovery::Discard, Options::new(self.pages))?.0)
    }

    /// What the filesystem has allocated for it.
    fn disk_bytes(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(std::fs::metadata(self.folder.join(segment::FILE_NAME))?.blocks() * 512)
    }
}

/// Whatever a page became; a page of zeros has no record.
fn write(container: &Open<'_>, block: u32, mode: u8, payload: &[u8], scratch: &mut Scratch) -> Result<()> {
    match payload.is_empty() {
        true => container.write_zeros(block)?,
        false => container.write(block, mode, 0, payload, scratch)?,
    }
    Ok(())
}

/// Reads every page and compares: `expected` is each block's place in the sample.
fn compare(container: &Open<'_>, sample: &Sample, expected: &[u32]) -> Result<()> {
    let mut scratch = Scratch::new();
    for (block, at) in (0..).zip(expected) {
        let (mode, payload) = &sample.payloads[*at as usize];
        let found = container.read(block, &mut scratch)?;
        let same = match found {
            Stored::Zeros => payload.is_empty(),
            Stored::Base(_) => false,
            Stored::Record { mode: found, payload: bytes, .. } => found == *mode && bytes == payload,
        };
        if !same {
            return Err(format!("block {block} is not what was written").into());
        }
    }
    Ok(())
}
