//! What a restore refuses: places inside of each other, and backups whose parts contradict themselves.

use crate::backup::{Kept, backup, damaged, done, ended, give, pgshrink, refused, repository, start};
use pgshrink_backup::pack::{Blake3, ChunkFacts, Ending, Footer, PackNumber, PackWriter, Sha256, Trailer};
use pgshrink_backup::record::Record;
use pgshrink_testkit::{Cluster, Server, TempDir};
use serde_json::Value;
use sha2::Digest;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

#[test]
fn a_tablespace_never_goes_inside_of_the_data_directory_or_of_another_one() {
    let cluster = start(&Server::find(15).unwrap());
    let home = cluster.data_dir().parent().unwrap().to_owned();
    let owner = fs::metadata(&home).unwrap();
    for name in ["one", "two"] {
        let place = home.join(name);
        fs::create_dir(&place).unwrap();
        give(&place, owner.uid(), owner.gid());
        cluster.sql(&format!("create tablespace {name} location '{}'", place.display())).unwrap();
    }
    let keep = TempDir::new().unwrap();
    let name = backup(&cluster, &repository(&keep), &["--compression", "none"]);
    let [into, link, apart] = ["into", "link", "apart"].map(|name| keep.path().join(name));
    symlink(&into, &link).unwrap();
    let into_text = into.to_str().unwrap();
    let [one, two] = ["one", "two"].map(|name| home.join(name).display().to_string());
    let place = |name: &str| keep.path().join(name).display().to_string();
    let inside = [
        (place("into/pg_tblspc/one"), place("apart")),
        (place("into/base/../spaces/one"), place("apart")),
        (place("other/../into/one"), place("apart")),
        (place("link/one"), place("apart")),
        (place("apart"), place("apart/two")),
    ];
    let conninfo = cluster.conninfo("postgres");
    for (at_one, at_two) in inside {
        // As people write directories.
        let [one, two] = [format!("{one}/={at_one}"), format!("{two}={at_two}")];
        let mapping = ["--tablespace-mapping", &one, "--tablespace-mapping", &two];
        let restore = ["restore", &name, "--from", &repository(&keep), "--into", into_text];
        let plain = ["backup", &conninfo, "--to", into_text, "--format", "plain", "--checkpoint", "fast"];
        for words in [&restore[..], &plain] {
            let text = refused(&[words, &mapping].concat());
            assert!(text.contains("is inside") && text.contains("a directory of its own"), "{text}");
            for made in [&into, &apart] {
                let left = fs::read_dir(made).map_or(0, Iterator::count);
                assert_eq!(left, 0, "{at_one}: nothing is left in {}", made.display());
            }
        }
    }
    // On the same machine, and nobody has thought of tablespaces.
    let text = refused(&["restore", &name, "--from", &repository(&keep), "--into", into_text]);
    assert!(text.contains("not empty") && text.contains(&format!("--tablespace-mapping {one}=")), "{text}");
}

#[test]
fn a_role_without_replication_or_a_server_without_senders_is_refused_with_the_next_step() {
    let server = Server::find(15).unwrap();
    let cluster = Cluster::builder().server(&server).conf("max_wal_senders", "1").start().unwrap();
    let keep = TempDir::new().unwrap();
    let words = |conninfo: &str| refused(&["backup", conninfo, "--to", &repository(&keep)]);
    let text = words(&cluster.conninfo("postgres"));
    assert!(text.contains("two free max_wal_senders"), "{text}");
    assert_eq!(text.matches("SQLSTATE").count(), 1, "the same is not said twice: {text}");
    cluster.sql("create role reader login").unwrap();
    let text = words(&format!("{} user=reader", cluster.conninfo("postgres")));
    assert!(text.contains("ALTER ROLE name REPLICATION"), "{text}");
}

/// Changes the record of a backup, with the right checksum.
fn forge_record(backup: &Path, change: impl FnOnce(&mut Record)) {
    let path = backup.join("backup.json");
    let mut forged = Record::read(&fs::read(&path).unwrap()).unwrap();
    change(&mut forged);
    fs::write(&path, forged.write().unwrap()).unwrap();
}

/// Changes what the first pack says of its chunks, with the right checksums everywhere.
fn forge_pack(backup: &Path, change: impl Fn(&mut ChunkFacts)) {
    forge_record(backup, |record| {
        let known = &mut record.packs[0];
        let path = backup.join(known.number.object_name());
        let old = fs::read(&path).unwrap();
        let trailer = old.last_chunk().unwrap();
        let trailer = Trailer::read(trailer, old.len() as u64, record.id, known.number).unwrap();
        let from = trailer.footer_at as usize;
        let footer = Footer::read(&old[from..from + trailer.footer_bytes as usize], &trailer).unwrap();
        let mut writer = PackWriter::new(record.id, known.number);
        for chunk in &footer.chunks {
            let (at, mut facts) = (chunk.at as usize, chunk.facts);
            change(&mut facts);
            writer
                .add(&footer.files[chunk.file], &facts, &old[at..at + chunk.stored_bytes as usize])
                .unwrap();
        }
        let Ending { bytes, footer } = writer.finish();
        known.footer_sha256 = footer;
        fs::write(&path, [&old[..from], &bytes].concat()).unwrap();
    });
}

