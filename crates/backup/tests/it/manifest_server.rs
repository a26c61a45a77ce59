//! Manifests of real servers, and `pg_verifybackup` as the judge of ours.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pgshrink_backup::checksum::Hasher;
use pgshrink_backup::manifest::{FileEntry, Item, PathEncoding};
use pgshrink_backup::{Checksum, ChecksumAlgorithm};
use pgshrink_testkit::{Cluster, Server, ServerBinaries, TempDir, left_out};

use crate::manifest::{read, write};

/// Options of `pg_basebackup`, the algorithm and the encoding that the manifest has then.
const WAYS: [(&[&str], ChecksumAlgorithm, PathEncoding); 4] = [
    (&[], ChecksumAlgorithm::Crc32c, PathEncoding::AsNeeded),
    (&["--manifest-checksums=sha224"], ChecksumAlgorithm::Sha224, PathEncoding::AsNeeded),
    (
        &["--manifest-checksums=sha512", "--manifest-force-encode"],
        ChecksumAlgorithm::Sha512,
        PathEncoding::Always,
    ),
    (&["--manifest-checksums=none"], ChecksumAlgorithm::None, PathEncoding::AsNeeded),
];

/// Names that show how paths are escaped and encoded.
const NAMES: [&[u8]; 4] =
    [b"caf\xe9", b"quote\" backslash\\ \x01 tab\t", "h\u{fc}lle \u{1f600}".as_bytes(), b"del\x7f"];

#[test]
fn a_servers_manifest_is_written_again_byte_for_byte_and_verifies() {
    Server::each("manifests", &Server::chosen(&[15, 18]), |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let judge = Judge::find(server);
        for name in NAMES {
            std::fs::write(cluster.data_dir().join(OsStr::from_bytes(name)), name).unwrap();
        }
        for (options, algorithm, encoding) in WAYS {
            let home = TempDir::new().unwrap();
            let backup = home.path().join("backup");
            take(&cluster, options, &backup);
            let bytes = std::fs::read(backup.join("backup_manifest")).unwrap();
            let (items, finished) = read(bytes.chunks(1000)).unwrap();
            assert_eq!(finished.version, if server.major >= 17 { 2 } else { 1 });
            if server.major >= 17 {
                let system = cluster.sql("select system_identifier from pg_control_system()").unwrap();
                assert_eq!(finished.system.unwrap().to_string(), system);
            }
            assert!(matches!(items.last(), Some(Item::WalRange(_))));
            assert!(write(finished.system, encoding, &items) == bytes, "{}: other bytes", server.version);
            check_files(&backup, &items, algorithm);
            verify_and_break(&judge, &backup, &bytes);
        }
    });
}

fn take(cluster: &Cluster, options: &[&str], backup: &Path) {
    let mut command = cluster.command("pg_basebackup");
    command.args(["-X", "stream", "-c", "fast", "--no-sync", "-w"]).args(options);
    let done = command.arg("-D").arg(backup).arg("-d").arg(cluster.conninfo("postgres")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Sizes and checksums of the manifest are those that our hashers give.
fn check_files(backup: &Path, items: &[Item], algorithm: ChecksumAlgorithm) {
    let mut names_seen = 0;
    for item in items {
        let Item::File(entry) = item else { continue };
        let content = std::fs::read(backup.join(OsStr::from_bytes(entry.path.as_bytes()))).unwrap();
        assert_eq!(content.len() as u64, entry.size, "{}", entry.path);
        let mut hasher = Hasher::new(algorithm);
        hasher.update(&content);
        assert_eq!(hasher.finish(), entry.checksum, "{}", entry.path);
        names_seen += usize::from(NAMES.contains(&entry.path.as_bytes()));
    }
    assert_eq!(names_seen, NAMES.len());
}

/// The server's own `pg_verifybackup`, where it can be started.
struct Judge<'a>(Option<&'a ServerBinaries>);

impl Judge<'_> {
    fn find(server: &ServerBinaries) -> Judge<'_> {
        let started = server.command("pg_verifybackup").arg("--version").output();
        if started.is_ok_and(|done| done.status.success()) {
            return Judge(Some(server));
        }
        // The one of version 18 in the wheel that tools/fetch-servers unpacks ends by SIGSEGV.
        let why = format!("pg_verifybackup of PostgreSQL {} does not start", server.version);
        left_out("pg_verifybackup of our manifests", &why);
        Judge(None)
    }

    fn accepts(&self, backup: &Path) {
        let Some(server) = self.0 else { return };
        let done = server.command("pg_verifybackup").arg("-n").arg(backup).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn refuses(&self, backup: &Path, why: &str) {
        let Some(server) = self.0 else { return };
        let done = server.command("pg_verifybackup").arg("-n").arg(backup).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(why), "expected `{why}`: {said}");
    }
}

/// The judge takes our manifest, and refuses it after each kind of change.
fn verify_and_break(judge: &Judge<'_>, backup: &Path, bytes: &[u8]) {
    let path = backup.join("backup_manifest");
    let (whole, finished) = read(std::iter::once(bytes)).unwrap();
    let put = |items: &[Item]| {
        std::fs::write(&path, write(finished.system, PathEncoding::AsNeeded, items)).unwrap()
    };
    put(&whole);
    judge.accepts(backup);

    let is_version =
        |item: &Item| matches!(item, Item::File(entry) if entry.path.as_bytes() == b"PG_VERSION");
    let changed = whole.iter().position(is_version).unwrap();
    let Item::File(entry) = &whole[changed] else { unreachable!() };
    let mut items = whole.clone();
    items[changed] = Item::File(FileEntry { size: entry.size + 1, ..entry.clone() });
    put(&items);
    judge.refuses(backup, "size");
    if entry.checksum.algorithm() != ChecksumAlgorithm::None {
        let mut wrong = entry.checksum.as_bytes().to_vec();
        wrong[0] ^= 1;
        let checksum = Checksum::new(entry.checksum.algorithm(), &wrong).unwrap();
        items[changed] = Item::File(FileEntry { checksum, ..entry.clone() });
        put(&items);
        judge.refuses(backup, "checksum mismatch");
    }
    items.remove(changed);
    put(&items);
    judge.refuses(backup, "not in the manifest");
    let mut damaged = bytes.to_vec();
    let at = damaged.windows(6).position(|window| window == b"\"Size\"").unwrap() + 8;
    damaged[at] = if damaged[at] == b'1' { b'2' } else { b'1' };
    std::fs::write(&path, damaged).unwrap();
    judge.refuses(backup, "manifest checksum mismatch");
}
