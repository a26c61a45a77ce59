//! The table and the words at the end.

use std::io::Write;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use crate::step::{Report, Row};
use crate::terminal::Charset;

/// What to type next.
const ADVICE: &str = "\
On your own server and client:
  pgshrink gateway --listen 0.0.0.0:6432 --server host=127.0.0.1
  pgshrink run -- psql \"host=SERVER port=6432 compression=zstd:1\"
Documents, after make install-zson, in your own database:
  CREATE EXTENSION zson;  SELECT * FROM zson_estimate('TABLE', 'COLUMN');
A backup of your own server, proved by starting it:
  pgshrink backup \"host=SERVER user=replicator\" --to /backups
  pgshrink verify latest --from /backups --boot
What your own database would save, read-only:
  pgshrink advise \"host=SERVER dbname=DATABASE\" --html report.html
What compressed tables would save, read-only, beside your own server:
  pgshrink cfs estimate DATA_DIRECTORY
and, after make install-cfs and shared_preload_libraries = 'cfs':
  CREATE EXTENSION cfs;  SELECT cfs_compress_relation('TABLE');
  SELECT * FROM cfs_progress;";

/// One line above, below the header and at the end.
const UNICODE: TableStyle = lines('─');
const ASCII: TableStyle = lines('-');

/// Prints the table, the notes and the summary to `out`.
pub(crate) fn print(
    out: &mut impl Write,
    report: &Report,
    width: u16,
    charset: Charset,
) -> std::io::Result<()> {
    for (heading, rows, heads) in [
        (&report.heading, &report.rows, &WIRE),
        (&report.documents_heading, &report.documents, &DOCUMENTS),
        (&report.tablespaces_heading, &report.tablespaces, &TABLESPACES),
        (&report.live_heading, &report.live, &CHANGED),
        (&report.backup_heading, &report.backup, &BACKUP),
        (&report.advice_heading, &report.advice, &CHANGED),
        (&report.pages_heading, &report.pages, &PAGES),
    ] {
        if !rows.is_empty() {
            writeln!(out, "{}", folded(heading, width))?;
            for line in table(rows, heads, width, charset).lines() {
                writeln!(out, "{}", line.trim_end())?;
            }
        }
    }
    for note in &report.notes {
        writeln!(out, "{}", folded(note, width))?;
    }
    if let Some(summary) = summary(report) {
        writeln!(out, "\n{}\n{ADVICE}", folded(&summary, width))?;
    }
    Ok(())
}

