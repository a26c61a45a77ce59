//! Tables that autovacuum should have been at.
//!
//! Source: `relation_needs_vacanalyze` in `src/backend/postmaster/autovacuum.c`.

use super::{empty, on_primary};
use crate::finding::{Confidence, Finding, Object, Rule};
use crate::rules::Candidate;
use crate::snapshot::{Snapshot, Table, TableKind};
use crate::sql::qualified;
use pgshrink_codec::counted;

/// Smaller tables are no trouble.
const BYTES_MIN: u64 = 1 << 20;
/// Fewer dead rows are no trouble.
const DEAD_ROWS_MIN: u64 = 10_000;
/// Times the threshold: up to that, autovacuum may be on its way.
const LATE: f64 = 2.0;
/// A transaction that is so far back keeps many rows.
const OLD_TRANSACTION: u64 = 1_000_000;
/// Times `autovacuum_freeze_max_age`.
const FROZEN_SOON: f64 = 0.95;
/// The same: by then a vacuum should have been there.
const FROZEN_LATE: f64 = 1.1;

pub fn candidates(snapshot: &Snapshot) -> Vec<Candidate> {
    let tables = snapshot.tables.iter().filter(|table| {
        matches!(table.kind, TableKind::Table | TableKind::MaterializedView)
            && table.total_bytes() >= BYTES_MIN
    });
    tables.filter_map(|table| candidate(snapshot, table)).collect()
}

/// When autovacuum comes to a table.
struct Thresholds {
    dead_rows: f64,
    inserted_rows: Option<f64>,
    frozen_age: f64,
    is_enabled: bool,
}

impl Thresholds {
    fn of(snapshot: &Snapshot, table: &Table) -> Thresholds {
        let setting = |name: &str, default: f64| -> f64 {
            let of_table = table.option(name).and_then(|text| text.parse().ok());
            let of_server = || snapshot.server.settings.get(name).and_then(|text| text.parse().ok());
            of_table.or_else(of_server).filter(|number: &f64| number.is_finite()).unwrap_or(default)
        };
        let rows = table.row_estimate.max(0.0);
        let mut dead_rows = setting("autovacuum_vacuum_threshold", 50.0)
            + setting("autovacuum_vacuum_scale_factor", 0.2) * rows;
        // Since PostgreSQL 18.
        let most = setting("autovacuum_vacuum_max_threshold", -1.0);
        if most >= 0.0 {
            dead_rows = dead_rows.min(most);
        }
        let inserted = setting("autovacuum_vacuum_insert_threshold", 1000.0);
        let inserted_rows = (inserted >= 0.0)
            .then(|| inserted + setting("autovacuum_vacuum_insert_scale_factor", 0.2) * rows);
        let is_off = |text: &str| {
            matches!(text.to_ascii_lowercase().as_str(), "off" | "false" | "no" | "0" | "f" | "n")
        };
        let frozen_age = snapshot.server.settings.get("autovacuum_freeze_max_age");
        Thresholds {
            dead_rows,
            inserted_rows,
            frozen_age: frozen_age.and_then(|text| text.parse().ok()).unwrap_or(200_000_000.0),
            is_enabled: !table.option("autovacuum_enabled").is_some_and(is_off),
        }
    }
}

