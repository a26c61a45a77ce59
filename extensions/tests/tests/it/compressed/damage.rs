//! Containers with damage: what can be read is read, what cannot is named, and the server goes on.

use std::fs;
use std::path::{Path, PathBuf};

use pgshrink_testkit::Stop;

use super::{Compressed, on_each_major, sum};

/// A table of many pages and one beside it; the file of the first one's container, in a stopped server.
fn made(server: &Compressed) -> PathBuf {
    server.sql(
        "create table t (i int, word text) tablespace fast; create table other tablespace fast as select 1 i;
        insert into t select i, md5(i::text) from generate_series(1, 20000) i; vacuum (freeze) t; vacuum (freeze) other",
    );
    let relation = server.sql("select relfilenode from pg_class where relname = 't'");
    let name = server.containers().into_iter().find(|name| name.ends_with(&format!("/{relation}"))).unwrap();
    server.cluster.stop(Stop::Fast).unwrap();
    let version = fs::read_dir(server.location.path().join("fast")).unwrap().next().unwrap().unwrap().path();
    version.join(name).join("segment.pgshrink")
}

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_damaged_page_is_named_with_the_next_step_and_costs_itself_alone() {
    on_each_major("damaged pages", |server| {
        let file = made(server);
        // In the midst of the records of pages.
        change(&file, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle..middle + 512].fill(0x55);
        });
        server.cluster.start().unwrap();
        let said = server.fails("select count(*) from t");
        assert!(said.contains("XX001") && said.contains("invalid page in block"), "{said}");
        assert!(said.contains("DETAIL:") && said.contains("block"), "{said}");
        assert!(said.contains("HINT:") && said.contains("pgshrink cfs salvage"), "{said}");
        assert_eq!(server.sql("select i from t where ctid = '(0,1)'"), "1");
        assert_eq!(server.sql("select count(*) from other"), "1");
        let left = server.sql("set zero_damaged_pages = on; select count(*) between 19000 and 19999 from t");
        assert!(left.ends_with('t'), "{left}");
        server.sql("drop table t; checkpoint");
        assert!(!file.exists());
    });
}

#[test]
fn a_container_that_does_not_open_has_a_size_is_never_empty_and_can_be_dropped() {
    on_each_major("containers that do not open", |server| {
        let file = made(server);
        let whole = fs::read(&file).unwrap();
        let foreign = fs::read(other(server, &file)).unwrap();
        let truncated = whole[..100].to_vec();
        let mut rootless = whole.clone();
        rootless[..12288].fill(0x55);
        for bytes in [vec![], truncated, rootless, foreign] {
            fs::write(&file, bytes).unwrap();
            server.cluster.start().unwrap();
            let said = server.fails("select count(*) from t");
            assert!(said.contains("XX001") && said.contains("DETAIL:"), "{said}");
            server.fails("insert into t values (0)");
            server.fails("vacuum t");
            assert_eq!(server.sql("select pg_relation_size('t') >= 8192"), "t");
            assert_eq!(server.sql("checkpoint; select count(*) from other"), "1");
            server.cluster.stop(Stop::Fast).unwrap();
        }
        fs::write(&file, &whole).unwrap();
        server.cluster.start().unwrap();
        let before = server.sql(&sum("t"));
        server.cluster.stop(Stop::Fast).unwrap();
        change(&file, |bytes| bytes[..12288].fill(0x55));
        server.cluster.start().unwrap();
        server.sql("begin; truncate t; insert into t values (1); rollback");
        server.sql("begin; drop table t; rollback");
        server.cluster.stop(Stop::Fast).unwrap();
        fs::write(&file, &whole).unwrap();
        server.cluster.start().unwrap();
        assert_eq!(server.sql(&sum("t")), before);
        change(&file, |bytes| bytes[..12288].fill(0x55));
        server.cluster.restart().unwrap();
        server.sql("drop table t; drop table other; checkpoint; drop tablespace fast");
    });
}

/// Another relation's container, beside this one.
fn other(server: &Compressed, file: &Path) -> PathBuf {
    let own = file.parent().unwrap();
    let is_main = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let mut beside = server.containers().into_iter().map(|name| name.rsplit('/').next().unwrap().to_owned());
    let other = beside.find(|name| is_main(name) && !own.ends_with(name)).unwrap();
    own.with_file_name(other).join("segment.pgshrink")
}

#[test]
fn a_container_that_is_missing_is_an_error_and_no_empty_table() {
    on_each_major("missing containers", |server| {
        let file = made(server);
        fs::rename(&file, file.with_file_name("elsewhere")).unwrap();
        server.cluster.start().unwrap();
        for statement in ["select count(*) from t", "insert into t values (0)"] {
            let said = server.fails(statement);
            assert!(said.contains("58P01") && said.contains("could not open file"), "{said}");
        }
        assert!(!file.exists());
        assert_eq!(server.sql("select count(*) from other"), "1");
        server.cluster.stop(Stop::Fast).unwrap();
        fs::rename(file.with_file_name("elsewhere"), &file).unwrap();
        // What is made without a record may be there without a container after a crash.
        let free_space = PathBuf::from(format!("{}_fsm", file.parent().unwrap().display()));
        fs::remove_dir_all(&free_space).unwrap();
        fs::create_dir(&free_space).unwrap();
        let owner = server.cluster.owner();
        std::os::unix::fs::chown(&free_space, Some(owner.uid), Some(owner.gid)).unwrap();
        server.cluster.start().unwrap();
        server.sql("insert into t select i, '' from generate_series(20001, 30000) i; vacuum t");
        assert_eq!(server.sql("select count(*) from t"), "30000");
        fs::remove_file(&file).unwrap();
        server.cluster.restart().unwrap();
        server.sql("drop table t; checkpoint");
        assert!(!file.parent().unwrap().exists());
    });
}

#[test]
fn a_file_that_cannot_be_opened_does_not_keep_the_view_from_telling_of_others() {
    use std::os::unix::fs::PermissionsExt;
    on_each_major("unreadable files in the view", |server| {
        let file = made(server);
        let set_mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0);
        server.cluster.start().unwrap();
        let view = "select relation, unreadable from cfs_relations where relation::text in ('t', 'other') order by relation::text";
        assert_eq!(server.sql(view), "other|0\nt|1");
        assert_eq!(server.sql("select cfs_gc_relation('t')"), "0");
        assert!(server.fails("select count(*) from t").contains("42501"));
        // A file that cannot be opened goes with its name.
        server.sql("truncate t; insert into t values (1)");
        server.sql("checkpoint");
        assert!(!file.parent().unwrap().exists());
    });
}
