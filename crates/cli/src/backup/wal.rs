//! The WAL that a backup needs, streamed beside it.
//!
//! Segments become files `pg_wal/…` of their full size; what the last one has behind the stop position is zeros, as
//! pg_receivewal leaves it.

use super::Failure;
use super::chunks::{Job, Jobs, Source, cut};
use super::failure::broken_off;
use super::source::WalConnection;
use pgshrink_backup::chunk::CHUNK_BYTES_DEFAULT;
use pgshrink_backup::pack::Area;
use pgshrink_backup::record::WalFileRecord;
use pgshrink_backup::wal::{WalSegmentName, WalSegmentSize};
use pgshrink_backup::{BackupPath, Lsn, ServerTime, Timeline};
use pgshrink_pgclient::protocol::Lsn as ClientLsn;
use pgshrink_pgclient::replication::{self, Start, Status, WalEvent, WalStream};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two status updates, at most. Each has the server give a sign of life.
const REPORT_PERIOD: Duration = Duration::from_secs(10);
/// The same while chunks cannot be handed on. The server's questions are not read then, and some have a wal_sender_timeout of
/// seconds.
const FULL_REPORT_PERIOD: Duration = Duration::from_millis(300);
/// How long it waits for WAL before it looks whether the backup has ended. Everything else waits for that then.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Between two attempts to hand on a chunk.
const FULL_PAUSE: Duration = Duration::from_millis(20);
/// 2000-01-01 00:00:00 GMT in seconds since 1970.
const YEAR_2000: i64 = 946_684_800;
/// How long the server may be without new WAL after the backup's end although some is needed.
const STALL_MAX: Duration = Duration::from_secs(300);

/// What was received.
pub(super) struct Received {
    pub(super) files: Vec<WalFileRecord>,
    /// The server's clock when WAL began to come, and when the last of it came.
    pub(super) clock: Option<(ServerTime, ServerTime)>,
}

/// WAL from the start of a backup.
pub(super) struct WalReceiver<'w> {
    pub(super) connection: &'w mut WalConnection,
    pub(super) start: Lsn,
    pub(super) timeline: Timeline,
    pub(super) jobs: Jobs<'w>,
}

impl WalReceiver<'_> {
    /// Receives WAL until the backup's stop position, which comes through the channel; says which files that were.
    pub(super) fn run(self, stop: &Receiver<Lsn>) -> Result<Received, Failure> {
        let mut files = Vec::new();
        if self.timeline != Timeline::FIRST {
            let history =
                replication::timeline_history(&mut self.connection.connection, self.timeline.number())?;
            files.push(self.file(&history.file_name, &history.content)?);
        }
        let begin = self.start.segment_start(self.connection.segment_size);
        let segment = Segment {
            ready: VecDeque::new(),
            timeline: self.timeline,
            size: self.connection.segment_size,
            begin,
            source: None,
            offset: 0,
            raw: Vec::new(),
            files,
        };
        let WalConnection { connection, slot, silence, .. } = self.connection;
        let report_period = REPORT_PERIOD.min(*silence / 3);
        let start =
            Start { slot: Some(slot), position: ClientLsn(begin.0), timeline: self.timeline.number() };
        let stream = replication::start_physical(connection, &start)?;
        let now = Instant::now();
        let receiving = Receiving {
            stream,
            segment,
            jobs: &self.jobs,
            clock: None,
            moved: now,
            reported: now,
            report_period,
        };
        receiving.run(stop)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Result<WalFileRecord, Failure> {
        let path = BackupPath::new(format!("pg_wal/{name}").as_bytes())?;
        let source = Arc::new(Source::new(Area::Data, path.clone()));
        let bytes_count = bytes.len() as u64;
        cut(&source, bytes_count, &mut &bytes[..], &self.jobs)?;
        Ok(WalFileRecord { path, bytes: bytes_count })
    }
}

/// WAL that is being received.
struct Receiving<'w> {
    stream: WalStream<'w>,
    segment: Segment,
    jobs: &'w Jobs<'w>,
    /// The server's clock at first and at last.
    clock: Option<(ServerTime, ServerTime)>,
    /// When WAL came last.
    moved: Instant,
    /// When the server was told last how far it is.
    reported: Instant,
    report_period: Duration,
}

