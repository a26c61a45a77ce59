//! Tablespaces with uncommon places in `pgshrink backup` and `restore`, with real servers.

use crate::backup::{backup, boot, done, give, refused, repository};
use pgshrink_testkit::{Cluster, Server, TempDir};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const INSIDE: &str = "select (select sum(n) from inside), (select count(*) from nothing)";

#[test]
fn an_archive_has_tablespaces_that_lie_in_pg_tblspc_itself() {
    Server::each("in-place tablespaces of archives", &[15, 16, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster.set_conf("allow_in_place_tablespaces", "on").unwrap();
        cluster.reload().unwrap();
        cluster.sql("create tablespace inside location ''").unwrap();
        cluster.sql("create tablespace empty location ''").unwrap();
        cluster
            .sql(
                "create table inside tablespace inside as select n from generate_series(1, 500) n;
                 create table nothing (n int) tablespace inside",
            )
            .unwrap();
        let expected = cluster.sql(INSIDE).unwrap();
        // BASE_BACKUP lists them from 16 on; the parallel route never does.
        let route = if server.major < 18 { "stream" } else { "parallel" };
        let keep = TempDir::new().unwrap();
        let name = backup(&cluster, &repository(&keep), &["--route", route]);
        let copy = boot(server, |into| {
            done(&["restore", &name, "--from", &repository(&keep), "--into", into.to_str().unwrap()]);
            for entry in into.join("pg_tblspc").read_dir().unwrap() {
                assert!(entry.unwrap().file_type().unwrap().is_dir());
            }
            // Recovery of a copy needs it, and the copy has a postgresql.conf of its own.
            let path = into.join("postgresql.auto.conf");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text + "allow_in_place_tablespaces = on\n").unwrap();
        });
        assert_eq!(copy.sql(INSIDE).unwrap(), expected);
        copy.sql("create table another tablespace empty as select 1 as n").unwrap();
    });
}

#[test]
fn a_mapping_of_tablespaces_is_written_as_for_pg_basebackup() {
    let server = Server::find(15).unwrap();
    let cluster = Cluster::builder().server(&server).start().unwrap();
    let home = cluster.data_dir().parent().unwrap().to_owned();
    let owner = fs::metadata(&home).unwrap();
    let place = home.join(r"old=1\2");
    fs::create_dir(&place).unwrap();
    give(&place, owner.uid(), owner.gid());
    let location = place.to_str().unwrap();
    cluster.sql(&format!("create tablespace one location '{location}'")).unwrap();
    cluster.sql("create table elsewhere tablespace one as select 1 as n").unwrap();
    let keep = TempDir::new().unwrap();
    let name = backup(&cluster, &repository(&keep), &[]);
    let moved = home.join(r"new=1\2");
    let escaped = |path: &Path| path.to_str().unwrap().replace('=', r"\=");
    let copy = boot(&server, |into| {
        let (repository, into) = (repository(&keep), into.to_str().unwrap());
        let words = ["restore", &name, "--from", &repository, "--into", into, "--tablespace-mapping"];
        let two = format!("{location}={}", moved.display());
        let said = refused(&[&words[..], &[&two]].concat());
        assert!(said.contains(r"with \= for each = in them") && said.contains(&two), "{said}");
        let mapping = format!("{}/={}//", escaped(&place), escaped(&moved));
        done(&[&words[..], &[&mapping]].concat());
        give(&moved, owner.uid(), owner.gid());
    });
    assert_eq!(copy.sql("select n from elsewhere").unwrap(), "1");
    let found =
        copy.sql("select pg_tablespace_location(oid) from pg_tablespace where spcname = 'one'").unwrap();
    assert_eq!(found, moved.to_str().unwrap());
}

#[test]
fn a_location_that_is_not_utf8_is_refused_by_an_archive_and_taken_by_a_tar() {
    let server = Server::find(15).unwrap();
    let cluster = Cluster::builder().server(&server).initdb_arg("--encoding=SQL_ASCII").start().unwrap();
    let home = cluster.data_dir().parent().unwrap().to_owned();
    let owner = fs::metadata(&home).unwrap();
    let place = home.join(OsStr::from_bytes(b"space\xff"));
    fs::create_dir(&place).unwrap();
    give(&place, owner.uid(), owner.gid());
    cluster.sql(&format!("create tablespace one location E'{}/space\\xff'", home.display())).unwrap();
    let keep = TempDir::new().unwrap();
    let conninfo = format!("{} client_encoding=SQL_ASCII", cluster.conninfo("postgres"));
    let place = repository(&keep);
    let words = ["backup", &conninfo, "--checkpoint", "fast", "--to", &place];
    for route in ["stream", "parallel"] {
        let said = refused(&[&words[..], &["--route", route]].concat());
        assert!(said.contains("not UTF-8") && said.contains("--format tar"), "{route}: {said}");
    }
    assert_eq!(fs::read_dir(&place).into_iter().flatten().count(), 0, "nothing was stored");
    let tar = keep.path().join("tar");
    let words = ["backup", &conninfo, "--checkpoint", "fast", "--format", "tar", "--to"];
    let report = done(&[&words[..], &[tar.to_str().unwrap()]].concat());
    assert_eq!(report["members"].as_array().unwrap().len(), 4, "{report}");
}
