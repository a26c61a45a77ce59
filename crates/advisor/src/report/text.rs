//! The report for a terminal.

mod tables;

use crate::finding::{Change, Finding, Proposal, Report};
use crate::report::{by_saving, shown};
use tables::Columns;

/// How it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether escape sequences mark headings, savings and warnings.
    pub colour: Colour,
    /// Which signs its own words use. Names are written as they are, except for controls.
    pub charset: Charset,
    /// How much of it.
    pub extent: Extent,
}

/// Whether it has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// No escape sequences.
    #[default]
    Plain,
    /// Those of any terminal: bold, dim, green, yellow, red.
    Ansi,
}

/// Signs for arrows and lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// `→`, `…`, `─`.
    #[default]
    Unicode,
    /// `->`, `...`, `-`.
    Ascii,
}

/// How many lines of each table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// The 20 largest.
    #[default]
    Largest,
    /// All of them.
    All,
}

/// Rows of a table with [`Extent::Largest`].
pub const ROWS_MAX: usize = 20;

/// The last line.
const UNITS: &str = "1 kB is 1024 bytes. Do not add up the savings on disk, in a compressed tablespace and \
    in memory: they describe the same data.";

/// Of findings and proposals.
const HEADS: [&str; 4] = ["what", "now, after", "saved\non disk", "saved in\nmemory"];

/// Below this, tables do not fit: a narrower terminal breaks lines itself.
pub const WIDTH_MIN: usize = 60;

/// The report, in lines of at most `width` columns; of [`WIDTH_MIN`] where that is more.
pub fn text(report: &Report, width: usize, style: Style) -> String {
    let mut page = Page { text: String::new(), width: width.max(WIDTH_MIN), style };
    page.title(report);
    page.totals(report);
    page.findings(report);
    page.proposals(report);
    page.codecs(report);
    page.documents(report);
    page.others(report);
    page.unseen(report);
    page.text
}

struct Page {
    text: String,
    width: usize,
    style: Style,
}

impl Page {
    fn title(&mut self, report: &Report) {
        let title = format!(
            "Database {}, PostgreSQL {}, as of {}",
            shown::name(&report.database),
            shown::version(report.server_version),
            shown::time(report.taken_s)
        );
        self.marked("1", &title, "");
    }

    fn totals(&mut self, report: &Report) {
        let bytes = report.total.bytes;
        let mut kinds = vec![("on disk", bytes.disk)];
        if let Some(compressed) = bytes.compressed {
            kinds.push(("on disk, in a compressed tablespace", compressed));
        }
        kinds.push(("in memory, when all is cached", bytes.memory));
        let rows = kinds.into_iter().map(|(kind, change)| {
            vec![kind.to_owned(), self.change(change), shown::saved(change.saved()), shown::share(change)]
        });
        let rows = rows.collect();
        self.text.push('\n');
        self.table(&["All tables", "now, after", "saved", ""], rows, Columns::Numbers);
        if let Some(words) = shown::totals(report) {
            self.wrapped(words, "");
        }
        if let Some(prices) = &report.prices {
            let parts = [
                ("storage", prices.storage_saved_month),
                ("compressed tablespaces on top", prices.cfs_saved_month),
                ("egress", prices.egress_saved_month),
                ("one backup", prices.backup_saved_month),
            ];
            let parts = parts.iter().filter_map(|(what, amount)| Some((what, (*amount)?)));
            let parts: Vec<String> =
                parts.map(|(what, amount)| format!("{what} {}", shown::money(amount))).collect();
            if !parts.is_empty() {
                self.wrapped(&format!("Saved each month, at the given prices: {}.", parts.join(", ")), "");
            }
        }
    }

    fn findings(&mut self, report: &Report) {
        let findings = by_saving(report);
        if findings.is_empty() {
            self.heading("Findings");
            self.wrapped("Nothing was found that could be made smaller.", "");
            return;
        }
        self.heading(&format!(
            "{}, each by itself, the largest saving first",
            shown::counted(findings.len() as u64, "finding", "findings")
        ));
        let rows = findings.iter().take(self.rows_max()).map(|finding| self.finding(finding)).collect();
        if self.width < 120 {
            self.table(&HEADS, rows, Columns::Numbers);
        } else {
            let [what, change, disk, memory] = HEADS;
            let heads = [what, "finding", "known", change, disk, memory];
            self.table(&heads, rows, Columns::Words(3));
        }
        self.more(findings.len());
    }

