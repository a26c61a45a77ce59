//! The log of keys that change while a table is copied: what writes it, what applies it, and how it goes.

use super::super::sql::{dollar, ident, list, literal, shown};
use super::super::{guard, table};
use super::Tools;
use crate::finding::Step;
use crate::snapshot::definition::Column;

impl Tools<'_, '_> {
    pub(super) fn note_function(&self) -> String {
        let body = format!(
            "BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    INSERT INTO {log} (pgshrink_truncated) VALUES (true);
    RETURN NULL;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO {log} ({key}) VALUES ({old});
  END IF;
  IF TG_OP = 'INSERT' OR TG_OP = 'UPDATE' AND ROW({new}) IS DISTINCT FROM ROW({old}) THEN
    INSERT INTO {log} ({key}) VALUES ({new});
  END IF;
  RETURN NULL;
END",
            log = self.log,
            key = self.keys(""),
            old = self.keys("OLD."),
            new = self.keys("NEW."),
        );
        format!(
            "CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = {} AS {};",
            self.note,
            self.path,
            dollar(&body)
        )
    }

    pub(super) fn apply_function(&self) -> String {
        let subject = self.subject;
        // The log has the old values of the key: those of the new table are made from them in the same way.
        let new_key = |column: &&Column| {
            let new = subject.changes.columns.iter().find(|new| new.name == column.name);
            match new.and_then(|new| new.source.clone().map(|source| (new, source))) {
                Some((new, source)) if new.type_name != column.type_name => {
                    format!("({source})::{}", new.type_name)
                }
                _ => ident(&column.name),
            }
        };
        let body = format!(
            "#variable_conflict use_column
DECLARE
  pgshrink_done bigint;
BEGIN
  SELECT count(*) INTO pgshrink_done FROM {log};
  IF EXISTS (SELECT FROM {log} WHERE pgshrink_truncated) THEN
    {all_fit}DELETE FROM {new};
    {copy};
  ELSIF pgshrink_done > 0 THEN
    {changed_fit}DELETE FROM {new} WHERE ({key}) IN (SELECT {new_key} FROM {log});
    {copy}
    WHERE ({key}) IN (SELECT {key} FROM {log});
  END IF;
  DELETE FROM {log};
  RETURN pgshrink_done;
END",
            log = self.log,
            new = self.new,
            all_fit = self.proof(""),
            changed_fit =
                self.proof(&format!("({0}) IN (SELECT {0} FROM {1}) AND ", self.keys(""), self.log)),
            copy = table::copy(subject, &subject.name, &self.new),
            key = self.keys(""),
            new_key = list(self.key.iter().map(new_key)),
        );
        // Nothing says how many rows are in the log before they are there. Each of them is looked up: the new table is never read as a
        // whole for the sake of a few.
        format!(
            "CREATE FUNCTION {}() RETURNS bigint LANGUAGE plpgsql SET search_path = {} SET row_security = off
  SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS {};",
            self.apply,
            self.path,
            dollar(&body)
        )
    }

    /// Stops if one of these rows does not fit its new type.
    fn proof(&self, which: &str) -> String {
        if self.misfits.is_empty() {
            return String::new();
        }
        let message = format!("pgshrink: {}: a changed row does not fit its new type", self.subject.shown());
        format!(
            "IF EXISTS (SELECT FROM ONLY {} WHERE {which}({})) THEN
      RAISE EXCEPTION USING MESSAGE = {}, HINT = 'Run the step undo, and leave the column unchanged.';
    END IF;
    ",
            self.subject.name,
            self.misfits.join(" OR "),
            literal(&shown(&message)),
        )
    }

    pub(super) fn remove_log(&self) -> Vec<String> {
        let name = &self.subject.name;
        vec![
            format!("DROP TRIGGER IF EXISTS pgshrink_note ON {name};"),
            format!("DROP TRIGGER IF EXISTS pgshrink_truncate ON {name};"),
            format!("DROP FUNCTION IF EXISTS {}();", self.note),
            format!("DROP FUNCTION IF EXISTS {}();", self.apply),
            format!("DROP TABLE IF EXISTS {}, {};", self.log, self.state),
        ]
    }

    pub(super) fn undo(&self) -> Step {
        let mut statements = guard::begin();
        let lock = format!("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE;", self.subject.name);
        statements.push(guard::locks_for_moments(self.subject, &[lock], &[]));
        statements.extend(self.remove_log());
        statements.push(format!("DROP TABLE IF EXISTS {};", self.new));
        statements.extend(self.subject.changes.retyped().flat_map(|(_, retype)| &retype.prepare).filter_map(
            |statement| {
                let name = statement.strip_prefix("CREATE TYPE ")?.split_once(" AS ")?.0;
                Some(format!("DROP TYPE IF EXISTS {name};"))
            },
        ));
        statements.push("COMMIT;".to_owned());
        Step {
            title: format!(
                "To give up instead of swapping: {} and the log are removed",
                shown(&self.new_name)
            ),
            statements,
            lock: format!("ACCESS EXCLUSIVE on {}, for a moment", self.subject.shown()),
        }
    }
}
