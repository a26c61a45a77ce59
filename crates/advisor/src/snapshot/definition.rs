//! What belongs to a table and must be there again after a rewrite.
//!
//! It is read with [`queries`](crate::plan::queries), a row at a time. Texts of SQL are the server's own, with every name qualified,
//! and name things as they are called now: a rewrite moves the old ones out of the way and runs them as they are.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All that belongs to a table, as SQL that the server gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// Of all that is below: a script made from it refuses to run when the server computes another one.
    pub fingerprint: String,
    /// The table, then views on it, on those, and so on, each behind all that it uses.
    pub relations: Vec<Relation>,
    /// Names of the table's schema that a rewrite could want and that are taken.
    pub names: Vec<String>,
    /// Event triggers of the database that are enabled.
    pub event_triggers: Vec<String>,
}

/// A table, or a view on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Relation {
    /// `pg_class.oid`.
    pub oid: u32,
    /// `relkind`: `r`, `p`, `v`, `m`, `f`.
    pub kind: char,
    /// Schema, not quoted.
    pub schema: String,
    /// Name, not quoted.
    pub name: String,
    /// Role, not quoted.
    pub owner: String,
    /// How many views are below it, at most; 0: the table.
    pub depth: u32,
    /// `relpersistence`: `p`, `u`, `t`.
    pub persistence: char,
    /// `heap`; empty for views.
    pub access_method: String,
    /// Empty for the database's.
    pub tablespace: String,
    /// `fillfactor=90`.
    pub options: Vec<String>,
    /// Of the TOAST table.
    pub toast_options: Vec<String>,
    /// `relrowsecurity`
    pub has_row_security: bool,
    /// `relforcerowsecurity`
    pub forces_row_security: bool,
    /// `relreplident`: `d`, `n`, `f`, `i`.
    pub replica_identity: char,
    /// Of a materialized view.
    pub is_populated: bool,
    /// `relacl` is not NULL.
    pub has_grants: bool,
    /// `FOR VALUES …` of a partition.
    pub bound: Option<String>,
    /// The same as a condition.
    pub bound_check: Option<String>,
    /// The type of a typed table.
    pub of_type: Option<String>,
    /// `pg_get_viewdef`.
    pub query: Option<String>,
    /// The extension that it is part of.
    pub extension: Option<String>,
    /// Live columns by `attnum`.
    pub columns: Vec<Column>,
    /// Sequences that it owns.
    pub sequences: Vec<Sequence>,
    /// Indexes, those of constraints included.
    pub indexes: Vec<Index>,
    /// CHECK, NOT NULL (from PostgreSQL 18 on) and FOREIGN KEY.
    pub constraints: Vec<Constraint>,
    /// Foreign keys of other tables.
    pub referenced: Vec<Referenced>,
    /// Triggers, without those of foreign keys.
    pub triggers: Vec<Firing>,
    /// Rules, without those of views.
    pub rules: Vec<Firing>,
    /// Policies.
    pub policies: Vec<Firing>,
    /// Extended statistics.
    pub statistics: Vec<Statistics>,
    /// Grants on it, its columns and sequences of identities.
    pub grants: Vec<Grant>,
    /// Comments on it and on all that belongs to it.
    pub comments: Vec<Note>,
    /// Security labels.
    pub labels: Vec<Note>,
    /// Publications.
    pub publications: Vec<Publication>,
    /// What it inherits from, or is a partition of.
    pub parents: Vec<Relative>,
    /// What inherits from it.
    pub children: Vec<Relative>,
    /// Of a view: what it uses of the table and of views on it.
    pub uses: Vec<Use>,
    /// Functions, and policies and rules of other tables, that use it.
    pub elsewhere: Vec<Elsewhere>,
    /// What forbids to make it anew.
    pub obstacles: Vec<Obstacle>,
}

/// A column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Column {
    /// `attnum`
    pub number: i16,
    /// Not quoted.
    pub name: String,
    /// `format_type`, qualified.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Schema of the type, not quoted.
    pub type_schema: String,
    /// Where it is not the type's: quoted.
    pub collation: Option<String>,
    /// Where it is not the type's: `PLAIN`, `MAIN`, `EXTERNAL`, `EXTENDED`.
    pub storage: Option<String>,
    /// `pglz`, `lz4`; None: the server's default.
    pub compression: Option<String>,
    /// `attnotnull`
    pub is_not_null: bool,
    /// A named constraint says so (PostgreSQL 18).
    pub has_own_not_null: bool,
    /// Default, or what it is generated as.
    pub default: Option<String>,
    /// `s`, `v`, or nothing.
    pub generated: String,
    /// `a`, `d`, or nothing.
    pub identity: String,
    /// `attstattarget`, unless it is the default.
    pub statistics: Option<i32>,
    /// `n_distinct=-0.5`
    pub options: Vec<String>,
    /// `attinhcount` is not 0.
    pub is_inherited: bool,
    /// `attislocal`
    pub is_local: bool,
}

