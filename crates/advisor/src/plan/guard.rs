//! How a transaction of a script begins: settings, locks, and the look whether all is as it was.

use super::queries;
use super::sql::{dollar, ident, literal, qualified, shown};
use super::users::Users;
use super::{Subject, sql};
use crate::snapshot::Table;

/// How long a script waits for a lock while others queue behind it.
const LOCK_TIMEOUT: &str = "5s";

const RUN_AGAIN: &str = "Run pgshrink advise again and use its new script.";

/// How often locks are tried that are wanted for moments.
const LOCK_TRIES: u32 = 20;
/// How long such a try takes: shorter than `deadlock_timeout`, so that no writer who came the other way is made to fail.
const LOCK_WAIT_MS: u32 = 900;
/// And every second time: longer than that, so that autovacuum, which gives way then, does not keep the table to itself.
const LOCK_WAIT_MS_MAX: u32 = 1_500;

/// Settings that decide how the texts of definitions are read, and how rows are.
const SETTINGS: [&str; 13] = [
    "SET LOCAL client_min_messages = warning;",
    "SET LOCAL statement_timeout = 0;",
    "SET LOCAL search_path = '';",
    "SET LOCAL DateStyle = 'ISO, MDY';",
    "SET LOCAL IntervalStyle = 'postgres';",
    "SET LOCAL extra_float_digits = 1;",
    "SET LOCAL standard_conforming_strings = on;",
    "SET LOCAL transform_null_equals = off;",
    "SET LOCAL quote_all_identifiers = off;",
    "SET LOCAL default_tablespace = '';",
    // A policy must not hide rows from the copy: an error instead.
    "SET LOCAL row_security = off;",
    // Rows are read from the first page on, so that they stay in their order.
    "SET LOCAL synchronize_seqscans = off;",
    // The checks of rows write long texts.
    "SET LOCAL jit = off;",
];

/// Begins a transaction. Every statement sees what was committed before it, so what follows a lock sees what waited for it.
pub(super) fn begin() -> Vec<String> {
    let mut statements = vec![
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;".to_owned(),
        format!("SET LOCAL lock_timeout = '{LOCK_TIMEOUT}';"),
    ];
    statements.extend(SETTINGS.map(str::to_owned));
    statements
}

/// Locks, in an order that queries take them in as well: views before tables, referencing tables before referenced ones.
pub(super) fn locks(subjects: &[Subject<'_>], users: &[Users<'_>]) -> Vec<String> {
    let mut statements = Vec::new();
    for users in users {
        // `LOCK` of a view would lock all tables of the view. This changes nothing and locks the view alone.
        for view in users.replaced.iter().chain(&users.recreated).rev() {
            let word = super::users::word(view);
            let name = qualified(&view.schema, &view.name);
            statements.push(format!("ALTER {word} {name} OWNER TO {};", ident(&view.owner)));
        }
    }
    let mut tables: Vec<String> = Vec::new();
    for subject in subjects {
        let relation = subject.relation;
        tables.extend(relation.parents.iter().map(|parent| parent.table.clone()));
        tables.extend(relation.referenced.iter().map(|key| key.table.clone()));
        tables.push(subject.name.clone());
        tables.extend(relation.children.iter().map(|child| child.table.clone()));
        tables.extend(relation.constraints.iter().filter_map(|key| key.partner.clone()));
    }
    let mut seen: Vec<&String> = Vec::new();
    for table in &tables {
        // The server may write the same name without quotes.
        let is_own = subjects.iter().any(|subject| is_same(table, subject) && *table != subject.name);
        if !seen.contains(&table) && !is_own {
            statements.push(format!("LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE;"));
            seen.push(table);
        }
    }
    statements
}

/// Runs statements that take locks until all of them have theirs: who has to queue behind one waits for moments, and nobody waits while
/// nothing is tried. Everything else in the transaction has to come after it.
///
/// Most writers hold the table first and then its sequence; those that have called `nextval` themselves hold the sequence first. So
/// every second time the locks of sequences are taken first.
pub(super) fn locks_for_moments(subject: &Subject<'_>, locks: &[String], sequences: &[String]) -> String {
    let left = "pg_catalog.set_config('lock_timeout', greatest(1, ceil(1000 * extract(epoch FROM \
                pgshrink_end - pg_catalog.clock_timestamp())))::integer::text, true)";
    let tried = |locks: &[String]| -> String {
        locks.iter().map(|lock| format!("      PERFORM {left};\n      {lock}\n")).collect()
    };
    let first = match sequences.is_empty() {
        true => String::new(),
        false => format!("      IF pgshrink_try % 2 = 0 THEN\n{}      END IF;\n", tried(sequences)),
    };
    let tried = [first, tried(locks), tried(sequences)].concat();
    let message = literal(&format!(
        "pgshrink: {}: could not get the lock: another transaction holds it and does not end",
        subject.shown()
    ));
    let body = format!(
        "DECLARE
  pgshrink_end timestamptz;
BEGIN
  FOR pgshrink_try IN 1..{LOCK_TRIES} LOOP
    pgshrink_end := pg_catalog.clock_timestamp()
      + CASE WHEN pgshrink_try % 2 = 1 THEN interval '{LOCK_WAIT_MS} ms' ELSE interval '{LOCK_WAIT_MS_MAX} ms' END;
    BEGIN
{tried}      PERFORM pg_catalog.set_config('lock_timeout', '{LOCK_WAIT_MS_MAX}ms', true);
      RETURN;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      PERFORM pg_catalog.pg_sleep(1 + pg_catalog.random());
    END;
  END LOOP;
  RAISE EXCEPTION USING MESSAGE = {message}, ERRCODE = 'lock_not_available',
    HINT = 'Nothing was changed. Run this step again at a quieter time, or end the transaction that pg_stat_activity shows.';
END"
    );
    format!("DO {};", dollar(&body))
}

