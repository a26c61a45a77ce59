//! Roots: the sheets at a container's begin from which everything durable is found.
//!
//! Three sheets are written in a ring, one commit after the other, and each root that was made durable is written
//! once more into the next sheet, without waiting. So the only durable root is never under the pen, and a sheet that rots takes
//! nothing back. The layout is in `formats/cfs.md`.

use crate::entry::Entry;
use crate::error::{Damage, Error};
use crate::plant::Plant;
use crate::record::{ContainerId, PAGES_MAX};
use crate::seal::{SEAL_OVERHEAD_MAX, Seal};

/// The unit in which a medium may lose bytes that were being written, and in which holes are punched.
pub const SHEET_BYTES: usize = 4096;
/// Sheets of the ring.
pub const ROOT_SHEETS: usize = 3;
/// Where records begin.
pub const HEAD_BYTES: usize = SHEET_BYTES * ROOT_SHEETS;
/// Map records at most between a root and its leaves.
pub const DELTAS_MAX: usize = 64;
/// Dictionaries at most.
pub const DICTIONARIES_MAX: usize = 16;
/// Changed entries at most in a root with neither deltas nor dictionaries.
pub const INLINE_MAX: usize = (BODY_MAX - BODY_FIXED) / ITEM_BYTES;
/// Bytes of the wrapped data key's slot.
pub const KEY_BYTES: usize = 96;

pub(crate) const ITEM_BYTES: usize = 11;
const MAGIC: [u8; 8] = *b"pgshrcfs";
const VERSION: u16 = 1;
const FEATURES_KNOWN: u64 = 0;
const CLOSED: u32 = 1;
const NAMED: u32 = 2;
const END_AT: usize = 116 + KEY_BYTES;
const BODY_AT: usize = 256;
const BODY_MAX: usize = SHEET_BYTES - BODY_AT - SEAL_OVERHEAD_MAX;
const BODY_FIXED: usize = 16;

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

/// Where a record of the map or of a dictionary lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    /// First grain; 0: there is none.
    pub location: u32,
    /// Bytes of header and payload.
    pub bytes: u32,
    /// Low bits of the sequence of the commit that wrote it, so that a later record in its place is not taken for it.
    pub tag: u16,
}

const PLACE_BYTES_BITS: u32 = 21;
const PLACE_TAG_MASK: u64 = (1 << (32 - PLACE_BYTES_BITS)) - 1;
const _: () = assert!(crate::record::META_PAYLOAD_MAX + crate::record::HEADER_BYTES < 1 << PLACE_BYTES_BITS);

impl Place {
    pub(crate) fn of(location: u32, bytes: u32, sequence: u64) -> Place {
        Place { location, bytes, tag: (sequence & PLACE_TAG_MASK) as u16 }
    }

    pub(crate) fn has_tag_of(self, sequence: u64) -> bool {
        u64::from(self.tag) == sequence & PLACE_TAG_MASK
    }

    /// Location below, length and tag above.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.location)
            | u64::from(self.bytes) << 32
            | u64::from(self.tag) << (32 + PLACE_BYTES_BITS)
    }

    pub(crate) fn from_word(word: u64) -> Place {
        let bytes = (word >> 32) as u32 & ((1 << PLACE_BYTES_BITS) - 1);
        Place { location: word as u32, bytes, tag: (word >> (32 + PLACE_BYTES_BITS)) as u16 }
    }
}

/// A dictionary of the container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DictionaryPlace {
    /// As records name it.
    pub id: u8,
    pub place: Place,
}

/// A durable state of the container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    pub container: ContainerId,
    pub sequence: u64,
    /// Raised whenever the container is opened.
    pub epoch: u32,
    /// Nothing was written since.
    pub closed: bool,
    /// The file's name was made durable before.
    pub named: bool,
    pub pages: u32,
    pub pages_max: u32,
    pub identity: Identity,
    /// No version was or will be given out at or above this one before the next root.
    pub version_limit: u64,
    /// First version of the open epoch.
    pub epoch_start: u64,
    /// First grain behind all that it refers to, or a later one; 0: not known (written before there was this field).
    pub end: u64,
    /// The end that there was when all of the map was last looked at, so that all space was known.
    pub known_end: u64,
    /// Grains of zones below that end which nothing referred to.
    pub known_free: u64,
    pub key_id: [u8; 16],
    /// The data key, wrapped by the master key; the engine carries it.
    pub key: [u8; KEY_BYTES],
    pub index: Place,
    pub deltas: Vec<Place>,
    pub dictionaries: Vec<DictionaryPlace>,
    /// Entries that changed since the last delta, by block.
    pub inline: Vec<(u32, Entry)>,
}

