//! Roots: the slots at a container's begin from which everything durable is found.
//!
//! Three slots are written in a ring, one commit after the other, and each root that was made durable is
//! written once more into the next slot, without waiting. So the only durable root is never under the pen,
//! and a slot that rots takes nothing back. The layout is in `formats/cfs.md`.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::fault::Fault;
use crate::format::entry::Entry;
use crate::format::error::{Damage, Error, Part, Reason};
use crate::format::record::{DICTIONARY_NUMBER_MAX, HEADER_BYTES};
use crate::format::units::{
    Block, ContainerId, DictionaryNumber, Location, PAGES_MAX, Span, UNIT_BYTES, Units, VERSION_BITS, Version,
};
use crate::seal::{SEAL_OVERHEAD_MAX, Seal};

/// The unit in which a medium may lose bytes that were being written, and in which holes are punched.
pub const DISK_BLOCK_BYTES: usize = 4096;
/// Slots of the ring.
pub const SUPERBLOCK_SLOTS: usize = 3;
/// The slot of a container's first root. It was durable before any other, so it is never empty; a write that failed may
/// have left any of the others empty.
pub(crate) const FIRST_SLOT: usize = 0;
/// Where records begin.
pub const HEAD_BYTES: usize = DISK_BLOCK_BYTES * SUPERBLOCK_SLOTS;
/// The roots' place.
pub(crate) const HEAD: Span = Span { location: Location(0), units: Units((HEAD_BYTES / UNIT_BYTES) as u32) };
/// Versions that may be given out between two commits. A crash skips as many. Odd, so that versions from
/// before and after a crash have the same tag only after as many crashes as there are tags.
pub(crate) const VERSIONS_AHEAD: u64 = (1 << 22) + 699_051;
const _: () = assert!(VERSIONS_AHEAD % 2 == 1 && VERSIONS_AHEAD > crate::format::entry::TAGS);
/// Map records at most between a root and its leaves.
pub const DELTAS_MAX: usize = 64;
/// Dictionaries at most at the same time.
pub const DICTIONARIES_MAX: usize = 16;
/// Changed entries at most in a root with neither deltas nor dictionaries.
pub const INLINE_MAX: usize = (BODY_MAX - BODY_FIXED) / ITEM_BYTES;
/// Bytes of the wrapped data key's slot.
pub const KEY_BYTES: usize = 96;

pub(crate) const ITEM_BYTES: usize = size_of::<StoredItem>();
const MAGIC: [u8; 8] = *b"pgshrcfs";
const FORMAT_VERSION: u16 = 2;
/// There is a base, or the container has a policy of its own: who does not know these must not open it.
const FEATURE_BASE: u64 = 1;
const FEATURE_POLICY: u64 = 2;
const FEATURES_KNOWN: u64 = FEATURE_BASE | FEATURE_POLICY;
const SEQUENCE_MAX: u64 = (1 << VERSION_BITS) - 2;
const EPOCH_MAX: u32 = u32::MAX - 1;
const CLOSED: u32 = 1;
const NAMED: u32 = 2;
const BASE_SHIFT: u32 = 2;
const BASE_MASK: u32 = 3 << BASE_SHIFT;
const BODY_AT: usize = size_of::<Clear>();
const BODY_MAX: usize = DISK_BLOCK_BYTES - BODY_AT - SEAL_OVERHEAD_MAX;
const BODY_FIXED: usize = size_of::<BodyHead>();
/// Where what the checksum covers begins.
const COVERED_AT: usize = std::mem::offset_of!(Clear, format_version);
/// Where what the seal of the body is bound to ends: in front of the body's length as stored.
const BOUND_END: usize = std::mem::offset_of!(Clear, body_len);
const _: () = assert!(BODY_AT == 256 && ITEM_BYTES == 11 && BODY_FIXED == 16 && STORED_PLACE_BYTES == 8);

const STORED_PLACE_BYTES: usize = size_of::<U64>();
const STORED_DICTIONARY_BYTES: usize = size_of::<U16>() + STORED_PLACE_BYTES;

