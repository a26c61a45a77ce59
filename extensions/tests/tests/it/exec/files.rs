//! cp, tar and pg_checksums on compressed files of a stopped server.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use pgshrink_testkit::{Server, Stop};

use super::{containers, done, exec, outcome};
use crate::compressed::encryption::{encrypted, key};
use crate::compressed::{MAJORS, on_each_major, sum, table};

/// All files below a directory, by their paths from there: a digest of their content.
fn listed(root: &Path) -> Vec<(String, u64, u32)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else if entry.file_type().unwrap().is_file() {
                let content = fs::read(entry.path()).unwrap();
                let digest = content.iter().fold(7u32, |sum, byte| sum.wrapping_mul(31) ^ u32::from(*byte));
                let name = entry.path().strip_prefix(root).unwrap().display().to_string();
                found.push((name, content.len() as u64, digest));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn copies_by_cp_and_tar_are_plain_and_a_server_without_the_library_starts_on_them() {
    on_each_major("cp and tar by cfs exec", |server| {
        server.sql(&table("t", 20_000));
        server.sql("create table b (id int primary key, word text)");
        server.sql("insert into b select i, 'word ' || i % 97 from generate_series(1, 50000) i");
        server.sql("checkpoint; select cfs_compress_relation('b')");
        let base = server.cluster.data_dir().join("base");
        let is_done = || containers(&base) > 0;
        pgshrink_testkit::wait_until(std::time::Duration::from_secs(60), "containers in base/", is_done)
            .unwrap();
        let (t, b) = (server.sql(&sum("t")), server.sql(&sum("b")));
        let oid = server.sql("select oid from pg_tablespace where spcname = 'fast'");
        server.cluster.stop(Stop::Fast).unwrap();
        let (data, fast) = (server.cluster.data_dir(), server.location.path().join("fast"));
        let has = containers(&data) + containers(&fast);
        let to = server.directory("copies");
        let data_option = data.display().to_string();

        done(exec(&server.cluster, &[], "cp").arg("-a").arg(&data).arg(to.join("cp")));
        let options = ["--data-directory", &data_option];
        done(exec(&server.cluster, &options, "cp").arg("-a").arg(&fast).arg(to.join("cp-fast")));
        done(
            exec(&server.cluster, &options, "tar")
                .arg("-C")
                .arg(data.parent().unwrap())
                .arg("-cf")
                .arg(to.join("data.tar"))
                .arg(data.file_name().unwrap())
                .arg("-C")
                .arg(server.location.path())
                .arg("fast"),
        );
        done(server.cluster.owner().command("mkdir").arg(to.join("tar")));
        done(
            server
                .cluster
                .owner()
                .command("tar")
                .arg("-C")
                .arg(to.join("tar"))
                .arg("-xf")
                .arg(to.join("data.tar")),
        );
        assert_eq!(containers(&to), 0);
        let untarred = to.join("tar").join(data.file_name().unwrap());
        assert_eq!(listed(&to.join("cp/base")), listed(&untarred.join("base")));
        assert_eq!(listed(&to.join("cp-fast")), listed(&to.join("tar/fast")));
        assert!(!listed(&to.join("cp-fast")).iter().any(|(name, ..)| name.contains("pgshrink")));
        assert_eq!(containers(&data) + containers(&fast), has, "nothing was changed by reading");

        // In the place of the originals, without the library.
        let originals = server.location.path().join("originals");
        fs::rename(&fast, &originals).unwrap();
        fs::rename(to.join("cp-fast"), &fast).unwrap();
        for name in ["base", "pg_tblspc"] {
            fs::rename(data.join(name), to.join(name)).unwrap();
            fs::rename(to.join("cp").join(name), data.join(name)).unwrap();
        }
        assert!(data.join("pg_tblspc").join(&oid).exists());
        server.cluster.set_conf("shared_preload_libraries", "").unwrap();
        server.cluster.start().unwrap();
        assert_eq!((server.sql(&sum("t")), server.sql(&sum("b"))), (t, b));
    });
}

#[test]
fn pg_checksums_finds_whole_pages_in_containers_and_by_any_path() {
    on_each_major("pg_checksums by cfs exec", |server| {
        server.sql(&table("t", 5_000));
        server.cluster.stop(Stop::Fast).unwrap();
        let data = server.cluster.data_dir();
        let link = server.location.path().join("link");
        symlink(&data, &link).unwrap();
        let program = server.cluster.server().program("pg_checksums");
        let mut enable = exec(&server.cluster, &[], &program);
        let state = server.cluster.server().version.clone();
        // 18 has them from the start.
        if !state.starts_with("18") {
            done(enable.arg("--enable").arg("-D").arg(&data));
        }
        for path in [&data, &link] {
            let said = done(exec(&server.cluster, &[], &program).arg("--check").arg("-D").arg(path));
            assert!(said.contains("Bad checksums:  0"), "{said}");
        }
        let mut relative = exec(&server.cluster, &[], &program);
        relative.current_dir(data.parent().unwrap());
        let said = done(relative.arg("--check").arg("-D").arg(data.file_name().unwrap()));
        assert!(said.contains("Bad checksums:  0"), "{said}");
        server.cluster.start().unwrap();
        assert_eq!(server.sql("show data_checksums"), "on");
        server.sql("select count(*), sum(length(big)) from t");
    });
}

#[test]
fn encrypted_files_are_read_with_their_key_and_with_no_other() {
    Server::each_with_extensions("encrypted files by cfs exec", &MAJORS, |binaries| {
        let server = encrypted(binaries);
        server.sql(&table("t", 5_000));
        server.sql("checkpoint");
        let path = server.sql("select pg_relation_filepath('t')");
        let expected = server.sql("select md5(pg_read_binary_file(pg_relation_filepath('t')))");
        server.cluster.stop(Stop::Fast).unwrap();
        let (data, copies) = (server.cluster.data_dir(), server.directory("copies"));
        let copied = |keys: &[&str], to: &Path| {
            let directory = data.display().to_string();
            let options: Vec<&str> = ["--data-directory", &directory].iter().chain(keys).copied().collect();
            outcome(exec(&server.cluster, &options, "cp").arg(data.join(&path)).arg(to))
        };
        let (right, wrong) = (key(&server.cluster, 7), key(&server.cluster, 8));
        let (code, said) = copied(&[], &copies.join("none"));
        assert!(code != Some(0) && said.contains("key"), "{said}");
        let (code, said) = copied(&["--key-file", wrong.to_str().unwrap()], &copies.join("wrong"));
        assert!(code != Some(0) && said.contains("key"), "{said}");
        let copy = copies.join("right");
        let (code, said) = copied(&["--key-file", right.to_str().unwrap()], &copy);
        assert_eq!(code, Some(0), "{said}");
        let sum = pgshrink_testkit::run::output(std::process::Command::new("md5sum").arg(&copy)).unwrap();
        assert!(sum.starts_with(&expected), "{sum} {expected}");
        server.cluster.start().unwrap();
        assert_eq!(server.sql("select count(*) from t"), "5000");
    });
}
