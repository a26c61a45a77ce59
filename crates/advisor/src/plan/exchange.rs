//! The exchange of the old table for the new one: what both ways that make a new table have in common.

use super::belongings;
use super::sql::{ident, qualified};
use super::table::index_statements;
use super::users::{Users, bound};
use super::{PlanError, Subject};
use crate::snapshot::definition::{Constraint, Referenced};

/// Longest name, in bytes: `NAMEDATALEN - 1`.
const NAME_BYTES_MAX: usize = 63;

/// How foreign keys and views come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// All at once.
    Whole,
    /// What reads rows is left for later, so that locks are short: [`Exchange::later`].
    Short,
}

/// The names that the old table and its parts get.
pub(super) struct Exchange<'s, 'a> {
    subject: &'s Subject<'a>,
    users: &'s Users<'a>,
    pace: Pace,
    /// `schema.name` of the old table.
    pub(super) old: String,
    /// Its name, not quoted.
    pub(super) old_name: String,
    /// Old and new names of its indexes, not quoted.
    indexes: Vec<(&'a str, String)>,
    /// Of sequences of identities: by their place in the definition.
    sequences: Vec<(usize, String)>,
    /// Of extended statistics: by their place.
    statistics: Vec<(usize, String)>,
}

impl<'s, 'a> Exchange<'s, 'a> {
    pub(super) fn new(subject: &'s Subject<'a>, users: &'s Users<'a>, pace: Pace) -> Exchange<'s, 'a> {
        let relation = subject.relation;
        let mut taken = subject.definition.names.clone();
        let mut old = |name: &str| {
            let new = old_name(name, &taken);
            taken.push(new.clone());
            new
        };
        let old_name = old(&relation.name);
        let indexes = relation.indexes.iter().map(|index| (index.name.as_str(), old(&index.name))).collect();
        let identities = relation.sequences.iter().enumerate().filter(|(_, sequence)| sequence.is_identity);
        let sequences = identities.map(|(place, sequence)| (place, old(&sequence.name))).collect();
        let statistics = relation.statistics.iter().enumerate();
        let statistics = statistics.map(|(place, object)| (place, old(&object.name))).collect();
        let old = qualified(&relation.schema, &old_name);
        Exchange { subject, users, pace, old, old_name, indexes, sequences, statistics }
    }

    /// Takes the old table out of its place, so that all names are free.
    pub(super) fn take_out(&self) -> Vec<String> {
        let (relation, name) = (self.subject.relation, &self.subject.name);
        let mut statements = self.users.drop();
        for key in &relation.referenced {
            statements.push(format!("ALTER TABLE {} DROP CONSTRAINT {};", key.table, ident(&key.name)));
        }
        for parent in &relation.parents {
            statements.push(match parent.is_partition {
                true => format!("ALTER TABLE {} DETACH PARTITION {name};", parent.table),
                false => format!("ALTER TABLE {name} NO INHERIT {};", parent.table),
            });
        }
        for child in &relation.children {
            statements.push(format!("ALTER TABLE {} NO INHERIT {name};", child.table));
        }
        for publication in relation.publications.iter().filter(|publication| publication.scope == "table") {
            statements
                .push(format!("ALTER PUBLICATION {} DROP TABLE ONLY {name};", ident(&publication.name)));
        }
        // Else the old rows would go on to hold, or to lose, rows of others.
        for key in relation.constraints.iter().filter(|key| self.is_outward(key)) {
            statements.push(format!("ALTER TABLE {name} DROP CONSTRAINT {};", ident(&key.name)));
        }
        statements.push(format!("ALTER TABLE {name} RENAME TO {};", ident(&self.old_name)));
        for (index, old) in &self.indexes {
            let index = qualified(&relation.schema, index);
            statements.push(format!("ALTER INDEX {index} RENAME TO {};", ident(old)));
        }
        for (place, old) in &self.sequences {
            let sequence = &relation.sequences[*place];
            let sequence = qualified(&sequence.schema, &sequence.name);
            statements.push(format!("ALTER SEQUENCE {sequence} RENAME TO {};", ident(old)));
        }
        for (place, old) in &self.statistics {
            let object = &relation.statistics[*place];
            let object = qualified(&object.schema, &object.name);
            statements.push(format!("ALTER STATISTICS {object} RENAME TO {};", ident(old)));
        }
        statements
    }