/// Changes the manifest of a backup, with the right checksums everywhere.
fn forge(backup: &Path, change: impl FnOnce(String) -> String) {
    let sha256 = forge_manifest(backup, change);
    forge_record(backup, |record| record.manifest_sha256 = sha256);
}

/// The same, but the record has the old one. Gives the new one.
fn forge_manifest(backup: &Path, change: impl FnOnce(String) -> String) -> Sha256 {
    let manifest = backup.join("backup_manifest");
    let text = fs::read_to_string(&manifest).unwrap();
    let lines = &text[..text.find("\"Manifest-Checksum\"").unwrap()];
    let lines = change(lines.to_owned());
    let checksum = Sha256(sha2::Sha256::digest(&lines).into());
    let text = format!("{lines}\"Manifest-Checksum\": \"{checksum}\"}}\n");
    fs::write(&manifest, &text).unwrap();
    Sha256(sha2::Sha256::digest(&text).into())
}

#[test]
fn a_backup_with_a_file_that_is_a_directory_or_has_an_internal_name_is_damaged() {
    let kept = Kept::new(&["--compression", "none"]);
    let place = Path::new(&kept.repository()).join(&kept.name);
    let saved = ["backup_manifest", "backup.json"]
        .map(|name| (place.join(name), fs::read(place.join(name)).unwrap()));
    let into = kept.keep.path().join("into");
    for (paths, named) in [
        (&["a", "a/b"][..], "a: "),
        (&["base"], "base: "),
        // A directory without a file.
        (&["pg_replslot"], "pg_replslot: "),
        (&["global/pg_control.pgshrink"], "global/pg_control.pgshrink: "),
        (&["pg_tblspc/1/other"], "pg_tblspc/1/other: "),
    ] {
        forge(&place, |lines| {
            let entry = |path: &&str| {
                format!(
                    "{{ \"Path\": \"{path}\", \"Size\": 0, \"Last-Modified\": \"2026-11-25 14:39:20 GMT\", \
                     \"Checksum-Algorithm\": \"CRC32C\", \"Checksum\": \"00000000\" }},\n"
                )
            };
            let entries: String = paths.iter().map(entry).collect();
            lines.replacen("\"Files\": [\n", &format!("\"Files\": [\n{entries}"), 1)
        });
        let text = damaged(&["verify", &kept.name, "--from", &kept.repository()]);
        assert!(text.contains(named), "{paths:?}: {text}");
        let words = ["restore", &kept.name, "--from", &kept.repository(), "--into", into.to_str().unwrap()];
        let text = refused(&words);
        assert!(text.contains(named) && !into.exists(), "{paths:?}: {text}");
        saved.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }
    // The forgery itself is a backup.
    forge(&place, |lines| lines);
    done(&["verify", &kept.name, "--from", &kept.repository()]);
}

/// Each of these is found by one comparison alone: all other checksums are right.
#[test]
fn a_backup_whose_parts_contradict_each_other_is_damaged_and_the_part_is_named() {
    let kept = Kept::new(&["--compression", "none"]);
    let (repository, place) = (kept.repository(), Path::new(&kept.repository()).join(&kept.name));
    let pack = place.join(PackNumber(1).object_name());
    let saved = [place.join("backup_manifest"), place.join("backup.json"), pack].map(|path| {
        let bytes = fs::read(&path).unwrap();
        (path, bytes)
    });
    let with_version = |lines: &str, change: &dyn Fn(&str) -> String| {
        let line = lines.lines().find(|line| line.contains("\"PG_VERSION\"")).unwrap();
        lines.replacen(line, &change(line), 1)
    };
    let other_sum = |line: &str| {
        let (before, sum) = line.split_once("\"Checksum\": \"").unwrap();
        let digit = if sum.starts_with('0') { '1' } else { '0' };
        format!("{before}\"Checksum\": \"{digit}{}", &sum[1..])
    };
    let comma = |line: &str| format!("{},", line.trim_end_matches(','));
    let system = "\"System-Identifier\": 1,\n\"Files\": [";
    let forgeries: [(&str, &dyn Fn()); 10] = [
        ("PG_VERSION: its CRC-32C", &|| forge(&place, |lines| with_version(&lines, &other_sum))),
        ("PG_VERSION: the backup has it twice", &|| {
            forge(&place, |lines| with_version(&lines, &|line| format!("{}\n{line}", comma(line))));
        }),
        ("another cluster", &|| forge(&place, |lines| lines.replacen("\"Files\": [", system, 1))),
        ("backup_manifest: its SHA-256", &|| {
            forge_manifest(&place, |lines| with_version(&lines, &other_sum));
        }),
        ("more bytes than backup.json says", &|| forge_record(&place, |record| record.raw_bytes -= 1)),
        (" in no pack", &|| forge_record(&place, |record| record.packs[0].unused.push(0))),
        (" in no pack", &|| {
            forge_record(&place, |record| record.packs.truncate(record.packs.len() - 1));
        }),
        ("its footer's SHA-256", &|| {
            forge_record(&place, |record| record.packs[0].footer_sha256 = Sha256([1; 32]));
        }),
        ("the decoded chunk differs", &|| forge_pack(&place, |facts| facts.blake3 = Blake3::of(b"other"))),
        ("the decoded chunk differs", &|| forge_pack(&place, |facts| facts.raw_checksum ^= 1)),
    ];
    for (number, (named, forge)) in forgeries.iter().enumerate() {
        forge();
        let text = damaged(&["verify", &kept.name, "--from", &repository]);
        assert!(text.contains(named), "{number}: expected {named}, found {text}");
        let into = kept.keep.path().join(format!("into{number}"));
        let text = refused(&["restore", &kept.name, "--from", &repository, "--into", into.to_str().unwrap()]);
        assert!(text.contains(named) && !into.join("global/pg_control").exists(), "{number}: {text}");
        saved.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }
    forge_pack(&place, |_| ());
    done(&["verify", &kept.name, "--from", &repository]);
}

