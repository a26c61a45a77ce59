//! All changes of a table together, with the script.

use maud::{Markup, html};

use super::bytes::{bars, change, saved};
use super::findings::{code, number};
use super::{Section, more, object};
use crate::finding::{Bytes, Finding, Proposal, Report};
use crate::report::shown;
use std::collections::BTreeMap;

/// Proposals on the page.
const PROPOSALS_MAX: usize = 50;

pub(super) fn proposals(report: &Report) -> Option<Section> {
    if report.proposals.is_empty() {
        return None;
    }
    let by_id: BTreeMap<&str, &Finding> =
        report.findings.iter().map(|finding| (finding.id.as_str(), finding)).collect();
    let content = html! {
        p { "For each table, what its findings save together: simulated as a whole, not added up." }
        @for proposal in report.proposals.iter().take(PROPOSALS_MAX) {
            article.card {
                h3 { (object(&proposal.object)) }
                (sums(proposal.bytes))
                @if proposal.bloat_bytes > 0 {
                    p.quiet {
                        "Of that, " (shown::saved(proposal.bloat_bytes)) " is bloat, which any rebuild of the table would give back."
                    }
                }
                ul {
                    @for id in &proposal.findings {
                        @if let Some(finding) = by_id.get(id.as_str()) {
                            li {
                                a href={ "#finding-" (number(report, finding)) } {
                                    bdi { (shown::name(&finding.title)) }
                                }
                            }
                        } @else {
                            li { bdi { (shown::name(id)) } }
                        }
                    }
                }
                @for warning in &proposal.warnings {
                    p.warning { strong { "Warning: " } bdi { (shown::name(warning)) } }
                }
                @if !proposal.sql.is_empty() { (script(proposal)) }
            }
        }
        (more(report.proposals.len(), PROPOSALS_MAX, "they are in the script of --sql and in the JSON report."))
    };
    Some(Section { id: "proposals", title: "Proposals", content })
}

fn sums(bytes: Bytes) -> Markup {
    let kinds =
        [("On disk", Some(bytes.disk)), ("Compressed", bytes.compressed), ("In memory", Some(bytes.memory))];
    html! {
        (bars(&[("before", bytes.disk.now), ("after", bytes.disk.after)], bytes.disk.now.max(bytes.disk.after)))
        dl.sums {
            @for (kind, bytes) in kinds {
                @if let Some(bytes) = bytes {
                    div { dt { (kind) } dd { (change(bytes)) span.quiet { (saved(bytes)) " saved" } } }
                }
            }
        }
    }
}

fn script(proposal: &Proposal) -> Markup {
    html! {
        details {
            summary {
                "The script: " (shown::counted(proposal.sql.len() as u64, "step", "steps"))
                span.hidden { " for " (shown::object(&proposal.object)) }
            }
            ol.steps {
                @for step in &proposal.sql {
                    li {
                        p { bdi { (shown::name(&step.title)) } }
                        @if !step.lock.is_empty() { p.quiet { "Lock: " bdi { (shown::name(&step.lock)) } } }
                        (code(&shown::name(&step.title), &step.statements.join("\n")))
                    }
                }
            }
        }
    }
}
