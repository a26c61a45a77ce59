//! `pgshrink cfs pack`.

use super::container::{Means, workspace};
use super::content::PlainFile;
use super::copy::{self, Done, Plan};
use super::dictionary::{self, Sample};
use super::file::SegmentFolder;
use super::keys::{self, Kernel};
use super::manifest::Entry;
use super::output::{self, Progress};
use super::walk::{self, Found, Kind};
use super::{Failure, Verdict, running, tree};
use crate::args::PackArgs;
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::dictionaries::DICTIONARIES_MAX;
use pgshrink_cfs::dictionary_policy::{DictionaryPolicy, first_blocks};
use pgshrink_cfs::page::{self, Mode, PAGE_SIZE, PageCodec, PageDictionary, Policy, TransformPolicy};
use pgshrink_cfs::seal::{Keyring, Random};
use pgshrink_cfs::store::{self, Writing};
use pgshrink_cfs::{Birth, ContainerId, Identity, KEY_BYTES, PAGES_MAX, PageStore, segment};
use pgshrink_codec::counted;
use pgshrink_codec::{Algorithm, AlgorithmList, Choice};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Pages between two commits: the engine gives out so many versions and more before it wants one.
const COMMIT_PAGES: u32 = 1 << 14;

/// What is the same for all containers of a run.
pub(super) struct Packing {
    policy: Policy,
    dictionary: bool,
    /// None: nothing is sealed.
    keyring: Option<Keyring>,
    random: Kernel,
    /// Of the relation that was packed last: its segments share it.
    trained: Option<Trained>,
}

/// A relation's dictionary, and what decides on the next one.
struct Trained {
    folder: PathBuf,
    number: u32,
    fork: u8,
    policy: DictionaryPolicy,
    dictionary: Option<PageDictionary>,
}

pub(super) fn run(args: &PackArgs) -> Result<Verdict, Failure> {
    let choice = choice(args.compression.as_deref().unwrap_or("zstd:1"))?;
    if let Some(given) = keys::given(&args.key).filter(|_| !args.seal) {
        let plain = "a key was given, but not --seal: expected both or neither. Add --seal to encrypt \
            all files, or leave out the key to pack them without encryption";
        return Err(Failure::new(Path::new(given), plain));
    }
    let mut keyring = args.seal.then(|| keys::keyring(&args.key)).transpose()?;
    let random = Kernel::new()?;
    if let Some(keyring) = &mut keyring {
        if keyring.is_empty() {
            let none =
                "encryption needs a key, but none was given; give one with --key-file or --key-command";
            return Err(Failure::new(Path::new("--seal"), none));
        }
        keyring.master(&random).map_err(|error| Failure::new(Path::new("--seal"), error))?;
    }
    running::refuse(&args.source, args.force)?;
    let mut packing = Packing::new(choice, !args.no_dictionary, keyring, random);
    let plan = Plan::new(&args.source, &args.dest, true)?;
    if !args.force {
        refuse_dangling(&plan.found)?;
    }
    packing.check(&plan.found)?;
    packing.refuse_renamed(&plan.found)?;
    let bar = |bytes| Progress::new(bytes, &args.output);
    let (copied, making) = plan.mirror(bar, |found, to, progress| packing.file(found, to, progress))?;
    running::refuse(&args.source, args.force)?;
    if copied.converted == 0 {
        eprintln!(
            "pgshrink: {}: no relation file to pack; everything was copied unchanged. Relation files are packed in \
             global and in a database's directory, which has its OID as its name",
            args.source.display()
        );
    }
    tree::write(&making.path(), copied.entries.clone(), &mut packing)?;
    making.finish()?;
    let (one, many) = match args.seal {
        true => ("file packed and encrypted", "files packed and encrypted"),
        false => ("relation file packed", "relation files packed"),
    };
    output::print(&args.output, &copied, |copied| copied.text(&args.source, one, many))?;
    Ok(copied.verdict())
}

/// Fails on a link with which the data directory goes on at a place that is not there: the copy would lack
/// that part.
fn refuse_dangling(found: &[Found]) -> Result<(), Failure> {
    let Some(link) = found.iter().find(|item| item.kind == Kind::Link && walk::goes_on(&item.path)) else {
        return Ok(());
    };
    let path = &link.path;
    let target = fs::read_link(path).map_err(Failure::reading(path))?;
    let why = fs::metadata(path).err().map_or("it is not a directory".to_owned(), |error| error.to_string());
    let reason = format!(
        "expected a link to a directory, found one to {}: {why}. Mount or restore it, or remove the link if the \
         tablespace is gone; --force packs the rest without it",
        target.display()
    );
    Err(Failure::new(path, reason))
}