impl Receiving<'_> {
    fn run(mut self, stop: &Receiver<Lsn>) -> Result<Received, Failure> {
        let mut until = None;
        loop {
            if until.is_none() {
                until = match stop.try_recv() {
                    Ok(lsn) => Some(lsn),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => return Err(broken_off()),
                };
                self.moved = Instant::now();
            }
            if until.is_some_and(|until| self.segment.reaches(until)) {
                break;
            }
            if until.is_some() && self.moved.elapsed() > STALL_MAX {
                let found =
                    format!("no WAL arrived after {} for {} s", self.segment.end(), STALL_MAX.as_secs());
                return Err(Failure::new("WAL of the backup", found));
            }
            let is_asked = self.next()?;
            let is_full = self.hand_on()?;
            if is_asked || is_full || self.reported.elapsed() > self.report_period {
                self.report(!is_full)?;
            }
        }
        self.stream.stop()?;
        let (files, ready) = self.segment.finish()?;
        ready.into_iter().try_for_each(|job| self.jobs.send(job))?;
        Ok(Received { files, clock: self.clock })
    }

    /// Takes what the server has sent, if anything. True: it wants to know how far this is.
    fn next(&mut self) -> Result<bool, Failure> {
        // What waits to be handed on goes first.
        if !self.segment.ready.is_empty() {
            return Ok(false);
        }
        match self.stream.next(LOOK_PERIOD)? {
            None => Ok(false),
            Some(WalEvent::Keepalive { reply_wanted, server_clock, .. }) => {
                see(&mut self.clock, server_clock)?;
                Ok(reply_wanted)
            }
            Some(WalEvent::Wal { start, data, server_clock, .. }) => {
                self.moved = Instant::now();
                see(&mut self.clock, server_clock)?;
                self.segment.take(Lsn(start.0), data)?;
                Ok(false)
            }
            Some(WalEvent::End { .. }) => {
                let found = format!("timeline {} ended at {}", self.segment.timeline, self.segment.end());
                Err(Failure::new(
                    "WAL of the backup",
                    format!("{found}; the server or its primary was promoted: run it again"),
                ))
            }
        }
    }

    /// Hands on what is ready. True: the repository is slow, and a report is due. The server ends a connection that says
    /// nothing for wal_sender_timeout.
    fn hand_on(&mut self) -> Result<bool, Failure> {
        while let Some(job) = self.segment.ready.pop_front() {
            if let Some(job) = self.jobs.try_send(job)? {
                self.segment.ready.push_front(job);
                if self.reported.elapsed() > FULL_REPORT_PERIOD.min(self.report_period) {
                    return Ok(true);
                }
                thread::sleep(FULL_PAUSE);
            }
        }
        Ok(false)
    }

    /// Says how much has come, and that nothing of it is flushed: WAL is in memory until its pack is closed. A WAL sender whose
    /// other end has not flushed anything is never taken for a synchronous standby, whatever synchronous_standby_names says
    /// (SyncRepGetCandidateStandbys in syncrep.c). So the slot keeps all WAL since the backup began, for as long as it runs.
    fn report(&mut self, reply_wanted: bool) -> Result<(), Failure> {
        let written = ClientLsn(self.segment.end().0);
        // Its answer is a sign of life where the server sends none by itself (wal_sender_timeout = 0).
        self.stream.report(&Status { written, reply_wanted, ..Status::default() })?;
        self.reported = Instant::now();
        Ok(())
    }
}

/// Notes the server's clock: microseconds since 2000-01-01.
fn see(clock: &mut Option<(ServerTime, ServerTime)>, now: i64) -> Result<(), Failure> {
    let now = ServerTime::from_unix_seconds(now.div_euclid(1_000_000) + YEAR_2000)?;
    *clock = Some((clock.map_or(now, |(first, _)| first), now));
    Ok(())
}

/// The segment that is being received, of which no more than a chunk is kept.
struct Segment {
    /// Chunks that are to be handed on.
    ready: VecDeque<Job>,
    timeline: Timeline,
    size: WalSegmentSize,
    begin: Lsn,
    /// `None` between two segments.
    source: Option<Arc<Source>>,
    /// Bytes of it that were handed on.
    offset: u64,
    raw: Vec<u8>,
    files: Vec<WalFileRecord>,
}

impl Segment {
    /// Behind the last byte that came.
    fn end(&self) -> Lsn {
        Lsn(self.begin.0 + self.offset + self.raw.len() as u64)
    }