#[test]
fn nothing_is_written_inside_of_the_repository_that_is_read() {
    let keep = TempDir::new().unwrap();
    let place = repository(&keep);
    fs::create_dir(&place).unwrap();
    let inside = format!("{place}/new/restored");
    let outside = keep.path().join("outside").to_str().unwrap().to_owned();
    let link = keep.path().join("link");
    symlink(&place, &link).unwrap();
    let linked = link.join("restored").to_str().unwrap().to_owned();
    let mapping = format!("/a={inside}");
    let restore = ["restore", "latest", "--from", &place];
    for words in [
        &["--into", &inside][..],
        &["--into", &place],
        &["--into", &linked],
        &["--into", &outside, "--tablespace-mapping", &mapping],
        &["--into", &outside, "--configuration-into", &inside],
    ] {
        let said = refused(&[&restore[..], words].concat());
        assert!(said.contains("is inside the repository"), "{words:?}: {said}");
    }
    let url = format!("file://{place}");
    let said = refused(&["restore", "latest", "--from", &url, "--into", &inside]);
    assert!(said.contains("--into: ") && said.contains("name a directory outside of it"), "{said}");
    let said = refused(&["verify", "latest", "--from", &place, "--boot", "--scratch", &inside]);
    assert!(said.contains("--scratch: ") && said.contains("is inside the repository"), "{said}");
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}

#[test]
fn damage_is_told_with_its_object_its_place_and_the_next_step() {
    let kept = Kept::new(&[]);
    let root = kept.keep.path().join("repository").join(&kept.name);
    let from = kept.repository();
    let told = || {
        let output = pgshrink(&["verify", &kept.name, "--from", &from, "--json"]);
        assert_eq!(output.status.code(), Some(1));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let message = found["error"]["message"].as_str().unwrap();
        assert!(message.contains("Next step: verify another backup"), "{message}");
        found["error"]["damage"].clone()
    };
    let pack = fs::read_dir(root.join("packs")).unwrap().next().unwrap().unwrap().path();
    let object = format!("{}/packs/{}", kept.name, pack.file_name().unwrap().to_str().unwrap());
    let bytes = fs::read(&pack).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    fs::write(&pack, &flipped).unwrap();
    let damage = told();
    assert_eq!(damage["path"], object, "{damage}");
    let (offset, length) = (damage["offset"].as_u64().unwrap(), damage["bytes"].as_u64().unwrap());
    assert!((offset..offset + length).contains(&(bytes.len() as u64 / 2)), "{damage}");
    fs::write(&pack, &bytes[..bytes.len() - 5000]).unwrap();
    let damage = told();
    assert_eq!(damage["path"], object, "{damage}");
    assert_eq!(
        (&damage["offset"], &damage["bytes"]),
        (&(bytes.len() - 5000).into(), &5000.into()),
        "{damage}"
    );
    fs::write(&pack, &bytes).unwrap();
    let record = fs::read(root.join("backup.json")).unwrap();
    fs::write(root.join("backup.json"), &record[..100]).unwrap();
    let damage = told();
    let message = damage["message"].as_str().unwrap();
    assert!(message.contains("cut off after 100 bytes") && !message.contains("backup.json"), "{damage}");
    let into = kept.keep.path().join("into").to_str().unwrap().to_owned();
    let text = refused(&["restore", &kept.name, "--from", &from, "--into", &into]);
    assert!(text.contains("next step: restore another backup"), "{text}");
}

#[test]
fn a_list_of_no_backups_says_so() {
    let keep = TempDir::new().unwrap();
    let place = keep.path().to_str().unwrap();
    let text = ended(&["list", "--from", place], 0);
    assert!(text.contains(&format!("{place}: the repository has no complete backup")), "{text}");
    assert!(!text.contains("BACKUP"), "{text}");
    assert_eq!(done(&["list", "--from", place]), Value::Array(Vec::new()));
}
