//! Bytes in money.

use crate::finding::{Prices, Report};

/// Bytes of the GB that providers charge for.
const GB: f64 = 1e9;

/// Computes what a report's savings are worth, from the prices in it. What is not known is left out.
pub fn apply(report: &mut Report) {
    let Some(prices) = &report.prices else { return };
    let disk = report.total.bytes.disk;
    let compressed = report.total.bytes.compressed;
    let of = |bytes: f64, price: Option<f64>| price.map(|price| bytes.max(0.0) / GB * price);
    let storage_saved_month = of(disk.saved() as f64, prices.storage_gb_month);
    // Of what is left on disk after the proposals.
    let cfs_saved_month =
        compressed.and_then(|change| of(disk.after as f64 - change.after as f64, prices.storage_gb_month));
    let egress_saved_month = report.egress.as_ref().filter(|egress| egress.days > 0).and_then(|egress| {
        let saved = egress.bytes as f64 - egress.compressed_bytes as f64;
        of(saved / f64::from(egress.days) * DAYS_PER_MONTH, prices.egress_gb)
    });
    let backup_saved_month = report
        .backup
        .and_then(|backup| of(backup.tar_bytes as f64 - backup.archive_bytes as f64, prices.backup_gb_month));
    report.prices = Some(Prices {
        storage_saved_month,
        cfs_saved_month,
        egress_saved_month,
        backup_saved_month,
        ..prices.clone()
    });
}

/// On average.
const DAYS_PER_MONTH: f64 = 365.25 / 12.0;
