//! One row of each table, byte by byte, now and after.

use maud::{Markup, html};

use super::bytes::legend;
use super::{Section, object};
use crate::finding::{Report, RowPart, TableReport};
use crate::report::shown;

/// Bytes in a line: four words of eight, which a phone has room for.
const LINE: u32 = 32;
/// Whole lines of one value, from which on they are drawn as one.
const LINES_OF_ONE: u32 = 3;
/// Pieces of a row that are drawn.
const PIECES_MAX: usize = 400;
/// Tables whose rows are drawn, and how many of them are open at first.
const TABLES_MAX: usize = 40;
const OPEN: usize = 3;

pub(super) fn rows(report: &Report) -> Option<Section> {
    let drawn: Vec<&TableReport> = report.tables.iter().filter(|table| !table.row_now.is_empty()).collect();
    if drawn.is_empty() {
        return None;
    }
    let changed: Vec<&&TableReport> = drawn.iter().filter(|table| is_changed(table)).collect();
    // Where nothing changes at all, rows as they are are still worth a look.
    let tables: Vec<&TableReport> = if changed.is_empty() {
        drawn.iter().copied().take(OPEN).collect()
    } else {
        changed.into_iter().copied().collect()
    };
    let left = tables.len().saturating_sub(TABLES_MAX);
    let content = html! {
        p {
            "A sampled row of middling length, " (LINE) " bytes in a line; the server aligns values to 1, 2, 4 or 8 bytes."
        }
        (legend(&[
            ("r-header", "header"), ("r-bitmap", "NULL bitmap"), ("r-value", "value"), ("r-pointer", "pointer to TOAST"),
            ("r-padding", "padding"),
        ]))
        @for (index, table) in tables.iter().take(TABLES_MAX).enumerate() {
            details.layout open[index < OPEN] {
                summary { (object(&table.object)) " " span.quiet { (lengths(table)) } }
                div.pair {
                    (row("Now", &table.row_now))
                    @if is_changed(table) { (row("After", &table.row_after)) }
                }
            }
        }
        @if left > 0 { p.quiet { "… and " (left) " more: they are in the JSON report." } }
    };
    Some(Section { id: "rows", title: "Rows, byte by byte", content })
}

fn is_changed(table: &TableReport) -> bool {
    !table.row_after.is_empty() && table.row_after != table.row_now
}

fn lengths(table: &TableReport) -> String {
    let (now, after) = (end(&table.row_now), end(&table.row_after));
    match is_changed(table) {
        true => format!("{now} → {after} bytes"),
        false => shown::counted(u64::from(now), "byte", "bytes"),
    }
}

/// Bytes of a row.
fn end(parts: &[RowPart]) -> u32 {
    parts.iter().map(|part| part.offset.saturating_add(part.bytes)).max().unwrap_or(0)
}

/// A part of a line.
struct Piece {
    kind: &'static str,
    /// What is written in it, if there is room.
    label: String,
    hint: String,
    bytes: u32,
    /// Lines that are drawn as one.
    is_folded: bool,
    /// The line begins with it: the offset that is written before it.
    line: Option<u32>,
}

fn row(title: &str, parts: &[RowPart]) -> Markup {
    let bytes = end(parts);
    let (pieces, is_whole) = pieces(parts);
    let absent: Vec<String> = parts.iter().filter(|part| part.bytes == 0).map(absent).collect();
    html! {
        figure.bytes {
            figcaption { strong { (title) } " " (shown::counted(u64::from(bytes), "byte", "bytes")) }
            div.grid role="img" aria-label={ (title) ": " (description(parts)) } {
                @for piece in &pieces {
                    @if let Some(offset) = piece.line { span.offset { (offset) } }
                    span class={ "b " (piece.kind) @if piece.is_folded { " folded" } } style={ "--n:" (piece.bytes) }
                        title=(piece.hint) { (piece.label) }
                }
            }
            @if !is_whole { p.quiet { "… and more" } }
            @if !absent.is_empty() { p.quiet { "No bytes: " bdi { (absent.join(", ")) } } }
        }
    }
}

