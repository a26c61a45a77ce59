//! Profiles and what guards the extension's tables: typmods, codecs, what a dump loads.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use pgrx::pg_sys::{self, Datum, FunctionCallInfo, HeapTuple, Oid, TriggerData};
use pgshrink_codec::Dictionary;
use pgshrink_zson::memory;

use crate::backend::{objects, parse_codec};
use crate::catalog::{Objects, ProfileRow, Row, c_string};
use crate::error::{PgSqlErrorCode as Code, notice, raise};
use crate::internal::{as_owner, is_internal, run};
use crate::query::{Session, statement};
use crate::references::count;
use crate::sys::{self, had, pg_function};
use crate::value::new_varlena;

const NAME_MAX: usize = 63;
const PROFILES_MAX: i32 = 10_000;
/// `pg_namespace` (`src/include/catalog/pg_namespace.h`).
#[cfg(not(feature = "pg15"))]
const NAMESPACE_TABLE: u32 = 2615;

pg_function! {
    /// `zson_typmod_in(cstring[])`: the profile of this name, registered if it is new.
    fn zson_typmod_in(fcinfo) {
        let name = one_modifier(sys::arg(fcinfo, 0));
        if let Some(id) = upgraded_id(&name) {
            return Datum::from(id);
        }
        let objects = objects();
        let id = match objects.profile_named(&name) {
            Some(profile) => {
                lock_profile(&objects, profile.id, pg_sys::AccessShareLock);
                profile.id
            }
            None => {
                let id = make(&objects, &name).id;
                lock_profile(&objects, id, pg_sys::AccessShareLock);
                notice(format!("zson profile \"{name}\" is new"), "Until zson_learn has trained it, its documents are compressed without a dictionary.");
                id
            }
        };
        Datum::from(id)
    }
    /// `zson_typmod_out(int4)`.
    fn zson_typmod_out(fcinfo) {
        let typmod = sys::int4_arg(fcinfo, 0, -1);
        if pg_sys::IsBinaryUpgrade {
            return Datum::from(pg_sys::pstrdup(c_string(&format!("('#{typmod}')")).as_ptr()));
        }
        let name = objects().profile(typmod).map(|profile| profile.name).unwrap_or_default();
        let text = c_string(&if name.is_empty() { String::new() } else { format!("('{name}')") });
        Datum::from(pg_sys::pstrdup(text.as_ptr()))
    }
    /// `zson_set_codec(profile text, codec text)`: null gives the choice back.
    fn zson_set_codec(fcinfo) {
        if sys::arg_is_null(fcinfo, 0) {
            raise(Code::ERRCODE_NULL_VALUE_NOT_ALLOWED, "zson: the profile's name is null", "", "");
        }
        let name = text_arg(fcinfo, 0);
        check_name(&name);
        let codec = (!sys::arg_is_null(fcinfo, 1)).then(|| parse_codec(&text_arg(fcinfo, 1)).to_string());
        let objects = objects();
        set_codec(&objects, &known(&objects, &name), codec);
        Datum::null()
    }
    /// `zson_drop_profile(profile text)`: removes one that no column has.
    fn zson_drop_profile(fcinfo) {
        let name = text_arg(fcinfo, 0);
        let objects = objects();
        drop_profile(&objects, &known(&objects, &name));
        Datum::null()
    }
    /// `zson_dictionary_bytes_in(cstring)`: hexadecimal digits. Values to compare with would tell what the bytes
    /// are (by the server's comparison of rows as stored), so making some takes the same right as reading them.
    fn zson_dictionary_bytes_in(fcinfo) {
        let text = CStr::from_ptr(sys::arg(fcinfo, 0).cast_mut_ptr::<c_char>()).to_bytes();
        if !text.is_empty() && !may_read_dictionaries() {
            raise(
                Code::ERRCODE_INSUFFICIENT_PRIVILEGE,
                "zson: this role may not read or write the bytes of dictionaries",
                "",
                "Load dictionaries as a superuser, or leave out zson_dictionary and train again with zson_learn.",
            );
        }
        let Some(bytes) = from_hex(text) else {
            raise(Code::ERRCODE_INVALID_TEXT_REPRESENTATION, "zson: dictionary bytes must be pairs of \
                hexadecimal digits", "", "")
        };
        new_varlena(&bytes)
    }
    /// `zson_dictionary_bytes_out`: nothing for roles that may not read every table.
    fn zson_dictionary_bytes_out(fcinfo) {
        let mut digits = String::new();
        if may_read_dictionaries() {
            digits = to_hex(&sys::bytes_arg(fcinfo, 0));
        }
        Datum::from(pg_sys::pnstrdup(digits.as_ptr().cast(), digits.len()))
    }
    /// Before a row of `zson_profile` comes in: its id is this database's own.
    fn zson_profile_load(fcinfo) {
        let objects = objects();
        let loaded = Loaded::of(fcinfo, objects.profile_table());
        let row = &loaded.row;
        let name = row.text(2).unwrap_or_default();
        check_name(&name);
        let codec = row.text(3).map(|codec| parse_codec(&codec).to_string());
        lock_profiles(&objects);
        match objects.profile_named(&name) {
            Some(known) => {
                if known.codec.is_none() && codec.is_some() {
                    set_codec(&objects, &known, codec);
                }
                Datum::null()
            }
            None => {
                let id = next_id(&objects, "zson_profile_id");
                if id > PROFILES_MAX && profiles(&objects) >= i64::from(PROFILES_MAX) {
                    raise(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, format!("zson: a database can have at most \
                        {PROFILES_MAX} profiles"), "", "\
                        Use one profile for columns with documents of the same kind; zson_drop_profile \
                        removes a profile that no column uses.");
                }
                loaded.with(&[(1, Datum::from(id))])
            }
        }
    }
    /// Before a row of `zson_dictionary` comes in: checked, with an id of this database's own, once only.
    fn zson_dictionary_load(fcinfo) {
        let objects = objects();
        let loaded = Loaded::of(fcinfo, objects.dictionary_table());
        let row = &loaded.row;
        let (profile, kind) = (row.text(2).unwrap_or_default(), row.text(5).unwrap_or_default());
        let hash = row.bytes(7).unwrap_or_default();
        check_name(&profile);
        parse_codec(&row.text(4).unwrap_or_default());
        let content = row.bytes(12).unwrap_or_default();
        if kind != "none" {
            if content.is_empty() {
                // From a dump by a role that does not see the bytes.
                return Datum::null();
            }
            let dictionary = Dictionary::new(content).ok().filter(|dictionary| dictionary.hash()[..] == hash);
            if dictionary.is_none() {
                raise(Code::ERRCODE_DATA_CORRUPTED, format!("zson: a dictionary for profile \"{profile}\" \
                    does not match its hash {}", to_hex(&hash)), "Expected SHA-256 of its content.", "\
                    Load it from an undamaged dump, or train again with zson_learn.");
            }
        }
        // A dump that is loaded twice. A profile may go back to what it was written with before, under another id.
        if !is_internal() && objects.has_dictionary(&profile, row) {
            return Datum::null();
        }
        if objects.profile_named(&profile).is_none() {
            register(&objects, &profile);
        }
        pg_sys::CacheInvalidateRelcacheByRelid(objects.dictionary_table());
        loaded.with(&[(1, Datum::from(next_id(&objects, "zson_dictionary_id")))])
    }
    /// Before a row is changed or deleted by anybody but the extension.
    fn zson_catalog_keep(fcinfo) {
        let data = trigger(fcinfo);
        let update = (*data).tg_event & pg_sys::TRIGGER_EVENT_OPMASK == pg_sys::TRIGGER_EVENT_UPDATE;
        if is_internal() {
            return Datum::from(if update { (*data).tg_newtuple } else { (*data).tg_trigtuple });
        }
        // What a publisher does to its own rows says nothing of those here.
        if pg_sys::SessionReplicationRole == pg_sys::SESSION_REPLICATION_ROLE_REPLICA as c_int {
            return Datum::null();
        }
        let table = CStr::from_ptr((*(*(*data).tg_relation).rd_rel).relname.data.as_ptr()).to_string_lossy();
        raise(
            Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("zson: rows of {table} must not be changed or deleted directly"),
            "Documents may need them.",
            "Use zson_set_codec to set a codec, and zson_vacuum_dictionaries to remove dictionaries that \
             nothing needs.",
        )
    }
}

