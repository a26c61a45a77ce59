//! Tables in lines, and the sections that are nothing but tables.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{Charset, Page};
use crate::finding::{CodecFigure, DocumentFigure, RelationCodecs, Report};
use crate::report::shown;

/// Which columns are words, on the left, and may be broken; the rest are numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Columns {
    /// The first.
    Numbers,
    /// As many as this.
    Words(usize),
}

/// One line above, below the header and at the end.
const fn lines(character: char) -> TableStyle {
    let line = LineStyle::none().fill(character).junction(character);
    TableStyle::new().top_border(line).header_separator(line).bottom_border(line)
}

impl Page {
    pub(super) fn table(&mut self, heads: &[&str], rows: Vec<Vec<String>>, columns: Columns) {
        let style = match self.style.charset {
            Charset::Unicode => lines('─'),
            Charset::Ascii => lines('-'),
        };
        let words = if let Columns::Words(words) = columns { words } else { 1 };
        let mut table = Table::new();
        table.load_style(style).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(heads.to_vec());
        for row in self.fitted(heads, rows, words) {
            table.add_row(row);
        }
        let last = heads.len().saturating_sub(1);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((u16::from(index > 0), u16::from(index < last)));
            if index >= words {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for (index, line) in table.to_string().lines().enumerate() {
            let mark = if index == 1 { "2" } else { "" };
            let line = self.paint(mark, line.trim_end());
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }

    /// The same rows, with words broken so that numbers need not be.
    fn fitted(&self, heads: &[&str], mut rows: Vec<Vec<String>>, words: usize) -> Vec<Vec<String>> {
        let widest = |rows: &[Vec<String>], column: usize| -> usize {
            let cells = rows.iter().filter_map(|row| row.get(column).map(String::as_str));
            let lines = cells.chain(heads.get(column).copied()).flat_map(str::lines);
            lines.map(UnicodeWidthStr::width).max().unwrap_or(0)
        };
        // A blank on each side, and one for the line that is not drawn.
        let between = 3 * heads.len().saturating_sub(1);
        // The first two are folded; a third column of words is as short as a number.
        let fixed: usize = (words.min(2)..heads.len()).map(|column| widest(&rows, column)).sum();
        let room = self.width.saturating_sub(between + fixed).max(WORDS_MIN);
        let first = if words > 1 { widest(&rows, 0).min(room * 2 / 5) } else { room };
        let widths = [first, room.saturating_sub(first)];
        for row in &mut rows {
            for (cell, width) in row.iter_mut().zip(widths).take(words) {
                *cell = folded_cell(cell, width);
            }
        }
        rows
    }

    /// Pages and COPY text of each table and index.
    pub(super) fn codecs(&mut self, report: &Report) {
        let measured: Vec<&RelationCodecs> = report
            .codecs
            .iter()
            .filter(|codecs| !codecs.pages.is_empty() || !codecs.wire.is_empty())
            .collect();
        if measured.is_empty() {
            return;
        }
        self.heading("Codecs: compressed sizes of tables and indexes as they are");
        let rows = measured.iter().take(self.rows_max()).map(|codecs| {
            let estimate = if codecs.is_estimate { "\n  pages estimated from rows" } else { "" };
            let usual = codecs.pages.iter().find(|figure| figure.codec == USUAL);
            vec![
                format!("{}{estimate}", shown::object(&codecs.object)),
                shown::size(codecs.bytes),
                usual.map_or_else(String::new, |figure| self.with_ratio(codecs.bytes, figure.bytes)),
                self.best(codecs.bytes, &codecs.pages),
                self.best(codecs.wire_bytes, &codecs.wire),
            ]
        });
        let rows = rows.collect();
        self.table(
            &["what", "bytes", USUAL_HEAD, "smallest\npages", "smallest\nCOPY"],
            rows,
            Columns::Numbers,
        );
        self.more(measured.len());
    }

    /// Columns of documents as zson.
    pub(super) fn documents(&mut self, report: &Report) {
        let documents: Vec<(&RelationCodecs, &DocumentFigure)> = report
            .codecs
            .iter()
            .flat_map(|codecs| codecs.documents.iter().map(move |figure| (codecs, figure)))
            .collect();
        if documents.is_empty() {
            return;
        }
        self.heading(
            "Documents: values with zson, dictionaries trained on one part and measured on the rest",
        );
        let rows = documents.iter().take(self.rows_max()).map(|(codecs, figure)| {
            let tested = shown::counted(figure.documents as u64, "document", "documents");
            vec![
                format!("{}.{}\n  {tested}", shown::object(&codecs.object), shown::name(&figure.column)),
                shown::size(figure.bytes),
                self.best(figure.bytes, &figure.codecs),
                figure.table.map_or_else(String::new, |table| self.change_cell(table)),
            ]
        });
        let rows = rows.collect();
        self.table(&["what", "bytes", "smallest", "table now, after"], rows, Columns::Numbers);
        self.more(documents.len());
    }

    /// The smallest of several, with its name below.
    fn best(&self, bytes: u64, figures: &[CodecFigure]) -> String {
        let smallest = figures.iter().min_by_key(|figure| figure.bytes);
        smallest.map_or_else(String::new, |figure| {
            let codec = shown::name(&figure.codec).replace(", ", ",\n");
            format!("{}\n{codec}", self.with_ratio(bytes, figure.bytes))
        })
    }

    fn with_ratio(&self, before: u64, after: u64) -> String {
        let between = if self.is_narrow() { '\n' } else { ' ' };
        format!("{}{between}{}", shown::size(after), shown::ratio(before, after)).trim_end().to_owned()
    }

    /// What is one line each: backup and egress.
    pub(super) fn others(&mut self, report: &Report) {
        if report.backup.is_none() && report.egress.is_none() {
            return;
        }
        self.heading("Backup and network");
        if let Some(backup) = &report.backup {
            let words = format!(
                "A backup of the cluster reads {}; as a tar with zstd:3 {}; as an archive of pgshrink backup {}.",
                shown::size(backup.bytes),
                shown::size(backup.tar_bytes),
                shown::size(backup.archive_bytes)
            );
            self.wrapped(&words, "- ");
        }
        if let Some(egress) = &report.egress {
            let words = format!(
                "The gateway saw {} go to clients in {}; compressed they would have been {}, using {:.1} s of CPU time.",
                shown::size(egress.bytes),
                shown::counted(u64::from(egress.days), "day", "days"),
                shown::size(egress.compressed_bytes),
                egress.cpu_s
            );
            self.wrapped(&words, "- ");
            let lines: Vec<String> = egress
                .lines
                .iter()
                .take(self.rows_max())
                .map(|line| {
                    let (client, database) = (shown::name(&line.client), shown::name(&line.database));
                    let day = shown::name(&line.day);
                    let bytes = shown::size(line.compressed_bytes);
                    format!("{day}, {client}, {database}: {} as {bytes}", shown::size(line.bytes))
                })
                .collect();
            lines.iter().for_each(|line| self.wrapped(line, "  - "));
            self.more(egress.lines.len());
        }
    }
}

/// Each line of a cell folded, what follows of it further to the right.
fn folded_cell(cell: &str, width: usize) -> String {
    let lines = cell.lines().flat_map(|line| {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        let mut parts = folded(words, width.saturating_sub(indent).max(1), "");
        let mut deeper = Vec::new();
        if parts.len() > 1 && width > indent + 12 {
            // Once more, with room for two blanks on all lines but the first.
            let head = parts.swap_remove(0);
            let rest = words.get(head.len()..).unwrap_or_default().trim_start().to_owned();
            deeper =
                folded(&rest, width - indent - 2, "").into_iter().map(|part| format!("  {part}")).collect();
            parts = vec![head];
        }
        parts.into_iter().chain(deeper).map(move |part| format!("{}{part}", " ".repeat(indent)))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Columns that words have at least.
const WORDS_MIN: usize = 12;

/// What a compressed tablespace has by default.
const USUAL: &str = "zstd:1";
const USUAL_HEAD: &str = "pages,\nzstd:1";

/// Lines of at most `width` characters, broken at blanks; the first begins with `bullet`, others with as many blanks. A word
/// that is longer than a line is broken anywhere.
pub(super) fn folded(text: &str, width: usize, bullet: &str) -> Vec<String> {
    let indent = bullet.chars().count();
    let mut lines = vec![bullet.to_owned()];
    let mut used = indent;
    for word in text.split(' ') {
        let length = word.width();
        let is_first = used == indent;
        if !is_first && used + 1 + length > width {
            lines.push(" ".repeat(indent));
            used = indent;
        } else if !is_first {
            push(&mut lines, ' ');
            used += 1;
        }
        for character in word.chars() {
            let wide = character.width().unwrap_or(0);
            if used + wide > width {
                lines.push(" ".repeat(indent));
                used = indent;
            }
            push(&mut lines, character);
            used += wide;
        }
    }
    lines
}

fn push(lines: &mut [String], character: char) {
    if let Some(line) = lines.last_mut() {
        line.push(character);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_folded_at_blanks_and_long_ones_anywhere() {
        assert_eq!(folded("aa bb cc", 5, ""), ["aa bb", "cc"]);
        assert_eq!(folded("aaaaaaaa b", 5, "- "), ["- aaa", "  aaa", "  aa", "  b"]);
        assert_eq!(folded("表表表", 5, ""), ["表表", "表"]);
        assert_eq!(folded("", 5, ""), [""]);
    }
}
