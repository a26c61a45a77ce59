//! What every codec makes of each relation.

use maud::{Markup, html};

use super::bytes::{amount, change};
use super::{Section, more, object, scrolling};
use crate::finding::{CodecFigure, RelationCodecs, Report};
use crate::report::shown;

/// Relations in a table.
const RELATIONS_MAX: usize = 40;

/// A line of a table with a column for each codec.
struct Line<'a> {
    name: Markup,
    bytes: u64,
    figures: &'a [CodecFigure],
    /// What stands at the end, if the table has such a column.
    last: Option<Markup>,
}

pub(super) fn pages(report: &Report) -> Option<Section> {
    let with = |relation: &&RelationCodecs| !relation.pages.is_empty();
    let lines: Vec<Line> = report.codecs.iter().filter(with).map(|relation| Line {
        name: html! { (object(&relation.object)) @if relation.is_estimate { span.quiet.block { "estimated from rows" } } },
        bytes: relation.bytes,
        figures: &relation.pages,
        last: None,
    }).collect();
    let content = matrix("Compressed pages, by table and algorithm", &lines, None)?;
    Some(Section { id: "pages", title: "Compressed pages", content })
}

pub(super) fn wire(report: &Report) -> Option<Section> {
    let with = |relation: &&RelationCodecs| !relation.wire.is_empty();
    let lines: Vec<Line> = report
        .codecs
        .iter()
        .filter(with)
        .map(|relation| Line {
            name: object(&relation.object),
            bytes: relation.wire_bytes,
            figures: &relation.wire,
            last: None,
        })
        .collect();
    let content = matrix("COPY text of all rows on the wire, by table and algorithm", &lines, None)?;
    Some(Section { id: "wire", title: "On the wire", content })
}

pub(super) fn documents(report: &Report) -> Option<Section> {
    let lines: Vec<Line> = report
        .codecs
        .iter()
        .flat_map(|relation| {
            relation.documents.iter().map(|figure| Line {
                name: html! {
                    (object(&relation.object)) "." bdi { (shown::name(&figure.column)) }
                    span.quiet.block {
                        "measured on " (shown::counted(figure.documents as u64, "document", "documents"))
                    }
                },
                bytes: figure.bytes,
                figures: &figure.codecs,
                last: Some(figure.table.map_or_else(|| html! { "–" }, change)),
            })
        })
        .collect();
    let content = html! {
        p {
            "Values of json and jsonb as zson: "
            "dictionaries are trained on one part of the documents and measured on the rest."
        }
        (matrix("Documents, by column and codec", &lines, Some("Table now, after"))?)
    };
    Some(Section { id: "documents", title: "Documents", content })
}

/// None without lines. The smallest of a line is marked.
fn matrix(caption: &str, lines: &[Line], last: Option<&str>) -> Option<Markup> {
    let mut codecs: Vec<&str> = Vec::new();
    for figure in lines.iter().flat_map(|line| line.figures) {
        if !codecs.contains(&figure.codec.as_str()) {
            codecs.push(&figure.codec);
        }
    }
    if codecs.is_empty() {
        return None;
    }
    let table = html! {
        table.matrix {
            caption { (caption) }
            thead {
                tr {
                    th scope="col" { "What" }
                    th.number scope="col" { "Now" }
                    @for codec in &codecs { th.number scope="col" { bdi { (shown::name(codec)) } } }
                    @if let Some(last) = last { th.number scope="col" { (last) } }
                }
            }
            tbody {
                @for line in lines.iter().take(RELATIONS_MAX) {
                    tr {
                        th scope="row" { (line.name) }
                        td.number { (amount(line.bytes)) }
                        @for codec in &codecs { (cell(line, codec)) }
                        @if let Some(last) = &line.last { td.number { (last) } }
                    }
                }
            }
        }
    };
    Some(
        html! { (scrolling(caption, &table)) (more(lines.len(), RELATIONS_MAX, "they are in the JSON report.")) },
    )
}

fn cell(line: &Line, codec: &str) -> Markup {
    let smallest = line.figures.iter().map(|figure| figure.bytes).min();
    let figure = line.figures.iter().find(|figure| figure.codec == codec);
    html! {
        @if let Some(figure) = figure {
            td.number.best[Some(figure.bytes) == smallest] {
                (amount(figure.bytes)) span.quiet.block { (shown::ratio(line.bytes, figure.bytes)) }
            }
        } @else { td.number { "–" } }
    }
}
