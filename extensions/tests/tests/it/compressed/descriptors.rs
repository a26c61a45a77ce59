//! Servers that may have few file descriptors.

use std::process::{Child, Stdio};
use std::time::Duration;

use pgshrink_testkit::{Stop, run, wait_until};

use super::{Compressed, on_each_major};

const RELATIONS: u32 = 400;

/// The server, with a limit that it cannot raise.
fn start_with(server: &Compressed, descriptors: u32) -> Child {
    let cluster = &server.cluster;
    let mut command = cluster.owner().command("prlimit");
    command.arg(format!("--nofile={descriptors}:{descriptors}"));
    command.arg(cluster.server().program("postgres")).arg("-D").arg(cluster.data_dir());
    let child = command.stdout(Stdio::null()).stderr(std::fs::File::create(log_of(server)).unwrap()).spawn();
    let child = child.unwrap();
    wait_until(Duration::from_secs(60), "the server to answer", || cluster.sql("select 1").is_ok()).unwrap();
    child
}

fn log_of(server: &Compressed) -> std::path::PathBuf {
    server.location.path().join("log")
}

#[test]
fn checkpoints_of_more_files_than_a_process_may_have_open_succeed() {
    on_each_major("few descriptors", |server| {
        server.cluster.stop(Stop::Fast).unwrap();
        for (round, descriptors) in [100, 256, 1024].into_iter().enumerate() {
            let mut child = start_with(server, descriptors);
            server.sql(&format!(
                "set synchronous_commit = off;
                do $$ begin for i in 1..{RELATIONS} loop
                execute format('create table t{round}_%s tablespace fast as select n, n::text w from generate_series(1, 50) n', i);
                if i % 50 = 0 then commit; end if; end loop; end $$; checkpoint"
            ));
            // Each of them is named by now, and has changed again.
            server.sql(&format!(
                "do $$ begin for i in 1..{RELATIONS} loop
                execute format('update t{round}_%s set w = w || 1', i); if i % 50 = 0 then commit; end if; end loop; end $$; checkpoint"
            ));
            let mut stop = server.cluster.owner().command(server.cluster.server().program("pg_ctl"));
            run::output(stop.args(["-m", "fast", "-w", "stop", "-D"]).arg(server.cluster.data_dir()))
                .unwrap();
            child.wait().unwrap();
            let log = std::fs::read_to_string(log_of(server)).unwrap();
            assert!(!log.contains("PANIC") && !log.contains("pgshrink cfs:"), "{descriptors}: {log}");
        }
        server.cluster.start().unwrap();
        let rows = server.sql(&format!(
            "create function rows() returns bigint language plpgsql as $$ declare s bigint := 0; m bigint; begin
            for r in 0..2 loop for i in 1..{RELATIONS} loop
            execute format('select count(*) from t%s_%s where w = n || ''1''', r, i) into m; s := s + m; end loop; end loop; return s; end $$;
            select rows()"
        ));
        assert_eq!(rows.trim(), (3 * RELATIONS * 50).to_string());
    });
}
