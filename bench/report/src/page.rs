//! Tables and verdicts, as they are kept in JSON.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::machine::{self, Machine};
use crate::markdown;

/// What a column's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Words.
    Text,
    /// A count.
    Count,
    /// Bytes.
    Bytes,
    /// What is counted or weighed one by one, on average.
    Average,
    /// Times something.
    Ratio,
    /// Relative difference in percent, signed.
    Percent,
    /// Milliseconds.
    Ms,
    /// Seconds.
    Seconds,
    /// Events per second.
    PerSecond,
    /// 10^6 bytes per second.
    MegabytesPerSecond,
}

/// A column's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// What it shows.
    pub name: String,
    /// In what.
    pub unit: Unit,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Not measured.
    None,
    /// One number.
    Number(f64),
    /// Words.
    Text(String),
    /// Several rounds.
    Spread {
        /// Middle.
        median: f64,
        /// Lower quartile; pages made before there were quartiles have the least.
        #[serde(alias = "min")]
        low: f64,
        /// Upper quartile; or the most.
        #[serde(alias = "max")]
        high: f64,
    },
}

/// When and with what a table was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The command that makes it again.
    pub command: String,
    /// Day.
    pub day: String,
    /// Commit measured; a plus means with changes on top.
    pub commit: String,
    /// Load average at its end, this bench's own work included.
    pub load: f64,
    /// Its processor.
    pub processor: String,
}

/// Something that had to be reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What.
    pub what: String,
    /// The line.
    pub limit: String,
    /// What was found.
    pub found: String,
    /// Whether that is on the right side of the line.
    pub met: bool,
}

/// One comparison, made in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The name `--only` takes.
    pub id: String,
    /// Heading.
    pub title: String,
    /// How it was measured and how to read it.
    pub about: String,
    /// When and with what.
    pub run: Run,
    /// Heads.
    pub columns: Vec<Column>,
    /// Cells, as many a row as there are columns.
    pub rows: Vec<Vec<Value>>,
    /// Verdicts on it.
    pub verdicts: Vec<Verdict>,
}

/// All tables of a room.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// Heading.
    pub title: String,
    /// What the latest run ran on.
    pub machine: Machine,
    /// In the order of the page.
    pub tables: Vec<Table>,
}

impl Table {
    /// An empty table; heads are `(name, unit)`.
    pub fn new(id: &str, title: &str, about: &str, columns: &[(&str, Unit)]) -> Table {
        let columns = columns.iter().map(|(name, unit)| Column { name: (*name).to_owned(), unit: *unit });
        Table {
            id: id.to_owned(),
            title: title.to_owned(),
            about: about.to_owned(),
            run: Run::default(),
            columns: columns.collect(),
            rows: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has another number of cells than the table has columns.
    pub fn row<const N: usize>(&mut self, cells: [Value; N]) {
        self.push(cells.into());
    }

    /// As [`Table::row`], for cells that were collected.
    ///
    /// # Panics
    /// When they are not as many as there are columns.
    pub fn push(&mut self, cells: Vec<Value>) {
        assert_eq!(cells.len(), self.columns.len(), "cells of a row of table {}", self.id);
        self.rows.push(cells);
    }

    /// Adds a verdict.
    pub fn verdict(&mut self, what: &str, limit: &str, found: impl Into<String>, met: bool) {
        self.verdicts.push(Verdict {
            what: what.to_owned(),
            limit: limit.to_owned(),
            found: found.into(),
            met,
        });
    }
}

impl Page {
    /// The page at `path`, or an empty one.
    pub fn open(path: &Path, title: &str) -> Result<Page> {
        let mut page = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Page::default(),
            Err(error) => return Err(format!("{}: {error}", path.display()).into()),
        };
        page.title = title.to_owned();
        Ok(page)
    }

    /// Puts a table where `order` wants it, in the place of its predecessor, and says how it was made.
    pub fn put(&mut self, mut table: Table, order: &[&str], command: String, checkout: &Path) {
        table.run = Run {
            command,
            day: machine::today(),
            commit: machine::commit_at(checkout).unwrap_or_default(),
            load: machine::load_average(),
            processor: machine::processor(),
        };
        self.tables.retain(|old| old.id != table.id);
        self.tables.push(table);
        self.tables.sort_by_key(|table| order.iter().position(|id| *id == table.id));
    }

    /// Writes `<folder>/<name>.json` and `<folder>/<name>.md`.
    pub fn save(&self, folder: &Path, name: &str) -> Result<()> {
        fs::create_dir_all(folder)?;
        let mut json = serde_json::to_string_pretty(self)?;
        json.push('\n');
        fs::write(folder.join(format!("{name}.json")), json)?;
        fs::write(folder.join(format!("{name}.md")), markdown::page(self))?;
        Ok(())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        if number.is_finite() { Value::Number(number) } else { Value::None }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number as f64)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Number(number as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_back_from_its_json() {
        let mut table = Table::new("t", "T", "how", &[("a", Unit::Text), ("b", Unit::Bytes)]);
        table.row(["x".into(), 1u64.into()]);
        table.row(["y".into(), Value::Spread { median: 2.0, low: 1.0, high: 3.0 }]);
        table.row(["z".into(), Value::None]);
        table.verdict("w", "<= 1", "2", false);
        let page = Page { tables: vec![table], ..Page::default() };
        let back: Page = serde_json::from_str(&serde_json::to_string(&page).unwrap()).unwrap();
        assert_eq!(back, page);
    }

    #[test]
    fn a_table_replaces_its_predecessor_in_its_place() {
        let mut page = Page::default();
        for id in ["b", "a", "b"] {
            page.put(Table::new(id, id, "", &[]), &["a", "b"], String::new(), Path::new("."));
        }
        let ids: Vec<_> = page.tables.iter().map(|t| t.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
    }
}
