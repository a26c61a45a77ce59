//! Rewrites of tables that are in use, as a script whose steps can be chosen by name, and run again.
//!
//! What was done is read from the catalogs ([`Stage`]), so a step that was done is passed over, and one that comes too early is an error.
//! psql's variables `steps` and `table` say what is to be run. They are taken out of the way at once, as `:steps` may stand in a
//! view's text.

use super::{comment, complete};
use crate::finding::{Online, Report, Step};
use crate::plan::dollar;
use crate::plan::parts::{Part, PartName, Rewrite, Stage};
use crate::report::shown;
use crate::sql::quote_literal as literal;
use std::fmt::Write;

/// Steps that are run if nobody says which: in this order. The old table stays.
const USUAL: &str = "prepare,copy,catch_up,exchange,finish,indexes,settings";
/// Steps that are run by name only.
const NAMED: &str = "drop,undo,in_place";
/// What belongs to no table's proposal.
const SETTINGS: &str = "settings";

/// Whether the report was made with such scripts.
pub(super) fn is_asked(report: &Report) -> bool {
    report.proposals.iter().any(|proposal| proposal.online.is_some())
}

/// How the script is used.
pub(super) fn write_usage(script: &mut String) {
    for line in [
        "",
        "Tables are rewritten while they are in use: a new table beside the old one, a trigger that logs \
         which rows change, a copy",
        "in batches, and an exchange under a brief lock. Each table has these steps:",
        "",
        "  prepare    the new table, the log and the trigger; writes to the table cost more from now on",
        "  copy       all rows, in batches",
        "  catch_up   rows that changed in the meantime, indexes, and both tables compared by count and by hash",
        "  exchange   the last changes, and the exchange",
        "  finish     foreign keys are validated, materialized views are filled",
        "  indexes    changes of its indexes, if there are any",
        "  drop       the old table is dropped; only on request, when the new one has proved itself",
        "  undo       instead of the exchange: all of it is removed, and the old table is as before; only on request",
        "  in_place   tables that cannot be rewritten while they are in use: everybody waits; only on request",
        "",
        "  psql -d DATABASE -f FILE                                        all but the last three, of all tables",
        "  psql -d DATABASE -v table=public.orders -f FILE                 the same for one table",
        "  psql -d DATABASE -v table=public.orders -v steps=prepare,copy -f FILE",
        "  psql -d DATABASE -v steps=drop -f FILE                          the old tables of all that are exchanged",
        "",
        "If it stops, for example because the connection was lost, run it again; it continues where it \
         stopped. Each step tells the",
        "state after a failure. A pooler must give it its own session.",
    ] {
        match line {
            "" => script.push_str("--\n"),
            line => comment(script, line),
        }
    }
}

/// Reads what is to be run from psql's variables.
pub(super) fn write_variables(script: &mut String, report: &Report) {
    let labels: Vec<String> = labels(report).iter().map(|label| literal(label)).collect();
    let names = format!("{USUAL},{NAMED}");
    let _ = write!(
        script,
        "
\\if :{{?steps}}
\\set pgshrink_steps :steps
\\else
\\set pgshrink_steps {USUAL}
\\endif
\\if :{{?table}}
\\set pgshrink_table :table
\\else
\\set pgshrink_table ''
\\endif
\\unset steps
\\unset table
SELECT NOT string_to_array(:'pgshrink_steps', ',') <@ string_to_array('{names}', ',') AS pgshrink_bad_step,
  NOT :'pgshrink_table' = ANY (ARRAY['', {}]::text[]) AS pgshrink_bad_table \\gset
\\if :pgshrink_bad_step
DO $$ BEGIN RAISE EXCEPTION 'unknown step; there are {names}'; END $$;
\\endif
\\if :pgshrink_bad_table
DO $$ BEGIN RAISE EXCEPTION 'no such table in this script: write it as its heading has it'; END $$;
\\endif
-- A session whose client is gone ends soon, where the system can tell.
DO $$ BEGIN PERFORM set_config('client_connection_check_interval', '1s', false); EXCEPTION WHEN OTHERS THEN NULL; END $$;
",
        labels.join(", ")
    );
}

/// What tables are called in the script.
fn labels(report: &Report) -> Vec<String> {
    report.proposals.iter().map(|proposal| shown::object(&proposal.object)).collect()
}

/// The steps of one table.
pub(super) fn write_proposal(script: &mut String, label: &str, online: &Online) {
    if let Some(rewrite) = &online.rewrite {
        rewrite.warnings.iter().for_each(|warning| comment(script, &format!("! {warning}")));
        for part in &rewrite.parts {
            write_part(script, label, rewrite, part);
        }
    }
    if let Some(refusal) = &online.refusal {
        comment(script, &format!("! Not while it is in use: {refusal}."));
        comment(script, "  The following makes everybody wait, and is only run with -v steps=in_place.");
    }
    if !online.in_place.is_empty() {
        if_asked(script, "in_place", &of_table(label), |script| {
            write_title(script, label, "in_place");
            online.in_place.iter().for_each(|step| write_step(script, step));
        });
    }
    for (index, step) in &online.indexes {
        script.push('\n');
        comment(script, &format!("{label}, indexes: {}", step.title));
        if !step.lock.is_empty() {
            comment(script, &format!("   lock: {}", step.lock));
        }
        comment(
            script,
            "   if it fails: an index that was being built stays and is not valid; drop that one, and run it again.",
        );
        if_asked(script, "indexes", &of_table(label), |script| {
            let index = literal(index);
            let _ = writeln!(
                script,
                "SELECT to_regclass({index}) IS NOT NULL AS pgshrink_run \\gset\n\\if :pgshrink_run"
            );
            write_title(script, label, "indexes");
            write_step(script, step);
            script.push_str("\\endif\n");
        });
    }
}