    fn finding(&self, finding: &Finding) -> Vec<String> {
        let (object, title) = (shown::object(&finding.object), shown::name(&finding.title));
        let known = shown::confidence(finding.confidence);
        let mut cells = if self.width < 120 {
            vec![format!("{object}\n  {title} ({known})")]
        } else {
            vec![object, title, known.to_owned()]
        };
        let bytes = finding.bytes;
        if bytes.disk == Change::default() && bytes.memory == Change::default() {
            cells.extend([String::new(), String::new(), String::new()]);
        } else {
            cells.extend([
                self.change_cell(bytes.disk),
                shown::saved(bytes.disk.saved()),
                shown::saved(bytes.memory.saved()),
            ]);
        }
        cells
    }

    fn proposals(&mut self, report: &Report) {
        if report.proposals.is_empty() {
            return;
        }
        self.heading("Proposals: all changes of a table together, simulated as a whole");
        let shown_rows: Vec<&Proposal> = report.proposals.iter().take(self.rows_max()).collect();
        let rows = shown_rows.iter().map(|proposal| {
            let mut what = shown::object(&proposal.object);
            for id in &proposal.findings {
                let finding = report.findings.iter().find(|finding| finding.id == *id);
                let title = finding.map_or(id, |finding| &finding.title);
                what.push_str(&format!("\n  {}", shown::name(title)));
            }
            if proposal.bloat_bytes > 0 {
                what.push_str(&format!("\n  of that, bloat: {}", shown::saved(proposal.bloat_bytes)));
            }
            for warning in &proposal.warnings {
                what.push_str(&format!("\n  ! {}", shown::name(warning)));
            }
            let bytes = proposal.bytes;
            vec![
                what,
                self.change_cell(bytes.disk),
                shown::saved(bytes.disk.saved()),
                shown::saved(bytes.memory.saved()),
            ]
        });
        let rows = rows.collect();
        self.table(&HEADS, rows, Columns::Numbers);
        self.more(report.proposals.len());
        self.wrapped("The statements: --sql.", "");
    }

    fn unseen(&mut self, report: &Report) {
        if !report.unseen.is_empty() {
            self.heading("What could not be seen");
            let seen: Vec<String> = report
                .unseen
                .iter()
                .take(self.rows_max())
                .map(|unseen| {
                    let remedy = if unseen.remedy.is_empty() {
                        String::new()
                    } else {
                        format!(" ({})", shown::name(&unseen.remedy))
                    };
                    format!("{}: {}{remedy}", shown::name(&unseen.what), shown::name(&unseen.why))
                })
                .collect();
            seen.iter().for_each(|line| self.wrapped(line, "- "));
            self.more(report.unseen.len());
        }
        if !report.notes.is_empty() {
            self.heading("Notes");
            report.notes.iter().for_each(|note| self.wrapped(&shown::name(note), "- "));
        }
        self.text.push('\n');
        self.wrapped(UNITS, "");
    }

    /// `1.2 GB → 0.9 GB`.
    fn change(&self, change: Change) -> String {
        format!("{} {} {}", shown::size(change.now), self.arrow(), shown::size(change.after))
    }

    /// In two lines where there is little room.
    fn change_cell(&self, change: Change) -> String {
        if !self.is_narrow() {
            return self.change(change);
        }
        format!("{}\n{} {}", shown::size(change.now), self.arrow(), shown::size(change.after))
    }

    fn is_narrow(&self) -> bool {
        self.width < 80
    }

    fn arrow(&self) -> &'static str {
        match self.style.charset {
            Charset::Unicode => "→",
            Charset::Ascii => "->",
        }
    }

    fn rows_max(&self) -> usize {
        match self.style.extent {
            Extent::Largest => ROWS_MAX,
            Extent::All => usize::MAX,
        }
    }

    fn heading(&mut self, words: &str) {
        self.text.push('\n');
        self.marked("1", words, "");
    }

    /// `… and 12 more (--all)`, if there are more than are shown.
    fn more(&mut self, whole: usize) {
        let left = whole.saturating_sub(self.rows_max());
        if left > 0 {
            let dots = if self.style.charset == Charset::Unicode { "…" } else { "..." };
            self.marked("2", &format!("{dots} and {} more (--all)", shown::number_text(left as u64)), "");
        }
    }

    fn wrapped(&mut self, words: &str, bullet: &str) {
        self.marked("", words, bullet);
    }

    /// Folded lines, each between the escape sequences of `mark`.
    fn marked(&mut self, mark: &str, words: &str, bullet: &str) {
        for line in tables::folded(words, self.width, bullet) {
            let line = self.paint(mark, &line);
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }

    fn paint(&self, mark: &str, words: &str) -> String {
        match self.style.colour {
            Colour::Ansi if !mark.is_empty() && !words.is_empty() => {
                format!("\u{1b}[{mark}m{words}\u{1b}[0m")
            }
            _ => words.to_owned(),
        }
    }
}