/// Whether the current role may read every table, and so the documents that dictionaries are made of.
fn may_read_dictionaries() -> bool {
    // SAFETY: lookups of roles.
    unsafe {
        let role = pg_sys::GetUserId();
        pg_sys::superuser_arg(role)
            || pg_sys::has_privs_of_role(role, pg_sys::Oid::from(pg_sys::ROLE_PG_READ_ALL_DATA))
    }
}

/// A name or a setting as argument, in the server's encoding, as far as it is ASCII.
///
/// # Safety
/// Argument `n` is a text and not null.
pub unsafe fn text_arg(fcinfo: FunctionCallInfo, n: usize) -> String {
    // SAFETY: by the caller.
    unsafe { String::from_utf8_lossy(&sys::name_arg(fcinfo, n)).into_owned() }
}

/// The profile of this name; an ERROR if there is none.
fn known(objects: &Objects, name: &str) -> ProfileRow {
    check_name(name);
    objects.profile_named(name).unwrap_or_else(|| {
        raise(
            Code::ERRCODE_UNDEFINED_OBJECT,
            format!("zson: profile \"{name}\" does not exist"),
            "",
            "A column declared zson('name') creates one, and so does zson_learn(table, column, 'name'); \
             zson_profile lists them.",
        )
    })
}

