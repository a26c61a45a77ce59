//! Sizes by table, and what the bytes of each are.

use maud::{Markup, html};

use super::bytes::{amount, bars, legend, saved};
use super::{Section, more, object, percent, scrolling};
use crate::finding::{Anatomy, Change, Report, TableReport};
use crate::report::shown;

/// Tables that are drawn.
const TABLES_MAX: usize = 20;

pub(super) fn sizes(report: &Report) -> Option<Section> {
    if report.tables.is_empty() {
        return None;
    }
    let longest = report.tables.iter().map(|table| table.bytes.disk.now.max(table.bytes.disk.after)).max()?;
    let is_compressed = report.tables.iter().any(|table| table.bytes.compressed.is_some());
    let mut kinds = vec![("before", "now"), ("after", "after all changes of its proposal")];
    if is_compressed {
        kinds.push(("compressed", "after, in a compressed tablespace"));
    }
    let content = html! {
        (legend(&kinds))
        table.sizes {
            caption { "On disk, with indexes and TOAST, the largest first" }
            thead {
                tr {
                    th scope="col" { "Table" }
                    th scope="col" { span.hidden { "Drawn" } }
                    th.number scope="col" { "Now" }
                    th.number scope="col" { "After" }
                    th.number scope="col" { "Saved" }
                    @if is_compressed { th.number scope="col" { "Compressed" } }
                }
            }
            tbody {
                @for table in report.tables.iter().take(TABLES_MAX) {
                    (size_row(table, longest, is_compressed))
                }
                @if let Some(rest) = rest(report) { (rest_row(rest, is_compressed)) }
            }
        }
    };
    Some(Section { id: "sizes", title: "Sizes of tables", content })
}

fn size_row(table: &TableReport, longest: u64, is_compressed: bool) -> Markup {
    let disk = table.bytes.disk;
    let compressed = table.bytes.compressed;
    let mut drawn = vec![("before", disk.now), ("after", disk.after)];
    drawn.extend(compressed.map(|change| ("compressed", change.after)));
    html! {
        tr {
            th scope="row" {
                (object(&table.object)) span.quiet.block { (shown::counted(table.rows, "row", "rows")) }
            }
            td.drawn { (bars(&drawn, longest)) }
            td.number data-label="Now" { (amount(disk.now)) }
            td.number data-label="After" { (amount(disk.after)) }
            td.number data-label="Saved" { (saved(disk)) }
            @if is_compressed {
                td.number data-label="Compressed" {
                    @if let Some(change) = compressed { (amount(change.after)) } @else { "–" }
                }
            }
        }
    }
}

/// The tables that are not drawn: how many, and their sum.
fn rest(report: &Report) -> Option<(usize, Change)> {
    let left = report.tables.get(TABLES_MAX..).filter(|left| !left.is_empty())?;
    let sum = left.iter().fold(Change::default(), |sum, table| Change {
        now: sum.now.saturating_add(table.bytes.disk.now),
        after: sum.after.saturating_add(table.bytes.disk.after),
    });
    Some((left.len(), sum))
}

fn rest_row((tables, sum): (usize, Change), is_compressed: bool) -> Markup {
    html! {
        tr.rest {
            th scope="row" { (shown::counted(tables as u64, "smaller table", "smaller tables")) }
            td.drawn {}
            td.number data-label="Now" { (amount(sum.now)) }
            td.number data-label="After" { (amount(sum.after)) }
            td.number data-label="Saved" { (saved(sum)) }
            @if is_compressed { td.number data-label="Compressed" { "–" } }
        }
    }
}

/// Class, words and bytes of each kind. What is nobody's data is hatched.
fn kinds(anatomy: &Anatomy) -> [(&'static str, &'static str, u64); 8] {
    [
        ("a-data", "values", anatomy.data),
        ("a-headers", "row headers", anatomy.row_headers),
        ("a-padding", "padding", anatomy.padding),
        ("a-slack", "room at the end of pages", anatomy.page_slack),
        ("a-bloat", "bloat", anatomy.bloat),
        ("a-toast", "TOAST", anatomy.toast),
        ("a-indexes", "indexes", anatomy.indexes),
        ("a-maps", "maps", anatomy.maps),
    ]
}

pub(super) fn anatomy(report: &Report) -> Option<Section> {
    let whole = |table: &TableReport| {
        kinds(&table.anatomy).iter().fold(0u64, |sum, (.., bytes)| sum.saturating_add(*bytes))
    };
    let tables: Vec<&TableReport> = report.tables.iter().filter(|table| whole(table) > 0).collect();
    if tables.is_empty() {
        return None;
    }
    let entries = kinds(&Anatomy::default()).map(|(kind, words, _)| (kind, words));
    let numbers = html! {
        table {
            caption { "Bytes of each kind" }
            thead {
                tr {
                    th scope="col" { "Table" }
                    @for (_, words) in entries { th.number scope="col" { (words) } }
                }
            }
            tbody {
                @for table in tables.iter().take(TABLES_MAX) {
                    tr {
                        th scope="row" { (object(&table.object)) }
                        @for (.., bytes) in kinds(&table.anatomy) { td.number { (amount(bytes)) } }
                    }
                }
            }
        }
    };
    let content = html! {
        p { "Each bar shows a whole table as it is now. Hatched parts contain no data." }
        (legend(&entries))
        div.anatomy {
            @for table in tables.iter().take(TABLES_MAX) {
                div.line {
                    p.of { (object(&table.object)) " " span.quiet { (amount(whole(table))) } }
                    (stacked(table, whole(table)))
                }
            }
        }
        (more(tables.len(), TABLES_MAX, "they are in the JSON report."))
        details { summary { "The numbers" } (scrolling("Bytes of each kind, by table", &numbers)) }
    };
    Some(Section { id: "anatomy", title: "What the bytes are", content })
}

fn stacked(table: &TableReport, whole: u64) -> Markup {
    let parts: Vec<_> = kinds(&table.anatomy).into_iter().filter(|(.., bytes)| *bytes > 0).collect();
    let words: Vec<String> =
        parts.iter().map(|(_, words, bytes)| format!("{words} {}", shown::size(*bytes))).collect();
    html! {
        div.stacked role="img" aria-label=(words.join(", ")) {
            @for (kind, words, bytes) in parts {
                span class=(kind) style={ "width:" (percent(bytes, whole)) "%" } title={ (words) ": " (shown::size(bytes)) } {}
            }
        }
    }
}
