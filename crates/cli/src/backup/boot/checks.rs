//! Reading one relation, and PostgreSQL's checks of it.

use super::super::Failure;
use super::reading::Worker;
use super::relations::{Kind, Relation};
use super::report::Depth;
use super::session::Answer;
use super::tools::Tool;
use super::verdict::Doing;
use pgshrink_pgclient::connection::Table;

/// Findings of one check that a problem names.
const FINDINGS_SHOWN: usize = 5;

impl Worker<'_, '_> {
    /// Reads and checks a relation. What is found goes into the report.
    pub(super) fn examine(&mut self, relation: &Relation) -> Result<(), Failure> {
        if relation.kind == Kind::Index {
            return self.examine_index(relation);
        }
        if !self.read(relation)? {
            return Ok(());
        }
        match relation.kind {
            Kind::Heap => {}
            Kind::OtherTable => {
                self.leave(Depth::NotChecked, relation, "amcheck has no check for its table access method");
                return Ok(());
            }
            Kind::Sequence | Kind::Index => return Ok(()),
        }
        match &self.tools.amcheck {
            Ok(amcheck) if amcheck.arguments("verify_heapam").is_some() => {
                self.verify_heap(relation, amcheck)?
            }
            Ok(_) => self.leave(Depth::NotChecked, relation, "this version of amcheck cannot check tables"),
            Err(why) => self.leave(Depth::NotChecked, relation, why),
        }
        match &self.tools.visibility {
            Ok(visibility) => self.verify_visibility(relation, visibility),
            Err(why) => {
                self.leave(Depth::NotChecked, relation, why);
                Ok(())
            }
        }
    }

    /// Has the server read every row, and make text of every value, which reads what is stored out of line too. The text goes
    /// nowhere. False: nobody can look at it.
    fn read(&mut self, relation: &Relation) -> Result<bool, Failure> {
        let Some(quoted) = &relation.quoted else {
            let why = "its schema is not in the catalog, or its name is not UTF-8";
            self.leave(Depth::NotRead, relation, why);
            return Ok(true);
        };
        if !relation.is_populated {
            return Ok(true);
        }
        let columns = &relation.columns;
        let select = format!("SELECT {columns} FROM ONLY {quoted}");
        let size = format!("SELECT pg_relation_size({}::oid)", relation.oid);
        // In the database's own encoding nothing has to be converted.
        let text = format!("COPY ({select}) TO '/dev/null' (ENCODING '{}'); {size}", self.session.encoding());
        let why = match self.session.ask(&text, Doing::Read)? {
            Answer::Done(tables) => {
                self.count(&tables);
                return Ok(true);
            }
            // Text takes up to four times the space of a value, and more than 1 GB is an error.
            Answer::Damage(why) if !why.contains("invalid memory alloc request size") => {
                self.problem(relation, "read", why);
                return Ok(true);
            }
            // A prepared transaction holds it, and will.
            Answer::Unable(why) if why.contains("lock timeout") => {
                self.leave(Depth::NotRead, relation, &why);
                return Ok(false);
            }
            Answer::Damage(why) | Answer::Unable(why) => why,
        };
        let binary = format!("COPY ({select}) TO '/dev/null' (FORMAT binary); {size}");
        match self.session.ask(&binary, Doing::Read)? {
            Answer::Done(tables) => self.count(&tables),
            Answer::Damage(why) => self.problem(relation, "read", why),
            Answer::Unable(_) => {
                match self.session.ask(&format!("SELECT count(*) FROM ONLY {quoted}"), Doing::Read)? {
                    Answer::Done(_) => {
                        let why =
                            format!("its rows were counted, but not all of its values could be read: {why}");
                        self.leave(Depth::NotRead, relation, &why);
                    }
                    Answer::Damage(why) => self.problem(relation, "read", why),
                    Answer::Unable(why) => self.leave(Depth::NotRead, relation, &why),
                }
            }
        }
        Ok(true)
    }

    fn count(&mut self, tables: &[Table]) {
        let rows = tables.first().and_then(|table| table.tag.strip_prefix("COPY ")?.parse().ok());
        let bytes = tables.get(1).and_then(|table| table.text(0, 0)?.parse().ok());
        self.tally(|database| {
            database.relations += 1;
            database.rows += rows.unwrap_or(0);
            database.bytes += bytes.unwrap_or(0);
        });
        self.bar.add(bytes.unwrap_or(0));
    }