/// Makes a profile on behalf of the current role, who needs the right to make objects where the extension is.
pub fn make(objects: &Objects, name: &str) -> ProfileRow {
    check_name(name);
    if !may_create(objects) {
        raise(
            Code::ERRCODE_INSUFFICIENT_PRIVILEGE,
            format!("zson: profile \"{name}\" does not exist, and this role may not create it"),
            "Expected the privilege CREATE on the extension's schema.",
            "Use an existing profile (zson_profile lists them), or have somebody with that privilege \
             create it with zson_learn(table, column, profile).",
        );
    }
    register(objects, name)
}

fn may_create(objects: &Objects) -> bool {
    // SAFETY: a lookup of rights.
    let result = unsafe {
        let role = pg_sys::GetUserId();
        let create = pg_sys::ACL_CREATE as pg_sys::AclMode;
        #[cfg(feature = "pg15")]
        let result = pg_sys::pg_namespace_aclcheck(objects.namespace, role, create);
        #[cfg(not(feature = "pg15"))]
        let result = pg_sys::object_aclcheck(Oid::from(NAMESPACE_TABLE), objects.namespace, role, create);
        result
    };
    result == pg_sys::AclResult::ACLCHECK_OK
}

/// A column that is about to have a profile, and the profile's removal, wait for each other.
fn lock_profile(objects: &Objects, id: i32, mode: u32) {
    // SAFETY: the lock goes with the transaction.
    unsafe {
        let id = Oid::from(id as u32);
        pg_sys::LockDatabaseObject(objects.profile_table(), id, 0, mode as pg_sys::LOCKMODE);
    }
}

fn profiles(objects: &Objects) -> i64 {
    let mut session = Session::open();
    let query = format!("SELECT pg_catalog.count(*) FROM {}", objects.qualified("zson_profile"));
    count(&mut session, &statement(&[query.as_bytes()]))
}

/// Dictionaries stay as long as documents need them; from now on none of them is current.
fn drop_profile(objects: &Objects, profile: &ProfileRow) {
    let ProfileRow { id, name, .. } = profile;
    if *id == 0 {
        raise(
            Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("zson: profile \"{name}\" is used by columns declared zson, and cannot be dropped"),
            "",
            "",
        );
    }
    lock_profile(objects, *id, pg_sys::AccessExclusiveLock);
    if let Some(place) = as_owner(objects.owner, || user_of(objects, *id)) {
        raise(
            Code::ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST,
            format!("zson: profile \"{name}\" is used by {place}"),
            "",
            "ALTER TABLE ... ALTER COLUMN ... TYPE zson('another') first.",
        );
    }
    as_owner(objects.owner, || {
        let table = objects.qualified("zson_profile");
        run(&format!("DELETE FROM {table} WHERE id = $1"), &[(*id).into()]);
    });
    // SAFETY: the table exists.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(objects.profile_table()) };
}

