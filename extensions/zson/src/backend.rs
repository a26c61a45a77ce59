//! What a backend keeps between values: contexts, dictionaries made ready, documents decoded last.
//!
//! 1. Memory is bounded by `zson.cache_size`: dictionaries made ready and the memo together; what was used longest
//!    ago goes first. What one value needs is always kept.
//! 2. A dictionary's bytes never change and its id is never used again, so one made ready for reading stays right.
//!    What is written with is looked up anew after each change of the tables.
//! 3. While the server is called, nothing here is borrowed: an ERROR may jump over the frame, and an invalidation
//!    only sets a flag. An interrupt between two pieces of a large document is the exception: its ERROR is a panic, the
//!    encoder and its buffer are as good as before, and what else an interrupt does runs nothing of ours.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pgrx::pg_sys::{self, Datum, Oid};
use pgshrink_codec::{Algorithm, Dictionary};
use pgshrink_zson::legacy::Words;
use pgshrink_zson::shapes::Known;
use pgshrink_zson::{
    Codec, Decoder, DictionaryId, Encoder, Memo, ReadingDictionary, Sliced, WritingDictionary,
};

use crate::catalog::{DEFAULT_PROFILE, Objects, ProfileRow};
use crate::error::{PgSqlErrorCode as Code, raise, raise_core, raise_missing_dictionary, warning};
use crate::settings;

/// Everything a backend keeps.
pub struct Backend {
    /// Contexts for writing.
    pub encoder: Encoder,
    /// Contexts for reading.
    pub decoder: Decoder,
    /// Documents decoded last.
    pub memo: Memo,
    /// Where documents are encoded.
    pub scratch: Vec<u8>,
    /// Where texts are written that are read without the rest of their document.
    pub part: Vec<u8>,
    /// Where keys are that were asked for.
    pub known: Known,
    /// And values that are documents.
    pub target: Vec<u8>,
    /// A document that is being fetched slice by slice.
    pub sliced: Option<Sliced>,
    objects: Option<Objects>,
    writing: Vec<Writing>,
    /// Typmods of profiles that were asked for by name.
    typmods: Vec<(String, i32)>,
    readers: Vec<Kept<ReadingDictionary>>,
    words: Vec<Kept<Words>>,
    clock: u64,
    /// Typmods of which [`warn_of_uncommitted`] has warned in this transaction.
    warned: Vec<i32>,
    warned_in: pg_sys::TransactionId,
}

/// How documents of a profile are written.
pub struct Writing {
    typmod: i32,
    /// Algorithm and level, and whether by shapes.
    pub codec: Codec,
    /// The newest dictionary that others see.
    pub dictionary: Option<WritingDictionary>,
    /// Whether to look again the next time, because this transaction made a newer one.
    pub passing: bool,
    memory: usize,
}

struct Kept<T> {
    id: u32,
    value: Box<T>,
    memory: usize,
    used: u64,
}

/// What the memo may hold. A part of `zson.cache_size`.
const MEMO_BYTES: usize = 1 << 20;

/// What a table's change sets; the addresses of nothing.
static STALE: AtomicBool = AtomicBool::new(false);
static DICTIONARY_TABLE: AtomicU32 = AtomicU32::new(0);
static PROFILE_TABLE: AtomicU32 = AtomicU32::new(0);

struct Slot(Cell<*mut Backend>);
// SAFETY: a backend has one thread that runs server code, and only it comes here.
unsafe impl Sync for Slot {}
static BACKEND: Slot = Slot(Cell::new(std::ptr::null_mut()));

/// The backend's state, made when first asked for.
///
/// # Safety
/// The borrow ends before the server is called again.
#[inline(always)]
pub unsafe fn backend() -> &'static mut Backend {
    let pointer = BACKEND.0.get();
    // SAFETY: made by Box and never freed; by the caller nobody else borrows it.
    unsafe { if pointer.is_null() { new_backend() } else { &mut *pointer } }
}

#[cold]
unsafe fn new_backend() -> &'static mut Backend {
    let all = Box::leak(Box::new(Backend::new()));
    BACKEND.0.set(all);
    all
}

impl Backend {
    fn new() -> Self {
        // SAFETY: registers a function that lives as long as the library; once a backend.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(relation_changed), Datum::null()) };
        Backend {
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            memo: Memo::new(MEMO_BYTES),
            scratch: Vec::new(),
            part: Vec::new(),
            known: Known::default(),
            target: Vec::new(),
            sliced: None,
            objects: None,
            writing: Vec::new(),
            typmods: Vec::new(),
            readers: Vec::new(),
            words: Vec::new(),
            clock: 0,
            warned: Vec::new(),
            warned_in: pg_sys::InvalidTransactionId,
        }
    }

    fn forget_what_may_have_changed(&mut self) {
        self.objects = None;
        self.writing.clear();
        self.typmods.clear();
    }

    /// Bytes of everything kept but the memo.
    fn memory(&self) -> usize {
        self.writing.iter().map(|writing| writing.memory).sum::<usize>()
            + self.readers.iter().map(|kept| kept.memory).sum::<usize>()
            + self.words.iter().map(|kept| kept.memory).sum::<usize>()
    }

