//! Where the demo plays: a throwaway server that holds the package table.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use pgshrink_testkit::{Auth, Cluster, SUPERUSER_PASSWORD, Server, ServerBinaries, TempDir};

use crate::failure::Failure;
use crate::interrupt;
use crate::package_index;
use crate::package_table;
use crate::program;
use crate::progress::Progress;

/// The phases that [`Stage::set`] tells.
pub(crate) const PHASE_COUNT: u64 = 3;
/// Between looks at the interrupt flag.
const ROWS_PER_LOOK: usize = 1024;

/// The server, its data, and the product's binary.
#[derive(Debug)]
pub(crate) struct Stage {
    /// The server.
    pub(crate) cluster: Cluster,
    /// The binary to show.
    pub(crate) pgshrink: PathBuf,
    /// How many rows the table `package` has.
    pub(crate) package_count: usize,
    /// The table's rows in the COPY format.
    pub(crate) rows: PathBuf,
    scratch: TempDir,
}

impl Stage {
    /// Reads the index, starts the server, fills the table.
    pub(crate) fn set(pgshrink: &Path, progress: &Progress) -> Result<Stage, Failure> {
        progress.phase("reading this machine's package index");
        let scratch = TempDir::new()?;
        let rows = scratch.path().join("package.copy");
        let package_count = write_rows(&rows)?;

        progress.phase("starting a throwaway PostgreSQL 15");
        let cluster = start_cluster()?;
        interrupt::check()?;

        progress.phase(&format!("loading {package_count} packages"));
        let stage = Stage { cluster, pgshrink: pgshrink.to_owned(), package_count, rows, scratch };
        stage.sql(&package_table::definition("package"))?;
        let mut copy = stage.cluster.psql().arg("-c").arg("copy package from stdin").command();
        program::run(&mut copy, Some(stage.open_rows()?))?;
        stage.sql("vacuum analyze package; checkpoint")?;
        Ok(stage)
    }

    /// Runs SQL directly at the server, as preparation or check.
    pub(crate) fn sql(&self, sql: &str) -> Result<String, Failure> {
        interrupt::check()?;
        Ok(self.cluster.sql(sql)?)
    }

    /// The rows from their beginning.
    pub(crate) fn open_rows(&self) -> Result<File, Failure> {
        File::open(&self.rows)
            .map_err(|error| Failure::io(format!("opening {}", self.rows.display()), &error))
    }

    /// A directory for files of steps.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The password for programs that are not psql.
    pub(crate) fn password(&self) -> &'static str {
        SUPERUSER_PASSWORD
    }
}

/// A query for a digest of everything in `table`.
pub(crate) fn checksum_query(table: &str) -> String {
    format!("select count(*), md5(string_agg(md5(t::text), '' order by id)) from {table} t")
}

/// PostgreSQL 15 with our extensions where they have been built, and a stock one elsewhere: all but one step need no
/// more.
pub(crate) fn find_server() -> Result<ServerBinaries, Failure> {
    Ok(Server::with_extensions(15).or_else(|_| Server::find(15))?)
}

fn start_cluster() -> Result<Cluster, Failure> {
    let builder = Cluster::builder()
        .server(&find_server()?)
        // What a server of some size has; nothing here changes what goes over the wire.
        .auth(Auth::Scram)
        .conf("shared_buffers", "128MB")
        .conf("max_wal_size", "4GB")
        .conf("checkpoint_timeout", "30min")
        .conf("wal_keep_size", "4GB")
        // A switch of segments fills the old one with zeros: that much less flatters compression.
        .initdb_arg("--wal-segsize=1")
        // The plain and the compressed run have to do the same.
        .conf("autovacuum", "off")
        .conf("synchronize_seqscans", "off")
        .conf("jit", "off");
    Ok(builder.start()?)
}

fn write_rows(path: &Path) -> Result<usize, Failure> {
    let failed = |error: std::io::Error| Failure::io(format!("writing {}", path.display()), &error);
    let (_dump, mut packages) = package_index::open()?;
    let mut out = BufWriter::with_capacity(1 << 18, File::create(path).map_err(failed)?);
    let mut count = 0;
    while let Some(package) =
        packages.next().map_err(|error| Failure::io("reading from apt-cache dumpavail", &error))?
    {
        count += 1;
        package_table::write_row(&mut out, count, &package).map_err(failed)?;
        if count % ROWS_PER_LOOK == 0 {
            interrupt::check()?;
        }
    }
    out.flush().map_err(failed)?;
    Ok(count)
}