fn candidate(snapshot: &Snapshot, table: &Table) -> Option<Candidate> {
    let thresholds = Thresholds::of(snapshot, table);
    let activity = &table.activity;
    let (dead, age) = (activity.dead_rows, activity.frozen_age as f64);
    let name = qualified(&table.schema, &table.name);
    let mut said = Vec::new();
    let mut sql = Vec::new();
    let mut titles = Vec::new();
    if !thresholds.is_enabled && !snapshot.server.is_standby {
        titles.push("autovacuum is off for the table".to_owned());
        said.push("Its storage parameter autovacuum_enabled is off: dead rows are not removed, and the table grows with each update.".to_owned());
        sql.push(format!("ALTER TABLE {name} RESET (autovacuum_enabled);"));
    }
    if dead >= DEAD_ROWS_MIN && dead as f64 > thresholds.dead_rows * LATE {
        titles.push(format!("{dead} dead rows"));
        said.push(format!(
            "Autovacuum starts at {:.0} dead rows, and there are {dead} beside {} live ones.{}",
            thresholds.dead_rows,
            activity.live_rows,
            last_vacuum(snapshot, table)
        ));
        sql.push(format!("VACUUM (ANALYZE) {name};"));
    } else if let Some(most) = thresholds.inserted_rows
        && activity.inserted_since_vacuum as f64 > most * LATE
        && activity.inserted_since_vacuum >= DEAD_ROWS_MIN
    {
        titles.push(format!("{} rows inserted since the last vacuum", activity.inserted_since_vacuum));
        said.push(format!(
            "Autovacuum starts at {most:.0} inserted rows. Until then their pages are not marked as \
             visible to all: index-only scans read the table.{}",
            last_vacuum(snapshot, table)
        ));
        sql.push(format!("VACUUM (ANALYZE) {name};"));
    }
    if age >= thresholds.frozen_age * FROZEN_LATE {
        titles.push(format!("its oldest rows are {} transactions old", activity.frozen_age));
        said.push(format!(
            "A vacuum that freezes old rows is due at {:.0} transactions, and none was done. At about 2,000,000,000 the server accepts \
             no more writes.",
            thresholds.frozen_age
        ));
        sql.push(format!("VACUUM (FREEZE) {name};"));
    } else if age >= thresholds.frozen_age * FROZEN_SOON && table.total_bytes() >= 100 << 20 {
        titles.push("a vacuum that freezes rows starts soon".to_owned());
        said.push(format!(
            "Its oldest rows are {} transactions old; at {:.0} autovacuum reads all pages that are not frozen, even where it is off. A \
             VACUUM (FREEZE) at a quiet time does the same.",
            activity.frozen_age, thresholds.frozen_age
        ));
        sql.push(format!("VACUUM (FREEZE) {name};"));
    }
    if titles.is_empty() {
        return None;
    }
    Some(lag(snapshot, table, titles, said, sql))
}

fn lag(
    snapshot: &Snapshot,
    table: &Table,
    titles: Vec<String>,
    mut said: Vec<String>,
    mut sql: Vec<String>,
) -> Candidate {
    let age = snapshot.server.oldest_xmin_age.unwrap_or(0);
    let mut risks = Vec::new();
    if age >= OLD_TRANSACTION {
        said.push(format!(
            "A transaction, a replication slot or a prepared transaction that is {age} transactions back keeps rows from being removed; VACUUM \
             does nothing for them until it is gone. pg_stat_activity.backend_xmin, pg_replication_slots.xmin and \
             pg_prepared_xacts show which."
        ));
        risks.push("As long as that transaction is open, VACUUM reads the table to no effect.".to_owned());
    }
    // One vacuum does what two would do.
    if sql.iter().any(|sql| sql.contains("(FREEZE)")) {
        sql.retain(|sql| !sql.contains("(ANALYZE)"));
    }
    risks.push(
        "If it cannot keep up, lower autovacuum_vacuum_scale_factor for the table, or raise \
         autovacuum_vacuum_cost_limit."
            .to_owned(),
    );
    let object = Object {
        kind: "table".to_owned(),
        schema: table.schema.clone(),
        name: table.name.clone(),
        part: None,
    };
    let finding = Finding {
        title: titles.join(", "),
        reason: said.join(" "),
        confidence: Confidence::Exact,
        cost: on_primary(
            snapshot,
            "VACUUM reads the pages that have changed and all indexes. Nobody waits. Space that it frees \
             is reused; files shrink only at their end.",
        ),
        risks,
        sql,
        ..empty(Rule::AutovacuumLag, format!("autovacuum_lag:{}.{}", table.schema, table.name), object)
    };
    Candidate { finding, edits: Vec::new(), is_recommended: false }
}

fn last_vacuum(snapshot: &Snapshot, table: &Table) -> String {
    match table.activity.last_vacuum_s {
        None => " No vacuum is known.".to_owned(),
        Some(last) => {
            let hours = (snapshot.taken_s.saturating_sub(last).max(0) / 3600) as u64;
            let ago = match hours {
                0..48 => counted(hours, "hour", "hours"),
                _ => counted(hours / 24, "day", "days"),
            };
            format!(" The last vacuum was {ago} ago.")
        }
    }
}