/// What of a slot is not sealed, as it lies in the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Clear {
    magic: [u8; 8],
    checksum: U32,
    format_version: U16,
    reserved: U16,
    features: U64,
    container: ContainerId,
    sequence: U64,
    epoch: U32,
    flags: U32,
    pages: U32,
    pages_max: U32,
    tablespace: U32,
    database: U32,
    relation: U32,
    segment: U32,
    fork: u8,
    reserved_fork: [u8; 3],
    version_limit: U64,
    epoch_start: U64,
    key_id: [u8; 16],
    key: [u8; KEY_BYTES],
    end: U64,
    known_end: U64,
    known_free: U64,
    dictionaries_given: U16,
    policy: U32,
    reserved_end: [u8; 12],
    body_len: U16,
}

/// The begin of a root's body.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct BodyHead {
    index: U64,
    deltas: U16,
    dictionaries: U16,
    inline: U32,
}

/// A block and its entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct StoredItem {
    block: [u8; 3],
    entry: U64,
}

/// Which segment a container says it is. Not part of any proof: a moved segment is renamed here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// Tablespace oid.
    pub tablespace: u32,
    /// Database oid.
    pub database: u32,
    /// The relation's file number.
    pub relation: u32,
    /// Fork number as in PostgreSQL's relpath.h.
    pub fork: u8,
    /// Number of the segment.
    pub segment: u32,
}

impl fmt::Display for Identity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { tablespace, database, relation, fork, segment } = self;
        write!(to, "{tablespace}/{database}/{relation} fork {fork} segment {segment}")
    }
}

/// What the base is: a plain file beside the container, in which pages lie while the segment changes its form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Base {
    /// There is none, or it has nothing that is needed.
    #[default]
    None,
    /// It has all pages, and the map is empty.
    Whole,
    /// Pages leave it: the map says which are still there, and it never changes again.
    Leaving,
    /// Pages return to it: the map says which are there already, and these are overwritten in place.
    Returning,
}

impl Base {
    /// For messages.
    pub fn text(self) -> &'static str {
        match self {
            Base::None => "no page",
            Base::Whole => "all pages",
            Base::Leaving => "pages that were not compressed yet",
            Base::Returning => "pages that were decompressed already",
        }
    }

    fn bits(self) -> u32 {
        (self as u32) << BASE_SHIFT
    }

    fn of_bits(flags: u32) -> Base {
        match (flags & BASE_MASK) >> BASE_SHIFT {
            1 => Base::Whole,
            2 => Base::Leaving,
            3 => Base::Returning,
            _ => Base::None,
        }
    }
}

/// Where a record of the map or of a dictionary lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    /// First unit; 0: there is none.
    pub location: Location,
    /// Bytes of header and payload.
    pub bytes: u32,
    /// Low bits of the sequence of the commit that wrote it, so that a later record in its place is not taken
    /// for it.
    pub tag: u16,
}

const PLACE_BYTES_BITS: u32 = 21;
const PLACE_TAG_MASK: u64 = (1 << (32 - PLACE_BYTES_BITS)) - 1;
const _: () = assert!(crate::format::record::META_PAYLOAD_MAX + HEADER_BYTES < 1 << PLACE_BYTES_BITS);

impl Place {
    pub(crate) fn of(location: Location, bytes: u32, sequence: Version) -> Place {
        Place { location, bytes, tag: (sequence.0 & PLACE_TAG_MASK) as u16 }
    }

    pub(crate) fn has_tag_of(self, sequence: Version) -> bool {
        u64::from(self.tag) == sequence.0 & PLACE_TAG_MASK
    }

    /// The units that it takes; none if there is no record.
    pub(crate) fn span(self) -> Option<Span> {
        let units = Units::holding(self.bytes as usize);
        (self.location != Location(0)).then_some(Span { location: self.location, units })
    }

    /// Location below, length and tag above.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.location.0)
            | u64::from(self.bytes) << 32
            | u64::from(self.tag) << (32 + PLACE_BYTES_BITS)
    }

    pub(crate) fn from_word(word: u64) -> Place {
        let bytes = (word >> 32) as u32 & ((1 << PLACE_BYTES_BITS) - 1);
        Place { location: Location(word as u32), bytes, tag: (word >> (32 + PLACE_BYTES_BITS)) as u16 }
    }
}

