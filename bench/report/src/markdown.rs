//! A page as Markdown.

use std::fmt::Write;

use crate::page::{Page, Run, Table, Unit, Value};

/// The whole page: verdicts first, then every table.
pub fn page(page: &Page) -> String {
    let mut out = format!("# {}\n\n", page.title);
    let _ = writeln!(out, "The latest run: {}.\n", page.machine.hardware);
    let _ = writeln!(out, "{}.\n", page.machine.versions.join("; "));
    out.push_str(
        "Figures of one table come from one run and are meant as ratios to each other; absolute times of a shared \
         machine prove nothing. A spread is the median of all rounds (lower - upper quartile). Losses are published like wins.\n\n",
    );
    verdicts(page, &mut out);
    for table in &page.tables {
        section(table, &mut out);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn verdicts(page: &Page, out: &mut String) {
    if page.tables.iter().all(|table| table.verdicts.is_empty()) {
        return;
    }
    out.push_str("| what had to be reached | line | found | |\n|---|---|---|---|\n");
    for verdict in page.tables.iter().flat_map(|table| &table.verdicts) {
        let met = if verdict.met { "met" } else { "**missed**" };
        let _ = writeln!(out, "| {} | {} | {} | {met} |", verdict.what, verdict.limit, verdict.found);
    }
    out.push('\n');
}

/// One table with its heading, explanation and origin.
pub fn section(table: &Table, out: &mut String) {
    let _ = writeln!(out, "## {}\n\n{}\n", table.title, table.about);
    let Run { command, day, commit, load, processor } = &table.run;
    let _ = writeln!(out, "`{command}`, {day}, commit {commit}, load {load:.1}, {processor}\n");
    let heads: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    let rules: Vec<&str> =
        table.columns.iter().map(|c| if c.unit == Unit::Text { "---" } else { "---:" }).collect();
    let _ = writeln!(out, "| {} |\n|{}|", heads.join(" | "), rules.join("|"));
    for row in &table.rows {
        let cells: Vec<String> =
            row.iter().zip(&table.columns).map(|(value, column)| cell(value, column.unit)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
}

fn cell(value: &Value, unit: Unit) -> String {
    match value {
        Value::None => String::new(),
        Value::Text(text) => text.clone(),
        Value::Number(number) => shown(*number, unit),
        Value::Spread { median, low, high } => {
            format!("{} ({} - {})", shown(*median, unit), shown(*low, unit), shown(*high, unit))
        }
    }
}

fn shown(number: f64, unit: Unit) -> String {
    match unit {
        Unit::Text | Unit::Count | Unit::Bytes => grouped(number),
        Unit::PerSecond if number >= 100.0 => grouped(number),
        Unit::Average if number.abs() >= 1000.0 => grouped(number),
        Unit::Ratio => format!("{number:.3}"),
        Unit::Percent => format!("{number:+.2} %"),
        Unit::Ms if number >= 100.0 => format!("{number:.0}"),
        Unit::Ms => format!("{number:.2}"),
        Unit::Seconds => format!("{number:.2}"),
        Unit::Average | Unit::PerSecond | Unit::MegabytesPerSecond => format!("{number:.1}"),
    }
}

/// Digits in groups of three: `1 234 567`.
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut out = if number < 0.0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_spreads_shown() {
        assert_eq!(grouped(1_234_567.0), "1 234 567");
        assert_eq!(grouped(-12.0), "-12");
        let spread = Value::Spread { median: 1.5, low: 1.0, high: 2.0 };
        assert_eq!(cell(&spread, Unit::Ratio), "1.500 (1.000 - 2.000)");
        assert_eq!(cell(&Value::Number(1.234), Unit::Percent), "+1.23 %");
    }

    #[test]
    fn a_missed_line_stands_out() {
        let mut table = Table::new("t", "T", "how", &[("a", Unit::Count)]);
        table.row([7u64.into()]);
        table.verdict("speed", ">= 1", "0.9", false);
        let text = page(&Page { title: "P".into(), tables: vec![table], ..Page::default() });
        assert!(text.contains("| speed | >= 1 | 0.9 | **missed** |"));
        assert!(text.contains("| a |\n|---:|\n| 7 |"));
    }
}
