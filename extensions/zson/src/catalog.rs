//! The extension's own tables, read without regard to privileges and snapshots of queries.
//!
//! 1. Everything is read under the catalog snapshot, which is of now: a REPEATABLE READ transaction that is older
//!    than a dictionary reads documents written with it. Under logical decoding it is the historic one, which is
//!    why the tables are user catalog tables.
//! 2. A row of this very transaction is recognised ([`Objects::newest_dictionary`]): nobody else can see it, and it may yet
//!    be rolled back, so nothing is written with it.
//! 3. Rows are found through the extension's schema, wherever that is.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int};
use std::num::NonZeroU32;

use pgrx::pg_sys::{self, AttrNumber, Datum, Oid};
use pgshrink_zson::memory;

use crate::query::quoted;
use crate::sys::{bytes_of, copy_of, had};

/// The name of profile 0, that of columns declared `zson`.
pub const DEFAULT_PROFILE: &str = "default";

/// `pg_extension` and its index on oid (`src/include/catalog/pg_extension.h`).
const EXTENSION_TABLE: u32 = 3079;
const EXTENSION_INDEX: u32 = 3080;

/// Where the extension's tables are. Looked up anew when any of them may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objects {
    /// The extension's schema.
    pub namespace: Oid,
    /// The role the tables belong to: not the extension's owner if that is no superuser.
    pub owner: Oid,
    /// The type.
    pub zson: Oid,
    /// Words of version 1.1.
    words: Relation,
    /// Absent as long as the database's extension is of version 1.1.
    catalog: Option<Catalog>,
}

/// A table and the index it is read through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Relation {
    table: Oid,
    index: Oid,
}

/// What version 2 brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Catalog {
    dictionary_by_id: Relation,
    dictionary_by_profile: Relation,
    profile_by_id: Relation,
    profile_by_name: Relation,
}

/// A profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileRow {
    /// The typmod of its columns.
    pub id: i32,
    /// Its name.
    pub name: String,
    /// What `zson_set_codec` set.
    pub codec: Option<String>,
}

/// A dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DictionaryRow {
    /// Its id in this database.
    pub id: NonZeroU32,
    /// The name of its profile.
    pub profile: String,
    /// What it was trained for: `zstd:3`.
    pub codec: String,
    /// SHA-256 of its bytes.
    pub hash: Vec<u8>,
    /// Its bytes; none if no dictionary was best.
    pub content: Option<Vec<u8>>,
}

impl Objects {
    /// Looks everything up; none where the database does not have the extension.
    pub fn find() -> Option<Objects> {
        // SAFETY: catalog lookups by name; failures are errors of the server, which pgrx turns into panics.
        unsafe {
            let extension = pg_sys::get_extension_oid(c"zson".as_ptr(), true);
            if extension == pg_sys::InvalidOid {
                return None;
            }
            let namespace = extension_schema(extension)?;
            let relation = |table: &CStr, index: &CStr| {
                let table = pg_sys::get_relname_relid(table.as_ptr(), namespace);
                let index = pg_sys::get_relname_relid(index.as_ptr(), namespace);
                (table != pg_sys::InvalidOid && index != pg_sys::InvalidOid)
                    .then_some(Relation { table, index })
            };
            let none = Relation { table: pg_sys::InvalidOid, index: pg_sys::InvalidOid };
            let dictionaries = relation(c"zson_dictionary", c"zson_dictionary_pkey");
            Some(Objects {
                namespace,
                owner: dictionaries.map_or(pg_sys::InvalidOid, |relation| owner_of(relation.table)),
                zson: type_oid(c"zson", namespace),
                words: relation(c"zson_dict", c"zson_dict_pkey").unwrap_or(none),
                catalog: dictionaries.and_then(|dictionary_by_id| {
                    Some(Catalog {
                        dictionary_by_id,
                        dictionary_by_profile: relation(c"zson_dictionary", c"zson_dictionary_profile")?,
                        profile_by_id: relation(c"zson_profile", c"zson_profile_pkey")?,
                        profile_by_name: relation(c"zson_profile", c"zson_profile_name_key")?,
                    })
                }),
            })
        }
    }