/// What locks the sequences of a table: who has called `nextval` holds them until the transaction ends, and may want the table next.
pub(super) fn sequence_locks(subject: &Subject<'_>) -> Vec<String> {
    let relation = subject.relation;
    let lock = |sequence: &crate::snapshot::definition::Sequence| {
        // It has the table's owner. This changes nothing.
        let name = qualified(&sequence.schema, &sequence.name);
        format!("ALTER SEQUENCE {name} OWNER TO {};", ident(&relation.owner))
    };
    relation.sequences.iter().map(lock).collect()
}

/// Whether a name that the server wrote is of this table.
fn is_same(name: &str, subject: &Subject<'_>) -> bool {
    let words = sql::words(name);
    let names: Vec<&str> = words
        .iter()
        .filter_map(|(word, _)| match word {
            sql::Word::Name(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    names == [subject.relation.schema.as_str(), subject.relation.name.as_str()]
}

/// Stops unless the catalogs say of the table what they said when the snapshot was taken.
pub(super) fn unchanged(subject: &Subject<'_>) -> String {
    let message =
        format!("pgshrink: {} or what depends on it has changed since this script was made", subject.shown());
    raise_if(
        &format!(
            "{} IS DISTINCT FROM {}",
            queries::fingerprint(subject.relation.oid),
            literal(&subject.definition.fingerprint)
        ),
        &message,
        RUN_AGAIN,
    )
}

/// The same outside of a transaction of its own, before statements that cannot be in one. None: the snapshot does not know.
pub(super) fn unchanged_alone(table: &Table) -> Option<String> {
    let definition = table.definition.as_ref().filter(|definition| !definition.fingerprint.is_empty())?;
    let message = format!(
        "pgshrink: {}.{} or what depends on it has changed since this script was made",
        table.schema, table.name
    );
    let settings = [
        ("search_path", ""),
        ("DateStyle", "ISO, MDY"),
        ("IntervalStyle", "postgres"),
        ("extra_float_digits", "1"),
        ("quote_all_identifiers", "off"),
    ];
    let settings = settings.map(|(name, value)| {
        format!("  PERFORM pg_catalog.set_config('{name}', {}, true);\n", literal(value))
    });
    // They are in force until the end of this statement.
    let body = format!(
        "BEGIN\n{}  IF {} IS DISTINCT FROM {} THEN\n    RAISE EXCEPTION USING MESSAGE = {}, HINT = {};\n  END IF;\nEND",
        settings.concat(),
        queries::fingerprint(table.oid),
        literal(&definition.fingerprint),
        literal(&shown(&message)),
        literal(RUN_AGAIN)
    );
    Some(format!("DO {};", dollar(&body)))
}

/// Stops unless the proofs of new types hold.
pub(super) fn proofs(subject: &Subject<'_>) -> Vec<String> {
    let proof = |(column, retype): (&super::columns::NewColumn<'_>, &crate::edit::Retype)| {
        let query = retype.proof.trim().trim_end_matches(';');
        (!query.is_empty()).then(|| {
            let message = format!(
                "pgshrink: {}: values of column {} do not fit its new type",
                subject.shown(),
                column.name
            );
            raise_if(&format!("({query}) <> 0"), &message, "Leave the column unchanged.")
        })
    };
    subject.changes.retyped().filter_map(proof).collect()
}

/// A block that raises an error.
pub(super) fn raise_if(condition: &str, message: &str, hint: &str) -> String {
    let body = format!(
        "BEGIN\n  IF {condition} THEN\n    RAISE EXCEPTION USING MESSAGE = {}, HINT = {};\n  END IF;\nEND",
        literal(&shown(message)),
        literal(hint)
    );
    format!("DO {};", dollar(&body))
}
