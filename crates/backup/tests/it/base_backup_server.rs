//! `BASE_BACKUP` of real servers.

use pgshrink_backup::base_backup::{
    Checkpoint, Event, ManifestOption, MaxRate, Options, Position, Sequence, ServerMajor, Tablespace, Target,
};
use pgshrink_backup::manifest::{Item, PathEncoding, Reader};
use pgshrink_backup::{ChecksumAlgorithm, Error};
use pgshrink_testkit::{Auth, Cluster, Server, TempDir, left_out};

use crate::connection::Connection;

/// The columns of a DataRow.
fn columns(mut row: &[u8]) -> Vec<Option<&[u8]>> {
    let mut take = |count: usize| {
        let (taken, rest) = row.split_at(count);
        row = rest;
        taken
    };
    let count = u16::from_be_bytes(take(2).try_into().unwrap());
    let mut column = |_| {
        let length = i32::from_be_bytes(take(4).try_into().unwrap());
        usize::try_from(length).ok().map(&mut take)
    };
    (0..count).map(&mut column).collect()
}

/// What one backup gave.
struct Taken {
    start: Position,
    end: Position,
    tablespaces: Vec<Tablespace>,
    archive_bytes: Vec<u64>,
    progress: u64,
    manifest: Vec<u8>,
}

/// The field `M` of an ErrorResponse.
fn message_of(error: &[u8]) -> String {
    let message = error.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(message.unwrap()).into_owned()
}

/// Takes a backup, or says why the server refused.
fn take(cluster: &Cluster, options: &Options<'_>) -> Result<Taken, String> {
    let major = ServerMajor::new(cluster.server().major).unwrap();
    let mut connection = Connection::open(cluster, "replication\0true\0");
    connection.query(&options.command(major).unwrap());
    let mut positions = Vec::new();
    let mut tablespaces = Vec::new();
    let mut results = 0;
    loop {
        match connection.message() {
            (b'T' | b'C', _) => results += 1,
            (b'D', row) if results == 1 => positions.push(Position::from_row(&columns(&row)).unwrap()),
            (b'D', row) => tablespaces.push(Tablespace::from_row(&columns(&row)).unwrap()),
            (b'H', _) => break,
            (b'E', error) => return Err(message_of(&error)),
            (other, _) => panic!("message {}", char::from(other)),
        }
    }
    let manifest = options.manifest != ManifestOption::No;
    let mut sequence = Sequence::new(tablespaces, options.compression.algorithm, manifest).unwrap();
    let mut taken = Taken {
        start: positions[0],
        end: positions[0],
        tablespaces: sequence.tablespaces().to_vec(),
        archive_bytes: vec![],
        progress: 0,
        manifest: vec![],
    };
    loop {
        match connection.message() {
            (b'd', content) => match sequence.handle(&content).unwrap() {
                Event::ArchiveBegins(index) => {
                    assert_eq!(index, taken.archive_bytes.len());
                    taken.archive_bytes.push(0);
                }
                Event::ArchiveData(data) => *taken.archive_bytes.last_mut().unwrap() += data.len() as u64,
                Event::Progress(bytes) => taken.progress = bytes,
                Event::ManifestBegins => {}
                Event::ManifestData(data) => taken.manifest.extend_from_slice(data),
            },
            (b'c', _) => break,
            (b'E', error) => return Err(message_of(&error)),
            (other, _) => panic!("message {}", char::from(other)),
        }
    }
    sequence.finish().unwrap();
    loop {
        match connection.message() {
            (b'D', row) => taken.end = Position::from_row(&columns(&row)).unwrap(),
            (b'E', error) => return Err(message_of(&error)),
            (b'Z', _) => return Ok(taken),
            _ => {}
        }
    }
}

/// The files of a manifest.
fn files(manifest: &[u8]) -> Result<usize, Error> {
    let (mut reader, mut input, mut files) = (Reader::new(), manifest, 0);
    while let Some(item) = reader.next(&mut input)? {
        files += usize::from(matches!(item, Item::File(_)));
    }
    reader.finish().map(|_| files)
}

#[test]
fn servers_obey_the_command_and_their_messages_are_understood() {
    Server::each("BASE_BACKUP", &Server::chosen(&[15, 16, 18]), |server| {
        let cluster = Cluster::builder().server(server).auth(Auth::Trust).start().unwrap();
        let home = TempDir::owned_by(cluster.owner()).unwrap();
        let location = home.path().to_str().unwrap();
        cluster.sql(&format!("create tablespace far location '{location}'")).unwrap();
        cluster.sql("create table t tablespace far as select generate_series(1, 100000) as n").unwrap();

        let plain =
            Options { checkpoint: Checkpoint::Fast, progress: true, wait: false, ..Options::new("it's") };
        let whole = take(&cluster, &plain).unwrap();
        assert!(whole.start.lsn < whole.end.lsn && whole.start.timeline == whole.end.timeline);
        let (oid, place) = whole.tablespaces[0].space.clone().unwrap();
        assert_eq!((place, whole.archive_bytes.len()), (location.as_bytes().to_vec(), 2));
        assert_eq!(
            cluster.sql("select oid from pg_tablespace where spcname = 'far'").unwrap(),
            oid.to_string()
        );
        assert_eq!(whole.progress, whole.archive_bytes.iter().sum::<u64>());
        // The estimate lacks what is made for the backup, such as its label.
        let estimated: u64 = whole.tablespaces.iter().map(|tablespace| tablespace.size_bytes.unwrap()).sum();
        assert!(estimated.abs_diff(whole.progress) < 1 << 20, "{estimated} and {}", whole.progress);
        assert!(files(&whole.manifest).unwrap() > 900);

        for (text, since) in
            [("gzip:1", 15), ("lz4:1", 15), ("zstd:level=1,workers=2", 15), ("zstd:level=-5:long", 16)]
        {
            let compression = text.parse().unwrap();
            let options = Options { compression, ..plain };
            if server.major < since {
                let major = ServerMajor::new(server.major).unwrap();
                assert!(matches!(options.command(major), Err(Error::TooOld { .. })));
                continue;
            }
            match take(&cluster, &options) {
                Ok(small) => {
                    let sums = [&small, &whole].map(|taken| taken.archive_bytes.iter().sum::<u64>());
                    assert!(sums[0] * 2 < sums[1], "{text}: {sums:?}");
                    assert!(files(&small.manifest).is_ok());
                }
                Err(why)
                    if why.contains("does not support") || why.contains("set compression worker count") =>
                {
                    left_out(&format!("{text} on {}", server.version), &why);
                }
                Err(why) => panic!("{text}: {why}"),
            }
        }

        let stored = home.path().join("stored");
        let all = Options {
            target: Target::Server(stored.to_str().unwrap()),
            wal: true,
            max_rate: Some(MaxRate::from_kib_per_second(1_048_576).unwrap()),
            tablespace_map: true,
            verify_checksums: false,
            manifest: ManifestOption::Yes(ChecksumAlgorithm::Sha224, PathEncoding::Always),
            ..plain
        };
        let elsewhere = take(&cluster, &all).unwrap();
        assert_eq!((elsewhere.archive_bytes, elsewhere.manifest.len()), (vec![0, 0], 0));
        assert!(files(&std::fs::read(stored.join("backup_manifest")).unwrap()).is_ok());
        let nowhere =
            take(&cluster, &Options { target: Target::Blackhole, manifest: ManifestOption::No, ..plain });
        assert!(nowhere.unwrap().progress > 0);
    });
}