fn absent(part: &RowPart) -> String {
    let why = if part.kind == "dropped" { "dropped" } else { "NULL" };
    format!("{} ({why})", shown::name(&part.column))
}

fn description(parts: &[RowPart]) -> String {
    let words = parts.iter().filter(|part| part.bytes > 0).map(|part| {
        let what = if part.column.is_empty() { &part.kind } else { &part.column };
        format!("{} {}", shown::name(what), part.bytes)
    });
    words.collect::<Vec<_>>().join(", ")
}

/// A row cut into lines; whether that is all of it.
fn pieces(parts: &[RowPart]) -> (Vec<Piece>, bool) {
    let mut pieces = Vec::new();
    // Where the next piece is drawn: a report may have offsets that do not follow from each other.
    let mut at = 0u32;
    for part in parts.iter().filter(|part| part.bytes > 0) {
        let mut left = part.bytes;
        while left > 0 {
            if pieces.len() >= PIECES_MAX {
                return (pieces, false);
            }
            let in_line = at % LINE;
            let whole_lines = left / LINE;
            let is_folded = in_line == 0 && whole_lines >= LINES_OF_ONE;
            let covered = if is_folded { whole_lines * LINE } else { left.min(LINE - in_line) };
            let label = match (is_folded, left == part.bytes) {
                (true, _) => format!("{} · {whole_lines} lines", name(part)),
                // Said once.
                (false, true) => name(part),
                (false, false) => String::new(),
            };
            pieces.push(Piece {
                kind: kind(&part.kind),
                label,
                hint: hint(part),
                bytes: if is_folded { LINE } else { covered },
                is_folded,
                line: (in_line == 0).then_some(at),
            });
            at = at.saturating_add(covered);
            left -= covered;
        }
    }
    (pieces, true)
}

fn name(part: &RowPart) -> String {
    match part.kind.as_str() {
        "value" | "pointer" => shown::name(&part.column),
        "header" => "header".to_owned(),
        _ => String::new(),
    }
}

fn hint(part: &RowPart) -> String {
    let bytes = shown::counted(u64::from(part.bytes), "byte", "bytes");
    let what = match part.kind.as_str() {
        "value" | "pointer" => format!("{} {}", shown::name(&part.column), shown::name(&part.type_name)),
        "bitmap" => "NULL bitmap".to_owned(),
        other => shown::name(other),
    };
    format!("{what}: {bytes} at {}", part.offset)
}

/// Only classes that the style sheet has.
fn kind(kind: &str) -> &'static str {
    match kind {
        "header" => "r-header",
        "bitmap" => "r-bitmap",
        "padding" => "r-padding",
        "pointer" => "r-pointer",
        _ => "r-value",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: &str, offset: u32, bytes: u32) -> RowPart {
        RowPart { kind: kind.to_owned(), column: "c".to_owned(), type_name: String::new(), offset, bytes }
    }

    #[test]
    fn lines_are_full_and_long_values_are_folded() {
        let parts =
            [part("header", 0, 24), part("value", 24, 4), part("value", 28, 200), part("padding", 228, 4)];
        let (pieces, is_whole) = pieces(&parts);
        let drawn: Vec<_> = pieces.iter().map(|piece| (piece.bytes, piece.is_folded, piece.line)).collect();
        let expected = [
            (24, false, Some(0)),
            (4, false, None),
            (4, false, None),
            (32, true, Some(32)),
            (4, false, Some(224)),
            (4, false, None),
        ];
        assert!(is_whole);
        assert_eq!(drawn, expected);
    }

    #[test]
    fn a_row_without_end_is_cut() {
        let many: Vec<RowPart> = (0..5_000).map(|index| part("value", index, 1)).collect();
        assert_eq!(pieces(&many).0.len(), PIECES_MAX);
        let (pieces, is_whole) = pieces(&[part("value", u32::MAX, u32::MAX), part("value", 0, u32::MAX)]);
        assert!(pieces.len() <= PIECES_MAX && !is_whole);
    }
}