/// A dictionary of the container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DictionaryPlace {
    /// As records name it.
    pub number: DictionaryNumber,
    pub place: Place,
}

/// A durable state of the container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    pub container: ContainerId,
    pub sequence: Version,
    /// Raised whenever the container is opened.
    pub epoch: u32,
    /// Nothing was written since.
    pub closed: bool,
    /// The file's name was made durable before.
    pub named: bool,
    pub base: Base,
    /// What the caller keeps about how pages are written; 0: nothing.
    pub policy: u32,
    pub pages: u32,
    pub pages_max: u32,
    pub identity: Identity,
    /// No version was or will be given out at or above this one before the next root.
    pub version_limit: Version,
    /// First version of the open epoch.
    pub epoch_start: Version,
    /// First unit behind all that it refers to, or a later one.
    pub end: u64,
    /// The end that there was when all of the map was last looked at, so that all space was known.
    pub known_end: u64,
    /// Units of extents below that end which nothing referred to.
    pub known_free: u64,
    /// The highest number that a dictionary was ever given.
    pub dictionaries_given: DictionaryNumber,
    pub key_id: [u8; 16],
    /// The data key, wrapped by the master key; the engine carries it.
    pub key: [u8; KEY_BYTES],
    pub index: Place,
    pub deltas: Vec<Place>,
    pub dictionaries: Vec<DictionaryPlace>,
    /// Entries that changed since the last delta, by block.
    pub inline: Vec<(Block, Entry)>,
}

impl Root {
    /// How many inline entries fit beside these deltas and dictionaries.
    pub(crate) fn inline_room(deltas: usize, dictionaries: usize) -> usize {
        let taken = deltas * STORED_PLACE_BYTES + dictionaries * STORED_DICTIONARY_BYTES;
        (BODY_MAX - BODY_FIXED - taken) / ITEM_BYTES
    }

    /// Versions from here on were given out after the root was written, or while it was.
    pub(crate) fn versions_start(&self) -> Version {
        Version(self.version_limit.0.saturating_sub(if self.closed { 0 } else { VERSIONS_AHEAD }))
    }

