//! What `--compression auto` measures: the link, the data, the processors.
//!
//! ```text
//!   ordinary connection --> link: random bytes over SQL
//!                      \--> data: pieces of relation files, if the role may read them
//!   replication --> recent WAL: link and data, where the others could not be measured
//! ```
//! It runs before the backup begins, over connections of its own, and is bounded in time ([`TIME_MAX`]) and in bytes
//! ([`BYTES_MAX`]). The server makes no checkpoint for it. Nothing that goes wrong here ends a backup: what could not be
//! measured is assumed, and said.

mod files;
mod link;
mod local;
mod wal;

use super::parallel;
use super::source::Address;
use pgshrink_backup::choice::{CodecRates, Link, Processors};
use pgshrink_backup::chunk::Level;
use pgshrink_codec::counted;
use pgshrink_pgclient::connection::{Connection, Options};
use std::time::{Duration, Instant};

/// Time for all of it, about: a statement that is under way is waited for, and WAL gets half a second in any case.
const TIME_MAX: Duration = Duration::from_secs(2);
/// How long a server may take to let a connection in, or send nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes that come over the network, at most.
const BYTES_MAX: u64 = link::BYTES_MAX + wal::BYTES_MAX as u64 + (PIECES_MAX * PIECE_BYTES) as u64;
const _: () = assert!(BYTES_MAX <= 1 << 30);
/// Pieces of data, at most, and bytes of one.
const PIECES_MAX: usize = 16;
const PIECE_BYTES: usize = 128 << 10;
/// Of a server that does not say how many it has.
const SERVER_PROCESSORS_ASSUMED: u32 = 4;
/// What a machine sends to itself is faster. So a slower link to a loopback address is a tunnel to another machine.
const LOOPBACK_MIN: f64 = 250e6;

/// What is to be known.
pub(super) struct Wanted {
    /// Not for a backup that stays on the server's host.
    pub(super) link: bool,
    /// Of chunks; the archive format's.
    pub(super) level: Level,
    /// Connections that may read files; none: the route is not wanted.
    pub(super) connections: Option<usize>,
}

/// What is known.
pub(super) struct Measured {
    /// None: it could not be measured, or was not wanted.
    pub(super) link: Option<Link>,
    pub(super) read: Option<f64>,
    pub(super) processors: Processors,
    pub(super) codecs: Vec<CodecRates>,
    /// Bytes per second of a processor that makes chunks.
    pub(super) encode: f64,
    /// Whether the role may read files.
    pub(super) may_read_files: bool,
    /// How it was measured, and what was not.
    pub(super) said: Said,
}

/// For people.
#[derive(Default)]
pub(super) struct Said {
    pub(super) measured: Vec<String>,
    pub(super) assumed: Vec<String>,
}

/// A piece of a file or of WAL.
struct Piece {
    /// The first page's number; none: it has no pages.
    first_block: Option<u32>,
    raw: Vec<u8>,
}

/// Measures what it can.
pub(super) fn measure(conninfo: &str, wanted: &Wanted) -> Measured {
    let mut said = Said::default();
    let until = Instant::now() + TIME_MAX;
    let mut way = Way::default();
    match Address::parse(conninfo, PATIENCE) {
        Ok(address) => {
            let options =
                Options { connect_timeout: PATIENCE, read_timeout: Some(PATIENCE), ..Options::default() };
            over(&address.with(options), wanted, until, &mut way, &mut said);
        }
        Err(error) => said.assumed.push(brief(&error)),
    }
    let here = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let processors = match way.machine.processors {
        _ if way.is_one_machine() => {
            said.measured.push(format!("server and client share this machine's {}", processors(here)));
            Processors::Shared(here)
        }
        Some(server) => {
            said.measured.push(format!("the server has {}", processors(server)));
            Processors::Apart { server, client: here }
        }
        None => {
            let server = SERVER_PROCESSORS_ASSUMED;
            said.assumed.push(format!("the server has {}", processors(server)));
            Processors::Apart { server, client: here }
        }
    };
    let (codecs, encode) = match local::rates(&way.pieces, wanted.level) {
        Some(rates) => rates,
        None => {
            said.assumed.push("the data is assumed to be like typical tables".to_owned());
            local::assumed()
        }
    };
    let Way { link, read, may_read_files, .. } = way;
    Measured { link, read, processors, codecs, encode, may_read_files, said }
}

fn processors(count: u32) -> String {
    counted(count.into(), "processor", "processors")
}

/// What was found over connections.
#[derive(Default)]
struct Way {
    link: Option<Link>,
    read: Option<f64>,
    pieces: Vec<Piece>,
    may_read_files: bool,
    is_unix: bool,
    is_loopback: bool,
    machine: files::Machine,
}