/// Runs what is written if somebody asks for this step, of this table or of all.
fn if_asked(script: &mut String, step: &str, table: &str, write: impl FnOnce(&mut String)) {
    let _ = writeln!(
        script,
        "SELECT '{step}' = ANY (string_to_array(:'pgshrink_steps', ',')) AND :'pgshrink_table' {table} AS pgshrink_asked \\gset"
    );
    script.push_str("\\if :pgshrink_asked\n");
    write(script);
    script.push_str("\\endif\n");
}

/// All tables are asked for, or this one.
fn of_table(label: &str) -> String {
    format!("IN ('', {})", literal(label))
}

/// Says which step begins.
fn write_title(script: &mut String, label: &str, step: &str) {
    let title = literal(&format!("{label}: {step}"));
    let _ = writeln!(script, "SELECT {title} AS pgshrink_title \\gset\n\\warn :pgshrink_title");
}

fn write_part(script: &mut String, label: &str, rewrite: &Rewrite, part: &Part) {
    let name = part.name.name();
    if part.steps.is_empty() {
        return;
    }
    script.push('\n');
    comment(script, &format!("{label}, {name}: {}", PURPOSE[part.name as usize]));
    for step in part.steps.iter().filter(|step| !step.lock.is_empty()) {
        comment(script, &format!("   lock: {}", step.lock));
    }
    comment(script, &format!("   if it fails: {}", part.name.on_failure()));
    if_asked(script, name, &of_table(label), |script| {
        // First: a session that was left behind may be about to end this very step.
        script.push_str(&only_one(rewrite, label));
        write_stage(script, rewrite, part.name);
        let _ = write!(
            script,
            "\\if :pgshrink_early\n{}\n\\endif\n\\if :pgshrink_late\n{}\n\\endif\n",
            raise(&format!("{label}: {name} comes too early; run the steps before it first")),
            raise(&format!("{label}: it has been exchanged, and cannot be undone")),
        );
        script.push_str("\\if :pgshrink_run\n");
        write_title(script, label, name);
        part.steps.iter().for_each(|step| write_step(script, step));
        script.push_str("\\endif\n");
    });
}

/// Reads from the catalogs whether a part is to be run. One that is run by name only is passed over where it makes no sense, if all
/// tables are meant.
fn write_stage(script: &mut String, rewrite: &Rewrite, name: PartName) {
    let Rewrite { oid, state, old_name, .. } = rewrite;
    let [state, old_name] = [literal(state), literal(old_name)];
    let stages = name.stages();
    let [first, last] = [*stages.start() as u8, *stages.end() as u8];
    let if_named = match name {
        PartName::Drop | PartName::Undo => " AND :'pgshrink_table' <> ''",
        _ => "",
    };
    let late = if name == PartName::Undo { "stage > 1" } else { "false" };
    let _ = writeln!(
        script,
        "SELECT stage BETWEEN {first} AND {last} AS pgshrink_run, stage < {first}{if_named} AS pgshrink_early,
  {late}{if_named} AS pgshrink_late
FROM (SELECT CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = {oid}) THEN {}
    WHEN pg_catalog.to_regclass({state}) IS NOT NULL THEN {}
    WHEN EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = {oid} AND relname = {old_name}) THEN {}
    ELSE {} END) now(stage) \\gset",
        Stage::Dropped as u8,
        Stage::Begun as u8,
        Stage::Exchanged as u8,
        Stage::Nothing as u8
    );
}

/// Statements that are run if somebody asks for this step and for no table.
pub(super) fn write_settings(script: &mut String, write: impl FnOnce(&mut String)) {
    if_asked(script, SETTINGS, "= ''", write);
}

/// What each part is for, by its place.
const PURPOSE: [&str; 7] = [
    "an empty new table, and a trigger that logs which rows change",
    "all rows, in batches",
    "rows that changed in the meantime, indexes, and both tables compared",
    "the last changes, and the new table takes the place of the old one",
    "what was left out of the exchange: foreign keys are validated, materialized views are filled",
    "the old table is dropped, when the new one has proved itself",
    "to give up: the new table, the log and the trigger are removed",
];

fn write_step(script: &mut String, step: &Step) {
    comment(script, &format!("  {}", step.title));
    for statement in &step.statements {
        script.push_str(&complete(statement));
        script.push('\n');
    }
}

/// Waits for a session that was left behind by a psql that is gone, and keeps others out.
fn only_one(rewrite: &Rewrite, label: &str) -> String {
    let oid = rewrite.oid;
    let message = literal(&format!("pgshrink: {label}: another session is working on it"));
    let body = format!(
        "BEGIN
  PERFORM pg_catalog.set_config('lock_timeout', '60s', true);
  PERFORM pg_catalog.pg_advisory_lock(pg_catalog.hashtext('pgshrink'), {});
EXCEPTION WHEN lock_not_available THEN
  RAISE EXCEPTION USING MESSAGE = {message},
    HINT = 'Wait for it, or end it: pg_locks has it, with locktype advisory and objid {oid}.';
END",
        // The lock's key is signed.
        oid.cast_signed()
    );
    format!("DO {};\n", dollar(&body))
}

fn raise(message: &str) -> String {
    let message = literal(&shown::name(message));
    format!("DO {};", dollar(&format!("BEGIN RAISE EXCEPTION USING MESSAGE = {message}; END")))
}
