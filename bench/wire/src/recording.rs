//! Dialogues of real programs with a real server, piece by piece as they came over the socket.

use std::process::Command;
use std::time::Duration;

use pgshrink_bench_report::Result;
use pgshrink_testkit::daemon::Signal;
use pgshrink_testkit::relay::{Captured, Direction, Endpoint, Relay};
use pgshrink_testkit::{Cluster, Daemon, TempDir, run, wait_until};

use crate::session::whole_messages_size;

/// `AuthenticationOk`: where compression may begin.
const AUTHENTICATION_OK: [u8; 9] = [b'R', 0, 0, 0, 8, 0, 0, 0, 0];

/// The way of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Client to server.
    ToServer,
    /// Server to client.
    ToClient,
}

impl Way {
    /// Both, in the order of their numbers.
    pub const BOTH: [Way; 2] = [Way::ToServer, Way::ToClient];

    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Way::ToServer => "to server",
            Way::ToClient => "to client",
        }
    }
}

/// Bytes that one `recv` found, and behind which the sender may have paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Which way they went.
    pub way: Way,
    /// What.
    pub bytes: Vec<u8>,
}

/// What follows authentication in one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// For tables.
    pub name: String,
    /// In the order they were read.
    pub pieces: Vec<Piece>,
}

/// One way's bytes.
pub fn bytes_of(pieces: &[Piece], way: Way) -> Vec<u8> {
    pieces.iter().filter(|piece| piece.way == way).flat_map(|piece| &piece.bytes).copied().collect()
}

/// A server for recordings of `pgbench`, initialised at this scale.
pub fn pgbench_cluster(scale: u32, settings: &[(&str, &str)]) -> Result<Cluster> {
    let mut builder = Cluster::builder().conf("shared_buffers", "128MB").conf("wal_sender_timeout", 0);
    for (name, value) in settings {
        builder = builder.conf(name, value);
    }
    let cluster = builder.start()?;
    let mut command = cluster.command("pgbench");
    run::output(command.args(["-i", "-q", "-s", &scale.to_string()]).arg(cluster.conninfo_unix("postgres")))?;
    Ok(cluster)
}

/// A run of `pgbench` with one client and these arguments.
pub fn pgbench(cluster: &Cluster, name: &str, arguments: &[&str]) -> Result<Recording> {
    let relay = Relay::to(Endpoint::local(cluster.port())).capture().start()?;
    let conninfo = cluster.conninfo_at("127.0.0.1", relay.port(), "postgres") + " sslmode=disable";
    let mut command = cluster.command("pgbench");
    run::output(command.args(["-n", "-c", "1"]).args(arguments).arg(conninfo))?;
    recording(name, relay.captured())
}

/// WAL as a walsender sends it to `pg_receivewal`. `live`: while `load` runs; otherwise afterwards, in one go.
pub fn wal(cluster: &Cluster, name: &str, live: bool, load: &[&str]) -> Result<Recording> {
    let target = TempDir::new()?;
    let relay = Relay::to(Endpoint::local(cluster.port())).capture().start()?;
    cluster.sql("select pg_switch_wal(); checkpoint")?;
    let receive = || -> Result<Daemon> {
        let mut command: Command = cluster.command("pg_receivewal");
        command.arg("--no-sync").arg("-D").arg(target.path());
        command
            .arg("-d")
            .arg(cluster.conninfo_at("127.0.0.1", relay.port(), "postgres") + " sslmode=disable");
        Ok(Daemon::spawn(&mut command)?)
    };
    let mut receiver = None;
    if live {
        receiver = Some(receive()?);
        let streaming = "select count(*) from pg_stat_replication where state = 'streaming'";
        wait_until(Duration::from_secs(20), "pg_receivewal to stream", || {
            cluster.sql(streaming).is_ok_and(|count| count == "1")
        })?;
    }
    let mut command = cluster.command("pgbench");
    run::output(command.arg("-n").args(load).arg(cluster.conninfo_unix("postgres")))?;
    let receiver = match receiver {
        Some(receiver) => receiver,
        None => receive()?,
    };
    let end = cluster.sql("select pg_current_wal_flush_lsn()")?;
    wait_until(Duration::from_secs(120), "pg_receivewal to have it all", || {
        let sent = format!("select count(*) from pg_stat_replication where sent_lsn >= '{end}'");
        cluster.sql(&sent).is_ok_and(|count| count == "1")
    })?;
    receiver.signal(Signal::INT)?;
    receiver.wait(Duration::from_secs(20))?;
    recording(name, relay.captured())
}

/// The longest session of a capture, from behind AuthenticationOk on.
fn recording(name: &str, captured: Vec<Captured>) -> Result<Recording> {
    let sessions = captured.iter().map(|piece| piece.connection + 1).max().unwrap_or_default();
    let size = |number: &u64| -> usize {
        captured.iter().filter(|piece| piece.connection == *number).map(|piece| piece.bytes.len()).sum()
    };
    let longest = (0..sessions).max_by_key(size).ok_or("nothing was captured")?;
    let mut pieces: Vec<Piece> = Vec::new();
    let mut authenticated = false;
    for piece in captured.into_iter().filter(|piece| piece.connection == longest) {
        let way = match piece.direction {
            Direction::ToServer => Way::ToServer,
            Direction::ToClient => Way::ToClient,
        };
        let mut bytes = piece.bytes;
        if !authenticated {
            // Before it the client sends its startup packet only, and a trusting server nothing.
            if way == Way::ToServer {
                continue;
            }
            bytes = bytes.strip_prefix(&AUTHENTICATION_OK).ok_or("the server asked for a password")?.to_vec();
            authenticated = true;
        }
        pieces.push(Piece { way, bytes });
    }
    Ok(Recording { name: name.to_owned(), pieces: whole_messages(pieces)? })
}

/// Without a last message that the end of a capture has cut.
pub fn whole_messages(mut pieces: Vec<Piece>) -> Result<Vec<Piece>> {
    for way in Way::BOTH {
        let bytes = bytes_of(&pieces, way);
        let whole = whole_messages_size(&bytes, bytes.len())?;
        let mut extra = bytes.len() - whole;
        for piece in pieces.iter_mut().rev().filter(|piece| piece.way == way) {
            let cut = extra.min(piece.bytes.len());
            piece.bytes.truncate(piece.bytes.len() - cut);
            extra -= cut;
        }
    }
    pieces.retain(|piece| !piece.bytes.is_empty());
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use pgshrink_wire::message;

    use super::*;

    fn captured(direction: Direction, bytes: &[u8]) -> Captured {
        Captured { connection: 0, direction, at: Duration::ZERO, bytes: bytes.to_vec() }
    }

    #[test]
    fn a_recording_begins_behind_authentication_and_ends_with_a_message() {
        let ready = message::ready_for_query(b'I');
        let answer = [&AUTHENTICATION_OK[..], &ready].concat();
        let capture = vec![
            captured(Direction::ToServer, b"startup"),
            captured(Direction::ToClient, &answer),
            captured(Direction::ToServer, b"Q\0\0"),
            captured(Direction::ToServer, b"\0\x05\0X\0"),
        ];
        let pieces = recording("", capture).unwrap().pieces;
        assert_eq!(bytes_of(&pieces, Way::ToClient), ready);
        assert_eq!(bytes_of(&pieces, Way::ToServer), b"Q\0\0\0\x05\0");
        assert_eq!(pieces.len(), 3);
    }
}
