//! The table of an estimate: what fits a terminal, or everything.

use super::{Estimated, Figures, Group, Measurements, Report, Sum};
use crate::cfs::output::{self, counted, size};
use pgshrink_codec::grouped;

/// Columns of a terminal that the short table fits.
const WIDTH_MAX: usize = 100;
/// Relations in the short table.
const LISTED_MAX: usize = 20;
/// Fewest characters of a name, and of a place.
const LABEL_MIN: usize = 12;

/// In words. `all`: every relation, with what its pages look like and where it is, as wide as that takes.
pub(super) fn text(report: &Report, all: bool) -> String {
    let listed = if all { report.relations.len() } else { report.relations.len().min(LISTED_MAX) };
    let mut rows = vec![header(report, all)];
    rows.extend(report.relations[..listed].iter().map(|one| relation(one, all)));
    let sums = report.groups.iter().chain([&report.total]);
    rows.extend(sums.map(|sum| summed(sum, all)));
    if !all {
        shorten(&mut rows);
    }
    let table = output::words_and_numbers(&rows, 2);
    let mut lines: Vec<&str> = table.lines().collect();
    let smaller = report.relations.len() - listed;
    let more = match smaller {
        0 => String::new(),
        _ => format!(
            "{}: --all lists everything",
            counted(smaller as u64, "smaller relation", "smaller relations")
        ),
    };
    if smaller > 0 {
        lines.insert(1 + listed, &more);
    }
    lines.insert(lines.len() - report.groups.len() - 1, "");
    let others: String = report.others.iter().map(|path| format!("{path}: {NOT_A_RELATION}\n")).collect();
    lines.join("\n") + "\n\nsize ratio, then MB/s compressing/decompressing in one thread\n" + &others
}

/// What is said of a file that was named.
const NOT_A_RELATION: &str =
    "not a relation file, by its name and its content; the figures say nothing about a database";

fn header(report: &Report, all: bool) -> Vec<String> {
    let mut header = vec!["relation".to_owned(), "file".to_owned()];
    header.extend(all.then(|| "pages like".to_owned()));
    header.push("size".to_owned());
    header.extend(report.total.figures.algorithms.iter().map(|figures| figures.algorithm.clone()));
    header
}

fn relation(one: &Estimated, all: bool) -> Vec<String> {
    let fork = if matches!(one.fork, "main" | "") { String::new() } else { format!(" ({})", one.fork) };
    let label = one.name.as_ref().map_or_else(|| format!("-{fork}"), |name| format!("{name}{fork}"));
    let place = if all { &one.path } else { &one.place };
    let mut row = vec![label, place.clone()];
    row.extend(all.then(|| one.kind.clone()));
    row.extend(cells(&one.figures));
    row
}

fn summed(sum: &Sum, all: bool) -> Vec<String> {
    let label = match sum.group {
        Some(Group::Tables) => counted(sum.relations, "table", "tables"),
        Some(Group::Indexes) => counted(sum.relations, "index", "indexes"),
        Some(Group::Catalogs) => counted(sum.relations, "catalog", "catalogs"),
        Some(Group::Others) => counted(sum.relations, "other file", "other files"),
        None => format!("all {}", grouped(sum.relations)),
    };
    let mut row = vec![label, String::new()];
    row.extend(all.then(String::new));
    row.extend(cells(&sum.figures));
    row
}

fn cells(figures: &Measurements) -> impl Iterator<Item = String> {
    let cell = |one: &Figures| {
        let ratio = one.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}x"));
        match (one.compress_mb_s, one.decompress_mb_s) {
            (Some(compress), Some(decompress)) => format!("{ratio} {compress:.0}/{decompress:.0}"),
            _ => ratio,
        }
    };
    [size(figures.bytes)]
        .into_iter()
        .chain(figures.algorithms.iter().map(cell))
        .collect::<Vec<_>>()
        .into_iter()
}

/// Cuts names at the end and places at the beginning, so that the table fits.
fn shorten(rows: &mut [Vec<String>]) {
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let others: usize = (2..columns).map(|column| 2 + width(column).unwrap_or(0)).sum();
    let room = WIDTH_MAX.saturating_sub(others + 2);
    let (name, place) = (width(0).unwrap_or(0), width(1).unwrap_or(0));
    let place_width = place.min(room.saturating_sub(name).max(LABEL_MIN));
    let name_width = room.saturating_sub(place_width).max(LABEL_MIN);
    for row in rows {
        let (name, place) = (row[0].chars().count(), row[1].chars().count());
        if name > name_width {
            row[0] = row[0].chars().take(name_width - 1).collect::<String>() + "…";
        }
        if place > place_width {
            row[1] = "…".to_owned() + &row[1].chars().skip(place - place_width + 1).collect::<String>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(ratio: Option<f64>) -> Measurements {
        let one = |algorithm: &str| Figures {
            algorithm: algorithm.to_owned(),
            bytes: 1,
            ratio,
            compress_mb_s: ratio.map(|_| 1234.0),
            decompress_mb_s: ratio.map(|_| 12345.0),
            dictionary: true,
        };
        let algorithms = vec![one("lz4"), one("zstd:1"), one("zstd:3")];
        Measurements { pages: 1, measured_pages: 1, bytes: 123 << 20, algorithms }
    }

    fn report(count: usize) -> Report {
        let relation = |index: usize| Estimated {
            path: format!("/var/lib/postgresql/15/main/pg_tblspc/16390/PG_15_202209061/16384/{index}"),
            place: format!("pg_tblspc/16390/PG_15_202209061/16384/{index}"),
            name: (index > 0).then(|| "n".repeat(63)),
            fork: if index == 1 { "fsm" } else { "main" },
            group: Group::Tables,
            kind: "heap".to_owned(),
            figures: figures(Some(123.45)),
        };
        let sum = |group, relations| Sum { group, relations, figures: figures(Some(2.0)) };
        Report {
            relations: (0..count).map(relation).collect(),
            groups: vec![sum(Some(Group::Tables), count as u64), sum(Some(Group::Indexes), 1)],
            total: sum(None, count as u64 + 1),
            left_out: Vec::new(),
            others: Vec::new(),
        }
    }

    #[test]
    fn the_table_fits_a_terminal_and_says_what_it_left_out() {
        let report = report(30);
        let short = text(&report, false);
        let longest = short.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= WIDTH_MAX, "{longest} columns\n{short}");
        assert_eq!(short.lines().filter(|line| line.contains("123.45x")).count(), LISTED_MAX);
        assert!(short.contains("\n10 smaller relations: --all lists everything\n"), "{short}");
        assert!(short.contains("\n30 tables ") && short.contains("\n1 index "), "{short}");
        assert!(short.lines().any(|line| line.starts_with("all 31 ")), "{short}");
        let all = text(&report, true);
        assert_eq!(all.lines().filter(|line| line.contains("123.45x")).count(), 30);
        assert!(all.contains("/var/lib/postgresql/15/main") && !all.contains("--all"), "{all}");
    }

    #[test]
    fn one_relation_left_out_is_one_and_zeros_have_no_ratio() {
        let mut report = report(LISTED_MAX + 1);
        report.relations[0].figures = figures(None);
        let short = text(&report, false);
        assert!(short.contains("\n1 smaller relation: --all"), "{short}");
        let zeros = short.lines().nth(1).unwrap();
        assert!(zeros.ends_with("  -") && !zeros.contains("1234"), "{short}");
    }
}