    /// Records that it leads to by itself: deltas, index and dictionaries. Leaves are in the index; one that
    /// has no index, as a small segment's, gives a place without a span for it.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        let dictionaries = self.dictionaries.iter().map(|dictionary| dictionary.place);
        self.deltas.iter().copied().chain([self.index]).chain(dictionaries)
    }

    /// The slot, sealed if there is a seal.
    pub(crate) fn encode(&self, seal: Option<&dyn Seal>) -> Vec<u8> {
        let mut clear = self.clear_fields();
        let mut slot = clear.as_bytes().to_vec();
        let body = self.body();
        assert!(body.len() <= BODY_MAX, "a root's body of {} bytes", body.len());
        match seal {
            None => slot.extend_from_slice(&body),
            Some(seal) => {
                let bound = slot[COVERED_AT..BOUND_END].to_vec();
                seal.seal(&bound, &body, &mut slot);
            }
        }
        clear.body_len = U16::new((slot.len() - BODY_AT) as u16);
        slot[..BODY_AT].copy_from_slice(clear.as_bytes());
        slot.resize(DISK_BLOCK_BYTES, 0);
        clear.checksum = U32::new(crc32fast::hash(&slot[COVERED_AT..]));
        slot[..BODY_AT].copy_from_slice(clear.as_bytes());
        slot
    }

    fn clear_fields(&self) -> Clear {
        let flags = (u32::from(self.closed) * CLOSED) | (u32::from(self.named) * NAMED) | self.base.bits();
        let with_base = if self.base == Base::None { 0 } else { FEATURE_BASE };
        let with_policy = if self.policy == 0 { 0 } else { FEATURE_POLICY };
        Clear {
            magic: MAGIC,
            checksum: U32::ZERO,
            format_version: U16::new(FORMAT_VERSION),
            reserved: U16::ZERO,
            features: U64::new(with_base | with_policy),
            container: self.container,
            sequence: U64::new(self.sequence.0),
            epoch: U32::new(self.epoch),
            flags: U32::new(flags),
            pages: U32::new(self.pages),
            pages_max: U32::new(self.pages_max),
            tablespace: U32::new(self.identity.tablespace),
            database: U32::new(self.identity.database),
            relation: U32::new(self.identity.relation),
            segment: U32::new(self.identity.segment),
            fork: self.identity.fork,
            reserved_fork: [0; 3],
            version_limit: U64::new(self.version_limit.0),
            epoch_start: U64::new(self.epoch_start.0),
            key_id: self.key_id,
            key: self.key,
            end: U64::new(self.end),
            known_end: U64::new(self.known_end),
            known_free: U64::new(self.known_free),
            dictionaries_given: U16::new(self.dictionaries_given),
            policy: U32::new(self.policy),
            reserved_end: [0; 12],
            body_len: U16::ZERO,
        }
    }

    fn body(&self) -> Vec<u8> {
        let head = BodyHead {
            index: U64::new(self.index.word()),
            deltas: U16::new(self.deltas.len() as u16),
            dictionaries: U16::new(self.dictionaries.len() as u16),
            inline: U32::new(self.inline.len() as u32),
        };
        let mut body = Vec::with_capacity(BODY_MAX);
        body.extend_from_slice(head.as_bytes());
        self.deltas.iter().for_each(|place| put_place(&mut body, *place));
        for dictionary in &self.dictionaries {
            body.extend_from_slice(&dictionary.number.to_le_bytes());
            put_place(&mut body, dictionary.place);
        }
        put_items(&mut body, &self.inline);
        body
    }

    /// Reads a slot of the ring.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::Unsupported`] and [`Error::Damaged`]; [`Error::KeyMissing`] for a root
    /// that is whole and sealed with another key.
    pub(crate) fn decode(slot: &[u8], seal: Option<&dyn Seal>, fault: Fault) -> Result<Root, Error> {
        Root::decode_with(slot, false, seal, fault)
    }

    /// Reads what [`encode`](Self::encode) made without a seal, whichever key the container has.
    ///
    /// # Errors
    /// [`Error::Damaged`]: it is half of one.
    pub(crate) fn decode_image(slot: &[u8]) -> Result<Root, Error> {
        Root::decode_with(slot, true, None, Fault::None)
    }

    fn decode_with(
        slot: &[u8],
        is_image: bool,
        seal: Option<&dyn Seal>,
        fault: Fault,
    ) -> Result<Root, Error> {
        let found = slot.len() as u64;
        let slot: &[u8; DISK_BLOCK_BYTES] = slot
            .try_into()
            .map_err(|_| damage(Reason::CutOff { expected: DISK_BLOCK_BYTES as u64, found }))?;
        let clear = clear_of(slot);
        check_slot(slot, &clear, fault)?;
        let mut root = Root::from(&clear);
        let body_len = clear.body_len.get();
        let stored = slot.get(BODY_AT..BODY_AT + usize::from(body_len));
        let stored = stored.ok_or_else(|| {
            damage(Reason::Over { what: "body length", limit: BODY_MAX as u64, found: body_len.into() })
        })?;
        let mut opened = [0; DISK_BLOCK_BYTES];
        let body = if is_image || root.key_id == [0; 16] {
            stored
        } else {
            let missing = Error::KeyMissing { needed: root.key_id };
            let seal = seal.ok_or(missing.clone())?;
            // The data key stays when the master key changes: who opened the container before goes on with it.
            let length = seal.open(&slot[COVERED_AT..BOUND_END], stored, &mut opened);
            let is_its_key = seal.key_id() == root.key_id;
            &opened[..length.ok_or_else(|| if is_its_key { damage(Reason::Seal) } else { missing })?]
        };
        root.take_body(body).ok_or_else(|| damage(Reason::Content))?;
        root.validate()?;
        Ok(root)
    }

    fn take_body(&mut self, body: &[u8]) -> Option<()> {
        let (head, rest) = BodyHead::ref_from_prefix(body).ok()?;
        let mut rest = Reader(rest);
        self.index = Place::from_word(head.index.get());
        let (deltas, dictionaries) = (usize::from(head.deltas.get()), usize::from(head.dictionaries.get()));
        let inline = head.inline.get() as usize;
        if deltas > DELTAS_MAX || dictionaries > DICTIONARIES_MAX || inline > INLINE_MAX {
            return None;
        }
        for _ in 0..deltas {
            self.deltas.push(rest.place()?);
        }
        for _ in 0..dictionaries {
            let (number, place) = (rest.u16()?, rest.place()?);
            self.dictionaries.push(DictionaryPlace { number, place });
        }
        self.inline = rest.items(inline)?;
        rest.0.is_empty().then_some(())
    }

    /// Of the root after this one.
    ///
    /// # Errors
    /// [`Error::Limit`]: there is none.
    pub(crate) fn next_sequence(&self) -> Result<Version, Error> {
        let found = self.sequence.0 + 1;
        let over = Error::Limit { what: "commits of a container's life", found, allowed: SEQUENCE_MAX };
        if found <= SEQUENCE_MAX { Ok(Version(found)) } else { Err(over) }
    }

    /// Of the opening after the one that wrote this root.
    ///
    /// # Errors
    /// [`Error::Limit`]: there is none.
    pub(crate) fn next_epoch(&self) -> Result<u32, Error> {
        let (found, allowed) = (u64::from(self.epoch) + 1, EPOCH_MAX.into());
        let over = Error::Limit { what: "openings of a container's life", found, allowed };
        if found <= allowed { Ok(self.epoch + 1) } else { Err(over) }
    }

    fn validate(&self) -> Result<(), Error> {
        let at_most = |what, limit: u64, found: u64| {
            if found <= limit { Ok(()) } else { Err(damage(Reason::Over { what, limit, found })) }
        };
        at_most("segment size in pages", u64::from(PAGES_MAX), self.pages_max.into())?;
        at_most("page count", self.pages_max.into(), self.pages.into())?;
        if self.base == Base::Whole {
            at_most("page count beside a complete base", 0, self.pages.into())?;
        }
        at_most("version limit", 1 << VERSION_BITS, self.version_limit.0)?;
        at_most("sequence", SEQUENCE_MAX, self.sequence.0)?;
        at_most("epoch", EPOCH_MAX.into(), self.epoch.into())?;
        at_most("epoch start", self.version_limit.0, self.epoch_start.0)?;
        at_most("end in units", 1 << 32, self.end)?;
        at_most("known end in units", self.end, self.known_end)?;
        at_most("free units", self.known_end, self.known_free)?;
        let given = self.dictionaries_given.into();
        at_most("number of dictionaries given out", DICTIONARY_NUMBER_MAX.into(), given)?;
        for dictionary in &self.dictionaries {
            at_most("number of a dictionary", given, dictionary.number.into())?;
        }
        if let Some((last, _)) = self.inline.last() {
            at_most("block of an entry", u64::from(self.pages.max(1)) - 1, last.0.into())?;
        }
        Ok(())
    }
}