impl Root {
    /// How many inline entries fit beside these deltas and dictionaries.
    pub(crate) fn inline_room(deltas: usize, dictionaries: usize) -> usize {
        (BODY_MAX - BODY_FIXED - deltas * 8 - dictionaries * 9) / ITEM_BYTES
    }

    /// The sheet, sealed if there is a seal.
    pub(crate) fn encode(&self, seal: Option<&dyn Seal>) -> Vec<u8> {
        let mut sheet = vec![0; BODY_AT];
        sheet[..8].copy_from_slice(&MAGIC);
        sheet[12..14].copy_from_slice(&VERSION.to_le_bytes());
        sheet[24..40].copy_from_slice(&self.container);
        sheet[40..48].copy_from_slice(&self.sequence.to_le_bytes());
        sheet[48..52].copy_from_slice(&self.epoch.to_le_bytes());
        let flags = (u32::from(self.closed) * CLOSED) | (u32::from(self.named) * NAMED);
        sheet[52..56].copy_from_slice(&flags.to_le_bytes());
        sheet[56..60].copy_from_slice(&self.pages.to_le_bytes());
        sheet[60..64].copy_from_slice(&self.pages_max.to_le_bytes());
        sheet[64..68].copy_from_slice(&self.identity.tablespace.to_le_bytes());
        sheet[68..72].copy_from_slice(&self.identity.database.to_le_bytes());
        sheet[72..76].copy_from_slice(&self.identity.relation.to_le_bytes());
        sheet[76..80].copy_from_slice(&self.identity.segment.to_le_bytes());
        sheet[80] = self.identity.fork;
        sheet[84..92].copy_from_slice(&self.version_limit.to_le_bytes());
        sheet[92..100].copy_from_slice(&self.epoch_start.to_le_bytes());
        sheet[100..116].copy_from_slice(&self.key_id);
        sheet[116..END_AT].copy_from_slice(&self.key);
        sheet[END_AT..END_AT + 8].copy_from_slice(&self.end.to_le_bytes());
        sheet[END_AT + 8..END_AT + 16].copy_from_slice(&self.known_end.to_le_bytes());
        sheet[END_AT + 16..END_AT + 24].copy_from_slice(&self.known_free.to_le_bytes());
        let body = self.body();
        debug_assert!(body.len() <= BODY_MAX);
        match seal {
            None => sheet.extend_from_slice(&body),
            Some(seal) => {
                let clear = sheet[12..254].to_vec();
                seal.seal(&clear, &body, &mut sheet);
            }
        }
        let stored = (sheet.len() - BODY_AT) as u16;
        sheet[254..256].copy_from_slice(&stored.to_le_bytes());
        sheet.resize(SHEET_BYTES, 0);
        let crc = crc32fast::hash(&sheet[12..]);
        sheet[8..12].copy_from_slice(&crc.to_le_bytes());
        sheet
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(BODY_MAX);
        put_place(&mut body, self.index);
        body.extend_from_slice(&(self.deltas.len() as u16).to_le_bytes());
        body.extend_from_slice(&(self.dictionaries.len() as u16).to_le_bytes());
        body.extend_from_slice(&(self.inline.len() as u32).to_le_bytes());
        self.deltas.iter().for_each(|place| put_place(&mut body, *place));
        for dictionary in &self.dictionaries {
            body.push(dictionary.id);
            put_place(&mut body, dictionary.place);
        }
        put_items(&mut body, &self.inline);
        body
    }