    /// Whether the database has version 2's tables.
    pub fn is_current(&self) -> bool {
        self.catalog.is_some()
    }

    /// The table of dictionaries, whose change tells every backend to look again.
    pub fn dictionary_table(&self) -> Oid {
        self.catalog.map_or(pg_sys::InvalidOid, |catalog| catalog.dictionary_by_id.table)
    }

    /// The table of profiles.
    pub fn profile_table(&self) -> Oid {
        self.catalog.map_or(pg_sys::InvalidOid, |catalog| catalog.profile_by_id.table)
    }

    /// `name` in the extension's schema, quoted.
    pub fn qualified(&self, name: &str) -> String {
        let parts = [quoted(&namespace_name(self.namespace)), quoted(name.as_bytes())];
        String::from_utf8_lossy(&parts.join(&b'.')).into_owned()
    }

    /// The dictionary of this id.
    ///
    /// One that was removed is still found as long as VACUUM has not taken the row away, which it does not while an
    /// older snapshot (on a standby: by the usual rules for its conflicts) may still see documents that need it.
    pub fn dictionary(&self, id: NonZeroU32) -> Option<DictionaryRow> {
        let relation = self.catalog?.dictionary_by_id;
        let keys = [int4_key(1, id.get() as i32)];
        first(relation, &keys, Order::Index, dictionary_row)
            .or_else(|| first(relation, &keys, Order::Removed, dictionary_row))
    }

    /// The newest dictionary of a profile that is not of this very transaction, and whether there is a newer one
    /// that is.
    pub fn newest_dictionary(&self, profile: &str) -> (Option<DictionaryRow>, bool) {
        let Some(catalog) = self.catalog else { return (None, false) };
        let name = text_datum(profile);
        let mut own = false;
        let found =
            first(catalog.dictionary_by_profile, &[text_key(2, name)], Order::Backward, |row, is_own| {
                if is_own {
                    own = true;
                    return None;
                }
                dictionary_row(row, is_own)
            });
        (found, own)
    }

    /// Whether a profile has a dictionary of these bytes for this codec that is not older, be it of this very transaction.
    pub fn has_dictionary(&self, profile: &str, new: &Row) -> bool {
        let Some(catalog) = self.catalog else { return false };
        let name = text_datum(profile);
        let (codec, hash, created) = (new.text(4), new.bytes(7), new.timestamp(3));
        let same = |row: &Row, _: bool| {
            let is_same = row.bytes(7) == hash && row.text(4) == codec && row.timestamp(3) >= created;
            is_same.then_some(())
        };
        first(catalog.dictionary_by_profile, &[text_key(2, name)], Order::Index, same).is_some()
    }

    /// The profile of this id.
    pub fn profile(&self, id: i32) -> Option<ProfileRow> {
        first(self.catalog?.profile_by_id, &[int4_key(1, id)], Order::Index, profile_row)
    }

    /// The profile of this name.
    pub fn profile_named(&self, name: &str) -> Option<ProfileRow> {
        let key = text_key(2, text_datum(name));
        first(self.catalog?.profile_by_name, &[key], Order::Index, profile_row)
    }

    /// The words of a dictionary of version 1.1, each with its id; none if there are none.
    pub fn words(&self, dictionary: i32) -> Vec<(i32, Vec<u8>)> {
        let mut words = Vec::new();
        if self.words.table != pg_sys::InvalidOid {
            first::<()>(self.words, &[int4_key(1, dictionary)], Order::Index, |row, _| {
                if let (Some(id), Some(word)) = (row.int4(2), row.bytes(3)) {
                    had(memory::push(&mut words, (id, word)));
                }
                None
            });
        }
        words
    }
}