fn choice(text: &str) -> Result<Choice, Failure> {
    let wrong = |reason: String| Failure::new(Path::new("--compression"), reason);
    let list = AlgorithmList::parse(text, &Algorithm::ALL[1..]).map_err(|error| wrong(error.to_string()))?;
    let choice = list.get(0).filter(|_| list.len() == 1);
    choice.ok_or_else(|| wrong("one algorithm, with or without a level".to_owned()))
}

impl Packing {
    fn new(choice: Choice, dictionary: bool, keyring: Option<Keyring>, random: Kernel) -> Packing {
        let policy = Policy { choice, transform: TransformPolicy::Auto };
        Packing { policy, dictionary, keyring, random, trained: None }
    }

    /// For a manifest alone.
    pub(super) fn of_manifest(keyring: Option<Keyring>, random: Kernel) -> Result<Packing, Failure> {
        Ok(Packing::new(choice("zstd:1")?, false, keyring, random))
    }

    pub(super) fn is_sealing(&self) -> bool {
        self.keyring.is_some()
    }

    /// Fails on what cannot be packed, before anything is.
    fn check(&self, found: &[Found]) -> Result<(), Failure> {
        for item in found {
            match item.kind {
                Kind::Container(_) | Kind::Manifest(_) => {
                    return Err(Failure::new(&item.path, "is already packed; unpack it first"));
                }
                Kind::Relation(_) | Kind::Other if self.is_sealing() => plain_file(item)?.fits()?,
                Kind::Relation(_) | Kind::Other
                    if found.len() == 1 && !self.is_packed(&plain_file(item)?) =>
                {
                    let reason = format!(
                        "nothing to pack: it is not a relation file of more than {} pages in global or in a database's \
                         directory, which has its OID as its name, as in base/16384",
                        segment::PLAIN_PAGES_MAX
                    );
                    return Err(Failure::new(&item.path, reason));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails on a tree in which nothing is a relation only because a database's directory has another name than its OID.
    fn refuse_renamed(&self, found: &[Found]) -> Result<(), Failure> {
        if self.is_sealing() || found.iter().any(|item| matches!(item.kind, Kind::Relation(_))) {
            return Ok(());
        }
        let Some(database) = found.iter().find_map(walk::renamed_database) else { return Ok(()) };
        let reason = "nothing to pack: it has PG_VERSION and relation files, but its name is not the OID of a database. \
            Rename it, as in base/16384 (SELECT oid, datname FROM pg_database), and pack it again";
        Err(Failure::new(database, reason))
    }

    /// Whether a file becomes a container: all in a sealed tree, else relations that gain.
    fn is_packed(&self, plain: &PlainFile) -> bool {
        self.is_sealing() || plain.name.is_some() && plain.pages > segment::PLAIN_PAGES_MAX
    }

    fn file(&mut self, found: &Found, to: &Path, progress: &Progress) -> Result<Done, Failure> {
        let whole = !self.is_sealing() && found.kind == Kind::Other;
        let plain = if whole { None } else { Some(plain_file(found)?).filter(|plain| self.is_packed(plain)) };
        match plain {
            Some(plain) => Ok(Done::Converted(plain.pages.into(), self.container(&plain, to, progress)?)),
            None => Ok(Done::AsItIs),
        }
    }

    /// A file of its own, which was nowhere before.
    pub(super) fn memory(&mut self, to: &Path, text: Vec<u8>) -> Result<Entry, Failure> {
        self.container(&PlainFile::of_memory(to, text), to, &Progress::hidden())
    }

    fn container(&mut self, plain: &PlainFile, to: &Path, progress: &Progress) -> Result<Entry, Failure> {
        plain.fits()?;
        self.train(plain)?;
        DirBuilder::new().mode(0o700).create(to).map_err(Failure::reading(to))?;
        let (means, entry) = self.write(plain, to, progress)?;
        self.compare(&means, plain, to)?;
        Ok(entry)
    }

    fn train(&mut self, plain: &PlainFile) -> Result<(), Failure> {
        let Some(name) = plain.name.filter(|_| self.dictionary) else {
            self.trained = None;
            return Ok(());
        };
        let folder = copy::parent(&plain.path);
        let is_known = |known: &Trained| {
            known.folder == folder && (known.number, known.fork) == (name.number, name.fork)
        };
        if self.trained.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        let mut samples: Vec<Sample> = Vec::new();
        for block in first_blocks(plain.pages.into()) {
            let (block, mut page) = (block as u32, [0; PAGE_SIZE]);
            plain.page(block, &mut page)?;
            samples.push((plain.in_relation(block), page));
        }
        let (policy, dictionary) = dictionary::first(&samples, plain.pages, &self.policy, &plain.path)?;
        let (folder, number, fork) = (folder.to_owned(), name.number, name.fork);
        self.trained = Some(Trained { folder, number, fork, policy, dictionary });
        Ok(())
    }

    fn write(
        &mut self,
        plain: &PlainFile,
        to: &Path,
        progress: &Progress,
    ) -> Result<(Means, Entry), Failure> {
        let failed = |error: store::Error| Failure::new(to, error);
        let born = birth(plain.identity(), self.keyring.as_mut(), self.random);
        let (means, birth) = born.map_err(|reason| Failure::new(to, reason))?;
        let folder = SegmentFolder(to.to_owned());
        let container = segment::create(&folder, Alone, means.words(), &birth, means.options(false));
        let store = container.map_err(store::Error::from).and_then(PageStore::new).map_err(failed)?;
        let add = |dictionary: &PageDictionary| store.add_dictionary(dictionary).map_err(failed);
        let known = self.trained.as_ref().and_then(|trained| trained.dictionary.as_ref());
        let dictionary = known.map(add).transpose()?;
        let mut count = usize::from(dictionary.is_some());
        let mut how = Writing { policy: self.policy, dictionary, verify: false };
        let (mut workspace, mut bytes) = (workspace(to)?, plain.bytes_of_pages());
        let mut page = [0; PAGE_SIZE];
        let changed = |reason: String| Failure::new(&plain.path, reason);
        for block in 0..plain.pages {
            plain.page(block, &mut page)?;
            bytes.of(block, &page).map_err(changed)?;
            let stored = store.write(block, &page, &how, &mut workspace).map_err(failed)?;
            if stored.mode != Mode::ZERO {
                let to_come = if count < DICTIONARIES_MAX { plain.pages - block } else { 0 };
                let better = self.follow(plain.in_relation(block), &page, stored.payload_len, to_come);
                if let Some(better) = better.map_err(|error| Failure::new(&plain.path, error))? {
                    how.dictionary = Some(add(better)?);
                    count += 1;
                }
            }
            if block % COMMIT_PAGES == COMMIT_PAGES - 1 {
                store.container().commit().map_err(|error| failed(error.into()))?;
            }
            progress.add(PAGE_SIZE as u64);
        }
        store.container().close().map_err(|error| failed(error.into()))?;
        drop(store);
        Ok((means.fresh(), bytes.entry().map_err(changed)?))
    }

    /// Takes note of a page that was written; a better dictionary, if one is due and found.
    fn follow(
        &mut self,
        block: u32,
        page: &[u8; PAGE_SIZE],
        payload_len: usize,
        pages_to_come: u32,
    ) -> Result<Option<&PageDictionary>, page::Error> {
        let Some(trained) = self.trained.as_mut().filter(|_| self.dictionary) else { return Ok(None) };
        if !trained.policy.note(block, page, payload_len) {
            return Ok(None);
        }
        let present = trained.dictionary.as_ref();
        let found = trained.policy.trial(&mut PageCodec::new(), &self.policy, present, pages_to_come)?;
        Ok(match found {
            Some(better) => Some(trained.dictionary.insert(better)),
            None => None,
        })
    }

    /// Opens what was made, and compares every page.
    fn compare(&self, means: &Means, plain: &PlainFile, to: &Path) -> Result<(), Failure> {
        let (mut reader, _) = means.open(&to.join(segment::FILE_NAME))?;
        let mut before = [0; PAGE_SIZE];
        let pages = reader.pages();
        if pages != plain.pages {
            return Err(Failure::new(
                to,
                format!("expected {}, found {pages}", counted(plain.pages.into(), "page", "pages")),
            ));
        }
        reader.each(|block, after| {
            plain.page(block, &mut before)?;
            if before != *after.map_err(|fault| Failure::new(to, fault))? {
                let changed = format!("block {block} could not be read; is a server writing to it?");
                return Err(Failure::new(&plain.path, changed));
            }
            Ok(())
        })?;
        plain.same_length()
    }
}

fn plain_file(found: &Found) -> Result<PlainFile, Failure> {
    let name = if let Kind::Relation(name) = found.kind { Some(name) } else { None };
    PlainFile::open(&found.path, name)
}

/// A new container's name and key, and what it takes to write it.
pub(super) fn birth(
    identity: Identity,
    keyring: Option<&mut Keyring>,
    random: Kernel,
) -> Result<(Means, Birth), String> {
    let mut id: ContainerId = [0; 16];
    random.fill(&mut id);
    let mut birth = Birth { id, identity, key: [0; KEY_BYTES] };
    let mut seal = None;
    if let Some(keyring) = keyring {
        let master = keyring.master(&random).map_err(|error| error.to_string())?;
        let (key, slot) = master.new_data_key(&id, &random);
        birth.key = slot;
        seal = Some(key.into_seal(master.id(), random));
    }
    Ok((Means::new(PAGES_MAX, seal), birth))
}