/// A sequence that belongs to a column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sequence {
    /// Not quoted.
    pub column: String,
    /// Not quoted.
    pub schema: String,
    /// Not quoted.
    pub name: String,
    /// Of an identity column: it is made anew. Others change their owner.
    pub is_identity: bool,
    /// `relacl` is not NULL.
    pub has_grants: bool,
    /// `START WITH …`
    pub options: String,
}

/// An index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Index {
    /// Not quoted.
    pub name: String,
    /// UNIQUE.
    pub is_unique: bool,
    /// `indisvalid`
    pub is_valid: bool,
    /// Key columns in their order, not quoted, without expressions.
    pub columns: Vec<String>,
    /// `USING btree (a) …`: what follows the table's name.
    pub tail: String,
    /// Empty for the database's.
    pub tablespace: String,
    /// CLUSTER ON.
    pub is_clustered: bool,
    /// REPLICA IDENTITY USING INDEX.
    pub is_replica_identity: bool,
    /// `fillfactor=70`; they are in the tail as well.
    pub options: Vec<String>,
    /// The constraint that it is for, not quoted.
    pub constraint: Option<String>,
    /// `p`, `u`, `x`.
    pub constraint_type: Option<char>,
    /// WITHOUT OVERLAPS (PostgreSQL 18): no index can become one.
    pub is_period: bool,
    /// ` DEFERRABLE INITIALLY DEFERRED`
    pub constraint_tail: String,
    /// `pg_get_constraintdef`
    pub constraint_definition: Option<String>,
    /// Statistics targets of its expressions: column and target.
    pub statistics: Vec<(i16, i32)>,
}

/// CHECK, NOT NULL or FOREIGN KEY.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Constraint {
    /// Not quoted.
    pub name: String,
    /// `c`, `n`, `f`.
    pub kind: char,
    /// `pg_get_constraintdef`
    pub definition: String,
    /// Not NOT VALID.
    pub is_validated: bool,
    /// Not NOT ENFORCED (PostgreSQL 18).
    pub is_enforced: bool,
    /// `coninhcount` is not 0.
    pub is_inherited: bool,
    /// `conislocal`
    pub is_local: bool,
    /// It comes from the table that this one is a partition of.
    pub has_parent: bool,
    /// Columns, not quoted.
    pub columns: Vec<String>,
    /// The table that a foreign key refers to, quoted.
    pub partner: Option<String>,
    /// Its OID, or 0.
    pub partner_oid: u32,
}

/// A foreign key of another table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Referenced {
    /// Of the constraint, not quoted.
    pub name: String,
    /// The other table, quoted.
    pub table: String,
    /// Its OID.
    pub table_oid: u32,
    /// It is partitioned: its keys cannot be NOT VALID.
    pub is_partitioned: bool,
    /// `pg_get_constraintdef`
    pub definition: String,
    /// Not NOT VALID.
    pub is_validated: bool,
    /// Not NOT ENFORCED.
    pub is_enforced: bool,
    /// Columns here, not quoted.
    pub columns: Vec<String>,
    /// Columns there, not quoted.
    pub own_columns: Vec<String>,
    /// COMMENT ON CONSTRAINT.
    pub comment: Option<String>,
}

/// A trigger, a rule or a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Firing {
    /// Not quoted.
    pub name: String,
    /// CREATE …
    pub definition: String,
    /// `O`, `D`, `R`, `A`; of policies a zero character.
    pub state: char,
    /// A trigger that comes from the table that this one is a partition of.
    pub has_parent: bool,
    /// Columns of the table that it names, not quoted.
    pub columns: Vec<String>,
}

/// CREATE STATISTICS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// Not quoted.
    pub schema: String,
    /// Not quoted.
    pub name: String,
    /// `pg_get_statisticsobjdef`
    pub definition: String,
    /// `stxstattarget`, unless it is the default.
    pub target: Option<i32>,
    /// Not quoted.
    pub owner: String,
}

/// One line of GRANT.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grant {
    /// `TABLE a.b`, `SEQUENCE a.b`.
    pub on: String,
    /// It is on the sequence of an identity column.
    pub is_sequence: bool,
    /// Not quoted.
    pub grantor: String,
    /// The grantor owns it.
    pub is_owner: bool,
    /// Quoted, or PUBLIC.
    pub grantee: String,
    /// WITH GRANT OPTION
    pub is_grantable: bool,
    /// `SELECT (a), UPDATE (a)`
    pub privileges: String,
}

/// A comment or a label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Note {
    /// COMMENT ON …
    pub sql: String,
    /// The column that it is on, not quoted.
    pub column: Option<String>,
}