    fn is_outward(&self, key: &Constraint) -> bool {
        key.kind == 'f' && key.partner_oid != self.subject.relation.oid
    }

    /// Gives the new table, which has the name, all that belongs to it.
    ///
    /// # Errors
    /// When a view cannot be bound to it.
    pub(super) fn put_in(&self) -> Result<Vec<String>, PlanError> {
        let (relation, name) = (self.subject.relation, &self.subject.name);
        let mut statements = vec![belongings::owner(relation)];
        for column in &self.subject.changes.columns {
            let Some(old) = column.old else { continue };
            if let (Some(default), true) = (&column.default, old.generated.is_empty()) {
                statements.push(format!(
                    "ALTER TABLE {name} ALTER COLUMN {} SET DEFAULT {default};",
                    ident(column.name)
                ));
            }
            statements.extend(belongings::settings(name, old));
        }
        for (place, sequence) in relation.sequences.iter().enumerate() {
            let column = self.subject.changes.columns.iter().find(|column| column.name == sequence.column);
            let Some((column, old)) = column.and_then(|column| Some((column, column.old?))) else { continue };
            let renamed = self.sequences.iter().find(|(renamed, _)| *renamed == place);
            let old_name = renamed.map(|(_, old)| qualified(&sequence.schema, old)).unwrap_or_default();
            statements.extend(belongings::sequence(name, sequence, old, column.type_name, &old_name));
        }
        statements.extend(self.constraints());
        for parent in &relation.parents {
            statements.push(match (&relation.bound, parent.is_partition) {
                (Some(bound), true) => {
                    format!("ALTER TABLE {} ATTACH PARTITION {name} {bound};", parent.table)
                }
                _ => format!("ALTER TABLE {name} INHERIT {};", parent.table),
            });
        }
        for child in &relation.children {
            statements.push(format!("ALTER TABLE {} INHERIT {name};", child.table));
        }
        statements.extend(self.replica_identity());
        statements.extend(belongings::cluster(relation, name));
        statements.extend(belongings::statistics(relation));
        statements.extend(belongings::triggers(relation, |_| true));
        let mut rules = Vec::new();
        for rule in belongings::rules(relation, |_| true) {
            rules.push(bound(self.subject, &rule, "a rule of the table")?);
        }
        statements.extend(rules);
        for policy in belongings::policies(relation, |_| true) {
            statements.push(bound(self.subject, &policy, "a policy of the table")?);
        }
        statements.extend(belongings::row_security(relation));
        statements.extend(belongings::grants(relation));
        statements
            .extend(relation.comments.iter().chain(&relation.labels).map(|note| format!("{};", note.sql)));
        for publication in relation.publications.iter().filter(|publication| publication.scope == "table") {
            let name = ident(&publication.name);
            statements.push(format!("ALTER PUBLICATION {name} ADD TABLE ONLY {};", publication.definition));
        }
        statements.extend(self.users.bind(self.subject, self.pace == Pace::Whole)?);
        Ok(statements)
    }

    /// Foreign keys both ways, and CHECKs that are not valid.
    fn constraints(&self) -> Vec<String> {
        let (relation, name) = (self.subject.relation, &self.subject.name);
        let mut statements = Vec::new();
        for constraint in &relation.constraints {
            let not_valid = match constraint.kind {
                'f' if self.is_later(constraint) => " NOT VALID",
                'f' => "",
                _ if constraint.is_validated => continue,
                _ => "",
            };
            let own = ident(&constraint.name);
            statements.push(format!(
                "ALTER TABLE {name} ADD CONSTRAINT {own} {}{not_valid};",
                constraint.definition
            ));
        }
        for key in &relation.referenced {
            let not_valid = if self.is_key_later(key) { " NOT VALID" } else { "" };
            let own = ident(&key.name);
            statements.push(format!(
                "ALTER TABLE {} ADD CONSTRAINT {own} {}{not_valid};",
                key.table, key.definition
            ));
            if let Some(comment) = &key.comment {
                let comment = super::sql::literal(comment);
                statements.push(format!("COMMENT ON CONSTRAINT {own} ON {} IS {comment};", key.table));
            }
        }
        statements
    }

