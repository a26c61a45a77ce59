//! Prices, and what the advice is worth by them.
//!
//! ```
//! use pgshrink_advisor::price::parse;
//! let prices = parse("storage=0.115/GB-month,egress=0.09/GB,backup=0.02/GB-month")?;
//! assert_eq!(prices.egress_gb, Some(0.09));
//! # Ok::<(), pgshrink_advisor::price::PriceError>(())
//! ```

use crate::finding::{Prices, Report};

/// What is wrong with a list of prices.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PriceError {
    /// No `name=`.
    #[error("price {item:?}: expected NAME=NUMBER/UNIT, such as storage=0.115/GB-month")]
    Item {
        /// What was given.
        item: String,
    },
    /// No such price.
    #[error("price {item:?}: unknown price {name:?}: expected storage, egress or backup")]
    Name {
        /// What was given.
        item: String,
        /// Its name.
        name: String,
    },
    /// Not a number, or less than nothing.
    #[error("price {item:?}: invalid price {number:?}: expected a number from 0 to 1000000, such as 0.115")]
    Number {
        /// What was given.
        item: String,
        /// Its number.
        number: String,
    },
    /// Another unit.
    #[error(
        "price {item:?}: expected a price per {expected}, found {found:?}; write {name}={number}/{expected}"
    )]
    Unit {
        /// What was given.
        item: String,
        /// Its name.
        name: &'static str,
        /// Its number.
        number: f64,
        /// What this price is per.
        expected: &'static str,
        /// What was given.
        found: String,
    },
    /// Twice.
    #[error("the price of {name} is given twice: keep one of them")]
    Twice {
        /// Which.
        name: &'static str,
    },
}

const UNITS: [(&str, &str); 3] = [("storage", "GB-month"), ("egress", "GB"), ("backup", "GB-month")];
/// Above this somebody mistook the unit.
const NUMBER_MAX: f64 = 1e6;
/// Bytes of a GB, as clouds sell it.
const GB: f64 = 1e9;
/// Days of a month.
const DAYS: f64 = 30.0;

/// Reads `storage=0.115/GB-month,egress=0.09/GB,backup=0.02/GB-month`, any of the three, in any order.
///
/// # Errors
/// [`PriceError`].
pub fn parse(text: &str) -> Result<Prices, PriceError> {
    let mut prices = Prices::default();
    for item in text.split(',').map(str::trim) {
        let (name, number) = one(item)?;
        let slot = match name {
            "storage" => &mut prices.storage_gb_month,
            "egress" => &mut prices.egress_gb,
            _ => &mut prices.backup_gb_month,
        };
        if slot.replace(number).is_some() {
            return Err(PriceError::Twice { name });
        }
    }
    Ok(prices)
}

fn one(item: &str) -> Result<(&'static str, f64), PriceError> {
    let malformed = || PriceError::Item { item: item.to_owned() };
    let (name, rest) = item.split_once('=').ok_or_else(malformed)?;
    let (number_text, unit) = rest.split_once('/').ok_or_else(malformed)?;
    let known = UNITS.iter().find(|(known, _)| name.trim().eq_ignore_ascii_case(known));
    let Some((name, expected)) = known else {
        return Err(PriceError::Name { item: item.to_owned(), name: name.trim().to_owned() });
    };
    let number = number_text.trim().parse::<f64>().ok();
    let Some(number) = number.filter(|number| (0.0..=NUMBER_MAX).contains(number)) else {
        return Err(PriceError::Number { item: item.to_owned(), number: number_text.trim().to_owned() });
    };
    if !unit.trim().eq_ignore_ascii_case(expected) {
        let found = unit.trim().to_owned();
        return Err(PriceError::Unit { item: item.to_owned(), name, number, expected, found });
    }
    Ok((name, number))
}

impl Prices {
    /// These prices, with what the report is worth by them. What a price or a figure lacks for stays None.
    pub fn of(self, report: &Report) -> Prices {
        let gb = |bytes: i64| bytes as f64 / GB;
        let bytes = &report.total.bytes;
        let on_top = bytes.compressed.map(|compressed| signed(bytes.disk.after) - signed(compressed.after));
        let egress = report.egress.as_ref().filter(|egress| egress.days > 0).map(|egress| {
            gb(signed(egress.bytes) - signed(egress.compressed_bytes)) * DAYS / f64::from(egress.days)
        });
        let backup = report.backup.map(|backup| signed(backup.bytes) - signed(backup.archive_bytes));
        let times = |price: Option<f64>, quantity: Option<f64>| Some(price? * quantity?);
        Prices {
            storage_saved_month: times(self.storage_gb_month, Some(gb(bytes.disk.saved()))),
            cfs_saved_month: times(self.storage_gb_month, on_top.map(gb)),
            egress_saved_month: times(self.egress_gb, egress),
            backup_saved_month: times(self.backup_gb_month, backup.map(gb)),
            ..self
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{BackupEstimate, Bytes, Change, EgressSummary};

    #[test]
    fn what_is_wrong_with_a_price_is_said_with_what_to_write() {
        let said = |text: &str| parse(text).unwrap_err().to_string();
        assert!(said("storage").contains("expected NAME=NUMBER/UNIT"), "{}", said("storage"));
        assert!(said("").contains("expected NAME=NUMBER/UNIT"));
        assert!(said("ram=1/GB").contains("expected storage, egress or backup"));
        assert!(said("egress=cheap/GB").contains("invalid price \"cheap\""));
        assert!(said("egress=-1/GB").contains("from 0 to 1000000"));
        assert!(said("egress=NaN/GB").contains("invalid price \"NaN\""));
        assert!(said("storage=0.1/GB").contains("write storage=0.1/GB-month"), "{}", said("storage=0.1/GB"));
        assert!(said("egress=1/GB, egress=2/GB").contains("twice"));
    }

    #[test]
    fn savings_are_bytes_times_prices() {
        let prices = parse(" backup=0.02/gb-month, storage=0.1/GB-month,egress=0.09/GB").unwrap();
        let change = |now, after| Change { now, after };
        let disk = change(9_000_000_000, 7_000_000_000);
        let compressed = Some(change(3_000_000_000, 2_000_000_000));
        let mut report = Report::default();
        report.total.bytes = Bytes { disk, compressed, memory: disk };
        let found = prices.clone().of(&report);
        assert!((found.storage_saved_month.unwrap() - 0.2).abs() < 1e-9);
        assert!((found.cfs_saved_month.unwrap() - 0.5).abs() < 1e-9);
        assert_eq!((found.egress_saved_month, found.backup_saved_month), (None, None));
        report.egress = Some(EgressSummary {
            days: 3,
            bytes: 4_000_000_000,
            compressed_bytes: 1_000_000_000,
            ..Default::default()
        });
        report.backup =
            Some(BackupEstimate { bytes: 10_000_000_000, tar_bytes: 0, archive_bytes: 2_000_000_000 });
        let found = prices.of(&report);
        assert!((found.egress_saved_month.unwrap() - 2.7).abs() < 1e-9);
        assert!((found.backup_saved_month.unwrap() - 0.16).abs() < 1e-9);
        assert_eq!(parse("egress=1/GB").unwrap().of(&report).storage_saved_month, None);
    }
}
