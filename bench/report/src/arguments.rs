//! What every bench program takes.

use std::path::PathBuf;

use crate::Result;

/// The command line of a bench program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// Everything at full length, for publication; otherwise a look of minutes.
    pub full: bool,
    /// Tables to make; all when empty.
    pub only: Vec<String>,
    /// Where the page goes, when not to its usual place.
    pub results: Option<PathBuf>,
}

impl Arguments {
    /// Reads `--full`, `--only TABLE` (repeatable) and `--results FOLDER`; `known` are the tables there are.
    pub fn parse(arguments: impl Iterator<Item = String>, known: &[&str]) -> Result<Arguments> {
        let mut found = Arguments { full: false, only: Vec::new(), results: None };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--full" => found.full = true,
                "--only" => found.only.push(value()?),
                "--results" => found.results = Some(value()?.into()),
                other => {
                    let usage = format!("[--full] [--only TABLE]... [--results FOLDER]; tables: {known:?}");
                    return Err(format!("{other} is not known; usage: {usage}").into());
                }
            }
        }
        if let Some(stray) = found.only.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("there is no table {stray}; there are {known:?}").into());
        }
        Ok(found)
    }

    /// Whether this table is to be made.
    pub fn wants(&self, table: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments> {
        Arguments::parse(line.split_whitespace().map(str::to_owned), &["a", "b"])
    }

    #[test]
    fn a_table_that_does_not_exist_is_refused() {
        assert!(parse("--full --only b").unwrap().wants("b"));
        assert!(!parse("--only b").unwrap().wants("a"));
        assert!(parse("").unwrap().wants("a"));
        assert!(parse("--only c").is_err());
        assert!(parse("--fast").is_err());
        assert!(parse("--only").is_err());
    }
}