impl Way {
    /// Whether server and client run on the same machine. A role that may not ask it goes by the address.
    fn is_one_machine(&self) -> bool {
        let is_fast = self.link.is_none_or(|link| link.one >= LOOPBACK_MIN);
        self.is_unix || self.machine.is_here.unwrap_or(self.is_loopback && is_fast)
    }

    fn came_to(&mut self, connection: &Connection) {
        let place = connection.place();
        self.is_unix = place.is_unix();
        self.is_loopback = place.address.is_some_and(|address| address.is_loopback());
    }
}

fn over(address: &Address<'_>, wanted: &Wanted, until: Instant, way: &mut Way, said: &mut Said) {
    match address.database() {
        Ok(mut connection) => {
            way.came_to(&connection);
            over_sql(address, &mut connection, wanted, (until, way), said);
        }
        Err(error) => said.assumed.push(format!("no ordinary connection ({})", brief(&error))),
    }
    if (way.link.is_some() || !wanted.link) && !way.pieces.is_empty() {
        return;
    }
    let recent = address.replication().map_err(|error| brief(&error)).and_then(|mut connection| {
        way.came_to(&connection);
        wal::receive(&mut connection, until).map_err(|error| brief(&error))
    });
    let wal::Recent { rate, is_compressed, pieces } = match recent {
        Ok(recent) => recent,
        Err(reason) => {
            said.assumed.push(format!("no recent WAL ({reason})"));
            return;
        }
    };
    if let (Some(one), true, true) = (rate, wanted.link, way.link.is_none()) {
        way.link = Some(Link { one, several: None });
        said.measured.push(format!("the link carries {} (recent WAL)", per_second(one)));
    }
    if !way.pieces.is_empty() {
        return;
    }
    if is_compressed {
        said.assumed.push("the server compresses its WAL, so it says nothing about the data".to_owned());
    } else if pieces.is_empty() {
        said.assumed.push("the server has too little recent WAL that is not empty".to_owned());
    } else {
        said.measured.push(format!("the data, from {} of recent WAL", size(&pieces)));
        way.pieces = pieces;
    }
}

/// What an ordinary connection tells.
fn over_sql(
    address: &Address<'_>,
    connection: &mut Connection,
    wanted: &Wanted,
    (until, way): (Instant, &mut Way),
    said: &mut Said,
) {
    if wanted.link {
        match link::one(connection, until) {
            Ok(Some(one)) => {
                way.link = Some(Link { one, several: None });
                said.measured.push(format!("the link carries {} (random bytes over SQL)", per_second(one)));
            }
            Ok(None) => {}
            Err(error) => said.assumed.push(format!("no random bytes over SQL ({})", brief(&error))),
        }
    }
    if let Err(error) = parallel::check_rights(connection) {
        let reason = "the role may not read files: parallel connections were not considered";
        said.assumed.push(match error {
            super::Failure::Other { .. } => {
                format!("{reason}; --route parallel prints the privileges that it needs")
            }
            error => format!("{reason} ({})", brief(&error)),
        });
        return;
    }
    way.may_read_files = true;
    way.machine = files::machine(connection);
    match files::sample(connection, until) {
        Ok(found) if !found.pieces.is_empty() => {
            said.measured.push(format!("the data, from {} of relation files", size(&found.pieces)));
            (way.pieces, way.read) = (found.pieces, found.read);
            said.measured.extend(way.read.map(|read| format!("the server reads {}", per_second(read))));
        }
        Ok(_) => said.assumed.push("no relation files arrived in time".to_owned()),
        Err(error) => said.assumed.push(format!("no relation files ({})", brief(&error))),
    }
    if let (Some(link), Some(connections)) = (&mut way.link, wanted.connections)
        && connections > 1
        && link.one >= link::SEVERAL_FROM
    {
        link.several = link::several(address, connections, link.one);
        said.measured
            .extend(link.several.map(|rate| format!("{connections} connections carry {}", per_second(rate))));
    }
}

/// The first line of an error.
fn brief(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

fn size(pieces: &[Piece]) -> String {
    let bytes: usize = pieces.iter().map(|piece| piece.raw.len()).sum();
    format!(
        "{} at {}",
        crate::cfs::output::size(bytes as u64),
        counted(pieces.len() as u64, "place", "places")
    )
}

/// `16 MB/s`, in powers of 1000 as links are sold.
pub(super) fn per_second(rate: f64) -> String {
    match rate / 1e6 {
        megabytes if megabytes < 10.0 => format!("{megabytes:.1} MB/s"),
        megabytes => format!("{megabytes:.0} MB/s"),
    }
}

/// Bytes per second. None: there was nothing, or it took no time.
fn rate(bytes: u64, took: Duration) -> Option<f64> {
    (bytes > 0 && !took.is_zero()).then(|| bytes as f64 / took.as_secs_f64())
}