    fn verify_heap(&mut self, relation: &Relation, amcheck: &Tool) -> Result<(), Failure> {
        let sql = format!(
            "SELECT format('block %s, item %s, attribute %s: %s', blkno, offnum, attnum, msg) \
               FROM {}.verify_heapam({}::oid::regclass, check_toast => true) LIMIT {}",
            amcheck.schema,
            relation.oid,
            FINDINGS_SHOWN + 1
        );
        let answer = self.session.ask(&sql, Doing::Check)?;
        if self.judge(relation, "verify_heapam", answer) {
            self.tally(|database| database.heaps_checked += 1);
        }
        Ok(())
    }

    fn verify_visibility(&mut self, relation: &Relation, visibility: &Tool) -> Result<(), Failure> {
        let mut is_checked = true;
        for check in ["pg_check_frozen", "pg_check_visible"] {
            let sql = format!(
                "SELECT 'row ' || t_ctid || ' is not as the visibility map says' FROM {}.{check}({}::oid::regclass) t(t_ctid) \
                 LIMIT {}",
                visibility.schema,
                relation.oid,
                FINDINGS_SHOWN + 1
            );
            let answer = self.session.ask(&sql, Doing::Check)?;
            is_checked &= self.judge(relation, check, answer);
        }
        if is_checked {
            self.tally(|database| database.visibility_maps_checked += 1);
        }
        Ok(())
    }

    fn examine_index(&mut self, index: &Relation) -> Result<(), Failure> {
        if !index.is_valid {
            self.leave(Depth::NotChecked, index, "it is marked invalid; the server does not use it");
            return Ok(());
        }
        let (check, why) = match &self.tools.amcheck {
            Ok(amcheck) => match index_check(amcheck, index) {
                Some(check) => (Some(check), String::new()),
                None => (None, format!("amcheck has no check for the access method {}", index.method)),
            },
            Err(why) => (None, why.clone()),
        };
        if let Some((name, sql)) = check {
            let answer = self.session.ask(&sql, Doing::Check)?;
            if let Answer::Damage(why) = &answer
                && let Some(collation) = self.collation
            {
                self.problem(index, name, format!("{why} ({collation})"));
            } else if self.judge(index, name, answer) {
                self.tally(|database| database.indexes_checked += 1);
            }
            return Ok(());
        }
        if let Ok(prewarm) = &self.tools.prewarm {
            let sql = format!("SELECT {}.pg_prewarm({}::oid::regclass, 'buffer')", prewarm.schema, index.oid);
            match self.session.ask(&sql, Doing::Check)? {
                Answer::Done(_) => self.tally(|database| database.indexes_read += 1),
                Answer::Damage(why) => self.problem(index, "pg_prewarm", why),
                Answer::Unable(_) => {}
            }
        }
        self.leave(Depth::NotChecked, index, &why);
        Ok(())
    }

    /// True: the check was made and found nothing. A check that lists what is wrong has a row for each.
    fn judge(&mut self, relation: &Relation, check: &str, answer: Answer) -> bool {
        match answer {
            Answer::Done(tables) => {
                let table = tables.first().filter(|table| !table.columns.is_empty());
                let found = table.map(findings).unwrap_or_default();
                let is_good = found.is_empty();
                if !is_good {
                    self.problem(relation, check, found);
                }
                is_good
            }
            Answer::Damage(why) => {
                self.problem(relation, check, why);
                false
            }
            Answer::Unable(why) => {
                self.leave(Depth::NotChecked, relation, &why);
                false
            }
        }
    }
}

/// The check for an index's access method.
fn index_check(amcheck: &Tool, index: &Relation) -> Option<(&'static str, String)> {
    let (schema, oid) = (&amcheck.schema, index.oid);
    match &index.method[..] {
        "btree" => {
            // Every row of the table is looked for in the index. From 17 on, unique ones are checked to be so.
            let unique =
                if amcheck.arguments("bt_index_parent_check")? >= 4 { ", checkunique => true" } else { "" };
            let call = format!("bt_index_parent_check({oid}::oid::regclass, heapallindexed => true{unique})");
            Some(("bt_index_parent_check", format!("SELECT {schema}.{call}; ")))
        }
        "gin" => {
            amcheck.arguments("gin_index_check")?;
            Some(("gin_index_check", format!("SELECT {schema}.gin_index_check({oid}::oid::regclass)")))
        }
        _ => None,
    }
}

/// The first column of the first rows that are not empty.
fn findings(table: &Table) -> String {
    let texts = (0..table.row_count()).filter_map(|row| table.text(row, 0)).filter(|text| !text.is_empty());
    let mut texts: Vec<&str> = texts.collect();
    if texts.len() > FINDINGS_SHOWN {
        texts.truncate(FINDINGS_SHOWN);
        texts.push("and more");
    }
    texts.join("; ")
}
