//! Real data for tests and benches: the corpora in `shared/data` beside the checkout.
//!
//! They are not part of the repository. A test that needs one says so with [`find`] and is skipped without it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::cluster::Cluster;
use crate::error::{Doing, Error, Kind, Missing};
use crate::skip::checkout;

/// What a corpus' lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// CSV with a header line.
    Csv,
    /// One JSON document per line.
    JsonLines,
}

/// One table's worth of data, compressed on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corpus {
    /// The table it belongs to: `stock_price`.
    pub name: String,
    /// CSV or JSON lines.
    pub format: Format,
    path: PathBuf,
}

/// The folder of the corpora: `PGSHRINK_CORPORA`, or `../shared/data` of the checkout.
pub fn dir() -> Option<PathBuf> {
    let dir = std::env::var_os("PGSHRINK_CORPORA").map(PathBuf::from);
    dir.or_else(|| Some(checkout().parent()?.join("shared/data")))
        .filter(|dir| dir.join("schema.sql").exists())
}

/// All corpora in the order of their names, or what to do without them.
pub fn all() -> Result<Vec<Corpus>, Missing> {
    let dir = dir().ok_or_else(lacking)?;
    let entries = std::fs::read_dir(&dir).map_err(|_| lacking())?;
    let mut corpora: Vec<Corpus> = entries.flatten().filter_map(|entry| Corpus::at(&entry.path())).collect();
    corpora.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(corpora)
}

/// Those of [`all`] that take at most a megabyte in the folder: a variety that loads within seconds.
pub fn small() -> Result<Vec<Corpus>, Missing> {
    const BYTES_MAX: u64 = 1 << 20;
    let is_small =
        |corpus: &Corpus| std::fs::metadata(&corpus.path).is_ok_and(|file| file.len() <= BYTES_MAX);
    Ok(all()?.into_iter().filter(is_small).collect())
}

/// The corpus of this name.
pub fn find(name: &str) -> Result<Corpus, Missing> {
    all()?.into_iter().find(|corpus| corpus.name == name).ok_or_else(|| {
        Missing::new(format!("corpus {name}"), "the corpora are here, but not this one", "a right name")
            .of(Kind::Data)
    })
}

impl Corpus {
    fn at(path: &Path) -> Option<Corpus> {
        let file = path.file_name()?.to_str()?;
        let (name, format) = match file.strip_suffix(".csv.zst") {
            Some(name) => (name, Format::Csv),
            None => (file.strip_suffix(".ndjson.zst")?, Format::JsonLines),
        };
        Some(Corpus { name: name.to_owned(), format, path: path.to_owned() })
    }

    /// Its decompressed content as a stream.
    pub fn open(&self) -> Result<impl Read + Send + use<>, Error> {
        let file = File::open(&self.path).doing(|| format!("opening {}", self.path.display()))?;
        zstd::Decoder::with_buffer(BufReader::new(file)).doing(|| format!("decoding {}", self.path.display()))
    }

    /// At most `size_max` bytes from its start, all of it when it is shorter.
    pub fn prefix(&self, size_max: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let mut stream = self.open()?.take(size_max as u64);
        stream.read_to_end(&mut bytes).doing(|| format!("decoding {}", self.path.display()))?;
        Ok(bytes)
    }

    /// All of it.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        self.prefix(usize::MAX)
    }

    /// The statement that makes its table.
    pub fn create_table(&self) -> Result<String, Error> {
        let path = self.path.with_file_name("schema.sql");
        let schema = std::fs::read_to_string(&path).doing(|| format!("reading {}", path.display()))?;
        let start = schema.find(&format!("CREATE TABLE \"{}\" ", self.name)).ok_or_else(|| {
            Error::Usage(format!("no table for corpus {} in {}", self.name, path.display()))
        })?;
        let length = schema[start..].find(';').unwrap_or(schema.len() - start - 1);
        Ok(schema[start..=start + length].to_owned())
    }

    /// The `COPY` that takes its content from standard input.
    pub fn copy_in(&self) -> String {
        match self.format {
            Format::Csv => format!("copy \"{}\" from stdin with (format csv, header true)", self.name),
            // No line of JSON holds these bytes, so every line is one field.
            Format::JsonLines => format!(
                "copy \"{}\"(doc) from stdin with (format csv, quote e'\\x01', delimiter e'\\x02')",
                self.name
            ),
        }
    }

    /// Makes its table in database `postgres` of `cluster` and fills it.
    pub fn load(&self, cluster: &Cluster) -> Result<(), Error> {
        cluster.sql(&self.create_table()?)?;
        cluster.psql().arg("-c").arg(self.copy_in()).input(self.bytes()?).run().map(drop)
    }
}

fn lacking() -> Missing {
    Missing::new(
        "the corpora",
        "no schema.sql in ../shared/data beside the checkout",
        "PGSHRINK_CORPORA naming a folder with schema.sql and the .zst files",
    )
    .of(Kind::Data)
}
