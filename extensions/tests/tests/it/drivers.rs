//! Drivers that people use return of a zson column what they return of a jsonb column, by the recipes of the manual.
//!
//! The programs are in `tests/clients/zson-*`. One that cannot run here reports which packages bring it.

use std::process::Command;

use pgshrink_testkit::{Kind, Missing, checkout, skipped};

use crate::databases::on_one_major;

#[test]
fn python_drivers_and_frameworks_read_and_write_documents() {
    works("zson-python", 6);
}

#[test]
fn node_postgres_reads_and_writes_documents() {
    works("zson-node", 3);
}

#[test]
fn pgx_reads_and_writes_documents() {
    works("zson-pgx", 3);
}

#[test]
fn pgjdbc_reads_and_writes_documents() {
    works("zson-pgjdbc", 11);
}

#[track_caller]
fn works(client: &str, checks_min: usize) {
    let run = checkout().join("tests/clients").join(client).join("run");
    let probe = Command::new(&run).arg("--probe").output().unwrap();
    if probe.status.code() == Some(3) {
        let how = String::from_utf8_lossy(&probe.stdout);
        let how = how.trim().trim_start_matches("missing: ");
        return skipped(client, &Missing::new(client, "its runtime is not installed", how).of(Kind::Program));
    }
    on_one_major(client, |database| {
        let output = Command::new(&run)
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", database.cluster.port().to_string())
            .env("PGUSER", "postgres")
            .env("PGPASSWORD", "")
            .env("PGDATABASE", &database.name)
            .env("PGSSLMODE", "disable")
            .output()
            .unwrap();
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{client}:\n{text}\n{errors}");
        // Maven may begin with the codes that reset a terminal's colours.
        let lines = text.lines().map(|line| line.trim_start_matches("\u{1b}[0m"));
        let passed = lines.filter(|line| line.starts_with("ok ")).count();
        assert!(passed >= checks_min, "{client} checked too little:\n{text}");
    });
}
