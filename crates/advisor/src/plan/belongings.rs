//! What belongs to a table or a view, for the one that has taken its name.

use super::sql::{dollar, ident, literal, parameter, qualified};
use super::table::index_statements;
use super::users::word;
use crate::snapshot::definition::{Column, Firing, Grant, Relation, Sequence};

/// Of a view that was made again.
pub(super) fn of_view(view: &Relation) -> Vec<String> {
    let name = qualified(&view.schema, &view.name);
    let mut statements = vec![owner(view)];
    for column in &view.columns {
        if let Some(default) = &column.default {
            statements.push(format!(
                "ALTER VIEW {name} ALTER COLUMN {} SET DEFAULT {default};",
                ident(&column.name)
            ));
        }
        if view.kind == 'm' {
            statements.extend(storage(&name, column));
            statements.extend(settings(&name, column));
        }
    }
    for index in view.indexes.iter().filter(|index| index.is_valid) {
        statements.extend(index_statements(index, &name, &index.name));
    }
    statements.extend(cluster(view, &name));
    statements.extend(statistics(view));
    statements.extend(triggers(view, |_| true));
    statements.extend(rules(view, |_| true));
    statements.extend(grants(view));
    statements.extend(view.comments.iter().chain(&view.labels).map(|note| format!("{};", note.sql)));
    statements
}

pub(super) fn owner(relation: &Relation) -> String {
    let name = qualified(&relation.schema, &relation.name);
    format!("ALTER {} {name} OWNER TO {};", word(relation), ident(&relation.owner))
}

/// How values of a column are stored, where that is not the default: before there are rows.
pub(super) fn storage(table: &str, column: &Column) -> Vec<String> {
    let of = |setting: &str, value: &str| {
        format!("ALTER TABLE {table} ALTER COLUMN {} SET {setting} {value};", ident(&column.name))
    };
    let storage = column.storage.iter().map(|value| of("STORAGE", value));
    storage.chain(column.compression.iter().map(|value| of("COMPRESSION", value))).collect()
}

/// What ANALYZE does with a column.
pub(super) fn settings(table: &str, column: &Column) -> Vec<String> {
    let alter = format!("ALTER TABLE {table} ALTER COLUMN {}", ident(&column.name));
    let mut statements: Vec<String> =
        column.statistics.iter().map(|target| format!("{alter} SET STATISTICS {target};")).collect();
    if !column.options.is_empty() {
        let options = super::sql::list(column.options.iter().map(|option| parameter(option)));
        statements.push(format!("{alter} SET ({options});"));
    }
    statements
}

pub(super) fn cluster(relation: &Relation, name: &str) -> Option<String> {
    let index = relation.indexes.iter().find(|index| index.is_clustered && index.is_valid)?;
    Some(format!("ALTER {} {name} CLUSTER ON {};", word(relation), ident(&index.name)))
}

/// The columns' sequences: those of identities are made anew and go on where the old ones stopped.
pub(super) fn sequence(
    table: &str,
    sequence: &Sequence,
    column: &Column,
    type_name: &str,
    old: &str,
) -> Vec<String> {
    let name = qualified(&sequence.schema, &sequence.name);
    let place = format!("{table}.{}", ident(&sequence.column));
    if !sequence.is_identity {
        return vec![format!("ALTER SEQUENCE {name} OWNED BY {place};")];
    }
    let always = if column.identity == "a" { "ALWAYS" } else { "BY DEFAULT" };
    let mut options = sequence.options.clone();
    if type_name != column.type_name {
        // Limits are those of the type, unless somebody chose others.
        for limit in ["MAXVALUE 9223372036854775807", "MAXVALUE 2147483647", "MINVALUE -9223372036854775808"]
        {
            options = options.replace(&format!(" {limit} "), " ");
        }
    }
    vec![
        format!(
            "ALTER TABLE {table} ALTER COLUMN {} ADD GENERATED {always} AS IDENTITY (SEQUENCE NAME {name} {options});",
            ident(&sequence.column)
        ),
        format!("SELECT pg_catalog.setval({}, last_value, is_called) FROM {old};", literal(&name)),
    ]
}

pub(super) fn triggers(relation: &Relation, is_wanted: impl Fn(&Firing) -> bool) -> Vec<String> {
    let name = qualified(&relation.schema, &relation.name);
    let mut statements = Vec::new();
    for trigger in relation.triggers.iter().filter(|trigger| is_wanted(trigger)) {
        if !trigger.has_parent {
            statements.push(format!("{};", trigger.definition));
        }
        if let Some(state) = state(trigger.state, trigger.has_parent) {
            let word = if relation.kind == 'v' { "TABLE" } else { word(relation) };
            statements.push(format!("ALTER {word} {name} {state} TRIGGER {};", ident(&trigger.name)));
        }
    }
    statements
}