    /// Makes room for `more` bytes. The dictionaries used longest ago go.
    fn make_room(&mut self, more: usize) {
        let limit = settings::cache_bytes();
        while self.memory() + more + MEMO_BYTES.min(limit / 2) > limit {
            let oldest = |kept: &[(usize, u64)]| kept.iter().min_by_key(|(_, used)| *used).copied();
            let readers: Vec<_> = self.readers.iter().map(|kept| kept.used).enumerate().collect();
            let words: Vec<_> = self.words.iter().map(|kept| kept.used).enumerate().collect();
            match (oldest(&readers), oldest(&words)) {
                (Some((at, used)), other) if other.is_none_or(|(_, theirs)| used <= theirs) => {
                    self.readers.swap_remove(at);
                }
                (_, Some((at, _))) => {
                    self.words.swap_remove(at);
                }
                _ if !self.writing.is_empty() => {
                    self.writing.remove(0);
                }
                _ => break,
            }
        }
    }
}

/// Where the extension's tables are; an ERROR in a database without the extension.
pub fn objects() -> Objects {
    // SAFETY: each borrow ends before the lookups.
    unsafe {
        if STALE.swap(false, Ordering::Relaxed) {
            backend().forget_what_may_have_changed();
        }
        if let Some(objects) = backend().objects {
            return objects;
        }
        let Some(found) = Objects::find() else {
            raise(
                Code::ERRCODE_UNDEFINED_OBJECT,
                "zson: this database does not have the extension",
                "",
                "CREATE EXTENSION zson",
            )
        };
        if DICTIONARY_TABLE.swap(u32::from(found.dictionary_table()), Ordering::Relaxed)
            != u32::from(found.dictionary_table())
        {
            // Another incarnation of the extension, with its own ids.
            backend().readers.clear();
            backend().words.clear();
        }
        PROFILE_TABLE.store(found.profile_table().into(), Ordering::Relaxed);
        backend().objects = Some(found);
        found
    }
}

/// The dictionary of this id, ready for reading; an ERROR where the database does not have it.
///
/// # Safety
/// The borrow ends before the server is called again.
#[inline]
pub unsafe fn reader(id: DictionaryId) -> &'static ReadingDictionary {
    // SAFETY: by the caller.
    unsafe {
        let all = backend();
        all.clock += 1;
        let now = all.clock;
        if let Some(kept) = all.readers.iter_mut().find(|kept| kept.id == id.get()) {
            kept.used = now;
            return &kept.value;
        }
        read_dictionary(id)
    }
}

#[cold]
unsafe fn read_dictionary(id: DictionaryId) -> &'static ReadingDictionary {
    let number = NonZeroU32::new(id.get());
    let find = || {
        let row = number.and_then(|number| objects().dictionary(number))?;
        Some((row.hash, row.content?))
    };
    let found = find().or_else(|| {
        // Before a document is called unreadable: what is known of the tables may be of before they were there.
        STALE.store(true, Ordering::Relaxed);
        find()
    });
    let Some((hash, content)) = found else { raise_missing_dictionary(id.get().into()) };
    let dictionary = checked(id.get(), content, &hash);
    let reader = ReadingDictionary::new(id, &dictionary).unwrap_or_else(|error| raise_core(&error));
    // SAFETY: the server is not called below.
    unsafe {
        let memory = reader.memory_size();
        let all = backend();
        all.make_room(memory);
        all.readers.push(Kept { id: id.get(), value: Box::new(reader), memory, used: all.clock });
        &all.readers[all.readers.len() - 1].value
    }
}

/// The words of a dictionary of version 1.1.
///
/// # Safety
/// As for [`reader`].
pub unsafe fn legacy_words(id: u32) -> &'static Words {
    // SAFETY: by the caller.
    unsafe {
        let all = backend();
        all.clock += 1;
        let now = all.clock;
        if let Some(kept) = all.words.iter_mut().find(|kept| kept.id == id) {
            kept.used = now;
            return &kept.value;
        }
        let rows = objects().words(id as i32);
        if rows.is_empty() {
            raise_missing_dictionary(id.into());
        }
        let words = Words::new(rows.into_iter()).unwrap_or_else(|error| raise_core(&error));
        let memory = words.memory_size();
        let all = backend();
        all.make_room(memory);
        all.words.push(Kept { id, value: Box::new(words), memory, used: now });
        &all.words[all.words.len() - 1].value
    }
}

/// How documents of a column of this typmod are written now.
///
/// # Safety
/// As for [`reader`].
#[inline]
pub unsafe fn writing(typmod: i32) -> &'static Writing {
    let typmod = typmod.max(0);
    // SAFETY: by the caller.
    unsafe {
        if !STALE.load(Ordering::Relaxed)
            && let Some(known) =
                backend().writing.iter().find(|known| known.typmod == typmod && !known.passing)
        {
            return known;
        }
        find_writing(typmod)
    }
}

