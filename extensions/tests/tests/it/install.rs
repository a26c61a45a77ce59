//! The extension can be installed, made, used, dropped and uninstalled.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use pgshrink_testkit::{Cluster, Server, TempDir, checkout, or_skip};

#[test]
fn a_new_extension_stores_a_document_at_once() {
    Server::each_with_extensions("zson is made", &[15, 16, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster.sql("create extension zson").unwrap();
        cluster.sql("create table t (doc zson); insert into t values ('{\"a\": [1, null]}')").unwrap();
        assert_eq!(cluster.sql("select doc->'a'->>0, doc from t").unwrap(), "1|{\"a\": [1, null]}");
        assert_eq!(cluster.sql("select extversion from pg_extension where extname = 'zson'").unwrap(), "2.0");
    });
}

#[test]
fn uninstalling_removes_the_files_of_an_extension_and_no_others() {
    let server = or_skip!("uninstalling an extension", Server::with_extensions(15));
    let keep = TempDir::new().unwrap();
    // A server that has the original zson as well.
    let (libraries, share) = (keep.path().join("lib"), keep.path().join("share"));
    let theirs = [
        share.join("extension/zson--1.1.sql"),
        share.join("extension/zsonic.control"),
        libraries.join("zson2.so"),
    ];
    for folder in [&libraries, &share.join("extension")] {
        fs::create_dir_all(folder).unwrap();
    }
    theirs.iter().for_each(|file| fs::write(file, "").unwrap());
    let pg_config = keep.path().join("pg_config");
    let script = "#!/bin/sh\ncase $1 in --pkglibdir) echo LIB ;; --sharedir) echo SHARE ;; *) exec REAL \"$@\" ;; esac\n"
        .replace("LIB", libraries.to_str().unwrap())
        .replace("SHARE", share.to_str().unwrap())
        .replace("REAL", server.program("pg_config").to_str().unwrap());
    fs::write(&pg_config, script).unwrap();
    fs::set_permissions(&pg_config, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(checkout().join("tools").join(words[0]));
        // As with sudo: what was built is taken.
        command
            .args(&words[1..])
            .env("PG_CONFIG", &pg_config)
            .env("SUDO_USER", "somebody")
            .env_remove("DESTDIR");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let files = |folder: &Path| fs::read_dir(folder).unwrap().count();
    for extension in ["zson", "cfs"] {
        run(&["extensions", "install", extension]);
        assert!(libraries.join(format!("{extension}.so")).exists());
        assert!(share.join(format!("extension/{extension}.control")).exists());
    }
    run(&["install", "remove", "zson", "cfs"]);
    assert!(theirs.iter().all(|file| file.exists()));
    assert_eq!((files(&libraries), files(&share.join("extension"))), (1, 2));
}