    fn is_later(&self, key: &Constraint) -> bool {
        self.pace == Pace::Short && key.kind == 'f' && key.is_validated && key.is_enforced && !key.has_parent
    }

    fn is_key_later(&self, key: &Referenced) -> bool {
        self.pace == Pace::Short && key.is_validated && key.is_enforced && !key.is_partitioned
    }

    /// What was left for later: foreign keys are checked while everybody works, views are filled.
    pub(super) fn later(&self) -> Vec<String> {
        let relation = self.subject.relation;
        let own = relation.constraints.iter().filter(|key| self.is_later(key));
        let own = own.map(|key| (self.subject.name.as_str(), &key.name));
        let keys = relation.referenced.iter().filter(|key| self.is_key_later(key));
        let keys = own.chain(keys.map(|key| (key.table.as_str(), &key.name)));
        let keys =
            keys.map(|(table, key)| format!("ALTER TABLE {table} VALIDATE CONSTRAINT {};", ident(key)));
        let views = if self.pace == Pace::Short { self.users.refresh() } else { Vec::new() };
        keys.chain(views).collect()
    }

    fn replica_identity(&self) -> Option<String> {
        let relation = self.subject.relation;
        let identity = match relation.replica_identity {
            'f' => "FULL".to_owned(),
            'n' => "NOTHING".to_owned(),
            'i' => {
                let index = relation.indexes.iter().find(|index| index.is_replica_identity)?;
                format!("USING INDEX {}", ident(&index.name))
            }
            _ => return None,
        };
        Some(format!("ALTER TABLE {} REPLICA IDENTITY {identity};", self.subject.name))
    }

    /// Builds the indexes on a table.
    pub(super) fn indexes(&self, table: &str) -> Vec<String> {
        let indexes = self.subject.relation.indexes.iter().filter(|index| index.is_valid);
        indexes.flat_map(|index| index_statements(index, table, &index.name)).collect()
    }

    /// The step that ends it.
    pub(super) fn drop_old(&self) -> crate::finding::Step {
        crate::finding::Step {
            title: "When everything works with the new table: remove the old one".to_owned(),
            statements: vec![format!("DROP TABLE {};", self.old)],
            lock: format!(
                "ACCESS EXCLUSIVE on the old table {}, for a moment",
                super::sql::shown(&self.old_name)
            ),
        }
    }
}

/// A name with `_old` behind it that is not taken and not too long.
pub(super) fn old_name(name: &str, taken: &[String]) -> String {
    let mut suffixes = std::iter::once("_old".to_owned()).chain((2_u32..).map(|n| format!("_old{n}")));
    suffixes
        .find_map(|suffix| Some(with_suffix(name, &suffix)).filter(|name| !taken.contains(name)))
        .unwrap_or_default()
}

/// A name with this behind it; its own end makes room where that would be too long.
pub(crate) fn with_suffix(name: &str, suffix: &str) -> String {
    let mut end = name.len().min(NAME_BYTES_MAX.saturating_sub(suffix.len()));
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &name[..end])
}

#[cfg(test)]
mod tests {
    use super::old_name;

    #[test]
    fn an_old_name_is_free_and_fits() {
        assert_eq!(old_name("t", &[]), "t_old");
        assert_eq!(old_name("t", &["t_old".to_owned(), "t_old2".to_owned()]), "t_old3");
        let long = "ä".repeat(31);
        let old = old_name(&long, &[]);
        assert!(old.len() <= 63 && old.ends_with("_old"), "{old}");
        let again = old_name(&format!("{long}b"), std::slice::from_ref(&old));
        assert!(again.len() <= 63 && again != old, "{again}");
    }
}
