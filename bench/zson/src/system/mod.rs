//! Tables of documents in a real server.

mod cold;
mod insert;
mod limited;
mod load;
mod pgbench;
mod scan;
mod sizes;
mod small;

use std::cell::OnceCell;

use pgshrink_bench_report::{Result, Table};

use crate::store::Store;
use load::Loaded;
use small::{Settings, Small};

/// Measures and fills a table.
pub type Make = fn(&Bench) -> Result<Table>;

/// Tables of this program and what makes each.
pub const TABLES: &[(&str, Make)] = &[
    ("table-size", sizes::table),
    ("insert", insert::table),
    ("scan", scan::table),
    ("cold-scan", cold::table),
    ("pgbench", pgbench::table),
    ("memory", limited::table),
];

/// Corpora whose jsonb TOAST compresses, and whose jsonb is stored plain, as rows of tables are.
const SMALL_CORPORA: [&str; 4] = ["cve_record", "windows_events", "deb_package", "log_line"];

/// What the tables share; the server starts when first needed.
#[derive(Debug)]
pub struct Bench {
    full: bool,
    loaded: OnceCell<(Store, Vec<Loaded>)>,
    small: OnceCell<Small>,
}

/// Bytes of jsonb of each corpus that is read from disk.
const COLD_BYTES_FULL: u64 = 48 << 20;
const COLD_BYTES_QUICK: u64 = 6 << 20;

impl Bench {
    /// `full` as in [`pgshrink_bench_report::Arguments`].
    pub fn new(full: bool) -> Bench {
        Bench { full, loaded: OnceCell::new(), small: OnceCell::new() }
    }

    /// A server with every corpus in every form.
    fn loaded(&self) -> Result<&(Store, Vec<Loaded>)> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let store = Store::start(self.full)?;
        let loaded = store.corpora()?.into_iter().map(|corpus| Loaded::load(&store, &corpus));
        let loaded = loaded.collect::<Result<_>>()?;
        Ok(self.loaded.get_or_init(|| (store, loaded)))
    }

    /// A server whose tables do not fit into its buffers.
    fn small(&self) -> Result<&Small> {
        match self.small.get() {
            Some(small) => Ok(small),
            None => {
                let buffers = if self.full { "16MB" } else { "2MB" };
                let settings = Settings { buffers, bytes_max: 256 << 20, is_repeated: false };
                let small = Small::start(self.full, &SMALL_CORPORA, settings)?;
                Ok(self.small.get_or_init(|| small))
            }
        }
    }

    /// A server of its own with every corpus, whose buffers are small too.
    fn cold(&self) -> Result<Small> {
        let all = pgshrink_testkit::corpora::all()?;
        let names: Vec<&str> = all.iter().map(|corpus| corpus.name.as_str()).collect();
        let bytes_max = if self.full { COLD_BYTES_FULL } else { COLD_BYTES_QUICK };
        let settings = Settings { buffers: "16MB", bytes_max, is_repeated: true };
        Small::start(self.full, &names, settings)
    }

    fn full(&self) -> bool {
        self.full
    }

    fn rounds(&self, quick: usize, full: usize) -> usize {
        if self.full { full } else { quick }
    }
}

/// Ratios of [`load::Form::OURS`], the default first, each with what it was measured on.
type Found = [Vec<(f64, String)>; 3];

/// Judges the default codec: how many lie on the right side of a line, and which is worst; and tells of the others.
fn judge(found: Found, limit: f64, at_most: bool) -> (String, bool) {
    let on_right_side = |ratio: f64| if at_most { ratio <= limit } else { ratio >= limit };
    let [default, zstd, lz4] = found.map(|mut found| {
        found.sort_by(|(a, _), (b, _)| if at_most { b.total_cmp(a) } else { a.total_cmp(b) });
        let met = found.iter().filter(|(ratio, _)| on_right_side(*ratio)).count();
        let worst =
            found.first().map_or_else(String::new, |(worst, of)| format!("; {worst:.3} at worst ({of})"));
        (format!("{met} of {}{worst}", found.len()), met > 0 && met == found.len())
    });
    (format!("{}. With codec zstd:3 {}; with lz4 {}", default.0, zstd.0, lz4.0), default.1)
}