impl Default for Root {
    fn default() -> Root {
        Root::from(&clear_of(&[0; DISK_BLOCK_BYTES]))
    }
}

/// What a slot shows without its key and whatever its checksum says, and whether that is right. None: no
/// slot of this format.
pub(crate) fn peek(slot: &[u8]) -> Option<(Root, bool)> {
    let slot: &[u8; DISK_BLOCK_BYTES] = slot.get(..DISK_BLOCK_BYTES)?.try_into().ok()?;
    let clear = clear_of(slot);
    let root = Root::from(&clear);
    let is_whole = check_slot(slot, &clear, Fault::None).is_ok();
    (clear.magic == MAGIC && root.pages <= PAGES_MAX).then_some((root, is_whole))
}

fn check_slot(slot: &[u8; DISK_BLOCK_BYTES], clear: &Clear, fault: Fault) -> Result<(), Error> {
    if clear.magic != MAGIC {
        return Err(Error::Foreign { found: clear.magic });
    }
    let (found, expected) = (clear.checksum.get(), crc32fast::hash(&slot[COVERED_AT..]));
    if found != expected && !fault.is(Fault::TornRootAccepted) {
        return Err(damage(Reason::Checksum { expected, found }));
    }
    let version = clear.format_version.get();
    if version != FORMAT_VERSION {
        let (found, known) = (version.into(), FORMAT_VERSION.into());
        return Err(Error::Unsupported { what: "format version", found, known });
    }
    let features = clear.features.get();
    if features & !FEATURES_KNOWN != 0 {
        return Err(Error::Unsupported { what: "features", found: features, known: FEATURES_KNOWN });
    }
    let is_reserved_zero =
        clear.reserved.get() == 0 && clear.reserved_fork == [0; 3] && clear.reserved_end == [0; 12];
    let has_base = clear.flags.get() & BASE_MASK != 0;
    let is_as_announced = has_base == (features & FEATURE_BASE != 0)
        && (clear.policy.get() != 0) == (features & FEATURE_POLICY != 0);
    if !is_reserved_zero || !is_as_announced || clear.flags.get() & !(CLOSED | NAMED | BASE_MASK) != 0 {
        return Err(damage(Reason::Reserved));
    }
    Ok(())
}