    /// Reads a sheet of the ring. A root that is whole but cannot be opened without its key gives
    /// [`Error::KeyMissing`].
    pub(crate) fn decode(sheet: &[u8], seal: Option<&dyn Seal>, plant: Plant) -> Result<Root, Error> {
        Root::decode_with(sheet, false, seal, plant)
    }

    /// Reads what [`encode`](Self::encode) made without a seal, whichever key the container has.
    pub(crate) fn decode_image(sheet: &[u8]) -> Result<Root, Error> {
        Root::decode_with(sheet, true, None, Plant::None)
    }

    fn decode_with(
        sheet: &[u8],
        is_image: bool,
        seal: Option<&dyn Seal>,
        plant: Plant,
    ) -> Result<Root, Error> {
        let found = sheet.len() as u64;
        let sheet: &[u8; SHEET_BYTES] =
            sheet.try_into().map_err(|_| damage("length", SHEET_BYTES as u64, found))?;
        check_sheet(sheet, plant)?;
        let mut root = clear_fields(sheet);
        let stored = sheet.get(BODY_AT..BODY_AT + usize::from(u16_at(sheet, 254)));
        let stored =
            stored.ok_or_else(|| damage("body length", BODY_MAX as u64, u64::from(u16_at(sheet, 254))))?;
        let mut opened = [0; SHEET_BYTES];
        let body = if is_image || root.key_id == [0; 16] {
            stored
        } else {
            let seal = seal.filter(|seal| seal.key_id() == root.key_id);
            let seal = seal.ok_or(Error::KeyMissing { needed: root.key_id })?;
            let length = seal.open(&sheet[12..254], stored, &mut opened);
            &opened[..length.ok_or_else(|| damage("seal", 1, 0))?]
        };
        root.take_body(body).ok_or_else(|| damage("body", 1, 0))?;
        root.validate()?;
        Ok(root)
    }

    fn take_body(&mut self, body: &[u8]) -> Option<()> {
        let mut rest = Reader(body);
        self.index = rest.place()?;
        let deltas = usize::from(rest.u16()?);
        let dictionaries = usize::from(rest.u16()?);
        let inline = rest.u32()? as usize;
        if deltas > DELTAS_MAX || dictionaries > DICTIONARIES_MAX || inline > INLINE_MAX {
            return None;
        }
        for _ in 0..deltas {
            self.deltas.push(rest.place()?);
        }
        for _ in 0..dictionaries {
            self.dictionaries.push(DictionaryPlace { id: rest.take(1)?[0], place: rest.place()? });
        }
        self.inline = rest.items(inline)?;
        rest.0.is_empty().then_some(())
    }

    fn validate(&self) -> Result<(), Error> {
        let at_most = |what, limit: u64, found: u64| {
            if found <= limit { Ok(()) } else { Err(damage(what, limit, found)) }
        };
        at_most("segment size", u64::from(PAGES_MAX), self.pages_max.into())?;
        at_most("page count", self.pages_max.into(), self.pages.into())?;
        at_most("version limit", 1 << crate::record::VERSION_BITS, self.version_limit)?;
        at_most("sequence", 1 << crate::record::VERSION_BITS, self.sequence)?;
        at_most("epoch", u64::from(u32::MAX) - 1, self.epoch.into())?;
        at_most("epoch start", self.version_limit, self.epoch_start)?;
        at_most("end in grains", 1 << 32, self.end)?;
        at_most("known end in grains", self.end, self.known_end)?;
        at_most("free grains", self.known_end, self.known_free)?;
        if let Some((last, _)) = self.inline.last() {
            at_most("block of an entry", u64::from(self.pages.max(1)) - 1, (*last).into())?;
        }
        Ok(())
    }
}

impl Default for Root {
    fn default() -> Root {
        clear_fields(&[0; SHEET_BYTES])
    }
}

/// What a sheet shows without its key and whatever its check sum says, and whether that is right. None: no sheet of this
/// format.
pub(crate) fn glance(sheet: &[u8]) -> Option<(Root, bool)> {
    let sheet: &[u8; SHEET_BYTES] = sheet.get(..SHEET_BYTES)?.try_into().ok()?;
    let root = clear_fields(sheet);
    (sheet[..8] == MAGIC && root.pages <= PAGES_MAX).then(|| (root, check_sheet(sheet, Plant::None).is_ok()))
}

