//! A corpus in every form that is compared.

use pgshrink_bench_report::Result;
use pgshrink_bench_rivals::zson1::{WORDS_MAX, Words};
use pgshrink_testkit::Cluster;
use pgshrink_testkit::corpora::Corpus;

use crate::documents::{Class, Documents};
use crate::size::unhex;
use crate::store::{Staged, Store};

/// How documents are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// jsonb as a server stores it by itself.
    Pglz,
    /// jsonb with `compression lz4`.
    Lz4,
    /// What zson 1.1 would store, in a bytea: it is read by nobody here.
    Original,
    /// zson before anything was learnt.
    Untrained,
    /// zson after `zson_learn`, whose codec nobody has set.
    Zson,
    /// The same with zstd:3, which nothing is read in place of.
    ZsonZstd,
    /// The same with LZ4, which is written larger and read faster.
    ZsonLz4,
}

/// A corpus in a server in all forms.
#[derive(Debug)]
pub struct Loaded {
    /// Where it came from.
    pub staged: Staged,
    /// What kind of documents it has.
    pub class: Class,
    /// How many times smaller they are in one piece.
    pub one_piece: f64,
    /// How many.
    pub documents: usize,
    /// Their bytes as jsonb.
    pub jsonb_bytes: usize,
    /// Of the tables, TOAST included.
    pub sizes: Vec<(Form, f64)>,
    /// Which share of the documents TOAST compresses as jsonb.
    pub toasted: f64,
}

impl Form {
    /// Those that can be asked and inserted into: jsonb, then zson.
    pub const LIVE: [Form; 5] = [Form::Pglz, Form::Lz4, Form::Zson, Form::ZsonZstd, Form::ZsonLz4];
    /// Where in [`Form::LIVE`] each zson is, and its codec; the default's is what learning has chosen.
    pub const OURS: [(usize, &str); 3] = [(2, "default"), (3, "zstd:3"), (4, "lz4")];

    /// The name on the page.
    pub fn name(self) -> &'static str {
        match self {
            Form::Pglz => "jsonb pglz",
            Form::Lz4 => "jsonb lz4",
            Form::Original => "zson 1.1",
            Form::Untrained => "zson untrained",
            Form::Zson => "zson",
            Form::ZsonZstd => "zson zstd:3",
            Form::ZsonLz4 => "zson lz4",
        }
    }

    /// The table of a corpus.
    pub fn table(self, corpus: &str) -> String {
        let prefix = match self {
            Form::Pglz => "pglz",
            Form::Lz4 => "lz4",
            Form::Original => "original",
            Form::Untrained | Form::Zson => "zson",
            Form::ZsonZstd => "zsonzstd",
            Form::ZsonLz4 => "zsonlz4",
        };
        format!("{prefix}_{corpus}")
    }

    /// Makes the table, empty, of a zson that has learnt from documents in another.
    pub fn learn(self, cluster: &Cluster, corpus: &str, from: &str) -> Result<()> {
        let (table, column) = (self.table(corpus), self.column(corpus));
        let codec = match self {
            Form::ZsonZstd => format!("select zson_set_codec('{corpus}_zstd', 'zstd:3')"),
            Form::ZsonLz4 => format!("select zson_set_codec('{corpus}_lz4', 'lz4')"),
            _ => String::new(),
        };
        cluster.sql(&format!(
            "drop table if exists {table}; create table {table} ({column}); {codec};
            insert into {table} select doc from {from};
            select zson_learn('{table}', 'doc'); truncate {table}"
        ))?;
        Ok(())
    }

    /// The column of a corpus.
    pub fn column(self, corpus: &str) -> String {
        match self {
            Form::Pglz => "doc jsonb compression pglz".to_owned(),
            Form::Lz4 => "doc jsonb compression lz4".to_owned(),
            Form::Original => "doc bytea".to_owned(),
            Form::Untrained | Form::Zson => format!("doc zson('{corpus}')"),
            Form::ZsonZstd => format!("doc zson('{corpus}_zstd')"),
            Form::ZsonLz4 => format!("doc zson('{corpus}_lz4')"),
        }
    }
}

