//! All changes as one script for psql.
//!
//! Statements are written as the report has them; whoever made them has quoted their names. Everything else is a comment, and a
//! comment is always one line: names go through [`shown::name`], and every line of a statement that is commented out gets its own dashes.

mod online;

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::finding::{Finding, Proposal, Report, Rule, Step};
use crate::report::{by_saving, shown};

/// The script: first each table's proposal, the largest saving first, then findings that are in no proposal.
///
/// A finding that is in no proposal is commented out, unless it is about a setting or a catalog and has no risks: what belongs to a
/// table, and is not in the table's proposal, is not recommended.
pub fn sql(report: &Report) -> String {
    let mut script = head(report);
    let titles: BTreeMap<&str, &Finding> =
        report.findings.iter().map(|finding| (finding.id.as_str(), finding)).collect();
    // Where there is no script, it is said why there is no online one.
    let is_shown = |proposal: &&Proposal| !proposal.sql.is_empty() || proposal.online.is_some();
    for proposal in report.proposals.iter().filter(is_shown) {
        write_proposal(&mut script, proposal, &titles);
    }
    write_rest(&mut script, report);
    if report.proposals.iter().all(|proposal| proposal.sql.is_empty())
        && report.findings.iter().all(|finding| finding.in_proposal || finding.sql.is_empty())
    {
        script.push_str("\n-- There are no proposals that SQL can implement.\n");
    }
    script
}

/// Findings that are in no proposal.
fn write_rest(script: &mut String, report: &Report) {
    let mut alone: Vec<&Finding> = by_saving(report);
    alone.retain(|finding| !finding.in_proposal && !finding.sql.is_empty());
    // Indexes go and settings come before tables are cleaned up: a VACUUM then has less to read.
    alone.sort_by_key(|finding| order(finding.rule));
    if alone.is_empty() {
        return;
    }
    heading(script, "In no table's proposal");
    comment(
        script,
        "Statements in comments are your decision. Read their risks, then remove the dashes, or run \
         pgshrink advise again with --accept and the finding's id: it is then simulated together with the \
         rest of its table.",
    );
    let write = |script: &mut String| alone.iter().for_each(|finding| write_alone(script, finding));
    match online::is_asked(report) {
        true => online::write_settings(script, write),
        false => write(script),
    }
}

fn head(report: &Report) -> String {
    let mut script = String::new();
    let database = shown::name(&report.database);
    comment(&mut script, &format!("What pgshrink advise proposes for the database {database}."));
    comment(
        &mut script,
        &format!(
            "Generated from a snapshot of PostgreSQL {} taken at {}. Nothing has been executed.",
            shown::version(report.server_version),
            shown::time(report.taken_s)
        ),
    );
    comment(
        &mut script,
        "Read it, try it on a copy, and run it with psql. If it stops, what was committed before stays.",
    );
    let disk = report.total.bytes.disk;
    comment(
        &mut script,
        &format!(
            "All proposals together, on disk: {} now, {} after. 1 kB is 1024 bytes.",
            shown::size(disk.now),
            shown::size(disk.after)
        ),
    );
    if online::is_asked(report) {
        online::write_usage(&mut script);
    }
    // A startup file may have switched these off, and a script in another encoding is another script.
    script.push_str("\n\\set ON_ERROR_STOP on\n\\set AUTOCOMMIT on\n\\encoding UTF8\n");
    script.push_str("SET standard_conforming_strings = on;\n");
    script.push_str("SET default_transaction_read_only = off;\n");
    script.push_str(
        "-- A statement that waits longer for a lock fails, and ends the script: other \
        sessions would queue behind it.\n",
    );
    script.push_str("SET lock_timeout = '5s';\nSET statement_timeout = 0;\n\n");
    // Whoever may create an operator in a schema of `search_path` must not get a hand on this session.
    let literal = report.database.replace('\'', "''");
    let _ = writeln!(
        script,
        "SELECT pg_catalog.current_database() OPERATOR(pg_catalog.=) '{literal}'::pg_catalog.name AS right_database \\gset"
    );
    script.push_str(
        "\\if :right_database\n\\else\n\
         DO $$ BEGIN RAISE EXCEPTION 'this script was generated for another database than %: see its first line', \
         pg_catalog.current_database(); END $$;\n\\endif\n",
    );
    if online::is_asked(report) {
        online::write_variables(&mut script, report);
    }
    script
}