#[cold]
unsafe fn find_writing(typmod: i32) -> &'static Writing {
    let found = look_up_writing(typmod);
    // SAFETY: the server is not called below.
    unsafe {
        let all = backend();
        all.writing.retain(|known| known.typmod != typmod);
        all.make_room(found.memory);
        all.writing.push(found);
        &all.writing[all.writing.len() - 1]
    }
}

fn look_up_writing(typmod: i32) -> Writing {
    let objects = objects();
    let plain = |codec| Writing { typmod, codec, dictionary: None, passing: false, memory: 0 };
    if !objects.is_current() {
        return plain(default_codec());
    }
    let profile = profile_of(&objects, typmod);
    let (newest, own) = objects.newest_dictionary(&profile.name);
    let codec = profile.codec.or_else(|| newest.as_ref().map(|row| row.codec.clone()));
    let codec = codec.map_or_else(default_codec, |codec| parse_codec(&codec));
    let mut writing = plain(codec);
    writing.passing = own;
    if codec.choice.algorithm != Algorithm::None
        && let Some(row) = newest
        && let Some(content) = row.content
        && let Some(id) = DictionaryId::new(row.id.get())
    {
        let dictionary = checked(row.id.get(), content, &row.hash);
        let ready = WritingDictionary::new(id, &dictionary, codec).unwrap_or_else(|error| raise_core(&error));
        writing.memory = ready.memory_size();
        writing.dictionary = Some(ready);
    }
    writing
}

/// Warns, once in a transaction and for each profile, that documents are written without the dictionary that this very
/// transaction has made.
#[cold]
pub fn warn_of_uncommitted(typmod: i32) {
    let typmod = typmod.max(0);
    // SAFETY: the borrow ends before the server is called again.
    unsafe {
        let transaction = pg_sys::GetTopTransactionIdIfAny();
        let all = backend();
        if all.warned_in != transaction {
            all.warned_in = transaction;
            all.warned.clear();
        }
        if all.warned.contains(&typmod) {
            return;
        }
        all.warned.push(typmod);
    }
    let profile = profile_of(&objects(), typmod).name;
    warning(
        format!(
            "zson: documents of profile \"{profile}\" are written without the dictionary that this \
             transaction created"
        ),
        "COMMIT between zson_learn and the statements that write documents; zson_reencode re-encodes those \
         written before.",
    );
}

/// The profile of a column's typmod. A typmod without a profile is as the default one.
pub fn profile_of(objects: &Objects, typmod: i32) -> ProfileRow {
    objects.profile(typmod.max(0)).unwrap_or_else(|| ProfileRow {
        id: 0,
        name: DEFAULT_PROFILE.to_owned(),
        codec: None,
    })
}

/// The typmod of columns of the profile of this name; an ERROR if there is none.
pub fn typmod_of(name: &str) -> i32 {
    // SAFETY: each borrow ends before the lookups.
    unsafe {
        if !STALE.load(Ordering::Relaxed)
            && let Some((_, typmod)) = backend().typmods.iter().find(|(known, _)| known == name)
        {
            return *typmod;
        }
        let Some(profile) = objects().profile_named(name) else {
            raise(
                Code::ERRCODE_UNDEFINED_OBJECT,
                format!("zson: profile \"{name}\" does not exist"),
                "",
                "A column declared zson('name') creates one; zson_profile lists them.",
            )
        };
        backend().typmods.push((profile.name, profile.id));
        profile.id
    }
}

/// What is written where nobody said otherwise, and nothing was learned.
pub fn default_codec() -> Codec {
    Algorithm::Zstd.into()
}

/// A codec as `zson_set_codec` takes it: `shapes`, `zstd:3`, `lz4`, `none`.
pub fn parse_codec(codec: &str) -> Codec {
    Codec::parse(codec).unwrap_or_else(|error| {
        raise(
            Code::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("zson: unknown codec \"{codec}\""),
            &error.to_string(),
            "Use shapes, zstd, lz4 or none, optionally with a level: zstd:9, lz4:1. The level of shapes:9 is zstd's, \
             for documents that shapes would make larger.",
        )
    })
}

fn checked(id: u32, content: Vec<u8>, hash: &[u8]) -> Dictionary {
    let dictionary =
        Dictionary::new(content).unwrap_or_else(|error| raise_core(&pgshrink_zson::Error::from(error)));
    if dictionary.hash() != hash {
        raise(
            Code::ERRCODE_DATA_CORRUPTED,
            format!("zson: dictionary {id} is damaged: its bytes do not match its hash"),
            "",
            "Restore zson_dictionary from a backup or a replica of this same database.",
        );
    }
    dictionary
}

/// What the server calls when a relation's definition or, by our own doing, content changed.
unsafe extern "C-unwind" fn relation_changed(_: Datum, relation: Oid) {
    let relation = u32::from(relation);
    // As long as the database has version 1.1, any change may be the update to version 2, whose tables are new.
    let updating = DICTIONARY_TABLE.load(Ordering::Relaxed) == 0;
    if updating
        || relation == 0
        || relation == DICTIONARY_TABLE.load(Ordering::Relaxed)
        || relation == PROFILE_TABLE.load(Ordering::Relaxed)
    {
        STALE.store(true, Ordering::Relaxed);
    }
}
