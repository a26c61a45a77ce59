//! Every system, backup, network, and what could not be seen.

use maud::{Markup, html};

use super::bytes::{amount, bars, legend};
use super::{Section, more, named};
use crate::finding::{EgressLine, EgressSummary, Report};
use crate::report::{Picture, shown};

/// Lines of a table here.
const LINES_MAX: usize = 50;

pub(super) fn systems(picture: &Picture) -> Option<Section> {
    if picture.systems.is_empty() {
        return None;
    }
    let content = html! {
        (legend(&[("before", "before"), ("after", "after")]))
        table.sizes {
            caption { "Bytes before and after, each system on its own scale" }
            thead {
                tr {
                    th scope="col" { "System" }
                    th scope="col" { span.hidden { "Drawn" } }
                    th.number scope="col" { "Before" }
                    th.number scope="col" { "After" }
                    th.number scope="col" { "Ratio" }
                }
            }
            tbody {
                @for system in &picture.systems {
                    tr {
                        th scope="row" { (named(&system.name)) span.quiet.block { (named(&system.note)) } }
                        td.drawn {
                            (bars(&[("before", system.before), ("after", system.after)], system.before.max(system.after)))
                        }
                        td.number data-label="Before" { (amount(system.before)) }
                        td.number data-label="After" { (amount(system.after)) }
                        td.number data-label="Ratio" {
                            strong { (shown::ratio(system.before, system.after)) }
                        }
                    }
                }
            }
        }
    };
    Some(Section { id: "systems", title: "Every system", content })
}

pub(super) fn backup(report: &Report) -> Option<Section> {
    let backup = report.backup?;
    let lines = [
        ("What a backup reads", "before", backup.bytes),
        ("A tar with zstd:3", "other", backup.tar_bytes),
        ("An archive of pgshrink backup", "after", backup.archive_bytes),
    ];
    let longest = lines.iter().map(|(.., bytes)| *bytes).max().unwrap_or(0);
    let content = html! {
        table.sizes {
            caption { "A backup of the whole cluster" }
            thead {
                tr {
                    th scope="col" { "What" }
                    th scope="col" { span.hidden { "Drawn" } }
                    th.number scope="col" { "Bytes" }
                    th.number scope="col" { "Ratio" }
                }
            }
            tbody {
                @for (what, kind, bytes) in lines {
                    tr {
                        th scope="row" { (what) }
                        td.drawn { (bars(&[(kind, bytes)], longest)) }
                        td.number data-label="Bytes" { (amount(bytes)) }
                        td.number data-label="Ratio" { (shown::ratio(backup.bytes, bytes)) }
                    }
                }
            }
        }
    };
    Some(Section { id: "backup", title: "Backup", content })
}

pub(super) fn egress(report: &Report) -> Option<Section> {
    let egress = report.egress.as_ref()?;
    let longest = egress.lines.iter().map(|line| line.bytes.max(line.compressed_bytes)).max().unwrap_or(0);
    let content = html! {
        p { (sum(egress)) }
        @if !egress.lines.is_empty() {
            (legend(&[("before", "to the client"), ("after", "compressed")]))
            table.sizes {
                caption { "By client, database and day, the largest first" }
                thead {
                    tr {
                        th scope="col" { "Client" }
                        th scope="col" { span.hidden { "Drawn" } }
                        th scope="col" { "Database" }
                        th scope="col" { "Day" }
                        th.number scope="col" { "Sent" }
                        th.number scope="col" { "Compressed" }
                        th.number scope="col" { "CPU s" }
                    }
                }
                tbody { @for line in egress.lines.iter().take(LINES_MAX) { (egress_line(line, longest)) } }
            }
            (more(egress.lines.len(), LINES_MAX, "they are in the JSON report."))
        }
    };
    Some(Section { id: "egress", title: "Network", content })
}

fn sum(egress: &EgressSummary) -> Markup {
    html! {
        "In " (shown::counted(u64::from(egress.days), "day", "days")) " the gateway sent " (amount(egress.bytes))
        " to clients. Compressed it would have been " (amount(egress.compressed_bytes)) ", using "
        (format!("{:.1}", egress.cpu_s)) " s of CPU time."
    }
}

fn egress_line(line: &EgressLine, longest: u64) -> Markup {
    html! {
        tr {
            th scope="row" { (named(&line.client)) }
            td.drawn { (bars(&[("before", line.bytes), ("after", line.compressed_bytes)], longest)) }
            td data-label="Database" { (named(&line.database)) }
            td.nowrap data-label="Day" { (named(&line.day)) }
            td.number data-label="Sent" { (amount(line.bytes)) }
            td.number data-label="Compressed" { (amount(line.compressed_bytes)) }
            td.number data-label="CPU s" { (format!("{:.1}", line.cpu_s)) }
        }
    }
}

pub(super) fn unseen(report: &Report) -> Option<Section> {
    if report.unseen.is_empty() && report.notes.is_empty() {
        return None;
    }
    let content = html! {
        @if !report.unseen.is_empty() {
            table {
                caption { "What may save more than is shown here" }
                thead {
                    tr {
                        th scope="col" { "What" } th scope="col" { "Why" } th scope="col" {
                            "What to do about it"
                        }
                    }
                }
                tbody {
                    @for unseen in report.unseen.iter().take(LINES_MAX) {
                        tr {
                            th scope="row" { (named(&unseen.what)) }
                            td data-label="Why" { (named(&unseen.why)) }
                            td data-label="What to do about it" {
                                @if unseen.remedy.is_empty() { "–" } @else {
                                    code { (named(&unseen.remedy)) }
                                }
                            }
                        }
                    }
                }
            }
            (more(report.unseen.len(), LINES_MAX, "they are in the JSON report."))
        }
        @if !report.notes.is_empty() {
            ul { @for note in report.notes.iter().take(LINES_MAX) { li { (named(note)) } } }
        }
    };
    Some(Section { id: "unseen", title: "What could not be seen", content })
}