/// The name of a schema.
fn namespace_name(namespace: Oid) -> Vec<u8> {
    // SAFETY: a catalog lookup; the name, if there is one, is a C string.
    unsafe {
        let name = pg_sys::get_namespace_name(namespace);
        if name.is_null() { Vec::new() } else { CStr::from_ptr(name).to_bytes().to_vec() }
    }
}

/// `text` as a datum of type text.
pub fn text_datum(text: &str) -> Datum {
    // SAFETY: pointer and length are of one string.
    unsafe { Datum::from(pg_sys::cstring_to_text_with_len(text.as_ptr().cast(), text.len() as c_int)) }
}

/// The type of this name in a schema.
fn type_oid(name: &CStr, namespace: Oid) -> Oid {
    // SAFETY: a catalog lookup with the two keys of this cache.
    unsafe {
        pg_sys::GetSysCacheOid(
            pg_sys::SysCacheIdentifier::TYPENAMENSP as c_int,
            1,
            Datum::from(name.as_ptr()),
            Datum::from(namespace),
            Datum::null(),
            Datum::null(),
        )
    }
}

/// The schema of an extension.
fn extension_schema(extension: Oid) -> Option<Oid> {
    let (table, index) = (Oid::from(EXTENSION_TABLE), Oid::from(EXTENSION_INDEX));
    let key = key(1, pg_sys::F_OIDEQ, Datum::from(extension));
    first(Relation { table, index }, &[key], Order::Index, |row, _| {
        row.value(4).map(|datum| Oid::from(datum.value() as u32))
    })
}

/// The owner of a table.
fn owner_of(table: Oid) -> Oid {
    // SAFETY: the relation is open while its row is read.
    unsafe {
        let relation = pg_sys::table_open(table, pg_sys::AccessShareLock as c_int);
        let owner = (*(*relation).rd_rel).relowner;
        pg_sys::table_close(relation, pg_sys::AccessShareLock as c_int);
        owner
    }
}

fn dictionary_row(row: &Row, _: bool) -> Option<DictionaryRow> {
    Some(DictionaryRow {
        id: NonZeroU32::new(u32::try_from(row.int4(1)?).ok()?)?,
        profile: row.text(2)?,
        codec: row.text(4)?,
        hash: row.bytes(7)?,
        content: row.bytes(12),
    })
}

fn profile_row(row: &Row, _: bool) -> Option<ProfileRow> {
    Some(ProfileRow { id: row.int4(1)?, name: row.text(2)?, codec: row.text(3) })
}

/// A row while what it comes from is there.
#[derive(Clone)]
pub struct Row {
    /// Its columns.
    pub values: Vec<Datum>,
    /// Which of them are null.
    pub nulls: Vec<bool>,
}

impl Row {
    /// The columns of a tuple.
    ///
    /// # Safety
    /// The tuple is of this shape, and there as long as the row is used; columns are asked for as what they are.
    pub unsafe fn of(tuple: pg_sys::HeapTuple, shape: pg_sys::TupleDesc) -> Row {
        // SAFETY: by the caller; as many of each as the shape has columns.
        unsafe {
            let columns = (*shape).natts as usize;
            let mut row = Row { values: vec![Datum::null(); columns], nulls: vec![true; columns] };
            pg_sys::heap_deform_tuple(tuple, shape, row.values.as_mut_ptr(), row.nulls.as_mut_ptr());
            row
        }
    }

    /// The value of column `number`, from 1.
    pub fn value(&self, number: usize) -> Option<Datum> {
        (self.nulls.get(number - 1) == Some(&false)).then(|| self.values[number - 1])
    }

    fn int4(&self, number: usize) -> Option<i32> {
        Some(self.value(number)?.value() as i32)
    }

    /// Microseconds since 2000.
    fn timestamp(&self, number: usize) -> Option<i64> {
        Some(self.value(number)?.value() as i64)
    }