pub(super) fn rules(relation: &Relation, is_wanted: impl Fn(&Firing) -> bool) -> Vec<String> {
    let name = qualified(&relation.schema, &relation.name);
    let mut statements = Vec::new();
    for rule in relation.rules.iter().filter(|rule| is_wanted(rule)) {
        statements.push(format!("{};", rule.definition.trim_end().trim_end_matches(';')));
        let state = state(rule.state, false);
        statements
            .extend(state.map(|state| format!("ALTER TABLE {name} {state} RULE {};", ident(&rule.name))));
    }
    statements
}

/// What sets the state of a trigger or rule. None: it is made so.
fn state(letter: char, is_explicit: bool) -> Option<&'static str> {
    match letter {
        'D' => Some("DISABLE"),
        'R' => Some("ENABLE REPLICA"),
        'A' => Some("ENABLE ALWAYS"),
        _ => is_explicit.then_some("ENABLE"),
    }
}

pub(super) fn policies(relation: &Relation, is_wanted: impl Fn(&Firing) -> bool) -> Vec<String> {
    let wanted = relation.policies.iter().filter(|policy| is_wanted(policy));
    wanted.map(|policy| format!("{};", policy.definition)).collect()
}

pub(super) fn row_security(relation: &Relation) -> Vec<String> {
    let name = qualified(&relation.schema, &relation.name);
    let enable = relation.has_row_security.then(|| format!("ALTER TABLE {name} ENABLE ROW LEVEL SECURITY;"));
    let force = relation.forces_row_security.then(|| format!("ALTER TABLE {name} FORCE ROW LEVEL SECURITY;"));
    enable.into_iter().chain(force).collect()
}

pub(super) fn statistics(relation: &Relation) -> Vec<String> {
    let mut statements = Vec::new();
    for object in &relation.statistics {
        let name = qualified(&object.schema, &object.name);
        statements.push(format!("{};", object.definition));
        statements
            .extend(object.target.map(|target| format!("ALTER STATISTICS {name} SET STATISTICS {target};")));
        statements.push(format!("ALTER STATISTICS {name} OWNER TO {};", ident(&object.owner)));
    }
    statements
}

/// Grants as they were. Those that default privileges gave to the new object go first.
pub(super) fn grants(relation: &Relation) -> Vec<String> {
    let name = qualified(&relation.schema, &relation.name);
    let mut statements = vec![reset_grants("TABLE", &name, &relation.owner, relation.has_grants)];
    for sequence in relation.sequences.iter().filter(|sequence| sequence.is_identity) {
        let name = qualified(&sequence.schema, &sequence.name);
        statements.push(reset_grants("SEQUENCE", &name, &relation.owner, sequence.has_grants));
    }
    for grant in &relation.grants {
        statements.extend(given(grant));
    }
    statements
}

fn given(grant: &Grant) -> Vec<String> {
    let option = if grant.is_grantable && grant.grantee != "PUBLIC" { " WITH GRANT OPTION" } else { "" };
    let statement = format!("GRANT {} ON {} TO {}{option};", grant.privileges, grant.on, grant.grantee);
    if grant.is_owner {
        return vec![statement];
    }
    // Only who gives a right is recorded as who gave it.
    vec![format!("SET LOCAL ROLE {};", ident(&grant.grantor)), statement, "SET LOCAL ROLE NONE;".to_owned()]
}

/// Takes away what default privileges gave to a new object, and where somebody has granted or revoked anything, what an owner
/// has without that: then all comes from grants.
fn reset_grants(word: &str, name: &str, owner: &str, has_grants: bool) -> String {
    let revoke = literal(&format!("REVOKE ALL ON {word} {name} FROM "));
    let object = literal(name);
    let kind = if word == "SEQUENCE" { 's' } else { 'r' };
    let (acl, give) = match has_grants {
        true => (format!("coalesce(c.relacl, pg_catalog.acldefault('{kind}', c.relowner))"), String::new()),
        false => {
            let give = format!("GRANT ALL ON {word} {name} TO {}", ident(owner));
            ("c.relacl".to_owned(), format!("\n  IF FOUND THEN\n    EXECUTE {};\n  END IF;", literal(&give)))
        }
    };
    let body = format!(
        "DECLARE
  given record;
BEGIN
  FOR given IN SELECT DISTINCT x.grantee FROM pg_catalog.pg_class c, pg_catalog.aclexplode({acl}) x
    WHERE c.oid = {object}::pg_catalog.regclass
  LOOP
    EXECUTE {revoke} || CASE given.grantee WHEN 0 THEN 'PUBLIC'
      ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(given.grantee)) END;
  END LOOP;{give}
END"
    );
    format!("DO {};", dollar(&body))
}