    /// Whether all WAL before a position came.
    fn reaches(&self, stop: Lsn) -> bool {
        self.end() >= stop
    }

    /// Takes WAL, which must follow what came before.
    fn take(&mut self, at: Lsn, mut data: &[u8]) -> Result<(), Failure> {
        if at != self.end() {
            let found = format!("expected WAL at {}, found some at {at}", self.end());
            return Err(Failure::new("WAL of the backup", found));
        }
        while !data.is_empty() {
            let (now, later) = data.split_at(data.len().min(CHUNK_BYTES_DEFAULT - self.raw.len()));
            self.raw.extend_from_slice(now);
            data = later;
            if self.raw.len() == CHUNK_BYTES_DEFAULT {
                self.hand_on()?;
            }
        }
        Ok(())
    }

    /// Hands on a chunk. Segments are multiples of chunks.
    fn hand_on(&mut self) -> Result<(), Failure> {
        let source = match &self.source {
            Some(source) => Arc::clone(source),
            None => {
                let name = WalSegmentName::holding(self.timeline, self.begin, self.size);
                let path = BackupPath::new(format!("pg_wal/{name}").as_bytes())?;
                self.files.push(WalFileRecord { path: path.clone(), bytes: self.size.bytes() });
                Arc::clone(self.source.insert(Arc::new(Source::new(Area::Data, path))))
            }
        };
        let raw = std::mem::replace(&mut self.raw, Vec::with_capacity(CHUNK_BYTES_DEFAULT));
        let bytes = raw.len() as u64;
        self.ready.push_back(Job::new(source, self.offset, raw));
        self.offset += bytes;
        if self.offset == self.size.bytes() {
            self.begin = Lsn(self.begin.0 + self.size.bytes());
            (self.offset, self.source) = (0, None);
        }
        Ok(())
    }

    /// Fills the last segment with zeros, and gives the files that there are and the chunks that are left.
    fn finish(mut self) -> Result<(Vec<WalFileRecord>, VecDeque<Job>), Failure> {
        while self.offset > 0 || !self.raw.is_empty() {
            self.raw.resize(CHUNK_BYTES_DEFAULT, 0);
            self.hand_on()?;
        }
        Ok((self.files, self.ready))
    }
}

#[test]
fn wal_that_does_not_follow_is_refused_and_a_segment_is_filled_to_its_end() {
    let size = WalSegmentSize::new(1 << 20).unwrap();
    let segment = || Segment {
        ready: VecDeque::new(),
        timeline: Timeline::FIRST,
        size,
        begin: Lsn(0x50_0000),
        source: None,
        offset: 0,
        raw: Vec::new(),
        files: Vec::new(),
    };
    let mut taken = segment();
    taken.take(Lsn(0x50_0000), &[7; 700_000]).unwrap();
    assert_eq!(taken.end(), Lsn(0x50_0000 + 700_000));
    assert!(taken.reaches(taken.end()) && !taken.reaches(Lsn(taken.end().0 + 1)));
    for wrong in [0x50_0000, 0x50_0000 + 699_999, 0x50_0000 + 700_001, 0x60_0000] {
        let error = taken.take(Lsn(wrong), &[7; 10]).unwrap_err().to_string();
        assert!(error.contains("expected WAL at 0/5AAE60"), "{error}");
    }
    // It ends a byte into the next segment.
    taken.take(taken.end(), &[8; (1 << 20) - 700_000 + 1]).unwrap();
    let (files, jobs) = taken.finish().unwrap();
    let names: Vec<_> = files.iter().map(|file| (file.path.to_string(), file.bytes)).collect();
    let name = |last: u32| (format!("pg_wal/00000001000000000000000{last}"), 1 << 20);
    assert_eq!(names, [name(5), name(6)]);
    let raw: Vec<u8> = jobs.iter().flat_map(|job| &job.raw).copied().collect();
    let expected =
        [&vec![7; 700_000][..], &vec![8; (1 << 20) - 700_000 + 1], &vec![0; (1 << 20) - 1]].concat();
    assert!(raw == expected, "{} bytes", raw.len());
    // Where nothing came, nothing is made up.
    let (files, jobs) = segment().finish().unwrap();
    assert!(files.is_empty() && jobs.is_empty());
}
