//! How amounts and names are written, in every form of the report.

use crate::finding::{Change, Confidence, Object, Report, Rule};
pub use pgshrink_codec::counted;
pub use pgshrink_codec::grouped as number_text;
pub use pgshrink_codec::size;
use pgshrink_egress::calendar;

/// What is saved: `12.3 MB`; what it costs more: `-12.3 MB`; nothing: `0 B`.
pub fn saved(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", size(bytes.unsigned_abs()))
}

/// What the totals leave out; none where every finding is in a proposal.
pub fn totals(report: &Report) -> Option<&'static str> {
    const WORDS: &str = "Totals include only the proposals, which change nothing that queries notice. \
        --accept adds other findings.";
    report.findings.iter().any(|finding| !finding.in_proposal).then_some(WORDS)
}

/// How much smaller, in percent of now: `26 %`, `-3 %` where it grows, `< 1 % more` where it hardly does. Empty without a base.
pub fn share(change: Change) -> String {
    if change.now == 0 {
        return String::new();
    }
    let share = 100.0 * change.saved() as f64 / change.now as f64;
    // Neither "-0 %", nor "100 %" while something is left.
    let rounded = share.round();
    if rounded == 0.0 && change.saved() != 0 {
        return if share > 0.0 { "< 1 %".to_owned() } else { "< 1 % more".to_owned() };
    }
    if rounded == 100.0 && change.after > 0 {
        return "> 99 %".to_owned();
    }
    format!("{:.0} %", rounded + 0.0)
}

/// Before over after: `5.6x`. Empty if either is nothing.
pub fn ratio(before: u64, after: u64) -> String {
    if before == 0 || after == 0 {
        return String::new();
    }
    format!("{:.2}x", before as f64 / after as f64)
}

/// A name, or other words of a database, in one line that does nothing to a terminal, a comment or the direction of what follows.
///
/// Control characters, line separators and marks that change the direction of text become `\n`, `\u{202e}`. A backslash stays.
///
/// ```
/// # use pgshrink_advisor::report::shown::name;
/// assert_eq!(name("a\nb\u{1b}[31m\u{202e}é"), "a\\nb\\u{1b}[31m\\u{202e}é");
/// ```
pub fn name(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            other if is_unsafe(other) => shown.push_str(&format!("\\u{{{:x}}}", u32::from(other))),
            other => shown.push(other),
        }
    }
    shown
}

/// Text of several lines: as [`name`], but lines stay lines.
pub fn lines(text: &str) -> String {
    let unix = text.replace("\r\n", "\n");
    unix.split('\n').map(|line| name(&line.replace('\t', "    "))).collect::<Vec<_>>().join("\n")
}

/// `public.orders`, `public.orders.status`, `orders_pkey of public.orders`, `TOAST of public.orders`, `wal_compression`.
pub fn object(object: &Object) -> String {
    let whole = if object.schema.is_empty() {
        name(&object.name)
    } else {
        format!("{}.{}", name(&object.schema), name(&object.name))
    };
    match &object.part {
        Some(part) if object.kind == "index" => format!("{} of {whole}", name(part)),
        Some(part) => format!("{whole}.{}", name(part)),
        None if object.kind == "toast" => format!("TOAST of {whole}"),
        None => whole,
    }
}

/// A rule in words.
pub fn rule(rule: Rule) -> &'static str {
    match rule {
        Rule::ColumnOrder => "order of columns",
        Rule::DroppedColumns => "dropped columns",
        Rule::ColumnType => "smaller type",
        Rule::ConstantColumn => "constant column",
        Rule::IndexKeys => "keys of an index",
        Rule::DuplicateIndex => "duplicate index",
        Rule::UnusedIndex => "unused index",
        Rule::Toast => "large values",
        Rule::RowPacking => "packed rows",
        Rule::DocumentKeys => "keys of documents",
        Rule::Fillfactor => "fillfactor",
        Rule::Bloat => "bloat",
        Rule::IndexBloat => "index bloat",
        Rule::Cfs => "compressed pages",
        Rule::Zson => "compressed documents",
        Rule::CatalogBloat => "catalog bloat",
        Rule::AutovacuumLag => "autovacuum",
        Rule::Setting => "setting",
    }
}

/// How much is known, in a word.
pub fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Exact => "exact",
        Confidence::Measured => "measured",
        Confidence::Estimated => "estimated",
    }
}

/// A server's version: `15.18`, `9.6.24`.
pub fn version(number: u32) -> String {
    if number >= 100_000 {
        format!("{}.{}", number / 10_000, number % 10_000)
    } else {
        format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
    }
}

/// Seconds since 1970 as a date: `2026-11-27 10:20 UTC`.
pub fn time(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = calendar::civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

/// Money: two digits after the point, more where that would be nothing.
pub fn money(amount: f64) -> String {
    if !amount.is_finite() {
        return "unknown".to_owned();
    }
    if amount != 0.0 && amount.abs() < 0.01 {
        return format!("{amount:.4}");
    }
    // Not "-0.00".
    format!("{:.2}", amount + 0.0)
}

/// Controls, separators of lines, and marks that reorder what stands beside them.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_have_a_sign() {
        assert_eq!([1_536, -1_536, 0, i64::MIN].map(saved), ["1.5 kB", "-1.5 kB", "0 B", "-8192.0 PB"]);
    }

    #[test]
    fn shares_say_nothing_that_is_not_so() {
        let shares = [(100, 74), (100, 103), (1000, 999), (1000, 1001), (1000, 1), (10, 0), (0, 5), (7, 7)];
        let expected = ["26 %", "-3 %", "< 1 %", "< 1 % more", "> 99 %", "100 %", "", "0 %"];
        assert_eq!(shares.map(|(now, after)| share(Change { now, after })), expected);
    }

    #[test]
    fn names_lose_what_moves_a_cursor_or_turns_a_line_around() {
        assert_eq!(
            name("a\\b\r\n\u{9b}31m\u{2028}\u{200f}\u{7f}"),
            "a\\b\\r\\n\\u{9b}31m\\u{2028}\\u{200f}\\u{7f}"
        );
        assert_eq!(name("Ünï 表 😀 \"q\" <b>"), "Ünï 表 😀 \"q\" <b>");
        assert_eq!(lines("a\r\n\tb\rc"), "a\n    b\\rc");
    }

    #[test]
    fn the_toast_table_of_a_table_is_not_named_as_the_table_is() {
        let of = |kind: &str| Object {
            kind: kind.to_owned(),
            schema: "public".to_owned(),
            name: "t".to_owned(),
            part: None,
        };
        assert_eq!(["table", "toast"].map(|kind| object(&of(kind))), ["public.t", "TOAST of public.t"]);
    }

    #[test]
    fn times_are_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01 00:00 UTC");
        assert_eq!(time(951_782_400 + 3_661), "2000-02-29 01:01 UTC");
        assert_eq!(time(1_795_737_600), "2026-11-27 00:00 UTC");
        assert_eq!(time(-1), "1969-12-31 23:59 UTC");
    }

    #[test]
    fn numbers_are_grouped_and_agree_with_their_nouns() {
        assert_eq!(counted(1, "table", "tables"), "1 table");
        assert_eq!(counted(0, "table", "tables"), "0 tables");
        assert_eq!(counted(1_234_567, "table", "tables"), "1,234,567 tables");
        assert_eq!([12.345, 0.001_26, 0.0, -0.0].map(money), ["12.35", "0.0013", "0.00", "0.00"]);
        assert_eq!([150_018, 90_624].map(version), ["15.18", "9.6.24"]);
    }
}