    /// The bytes of the varlena in column `number`, from 1.
    pub fn bytes(&self, number: usize) -> Option<Vec<u8>> {
        let datum = self.value(number)?;
        // SAFETY: the column is a varlena, and its tuple is there as long as the scan.
        unsafe {
            let packed = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
            let bytes = copy_of(bytes_of(packed));
            if !std::ptr::eq(packed, datum.cast_mut_ptr()) {
                pg_sys::pfree(packed.cast());
            }
            Some(bytes)
        }
    }

    /// A text column whose content is ASCII or came in by [`text_datum`].
    pub fn text(&self, number: usize) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(number)?).into_owned())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Through the index where the server allows it.
    Index,
    /// In the index's order, from its end.
    Backward,
    /// Through the index, rows that are deleted included.
    Removed,
}

fn key(column: AttrNumber, function: u32, value: Datum) -> pg_sys::ScanKeyData {
    let mut key = pg_sys::ScanKeyData::default();
    // SAFETY: writes the key; the function is a builtin.
    unsafe {
        pg_sys::ScanKeyInit(
            &mut key,
            column,
            pg_sys::BTEqualStrategyNumber as u16,
            Oid::from(function),
            value,
        );
    }
    key
}

fn int4_key(column: AttrNumber, value: i32) -> pg_sys::ScanKeyData {
    key(column, pg_sys::F_INT4EQ, Datum::from(value))
}

fn text_key(column: AttrNumber, value: Datum) -> pg_sys::ScanKeyData {
    key(column, pg_sys::F_TEXTEQ, value)
}

/// The first row matching all keys for which `take` gives something.
fn first<T>(
    relation: Relation,
    keys: &[pg_sys::ScanKeyData],
    order: Order,
    mut take: impl FnMut(&Row, bool) -> Option<T>,
) -> Option<T> {
    let mut keys = keys.to_vec();
    // SAFETY: table and index belong together and are open during the scan. An ERROR unwinds; the server then closes
    // what is open.
    unsafe {
        let table = pg_sys::table_open(relation.table, pg_sys::AccessShareLock as c_int);
        let mut index = std::ptr::null_mut();
        let (count, first_key) = (keys.len() as c_int, keys.as_mut_ptr());
        let scan = if order == Order::Backward {
            index = pg_sys::index_open(relation.index, pg_sys::AccessShareLock as c_int);
            pg_sys::systable_beginscan_ordered(table, index, std::ptr::null_mut(), count, first_key)
        } else {
            let snapshot = match order {
                Order::Removed => &raw mut pg_sys::SnapshotAnyData,
                _ => std::ptr::null_mut(),
            };
            pg_sys::systable_beginscan(table, relation.index, true, snapshot, count, first_key)
        };
        let mut found = None;
        while found.is_none() {
            let tuple = match order {
                Order::Backward => {
                    pg_sys::systable_getnext_ordered(scan, pg_sys::ScanDirection::BackwardScanDirection)
                }
                _ => pg_sys::systable_getnext(scan),
            };
            if tuple.is_null() {
                break;
            }
            found = take(&Row::of(tuple, (*table).rd_att), is_own(tuple));
        }
        if order == Order::Backward {
            pg_sys::systable_endscan_ordered(scan);
            pg_sys::index_close(index, pg_sys::AccessShareLock as c_int);
        } else {
            pg_sys::systable_endscan(scan);
        }
        pg_sys::table_close(table, pg_sys::AccessShareLock as c_int);
        found
    }
}

/// Whether a tuple of a table was inserted by this very transaction.
unsafe fn is_own(tuple: pg_sys::HeapTuple) -> bool {
    // SAFETY: by the caller, the tuple is of a table.
    unsafe {
        let header = (*tuple).t_data;
        let frozen = pg_sys::HEAP_XMIN_FROZEN as u16;
        (*header).t_infomask & frozen != frozen
            && pg_sys::TransactionIdIsCurrentTransactionId((*header).t_choice.t_heap.t_xmin)
    }
}

/// A string for the server.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}
