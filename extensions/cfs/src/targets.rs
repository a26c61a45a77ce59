//! What has a setting beside tablespaces: tables, materialized views, and databases. Their labels, and who may set
//! them.
//!
//! A label is on the table's OID, so it outlives the table's files. Indexes and TOAST tables follow their table.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};

use pgrx::PgSqlErrorCode as Code;
use pgrx::pg_sys::{self, ObjectAddress, Oid};
use pgshrink_cfs_server::setting::Setting;

use crate::labels::{PROVIDER, note_conversion, raise};
use crate::report;

/// Objects of the server's own have smaller numbers: catalogs, and their TOAST tables and indexes.
pub const FIRST_OID: u32 = pg_sys::FirstNormalObjectId;

/// What a session may not do.
fn refuse(name: &str, what: &str, hint: impl Into<String>) -> ! {
    report::error(
        Code::ERRCODE_WRONG_OBJECT_TYPE,
        format!("cannot change the compression of \"{name}\": it is {what}"),
        hint,
    )
}

/// A string of the server's, in memory of the transaction.
fn text(text: *const c_char) -> Option<String> {
    // SAFETY: by the callers: a string that ends with a zero, or none.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

pub fn name_of(relation: Oid) -> String {
    // SAFETY: in a transaction.
    text(unsafe { pg_sys::get_rel_name(relation) }).unwrap_or_else(|| {
        report::error(
            Code::ERRCODE_UNDEFINED_TABLE,
            format!("no relation has the OID {}", relation.to_u32()),
            "Name a table, a partitioned table or a materialized view.",
        )
    })
}

/// Raises an ERROR where a relation cannot have a setting.
fn check_relation(relation: Oid) {
    let name = name_of(relation);
    // SAFETY: in a transaction.
    let (kind, persistence) =
        unsafe { (pg_sys::get_rel_relkind(relation) as u8, pg_sys::get_rel_persistence(relation) as u8) };
    let tables = "Tables, partitioned tables and materialized views are compressed, with their indexes and TOAST tables.";
    if relation.to_u32() < FIRST_OID {
        report::error(
            Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            format!(
                "cannot change the compression of \"{name}\": it is a system catalog, and catalogs are \
                 never compressed"
            ),
            tables,
        );
    }
    match kind {
        b'r' | b'm' | b'p' => {}
        b'i' | b'I' => {
            // SAFETY: in a transaction.
            let table = unsafe { pg_sys::IndexGetRelation(relation, true) };
            let hint = match table {
                Oid::INVALID => tables.to_owned(),
                table => format!("Indexes follow their table: name \"{}\".", name_of(table)),
            };
            refuse(&name, "an index", hint)
        }
        b't' => refuse(&name, "a TOAST table", "TOAST tables follow their table: name the table."),
        b'S' => refuse(&name, "a sequence", "A sequence has one page, and stays plain."),
        b'v' => refuse(&name, "a view", "A view has no files: name the tables that it reads from."),
        b'f' => refuse(&name, "a foreign table", "Its rows are on another server: compress it there."),
        _ => refuse(&name, "no table", tables),
    }
    if persistence == b't' {
        refuse(&name, "a temporary table", "Temporary tables stay plain.");
    }
}

fn parse_label(label: &str) -> Setting {
    let setting = Setting::from_label(label).unwrap_or_else(|error| raise(&error));
    if setting.is_encrypted {
        report::error(
            Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            "only tablespaces can be encrypted",
            "Create a tablespace with CREATE TABLESPACE … WITH (encryption = on), and move the table to it \
             with ALTER TABLE … SET TABLESPACE.",
        );
    }
    setting
}

/// `SECURITY LABEL FOR cfs ON TABLE …`, `ON MATERIALIZED VIEW`, `ON DATABASE`: what pg_dump writes. The server has
/// checked the owner, and has a lock.
pub fn check_label(object: &ObjectAddress, label: Option<&str>) {
    let is_relation = object.classId == pg_sys::RelationRelationId;
    if (!is_relation || object.objectSubId != 0) && object.classId != pg_sys::DatabaseRelationId {
        report::error(
            Code::ERRCODE_WRONG_OBJECT_TYPE,
            "security labels for provider \"cfs\" apply only to tablespaces, databases, tables and \
             materialized views",
            "Indexes and TOAST tables follow their table.",
        );
    }
    // Taking it away is always right.
    let Some(label) = label else { return };
    parse_label(label);
    if is_relation {
        check_relation(object.objectId);
    } else {
        check_database(object.objectId);
    }
}

/// The database whose relations a label is about.
pub fn database_of(object: &ObjectAddress) -> Oid {
    match object.classId == pg_sys::DatabaseRelationId {
        true => object.objectId,
        // SAFETY: reads a variable of the session.
        false => unsafe { pg_sys::MyDatabaseId },
    }
}

/// Raises an ERROR on a standby, where labels come from the primary, and in a transaction that is read-only.
fn check_primary() {
    // SAFETY: reads what all processes share.
    if unsafe { pg_sys::RecoveryInProgress() } {
        report::error(
            Code::ERRCODE_READ_ONLY_SQL_TRANSACTION,
            "cannot change the compression of a table or database during recovery",
            "Settings come from the primary. To compress this standby alone, set cfs.node_compression in its \
             postgresql.conf and reload.",
        );
    }
    // SAFETY: a string that ends with a zero.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(c"a change of the compression of a table or database".as_ptr())
    };
}