/// A column or a domain that has the profile, arrays included.
fn user_of(objects: &Objects, id: i32) -> Option<String> {
    let mut session = Session::open();
    let zson = u32::from(objects.zson);
    let query = format!(
        "SELECT pg_catalog.format('column %s.%I', a.attrelid::pg_catalog.regclass, a.attname) \
         FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) a.atttypid \
         WHERE {zson} OPERATOR(pg_catalog.=) ANY (ARRAY[t.oid, t.typelem]) AND NOT a.attisdropped \
         AND a.atttypmod OPERATOR(pg_catalog.=) {id} \
         UNION ALL SELECT pg_catalog.format('domain %s', d.oid::pg_catalog.regtype) \
         FROM pg_catalog.pg_type d JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) d.typbasetype \
         WHERE {zson} OPERATOR(pg_catalog.=) ANY (ARRAY[t.oid, t.typelem]) AND d.typtypmod OPERATOR(pg_catalog.=) {id} \
         LIMIT 1"
    );
    let rows = session.rows(&statement(&[query.as_bytes()]));
    let place = rows.first()?.first()?.as_deref()?;
    Some(String::from_utf8_lossy(place).into_owned())
}

/// Makes a profile, or finds that somebody else just made it.
fn register(objects: &Objects, name: &str) -> ProfileRow {
    check_name(name);
    lock_profiles(objects);
    if let Some(known) = objects.profile_named(name) {
        return known;
    }
    as_owner(objects.owner, || {
        let table = objects.qualified("zson_profile");
        run(&format!("INSERT INTO {table} (id, name) VALUES (0, $1)"), &[name.into()]);
    });
    // If this is rolled back, what is known of the name has to be forgotten.
    // SAFETY: the table exists.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(objects.profile_table()) };
    objects.profile_named(name).unwrap_or_else(|| {
        raise(
            Code::ERRCODE_INTERNAL_ERROR,
            format!("zson: profile \"{name}\" does not exist after it was created"),
            "",
            "",
        )
    })
}

fn set_codec(objects: &Objects, profile: &ProfileRow, codec: Option<String>) {
    as_owner(objects.owner, || {
        let table = objects.qualified("zson_profile");
        run(&format!("UPDATE {table} SET codec = $1 WHERE id = $2"), &[codec.into(), profile.id.into()]);
    });
    // SAFETY: the table exists.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(objects.profile_table()) };
}

/// Two transactions that make the same profile do so one after the other.
fn lock_profiles(objects: &Objects) {
    // SAFETY: the lock goes with the transaction.
    unsafe { pg_sys::LockRelationOid(objects.profile_table(), pg_sys::ShareRowExclusiveLock as c_int) };
}

/// A number that no row has and none will have again, whatever becomes of this transaction.
fn next_id(objects: &Objects, sequence: &str) -> i32 {
    as_owner(objects.owner, || {
        // SAFETY: a sequence of the extension; the result is its next value.
        let id = unsafe {
            let name = c_string(sequence);
            let oid = pg_sys::get_relname_relid(name.as_ptr(), objects.namespace);
            pgrx::direct_function_call::<i64>(pg_sys::nextval_oid, &[Some(Datum::from(oid))])
        };
        i32::try_from(id.unwrap_or(0)).unwrap_or(i32::MAX)
    })
}

fn check_name(name: &str) {
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, '\'' | '"' | '\\' | '(' | ')' | ',');
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fits) {
        raise(
            Code::ERRCODE_INVALID_NAME,
            format!("zson: invalid profile name \"{}\"", name.chars().take(NAME_MAX).collect::<String>()),
            &format!(
                "Expected 1 to {NAME_MAX} ASCII letters, digits or punctuation marks, without spaces, quotes, brackets \
                 and commas."
            ),
            "For example zson('events').",
        );
    }
}

/// The id that `zson_typmod_out` printed for pg_upgrade, which makes tables before zson_profile is there, and keeps
/// ids.
fn upgraded_id(name: &str) -> Option<i32> {
    // SAFETY: reads a flag of the server.
    let upgrading = unsafe { pg_sys::IsBinaryUpgrade };
    name.strip_prefix('#').filter(|_| upgrading)?.parse().ok().filter(|id| *id >= 0)
}