fn check_sheet(sheet: &[u8; SHEET_BYTES], plant: Plant) -> Result<(), Error> {
    if sheet[..8] != MAGIC {
        let mut found = [0; 8];
        found.copy_from_slice(&sheet[..8]);
        return Err(Error::Foreign { found });
    }
    let stored = u32_at(sheet, 8);
    let crc = crc32fast::hash(&sheet[12..]);
    if stored != crc && plant != Plant::TornRootAccepted {
        return Err(damage("check sum", crc.into(), stored.into()));
    }
    let version = u16_at(sheet, 12);
    if version != VERSION {
        let (found, known) = (version.into(), VERSION.into());
        return Err(Error::Unsupported { what: "format version", found, known });
    }
    let features = u64_at(sheet, 16);
    if features & !FEATURES_KNOWN != 0 {
        return Err(Error::Unsupported { what: "features", found: features, known: FEATURES_KNOWN });
    }
    let reserved = [u64::from(u16_at(sheet, 14)), u64::from(sheet[81]), u64::from(u16_at(sheet, 82))];
    if reserved != [0; 3] || u32_at(sheet, 52) & !(CLOSED | NAMED) != 0 || sheet[END_AT + 24..254] != [0; 18]
    {
        return Err(damage("reserved bytes", 0, 1));
    }
    Ok(())
}

fn clear_fields(sheet: &[u8; SHEET_BYTES]) -> Root {
    let mut root = Root {
        container: [0; 16],
        sequence: u64_at(sheet, 40),
        epoch: u32_at(sheet, 48),
        closed: u32_at(sheet, 52) & CLOSED != 0,
        named: u32_at(sheet, 52) & NAMED != 0,
        pages: u32_at(sheet, 56),
        pages_max: u32_at(sheet, 60),
        identity: Identity {
            tablespace: u32_at(sheet, 64),
            database: u32_at(sheet, 68),
            relation: u32_at(sheet, 72),
            fork: sheet[80],
            segment: u32_at(sheet, 76),
        },
        version_limit: u64_at(sheet, 84),
        epoch_start: u64_at(sheet, 92),
        end: u64_at(sheet, END_AT),
        known_end: u64_at(sheet, END_AT + 8),
        known_free: u64_at(sheet, END_AT + 16),
        key_id: [0; 16],
        key: [0; KEY_BYTES],
        index: Place::default(),
        deltas: Vec::new(),
        dictionaries: Vec::new(),
        inline: Vec::new(),
    };
    root.container.copy_from_slice(&sheet[24..40]);
    root.key_id.copy_from_slice(&sheet[100..116]);
    root.key.copy_from_slice(&sheet[116..END_AT]);
    root
}

/// Bytes that are taken from the front.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16_at(self.take(2)?, 0))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32_at(self.take(4)?, 0))
    }

    pub(crate) fn place(&mut self) -> Option<Place> {
        Some(Place::from_word(u64_at(self.take(8)?, 0)))
    }

    /// Entries by block, ascending.
    pub(crate) fn items(&mut self, count: usize) -> Option<Vec<(u32, Entry)>> {
        let bytes = self.take(count.checked_mul(ITEM_BYTES)?)?;
        let mut items: Vec<(u32, Entry)> = Vec::with_capacity(count);
        for item in bytes.chunks_exact(ITEM_BYTES) {
            let block = u32::from_le_bytes([item[0], item[1], item[2], 0]);
            let entry = Entry(u64_at(item, 3));
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

pub(crate) fn put_items(out: &mut Vec<u8>, items: &[(u32, Entry)]) {
    for (block, entry) in items {
        out.extend_from_slice(&block.to_le_bytes()[..3]);
        out.extend_from_slice(&entry.clean().0.to_le_bytes());
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn damage(property: &'static str, expected: u64, found: u64) -> Error {
    let length = SHEET_BYTES as u64;
    Damage { what: "root", block: None, offset: 0, length, property, expected, found }.into()
}
