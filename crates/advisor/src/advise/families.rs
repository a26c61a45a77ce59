//! What all partitions of a table have in common.

use crate::finding::{Bytes, Change, Confidence, Finding, Rule};
use crate::rules::table_object;
use crate::snapshot::{Snapshot, Table, TableKind};
use std::collections::BTreeMap;

/// Rules whose findings are the same for all partitions that have the same columns.
const SHARED: [Rule; 2] = [Rule::ColumnOrder, Rule::DroppedColumns];

/// One finding on each partitioned table whose partitions lie in the same order of columns and have the same finding. It sums
/// theirs up, and is no part of a proposal.
pub(super) fn shared(snapshot: &Snapshot, findings: &[Finding]) -> Vec<Finding> {
    let mut families: BTreeMap<u32, Vec<&Table>> = BTreeMap::new();
    for table in snapshot.tables.iter().filter(|table| table.is_partition && table.kind == TableKind::Table) {
        if let Some(root) = root_of(snapshot, table) {
            families.entry(root).or_default().push(table);
        }
    }
    let all = families.into_iter().flat_map(|(root, partitions)| {
        SHARED.iter().filter_map(move |rule| of_family(snapshot.table(root)?, &partitions, *rule, findings))
    });
    all.collect()
}

/// The partitioned table at the top.
fn root_of(snapshot: &Snapshot, table: &Table) -> Option<u32> {
    let mut oid = table.parent;
    // No table has more ancestors than there are tables.
    for _ in 0..snapshot.tables.len() {
        let parent = snapshot.table(oid).filter(|parent| parent.kind == TableKind::Partitioned)?;
        if !parent.is_partition {
            return Some(oid);
        }
        oid = parent.parent;
    }
    None
}

fn of_family(parent: &Table, partitions: &[&Table], rule: Rule, findings: &[Finding]) -> Option<Finding> {
    let shape = |table: &Table| -> Vec<(String, String, bool)> {
        let columns = table.columns.iter();
        let of = columns.map(|column| match column.is_dropped {
            // A dropped column has no name that says anything.
            true => (String::new(), format!("{}{}", column.length, column.alignment), true),
            false => (column.name.clone(), column.type_name.clone(), false),
        });
        of.collect()
    };
    let first = shape(partitions.first()?);
    if partitions.len() < 2 || partitions.iter().any(|table| shape(table) != first) {
        return None;
    }
    let of = |table: &Table| {
        let object = table_object(table);
        findings.iter().find(|finding| finding.rule == rule && finding.object == object)
    };
    let own: Vec<&Finding> = partitions.iter().filter_map(|table| of(table)).collect();
    let largest = own.iter().max_by_key(|finding| finding.bytes.disk.saved())?;
    let sum = |part: fn(&Finding) -> Change| {
        own.iter().map(|finding| part(finding)).fold(Change::default(), |sum, change| Change {
            now: sum.now.saturating_add(change.now),
            after: sum.after.saturating_add(change.after),
        })
    };
    let confidence = own.iter().map(|finding| finding.confidence).max().unwrap_or(Confidence::Measured);
    Some(Finding {
        title: format!("{} of {} partitions: {}", own.len(), partitions.len(), largest.title),
        reason: format!(
            "All {} partitions have the same columns in the same order, and {} of them have this finding; \
             the sums here are for these. Partitions can be rebuilt one by one, because the order of their \
             columns may differ from that of the table. New partitions get the order of the table: it \
             should be changed too. {}",
            partitions.len(),
            own.len(),
            largest.reason
        ),
        bytes: Bytes {
            disk: sum(|finding| finding.bytes.disk),
            compressed: None,
            memory: sum(|finding| finding.bytes.memory),
        },
        confidence,
        cost: "That of each partition.".to_owned(),
        risks: largest.risks.clone(),
        ..Finding::of(rule, table_object(parent))
    })
}
