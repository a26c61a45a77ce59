//! A container on a disk without faults, for tests that are not schedules.

use std::sync::atomic::AtomicU64;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::sim::{Disk, DiskFile};
use pgshrink_cfs::{
    Birth, Container, Error, Folder, Identity, KEY_BYTES, OpenReport, Options, Recovery, Salvaged, Scratch,
    Seal, Stored, segment,
};

pub type Open<'m> = Container<'m, DiskFile, Alone>;

/// What lives as long as the test: the disk, and shared memory for each opening.
pub struct Bench {
    pub disk: Disk,
    pub options: Options<'static>,
}

impl Bench {
    pub fn new(options: Options<'static>) -> Bench {
        let disk = Disk::new(1, || ());
        // Tests open a container anew beside an old opening, which stands for a server that is gone.
        disk.set_locks_ignored(true);
        Bench { disk, options }
    }

    pub fn small() -> Bench {
        Bench::new(crate::plan::options(Fault::None, 0))
    }

    pub fn words(&self) -> &'static [AtomicU64] {
        Vec::leak((0..self.options.geometry.words()).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn create(&self, id: u8) -> Open<'static> {
        self.create_in(id, self.words())
    }

    /// The entry of a block in the shared memory.
    pub fn entry<'a>(&self, words: &'a [AtomicU64], block: usize) -> &'a AtomicU64 {
        let geometry = self.options.geometry;
        &words[geometry.words() - (geometry.pages_max + geometry.extents_max) as usize + block]
    }

    pub fn create_in(&self, id: u8, words: &'static [AtomicU64]) -> Open<'static> {
        let birth = Birth { id: [id; 16], identity: Identity::default(), key: [7; KEY_BYTES] };
        segment::create(&self.disk, Alone, words, &birth, self.options).unwrap()
    }

    pub fn open(&self) -> Result<(Open<'static>, OpenReport), Error> {
        self.open_with(self.words(), Recovery::Discard)
    }

    pub fn open_in(&self, words: &'static [AtomicU64]) -> Result<(Open<'static>, OpenReport), Error> {
        self.open_with(words, Recovery::Discard)
    }

    /// Opens it, and does this with what no root refers to.
    pub fn recover(&self, recovery: Recovery) -> Result<(Open<'static>, OpenReport), Error> {
        self.open_with(self.words(), recovery)
    }

    fn open_with(
        &self,
        words: &'static [AtomicU64],
        recovery: Recovery,
    ) -> Result<(Open<'static>, OpenReport), Error> {
        let file = self.disk.open(segment::FILE_NAME).unwrap();
        let opened = Container::open(file, Alone, words, recovery, self.options);
        opened.map(|(container, report)| (container, report.unwrap()))
    }

    pub fn salvage(&self) -> Result<(Open<'static>, Salvaged), Error> {
        let file = self.disk.open(segment::FILE_NAME).unwrap();
        Container::salvage(file, Alone, self.words(), self.options)
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.disk.bytes(segment::FILE_NAME).unwrap()
    }

    pub fn set_bytes(&self, bytes: Vec<u8>) {
        self.disk.damage(segment::FILE_NAME, |file| *file = bytes);
    }
}

/// What `generation` stores in a block.
pub fn content(block: u32, generation: u32) -> Vec<u8> {
    let mut bytes = format!("block {block} generation {generation} ").into_bytes();
    bytes.resize(100 + block as usize * 7, generation as u8);
    bytes
}

pub fn write(container: &Open<'_>, block: u32, generation: u32) {
    container.write(block, 1, 0, &content(block, generation), &mut Scratch::new()).unwrap();
}

pub fn read(container: &Open<'_>, block: u32) -> Result<Vec<u8>, Error> {
    let mut scratch = Scratch::new();
    container.read(block, &mut scratch).map(|stored| match stored {
        Stored::Zeros => Vec::new(),
        Stored::Record { payload, .. } => payload.to_vec(),
        Stored::Base(page) => page.to_vec(),
    })
}

/// Not encryption: enough to see what is bound to what, and which nonces are used.
pub struct TestSeal {
    pub key: u8,
    pub name: u8,
    pub nonces: std::cell::RefCell<Box<dyn FnMut() -> u64>>,
    pub used: std::cell::RefCell<Vec<u64>>,
}

impl TestSeal {
    pub fn new(key: u8, nonces: impl FnMut() -> u64 + 'static) -> TestSeal {
        TestSeal {
            key,
            name: key,
            nonces: std::cell::RefCell::new(Box::new(nonces)),
            used: Default::default(),
        }
    }

    fn tag(&self, nonce: &[u8], associated: &[u8], plaintext: &[u8]) -> [u8; 8] {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (self.key, nonce, associated, plaintext).hash(&mut hasher);
        hasher.finish().to_le_bytes()
    }
}

impl Seal for TestSeal {
    fn key_id(&self) -> [u8; 16] {
        [self.name; 16]
    }

    fn seal(&self, associated: &[u8], plaintext: &[u8], out: &mut Vec<u8>) {
        let nonce = self.nonces.borrow_mut()();
        self.used.borrow_mut().push(nonce);
        let nonce = nonce.to_le_bytes();
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&self.tag(&nonce, associated, plaintext));
        out.extend(plaintext.iter().map(|byte| byte ^ self.key));
    }

    fn open(&self, associated: &[u8], sealed: &[u8], out: &mut [u8]) -> Option<usize> {
        let (nonce, rest) = sealed.split_at_checked(8)?;
        let (tag, ciphertext) = rest.split_at_checked(8)?;
        let out = out.get_mut(..ciphertext.len())?;
        out.iter_mut().zip(ciphertext).for_each(|(out, byte)| *out = byte ^ self.key);
        (tag == self.tag(nonce, associated, out)).then_some(ciphertext.len())
    }
}