/// Raises an ERROR where the user does not own a relation.
fn check_owner(relation: Oid, name: &str) {
    // SAFETY: in a transaction; a relation that is not there is the server's own ERROR.
    unsafe {
        let user = pg_sys::GetUserId();
        #[cfg(feature = "pg15")]
        let is_owner = pg_sys::pg_class_ownercheck(relation, user);
        #[cfg(not(feature = "pg15"))]
        let is_owner = pg_sys::object_ownercheck(pg_sys::RelationRelationId, relation, user);
        if !is_owner {
            let name = CString::new(name).unwrap_or_default();
            let kind = pg_sys::get_relkind_objtype(pg_sys::get_rel_relkind(relation));
            pg_sys::aclcheck_error(pg_sys::AclResult::ACLCHECK_NOT_OWNER, kind, name.as_ptr());
        }
    }
}

/// Whether a session may change a relation's setting, and the relation can have one: an ERROR if not. Nobody else changes
/// its label from here on until the transaction ends, and nobody drops it.
///
/// `SECURITY LABEL` waits for VACUUM, and VACUUM for it. This does not: it locks the relation as a SELECT does.
pub fn claim(relation: Oid) {
    let name = name_of(relation);
    check_primary();
    check_owner(relation, &name);
    check_relation(relation);
    // SAFETY: in a transaction, at whose end the locks go.
    unsafe {
        pg_sys::LockRelationOid(relation, pg_sys::AccessShareLock as i32);
        let mode = pg_sys::ShareUpdateExclusiveLock as i32;
        pg_sys::LockDatabaseObject(pg_sys::RelationRelationId, relation, 0, mode);
    }
    // It may have been dropped, or given away, before it was locked.
    check_owner(relation, &name_of(relation));
    check_relation(relation);
}

/// Sets a claimed relation's label, or takes it away.
pub fn set_relation(relation: Oid, setting: Option<Setting>) {
    set_label(&relation_address(relation), setting);
}

fn set_label(object: &ObjectAddress, setting: Option<Setting>) {
    let label = setting.map(|setting| CString::new(setting.label()).unwrap_or_default());
    let label = label.as_deref().map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: strings that end with a zero, or none; in a transaction, whose next command may change the same label.
    unsafe {
        pg_sys::SetSecurityLabel(object, PROVIDER.as_ptr(), label);
        pg_sys::CommandCounterIncrement();
    }
    note_conversion(database_of(object));
}

fn relation_address(relation: Oid) -> ObjectAddress {
    ObjectAddress { classId: pg_sys::RelationRelationId, objectId: relation, objectSubId: 0 }
}

fn database_address(database: Oid) -> ObjectAddress {
    ObjectAddress { classId: pg_sys::DatabaseRelationId, objectId: database, objectSubId: 0 }
}

/// A label's setting; `Some(None)`: it is of a later version, and not understood.
fn label_of(object: &ObjectAddress) -> Option<Option<Setting>> {
    // SAFETY: in a transaction; the label is copied at once.
    let label = text(unsafe { pg_sys::GetSecurityLabel(object, PROVIDER.as_ptr()) })?;
    Some(understood(&label))
}

/// What the label of a relation or database says.
pub fn understood(label: &str) -> Option<Setting> {
    Setting::from_label(label).ok().filter(|setting| !setting.is_encrypted)
}

/// What a relation's own label says.
pub fn relation_label(relation: Oid) -> Option<Option<Setting>> {
    label_of(&relation_address(relation))
}

/// What a database's label says.
pub fn database_label(database: Oid) -> Option<Option<Setting>> {
    label_of(&database_address(database))
}

/// Raises an ERROR where no worker can look at a database's relations.
fn check_database(database: Oid) {
    // SAFETY: in a transaction; a tuple of this catalog, read before it is released.
    unsafe {
        let key = pg_sys::Datum::from(database);
        let tuple = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::DATABASEOID as i32, key);
        if tuple.is_null() {
            return;
        }
        let form = *pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_database>();
        let name = text(form.datname.data.as_ptr()).unwrap_or_default();
        pg_sys::ReleaseSysCache(tuple);
        if !form.datallowconn {
            report::error(
                Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("cannot compress database \"{name}\": it does not accept connections"),
                "A worker has to connect to it: ALTER DATABASE … ALLOW_CONNECTIONS true.",
            );
        }
    }
}

/// Sets a database's label.
pub fn set_database(name: &str, setting: Setting) {
    check_primary();
    let c_name = CString::new(name).unwrap_or_default();
    // SAFETY: in a transaction; a string that ends with a zero. One that is not there is the server's own ERROR.
    unsafe {
        let database = pg_sys::get_database_oid(c_name.as_ptr(), false);
        let check = |database| {
            let user = pg_sys::GetUserId();
            #[cfg(feature = "pg15")]
            let is_owner = pg_sys::pg_database_ownercheck(database, user);
            #[cfg(not(feature = "pg15"))]
            let is_owner = pg_sys::object_ownercheck(pg_sys::DatabaseRelationId, database, user);
            if !is_owner {
                let kind = pg_sys::ObjectType::OBJECT_DATABASE;
                pg_sys::aclcheck_error(pg_sys::AclResult::ACLCHECK_NOT_OWNER, kind, c_name.as_ptr());
            }
        };
        check(database);
        check_database(database);
        // As SECURITY LABEL does. Sessions that connect do not wait for it.
        let mode = pg_sys::ShareUpdateExclusiveLock as i32;
        pg_sys::LockSharedObject(pg_sys::DatabaseRelationId, database, 0, mode);
        if pg_sys::get_database_oid(c_name.as_ptr(), false) != database {
            report::error(
                Code::ERRCODE_OBJECT_IN_USE,
                format!("database \"{name}\" was dropped or renamed in the meantime"),
                "Try again.",
            );
        }
        check(database);
        set_label(&database_address(database), Some(setting));
    }
}
