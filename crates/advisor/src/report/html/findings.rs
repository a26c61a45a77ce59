//! Every finding, with its reasons.

use maud::{Markup, html};

use super::bytes::{change, saved};
use super::{Section, more, object};
use crate::finding::{Bytes, Change, Finding, Report};
use crate::report::{by_saving, shown};

/// Findings on the page: a browser has to hold them all.
const FINDINGS_MAX: usize = 500;

pub(super) fn findings(report: &Report) -> Option<Section> {
    let findings = by_saving(report);
    let content = if findings.is_empty() {
        html! { p { "Nothing was found that could be made smaller." } }
    } else {
        html! {
            p {
                "Each by itself, as if nothing else were changed."
                " Findings of one table overlap: its proposal shows what all of them save together."
            }
            div.tools hidden {
                label for="filter" { "Filter " }
                input id="filter" type="search" autocomplete="off" spellcheck="false";
                output for="filter" id="filtered" {}
            }
            table.findings id="findings-table" {
                caption {
                    (shown::counted(findings.len() as u64, "finding", "findings")) ", the largest saving first"
                }
                thead {
                    tr {
                        th scope="col" data-sort="text" { "What" }
                        th scope="col" data-sort="text" { "Finding" }
                        th.number scope="col" data-sort="number" { "Now, after" }
                        th.number scope="col" data-sort="number" { "Saved on disk" }
                        th.number scope="col" data-sort="number" { "Saved in memory" }
                        th scope="col" data-sort="number" { "Known" }
                    }
                }
                @for finding in findings.iter().take(FINDINGS_MAX) {
                    (line(finding, number(report, finding)))
                }
            }
            (more(findings.len(), FINDINGS_MAX, "they are in the JSON report."))
        }
    };
    Some(Section { id: "findings", title: "Findings", content })
}

/// Its place in the report: names may hold anything, and are no addresses.
pub(super) fn number(report: &Report, finding: &Finding) -> usize {
    report.findings.iter().position(|other| std::ptr::eq(other, finding)).unwrap_or(0)
}

fn line(finding: &Finding, number: usize) -> Markup {
    let bytes = finding.bytes;
    let has_bytes = bytes.disk != Change::default() || bytes.memory != Change::default();
    html! {
        tbody id={ "finding-" (number) } data-id=(shown::name(&finding.id)) {
            tr {
                th scope="row" data-key=(shown::object(&finding.object)) { (object(&finding.object)) }
                td data-label="Finding" data-key=(shown::name(&finding.title)) {
                    span.rule { (shown::rule(finding.rule)) } " " bdi { (shown::name(&finding.title)) }
                }
                td.number data-label="Now, after" data-key=(bytes.disk.now) {
                    @if has_bytes { (change(bytes.disk)) } @else { "–" }
                }
                td.number data-label="Saved on disk" data-key=(bytes.disk.saved()) {
                    @if has_bytes { (saved(bytes.disk)) } @else { "–" }
                }
                td.number data-label="Saved in memory" data-key=(bytes.memory.saved()) {
                    @if has_bytes { (saved(bytes.memory)) } @else { "–" }
                }
                td data-label="Known" data-key=(finding.confidence as u8) {
                    (shown::confidence(finding.confidence))
                }
            }
            tr.more {
                td colspan="6" {
                    details {
                        summary {
                            "Reason, cost"
                            @if !finding.risks.is_empty() { ", risks" }
                            @if !finding.sql.is_empty() { ", SQL" }
                            span.hidden { " of " (shown::object(&finding.object)) ": " (shown::name(&finding.title)) }
                        }
                        (details(finding, bytes))
                    }
                }
            }
        }
    }
}

fn details(finding: &Finding, bytes: Bytes) -> Markup {
    html! {
        p { bdi { (shown::name(&finding.reason)) } }
        dl {
            @if let Some(compressed) = bytes.compressed {
                dt { "In a compressed tablespace" } dd {
                    (change(compressed)) ", " (saved(compressed)) " saved"
                }
            }
            @if !finding.cost.is_empty() { dt { "Cost" } dd { bdi { (shown::name(&finding.cost)) } } }
            @if !finding.risks.is_empty() {
                dt { "Risks" } dd {
                    ul { @for risk in &finding.risks { li { bdi { (shown::name(risk)) } } } }
                }
            }
            dt { "In its table's proposal" } dd { @if finding.in_proposal { "yes" } @else { "no" } }
        }
        @if let Some(proof) = &finding.proof {
            p { "Check with a full scan. This query must return 0, or what the text says:" }
            (code("The query that a full scan answers", proof))
        }
        @if !finding.sql.is_empty() {
            p { "Alone:" }
            (code("Statements", &finding.sql.join("\n")))
        }
    }
}

/// Statements to copy, with every character as the report has it. The style sheet keeps marks that reorder text from doing so.
pub(super) fn code(label: &str, text: &str) -> Markup {
    html! { pre tabindex="0" role="group" aria-label=(label) { code { (text) } } }
}