/// What the columns of a table are called, and which there are.
struct Heads {
    plain: &'static str,
    shrunk: &'static str,
    /// Of the two ways, for their times.
    ways: [&'static str; 2],
    /// Whether the product has processes of its own.
    cpu: bool,
    /// Whether rows are timed.
    timed: bool,
    /// Whether the rows are of one kind.
    total: bool,
    /// Of the seconds, after the point.
    digits: usize,
}

const WIRE: Heads = Heads {
    plain: "bytes\nplain",
    shrunk: "bytes on\nthe wire",
    ways: ["plain", "zstd"],
    cpu: true,
    timed: true,
    total: true,
    digits: 1,
};
const DOCUMENTS: Heads = Heads {
    plain: "bytes\njsonb",
    shrunk: "bytes\nzson",
    ways: ["jsonb", "zson"],
    cpu: false,
    timed: true,
    total: false,
    digits: 2,
};
const TABLESPACES: Heads = Heads {
    plain: "bytes\nplain",
    shrunk: "bytes\ncompressed",
    ways: ["plain", "zstd"],
    cpu: false,
    timed: true,
    total: false,
    digits: 2,
};
const CHANGED: Heads = Heads {
    plain: "bytes\nbefore",
    shrunk: "bytes\nafter",
    ways: ["", ""],
    cpu: false,
    timed: false,
    total: false,
    digits: 0,
};
const BACKUP: Heads = Heads {
    plain: "bytes",
    shrunk: "bytes of\nthe backup",
    ways: ["tar", "backup"],
    cpu: false,
    timed: true,
    total: false,
    digits: 1,
};
const PAGES: Heads = Heads {
    plain: "bytes\nplain",
    shrunk: "bytes\npacked",
    ways: ["", ""],
    cpu: false,
    timed: false,
    total: true,
    digits: 0,
};

/// True when every row's two sides hold the same.
pub(crate) fn all_same(rows: &[Row]) -> bool {
    rows.iter().all(|row| row.same)
}

const fn lines(character: char) -> TableStyle {
    let line = LineStyle::none().fill(character).junction(character);
    TableStyle::new().top_border(line).header_separator(line).bottom_border(line)
}

fn table(rows: &[Row], heads: &Heads, width: u16, charset: Charset) -> Table {
    let (style, arrow, cut) = match charset {
        Charset::Unicode => (UNICODE, "→", "…"),
        Charset::Ascii => (ASCII, "->", "~"),
    };
    let mut table = Table::new();
    table.load_style(style).set_truncation_indicator(cut);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    let [plain, shrunk] = heads.ways;
    let seconds = format!("seconds\n{plain} {arrow} {shrunk}");
    let names = ["", heads.plain, heads.shrunk, "ratio", "CPU s", &seconds, "same\ndata"];
    table.set_header(heads.shown(names.map(str::to_owned)));
    for row in rows {
        table.add_row(heads.shown(cells(row, heads.digits, arrow)));
    }
    if heads.total && rows.len() > 1 {
        let mut sum = cells(&total(rows), heads.digits, arrow);
        // Runs of different kinds in one sum say nothing about speed.
        sum[SECONDS] = String::new();
        table.add_row(heads.shown(sum));
    }
    let last = table.column_count() - 1;
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((u16::from(index > 0), u16::from(index > 0 && index < last)));
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

impl Heads {
    /// The cells of the columns there are.
    fn shown(&self, cells: [String; 7]) -> Vec<String> {
        let is_shown = |index| (self.cpu || index != CPU) && (self.timed || index != SECONDS);
        let shown = cells.into_iter().enumerate().filter(|(index, _)| is_shown(*index));
        shown.map(|(_, cell)| cell).collect()
    }
}

/// Places among the cells.
const CPU: usize = 4;
const SECONDS: usize = 5;

fn cells(row: &Row, digits: usize, arrow: &str) -> [String; 7] {
    let (plain, shrunk) = (row.plain_wall.as_secs_f64(), row.shrunk_wall.as_secs_f64());
    let timed = plain > 0.0 || shrunk > 0.0;
    [
        row.what.clone(),
        size(row.plain_size),
        size(row.shrunk_size),
        format!("{:.2}x", ratio(row)),
        format!("{:.2}", row.cpu_seconds),
        if timed { format!("{plain:.digits$} {arrow} {shrunk:.digits$}") } else { String::new() },
        if row.same { "yes" } else { "NO" }.to_owned(),
    ]
}

fn total(rows: &[Row]) -> Row {
    Row {
        what: "all".to_owned(),
        plain_size: rows.iter().map(|row| row.plain_size).sum(),
        shrunk_size: rows.iter().map(|row| row.shrunk_size).sum(),
        cpu_seconds: rows.iter().map(|row| row.cpu_seconds).sum(),
        plain_wall: rows.iter().map(|row| row.plain_wall).sum(),
        shrunk_wall: rows.iter().map(|row| row.shrunk_wall).sum(),
        same: all_same(rows),
    }
}

fn summary(report: &Report) -> Option<String> {
    if report.rows.is_empty() {
        return None;
    }
    let all = total(&report.rows);
    let saved = all.plain_size.saturating_sub(all.shrunk_size);
    let share = 100.0 * saved as f64 / (all.plain_size as f64).max(1.0);
    let same = report.all_rows().all(|row| row.same);
    let data = if same { "both sides hold the same data" } else { "but NOT everything is as it was sent" };
    let documents = report.documents.first().map_or_else(String::new, |table| {
        format!(" {} of documents take {} as zson.", size(table.plain_size), size(table.shrunk_size))
    });
    let backup = report.backup.first().map_or_else(String::new, |files| {
        format!(" A backup of {} takes {}.", size(files.plain_size), size(files.shrunk_size))
    });
    let files = total(&report.pages);
    let pages = match report.pages.is_empty() {
        true => String::new(),
        false => format!(" {} of files take {} packed.", size(files.plain_size), size(files.shrunk_size)),
    };
    Some(format!(
        "Of {} only {} went over the wire ({share:.0} % saved), for {:.1} s of CPU; {data}.{documents}{backup}{pages}",
        size(all.plain_size),
        size(all.shrunk_size),
        all.cpu_seconds,
    ))
}

fn ratio(row: &Row) -> f64 {
    row.plain_size as f64 / (row.shrunk_size as f64).max(1.0)
}

/// Three digits or so, 1 kB being 1024 bytes.
pub(crate) fn size(bytes: u64) -> String {
    const MB: u64 = 1 << 20;
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..MB => format!("{:.0} kB", bytes as f64 / 1024.0),
        MB..10_737_418_240 => format!("{:.1} MB", bytes as f64 / MB as f64),
        _ => format!("{:.1} GB", bytes as f64 / (MB << 10) as f64),
    }
}

/// Breaks a line at spaces.
fn folded(text: &str, width: u16) -> String {
    let width = usize::from(width);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(what: &str, same: bool) -> Row {
        Row {
            what: what.to_owned(),
            plain_size: 123_456_789,
            shrunk_size: 23_456_789,
            cpu_seconds: 12.345,
            plain_wall: Duration::from_millis(12_340),
            shrunk_wall: Duration::from_millis(15_670),
            same,
        }
    }

    fn printed(rows: Vec<Row>, width: u16, charset: Charset) -> String {
        let note = "words ".repeat(40).trim_end().to_owned();
        let report = Report { heading: "heading ".repeat(20), rows, notes: vec![note], ..Report::default() };
        let mut out = Vec::new();
        print(&mut out, &report, width, charset).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn everything_fits_80_columns_without_folding_a_row() {
        for charset in [Charset::Unicode, Charset::Ascii] {
            let text = printed(vec![row("replica catching up", true), row("b", true)], 80, charset);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(80), "{widest:?}\n{text}");
            let of_row = text.lines().find(|line| line.contains("replica catching up")).unwrap();
            let words: Vec<&str> = of_row.split_whitespace().collect();
            assert_eq!(words[3..7], ["117.7", "MB", "22.4", "MB"]);
            assert_eq!((words[7], words.last()), ("5.26x", Some(&"yes")));
        }
    }

    #[test]
    fn without_unicode_every_character_is_ascii_even_when_cut() {
        assert!(printed(vec![row("a", true); 3], 100, Charset::Ascii).is_ascii());
        assert!(printed(vec![row("replica catching up", true)], 20, Charset::Ascii).is_ascii());
        assert!(!printed(vec![row("a", true)], 100, Charset::Unicode).is_ascii());
    }

    #[test]
    fn the_sum_and_the_summary_tell_what_was_saved_and_whether_all_is_the_same() {
        let text = printed(vec![row("a", true), row("b", true)], 120, Charset::Ascii);
        assert!(
            text.contains("Of 235.5 MB only 44.7 MB went over the wire (81 % saved), for 24.7 s"),
            "{text}"
        );
        assert!(text.contains("both sides hold the same data"));
        let text = printed(vec![row("a", true), row("b", false)], 120, Charset::Ascii);
        assert!(text.contains("NOT"), "{text}");
        assert_eq!(text.lines().filter(|line| line.trim_end().ends_with(" NO")).count(), 2, "b and the sum");
    }

    #[test]
    fn documents_have_a_table_of_their_own_without_sum_and_processor_time() {
        let mut table = row("table", true);
        (table.plain_wall, table.shrunk_wall) = Default::default();
        let report = Report {
            documents_heading: "documents".to_owned(),
            documents: vec![table, row("->> scan", true)],
            ..Report::default()
        };
        let mut out = Vec::new();
        print(&mut out, &report, 80, Charset::Ascii).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("documents\n") && text.contains("jsonb -> zson"), "{text}");
        assert!(!text.contains("CPU") && !text.contains("all"), "{text}");
        let words = |what: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with(what)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(words("table"), ["table", "117.7", "MB", "22.4", "MB", "5.26x", "yes"]);
        assert_eq!(words("->> scan").last().unwrap(), "yes");
    }

    #[test]
    fn a_backup_has_a_table_and_a_sentence_of_the_summary() {
        let backup = vec![row("the data directory", true), row("pg_basebackup, tar zstd:3", true)];
        let report = Report { rows: vec![row("a", true)], backup, ..Report::default() };
        let mut out = Vec::new();
        print(&mut out, &report, 80, Charset::Ascii).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line = text.lines().find(|line| line.starts_with("pg_basebackup")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[3..], ["117.7", "MB", "22.4", "MB", "5.26x", "12.3", "->", "15.7", "yes"]);
        assert!(text.contains("tar -> backup"), "{text}");
        assert!(text.replace('\n', " ").contains("A backup of 117.7 MB takes 22.4 MB."), "{text}");
    }

    #[test]
    fn a_report_of_nothing_has_no_table_and_no_praise() {
        assert_eq!(printed(vec![], 400, Charset::Unicode).lines().count(), 1);
    }

    #[test]
    fn sizes_are_in_the_units_of_pg_size_pretty() {
        let shown = [0, 10_239, 10_240, 1_023_000, 1 << 20, 12_345_678_901].map(size);
        assert_eq!(shown, ["0 B", "10239 B", "10 kB", "999 kB", "1.0 MB", "11.5 GB"]);
    }
}