/// The one modifier of `zson(...)`.
unsafe fn one_modifier(array: Datum) -> String {
    let (mut elements, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
    // SAFETY: the server passes an array of C strings.
    unsafe {
        let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        let by_char = pg_sys::TYPALIGN_CHAR as c_char;
        pg_sys::deconstruct_array(
            array,
            pg_sys::CSTRINGOID,
            -2,
            false,
            by_char,
            &mut elements,
            &mut nulls,
            &mut count,
        );
        if count != 1 || *nulls {
            let found = if count == 1 { "NULL".to_owned() } else { count.to_string() };
            raise(
                Code::ERRCODE_INVALID_PARAMETER_VALUE,
                format!("zson takes one modifier, the name of a profile; found {found}"),
                "",
                "For example zson('events').",
            );
        }
        let name = CStr::from_ptr((*elements).cast_mut_ptr::<c_char>());
        sys::check_name_len(name.to_bytes());
        name.to_string_lossy().into_owned()
    }
}

unsafe fn trigger(fcinfo: FunctionCallInfo) -> *mut TriggerData {
    // SAFETY: the context, if there is one, is a node.
    unsafe {
        let context = (*fcinfo).context;
        if context.is_null() || (*context).type_ != pg_sys::NodeTag::T_TriggerData {
            raise(
                Code::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
                "zson: this function is for triggers",
                "",
                "",
            );
        }
        context.cast()
    }
}

/// The row that a trigger sees.
struct Loaded {
    tuple: HeapTuple,
    shape: pg_sys::TupleDesc,
    row: Row,
}

impl Loaded {
    /// The row that is about to be inserted into `table`. Anybody may make a trigger of these functions on a table
    /// of their own, with columns of other types: that is refused.
    unsafe fn of(fcinfo: FunctionCallInfo, table: Oid) -> Loaded {
        const KIND: u32 =
            pg_sys::TRIGGER_EVENT_TIMINGMASK | pg_sys::TRIGGER_EVENT_ROW | pg_sys::TRIGGER_EVENT_OPMASK;
        const BEFORE_INSERT: u32 =
            pg_sys::TRIGGER_EVENT_BEFORE | pg_sys::TRIGGER_EVENT_ROW | pg_sys::TRIGGER_EVENT_INSERT;
        // SAFETY: a BEFORE INSERT row trigger has its row in tg_trigtuple.
        unsafe {
            let data = trigger(fcinfo);
            if (*(*data).tg_relation).rd_id != table || (*data).tg_event & KIND != BEFORE_INSERT {
                raise(
                    Code::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
                    "zson: this function is for the extension's own triggers",
                    "",
                    "",
                );
            }
            let (tuple, shape) = ((*data).tg_trigtuple, (*(*data).tg_relation).rd_att);
            Loaded { tuple, shape, row: Row::of(tuple, shape) }
        }
    }

    /// The row with other values in some columns.
    fn with(&self, changes: &[(usize, Datum)]) -> Datum {
        let Row { mut values, mut nulls } = self.row.clone();
        let mut replaced = vec![false; values.len()];
        for &(number, value) in changes {
            (values[number - 1], nulls[number - 1], replaced[number - 1]) = (value, false, true);
        }
        // SAFETY: as many of each as the row has columns.
        unsafe {
            Datum::from(pg_sys::heap_modify_tuple(
                self.tuple,
                self.shape,
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
                replaced.as_mut_ptr(),
            ))
        }
    }
}

/// Bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut digits = Vec::new();
    had(memory::reserve(&mut digits, 2 * bytes.len()));
    digits.extend(bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| HEX[usize::from(digit)]));
    String::from_utf8(digits).unwrap_or_default()
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
    let mut bytes = Vec::new();
    had(memory::reserve(&mut bytes, text.len() / 2));
    for pair in text.chunks(2) {
        let [high, low] = pair else { return None };
        bytes.push(digit(*high)? << 4 | digit(*low)?);
    }
    Some(bytes)
}

const HEX: &[u8; 16] = b"0123456789abcdef";