impl Loaded {
    /// Takes a corpus in, learns from it, and compares all forms with what went in.
    pub fn load(store: &Store, corpus: &Corpus) -> Result<Loaded> {
        let staged = store.stage(corpus)?;
        let documents = store.documents(&staged)?;
        let mut sizes = Vec::new();
        for form in [Form::Pglz, Form::Lz4, Form::Untrained] {
            let (table, column) = (form.table(&staged.name), form.column(&staged.name));
            store.cluster().sql(&format!(
                "create table {table} ({column}); insert into {table} select doc from {}",
                staged.table
            ))?;
            sizes.push((form, size(store, &table)?));
        }
        load_original(store, &staged, &documents)?;
        sizes.insert(2, (Form::Original, size(store, &Form::Original.table(&staged.name))?));
        for form in [Form::Zson, Form::ZsonZstd, Form::ZsonLz4] {
            let table = form.table(&staged.name);
            form.learn(store.cluster(), &staged.name, &staged.table)?;
            store.cluster().sql(&format!("insert into {table} select doc from {}", staged.table))?;
            sizes.push((form, size(store, &table)?));
        }
        check_same(store, &staged)?;
        let toasted = store.number(&format!(
            "select avg((pg_column_compression(doc) is not null)::int) from {}",
            Form::Lz4.table(&staged.name)
        ))?;
        let one_piece = documents.ratio_in_one_piece()?;
        let class = Class::of(&documents, staged.format, one_piece);
        let jsonb_bytes = documents.size();
        Ok(Loaded { staged, class, one_piece, documents: documents.count(), jsonb_bytes, sizes, toasted })
    }

    /// The table's size in a form.
    pub fn size(&self, form: Form) -> f64 {
        self.sizes.iter().find(|(of, _)| *of == form).map_or(f64::NAN, |(_, size)| *size)
    }

    /// How often a statement has to run so that clocks can tell: one that reads all documents.
    pub fn repeats(&self, full: bool) -> usize {
        let bytes_min: usize = if full { 24 << 20 } else { 3 << 20 };
        bytes_min.div_ceil(self.jsonb_bytes.max(1)).min(100)
    }
}

/// After what autovacuum does.
fn size(store: &Store, table: &str) -> Result<f64> {
    store.cluster().sql(&format!("vacuum analyze {table}"))?;
    store.number(&format!("select pg_table_size('{table}')"))
}

/// The original's bytes, in a column that TOAST treats as it treated the original's.
fn load_original(store: &Store, staged: &Staged, documents: &Documents) -> Result<()> {
    let printed = store.cluster().sql(&format!(
        "select encode(convert_to(word, 'UTF8'), 'hex') from (
            select word, count(*) as times from {}, unnest(zson_extract_strings(doc)) word
            where length(word) between 2 and 128
            group by word having count(*) >= 2 order by times desc, word limit {WORDS_MAX}) words",
        staged.table
    ))?;
    let words = Words::new(printed.lines().map(unhex).collect::<Result<_>>()?);
    let mut datums = Documents::default();
    for document in documents.iter() {
        datums.push(|bytes| words.encode(1, document, bytes));
    }
    let (table, column) = (Form::Original.table(&staged.name), Form::Original.column(&staged.name));
    store.cluster().sql(&format!("create table {table} ({column})"))?;
    let copy = format!("copy {table} from stdin (format binary)");
    store.cluster().psql().arg("-c").arg(copy).input(datums.to_copy()).run()?;
    Ok(())
}

/// The documents of all live forms are those that were staged.
fn check_same(store: &Store, staged: &Staged) -> Result<()> {
    let sum = |table: &str| {
        store.cluster().sql(&format!("select count(*), sum(hashtextextended(doc::text, 0)) from {table}"))
    };
    let expected = sum(&staged.table)?;
    for form in Form::LIVE {
        if sum(&form.table(&staged.name))? != expected {
            return Err(format!("{}: {} holds other documents", staged.name, form.name()).into());
        }
    }
    Ok(())
}