/// Membership in a publication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Publication {
    /// Not quoted.
    pub name: String,
    /// `table`, or `all`: it publishes all tables of the schema or the database.
    pub scope: String,
    /// `a.b (columns) WHERE (condition)`
    pub definition: String,
    /// Columns that it names, not quoted.
    pub columns: Vec<String>,
}

/// A parent or a child.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Relative {
    /// Quoted.
    pub table: String,
    /// By partitioning.
    pub is_partition: bool,
    /// The parent has another partition that is its default.
    pub has_default: bool,
}

/// What a view uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Use {
    /// OID of the table or of a view on it.
    pub table: u32,
    /// Columns of it, not quoted.
    pub columns: Vec<String>,
}

/// Something that does not belong to the table, and has to be bound to the new one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Elsewhere {
    /// `function`, `policy`, `rule`.
    pub kind: String,
    /// For messages.
    pub name: String,
    /// What binds it again, in its place.
    pub sql: String,
    /// The table or view that a policy or rule is on.
    pub relation: u32,
    /// Columns that it names, not quoted.
    pub columns: Vec<String>,
}

/// Why a table, or a view on it, cannot be made anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Obstacle {
    /// In words: `its row type is used by column c of table u`.
    pub what: String,
    /// It forbids to change types of columns in place as well.
    pub is_for_columns: bool,
}

/// Why rows of the queries could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The JSON of one part.
    #[error("{part} of relation {oid}: {source}")]
    Malformed {
        /// The part.
        part: String,
        /// Of the table or view.
        oid: u32,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A part that no query gives, or a relation that was not there before: it may have been made meanwhile.
    #[error("unexpected {part} of relation {oid}: the catalogs changed while they were read; try again")]
    Unexpected {
        /// The part.
        part: String,
        /// Of the table or view.
        oid: u32,
    },
}

impl Definition {
    /// Takes one row of the [`queries`](crate::plan::queries) into the definitions, which are by the table's OID.
    ///
    /// # Errors
    /// When it is not a row of them.
    pub fn take(
        all: &mut BTreeMap<u32, Definition>,
        (root, oid, part, json): (u32, u32, &str, &str),
    ) -> Result<(), DefinitionError> {
        let definition = all.entry(root).or_default();
        let malformed = |source| DefinitionError::Malformed { part: part.to_owned(), oid, source };
        let unexpected = || DefinitionError::Unexpected { part: part.to_owned(), oid };
        match part {
            "relation" => {
                let mut relation: Relation = serde_json::from_str(json).map_err(malformed)?;
                relation.oid = oid;
                definition.relations.push(relation);
            }
            "names" => definition.names = serde_json::from_str(json).map_err(malformed)?,
            "event_trigger" => {
                definition.event_triggers.push(serde_json::from_str(json).map_err(malformed)?);
            }
            "fingerprint" => definition.fingerprint = serde_json::from_str(json).map_err(malformed)?,
            _ => {
                let relation = definition.relations.iter_mut().find(|relation| relation.oid == oid);
                if !relation.ok_or_else(unexpected)?.take(part, json).map_err(malformed)? {
                    return Err(unexpected());
                }
            }
        }
        Ok(())
    }

    /// The table itself.
    pub fn table(&self) -> Option<&Relation> {
        self.relations.iter().find(|relation| relation.depth == 0)
    }
}

impl Relation {
    /// Takes a part that belongs to it. False: there is no such part.
    fn take(&mut self, part: &str, json: &str) -> Result<bool, serde_json::Error> {
        fn push<T: for<'d> Deserialize<'d>>(list: &mut Vec<T>, json: &str) -> Result<(), serde_json::Error> {
            list.push(serde_json::from_str(json)?);
            Ok(())
        }
        match part {
            "column" => push(&mut self.columns, json)?,
            "sequence" => push(&mut self.sequences, json)?,
            "index" => push(&mut self.indexes, json)?,
            "constraint" => push(&mut self.constraints, json)?,
            "referenced" => push(&mut self.referenced, json)?,
            "trigger" => push(&mut self.triggers, json)?,
            "rule" => push(&mut self.rules, json)?,
            "policy" => push(&mut self.policies, json)?,
            "statistics" => push(&mut self.statistics, json)?,
            "grant" => push(&mut self.grants, json)?,
            "comment" => push(&mut self.comments, json)?,
            "label" => push(&mut self.labels, json)?,
            "publication" => push(&mut self.publications, json)?,
            "parent" => push(&mut self.parents, json)?,
            "child" => push(&mut self.children, json)?,
            "use" => push(&mut self.uses, json)?,
            "elsewhere" => push(&mut self.elsewhere, json)?,
            "obstacle" => push(&mut self.obstacles, json)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}
