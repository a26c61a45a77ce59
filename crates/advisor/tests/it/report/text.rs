//! The table for terminals.

use pgshrink_advisor::finding::Report;
use pgshrink_advisor::report::{Charset, Colour, Extent, Style, html, text};
use unicode_width::UnicodeWidthStr;

use super::example::{self, ODD};

const ALL: Style = Style { colour: Colour::Plain, charset: Charset::Unicode, extent: Extent::All };

/// Where each of these begins, which is there exactly once behind the one before.
fn assert_in_order(shown: &str, words: &[&str]) {
    let mut from = 0;
    for word in words {
        let at =
            shown[from..].find(word).unwrap_or_else(|| panic!("no {word} after byte {from} of:\n{shown}"));
        from += at + word.len();
    }
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for report in [example::empty(), example::small(), example::everything(), example::odd(60)] {
        for width in [60, 61, 72, 80, 100, 119, 120, 160, 250] {
            for extent in [Extent::Largest, Extent::All] {
                let shown = text(&report, width, Style { extent, ..ALL });
                for line in shown.lines() {
                    assert!(line.width() <= width, "{width}: {line}\n{shown}");
                }
            }
        }
    }
}

#[test]
fn the_largest_saving_comes_first_and_what_has_no_bytes_last() {
    let mut report = example::everything();
    report.findings.reverse();
    for width in [80, 140] {
        assert_in_order(
            &text(&report, width, ALL),
            &[
                "public.events.document",
                "953.7 MB",
                "public.orders.external_id",
                "677.1 MB",
                "553.1 MB",
                "515.0 MB",
                "371.9 MB",
                "orders_customer_idx of",
                "297.5 MB",
                "public.sessions",
                "-12.4 MB",
                "wal_compression",
                "Proposals",
                "1.3 GB",
                "of that, bloat: 114.4 MB",
                "Codecs",
                "zstd:9",
                "Documents",
                "12,400 documents",
                "Backup and network",
                "in 2 days",
                "What could not be seen",
                "GRANT SELECT ON",
                "Notes",
                "14 tables below",
            ],
        );
    }
}

#[test]
fn what_the_totals_leave_out_is_said_where_there_is_any() {
    let mut report = example::everything();
    let said = |report: &Report| {
        let shown = text(report, 250, ALL);
        shown.contains("Totals include only the proposals")
            && html(report).contains("Totals include only the proposals")
    };
    assert!(said(&report));
    report.findings.iter_mut().for_each(|finding| finding.in_proposal = true);
    assert!(!said(&report));
}

#[test]
fn twenty_are_shown_unless_all_are_asked_for() {
    let report = example::odd(60);
    let (all, largest) = (text(&report, 100, ALL), text(&report, 100, Style::default()));
    // 68 findings, 32 proposals, 63 relations.
    for more in ["… and 48 more (--all)", "… and 12 more (--all)", "… and 43 more (--all)"] {
        assert!(largest.contains(more), "{more}:\n{largest}");
    }
    assert!(!all.contains("--all") && all.lines().count() > 2 * largest.lines().count());
    let one_too_many = example::odd(13);
    assert_eq!(one_too_many.findings.len(), 21);
    assert!(text(&one_too_many, 100, Style::default()).contains("… and 1 more (--all)"));
    assert!(!text(&example::odd(12), 100, Style::default()).contains("more (--all)"));
}

#[test]
fn no_name_moves_the_cursor_or_turns_a_line() {
    let mut report = example::odd(ODD.len() * 2);
    report.database = ODD[6].to_owned();
    let shown = text(&report, 100, ALL);
    let bad =
        shown.chars().find(|c| (c.is_control() && *c != '\n') || "\u{202e}\u{2028}\u{200d}".contains(*c));
    assert_eq!(bad, None, "{shown}");
    assert!(shown.contains("esc\\u{1b}[31mred\\u{7}") && shown.contains("line\\nbreak\\r--"));
}

#[test]
fn colours_change_nothing_but_escape_sequences() {
    let report = example::everything();
    let plain = text(&report, 80, ALL);
    let coloured = text(&report, 80, Style { colour: Colour::Ansi, ..ALL });
    assert!(!plain.contains('\u{1b}') && coloured.contains("\u{1b}[1m"));
    let mut stripped = String::new();
    for (index, part) in coloured.split("\u{1b}[").enumerate() {
        stripped.push_str(if index == 0 { part } else { part.split_once('m').unwrap().1 });
    }
    assert_eq!(stripped, plain);
    for line in coloured.lines() {
        assert_eq!(line.matches("\u{1b}[").count() % 2, 0, "{line:?} leaves a colour on");
    }
}

#[test]
fn ascii_alone_is_used_where_nothing_else_is_shown() {
    let shown = text(&example::everything(), 80, Style { charset: Charset::Ascii, ..Style::default() });
    assert!(shown.is_ascii(), "{shown}");
    assert!(shown.contains("4.4 GB -> 3.7 GB"), "{shown}");
}

#[test]
fn an_empty_database_has_no_empty_tables() {
    let shown = text(&example::empty(), 80, ALL);
    assert!(
        shown.contains("Nothing was found") && !shown.contains("Proposals") && !shown.contains("Codecs"),
        "{shown}"
    );
    assert!(text(&example::small(), 80, ALL).contains("1 finding, each by itself"));
}