fn write_proposal(script: &mut String, proposal: &Proposal, titles: &BTreeMap<&str, &Finding>) {
    let disk = proposal.bytes.disk;
    let sum = format!(
        "{}: {} -> {} on disk",
        shown::object(&proposal.object),
        shown::size(disk.now),
        shown::size(disk.after)
    );
    heading(script, &sum);
    for id in &proposal.findings {
        if let Some(finding) = titles.get(id.as_str()) {
            comment(script, &format!("* {}: {}", shown::rule(finding.rule), finding.title));
            finding.risks.iter().for_each(|risk| comment(script, &format!("    risk: {risk}")));
            if let Some(proof) = &finding.proof {
                comment(script, "    must hold for every row, before anything is changed:");
                comment_lines(script, proof, "      ");
            }
        }
    }
    if let Some(online) = &proposal.online {
        online::write_proposal(script, &shown::object(&proposal.object), online);
        return;
    }
    for warning in &proposal.warnings {
        comment(script, &format!("! {warning}"));
    }
    for (index, step) in proposal.sql.iter().enumerate() {
        write_step(script, index + 1, step);
    }
}

fn write_step(script: &mut String, number: usize, step: &Step) {
    script.push('\n');
    comment(script, &format!("{number}. {}", step.title));
    if !step.lock.is_empty() {
        comment(script, &format!("   lock: {}", step.lock));
    }
    for statement in &step.statements {
        script.push_str(&complete(statement));
        script.push('\n');
    }
}

/// With its semicolon.
fn complete(statement: &str) -> String {
    let statement = statement.trim_end();
    let end = if statement.is_empty() || statement.ends_with(';') { "" } else { ";" };
    format!("{statement}{end}")
}

fn write_alone(script: &mut String, finding: &Finding) {
    script.push('\n');
    let object = shown::object(&finding.object);
    comment(script, &format!("{object}: {}: {}", shown::rule(finding.rule), finding.title));
    if !is_active(finding) {
        comment(script, &format!("  id: {}", finding.id));
    }
    if !finding.cost.is_empty() {
        comment(script, &format!("  cost: {}", finding.cost));
    }
    finding.risks.iter().for_each(|risk| comment(script, &format!("  risk: {risk}")));
    if let Some(proof) = &finding.proof {
        comment(script, "  must hold for every row, before anything is changed:");
        comment_lines(script, proof, "    ");
    }
    for statement in &finding.sql {
        if is_active(finding) {
            script.push_str(&complete(statement));
            script.push('\n');
        } else {
            comment_lines(script, &complete(statement), "");
        }
    }
}

/// Whether a finding that is in no proposal is done by the script as it is.
fn is_active(finding: &Finding) -> bool {
    matches!(finding.object.kind.as_str(), "setting" | "catalog") && finding.risks.is_empty()
}

fn order(rule: Rule) -> u8 {
    match rule {
        Rule::Setting => 0,
        Rule::DuplicateIndex | Rule::UnusedIndex => 1,
        Rule::AutovacuumLag | Rule::Bloat | Rule::IndexBloat | Rule::CatalogBloat => 3,
        _ => 2,
    }
}

fn heading(script: &mut String, text: &str) {
    script.push_str("\n\n-- ");
    script.push_str(&"=".repeat(100));
    script.push('\n');
    comment(script, text);
}

/// One line, whatever is in it.
fn comment(script: &mut String, text: &str) {
    script.push_str("-- ");
    script.push_str(&shown::name(text));
    script.push('\n');
}

/// Each line of it, each with its dashes. Both characters that end a line for psql do so here.
fn comment_lines(script: &mut String, text: &str, indent: &str) {
    for line in text.split(['\n', '\r']) {
        script.push_str("-- ");
        script.push_str(indent);
        script.push_str(line);
        script.push('\n');
    }
}