fn clear_of(slot: &[u8; DISK_BLOCK_BYTES]) -> Clear {
    zerocopy::transmute!(*slot.first_chunk::<BODY_AT>().unwrap_or(&[0; BODY_AT]))
}

impl From<&Clear> for Root {
    fn from(clear: &Clear) -> Root {
        Root {
            container: clear.container,
            sequence: Version(clear.sequence.get()),
            epoch: clear.epoch.get(),
            closed: clear.flags.get() & CLOSED != 0,
            named: clear.flags.get() & NAMED != 0,
            base: Base::of_bits(clear.flags.get()),
            policy: clear.policy.get(),
            pages: clear.pages.get(),
            pages_max: clear.pages_max.get(),
            identity: Identity {
                tablespace: clear.tablespace.get(),
                database: clear.database.get(),
                relation: clear.relation.get(),
                fork: clear.fork,
                segment: clear.segment.get(),
            },
            version_limit: Version(clear.version_limit.get()),
            epoch_start: Version(clear.epoch_start.get()),
            end: clear.end.get(),
            known_end: clear.known_end.get(),
            known_free: clear.known_free.get(),
            dictionaries_given: clear.dictionaries_given.get(),
            key_id: clear.key_id,
            key: clear.key,
            index: Place::default(),
            deltas: Vec::new(),
            dictionaries: Vec::new(),
            inline: Vec::new(),
        }
    }
}

/// Bytes that are taken from the front.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn value<T: FromBytes + KnownLayout + Immutable + Unaligned + Copy + 'a>(&mut self) -> Option<T> {
        let (value, rest) = T::ref_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(*value)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.value::<U16>().map(U16::get)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.value::<U32>().map(U32::get)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.value::<U64>().map(U64::get)
    }

    pub(crate) fn place(&mut self) -> Option<Place> {
        self.u64().map(Place::from_word)
    }

    /// Entries by block, ascending.
    pub(crate) fn items(&mut self, count: usize) -> Option<Vec<(Block, Entry)>> {
        let bytes = self.take(count.checked_mul(ITEM_BYTES)?)?;
        let stored = <[StoredItem]>::ref_from_bytes(bytes).ok()?;
        let mut items: Vec<(Block, Entry)> = Vec::with_capacity(count);
        for item in stored {
            let [low, middle, high] = item.block;
            let (block, entry) = (Block(u32::from_le_bytes([low, middle, high, 0])), Entry(item.entry.get()));
            if items.last().is_some_and(|(before, _)| *before >= block) || !entry.is_storable() {
                return None;
            }
            items.push((block, entry));
        }
        Some(items)
    }
}

pub(crate) fn put_place(out: &mut Vec<u8>, place: Place) {
    out.extend_from_slice(&place.word().to_le_bytes());
}

pub(crate) fn put_items(out: &mut Vec<u8>, items: &[(Block, Entry)]) {
    for (block, entry) in items {
        let [low, middle, high, _] = block.0.to_le_bytes();
        let item = StoredItem { block: [low, middle, high], entry: U64::new(entry.clean().0) };
        out.extend_from_slice(item.as_bytes());
    }
}

fn damage(reason: Reason) -> Error {
    let length = DISK_BLOCK_BYTES as u64;
    Damage { part: Part::Root, block: None, offset: 0, length, reason }.into()
}
