//! Skips: said aloud, and failures where the machine promised.

use std::process::{Command, Output};

fn run_without_18(promise: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cluster::a_cluster_answers_on_tcp_and_on_its_socket"])
        .env("PGSHRINK_PG18_BIN", "/nonexistent")
        .env("PGSHRINK_REQUIRE", promise)
        .output()
        .unwrap()
}

#[test]
fn a_promised_server_that_is_lacking_fails_the_test() {
    let output = run_without_18("program,server");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("on 18 may not be skipped with PGSHRINK_REQUIRE=program,server"), "{said}");
    assert!(said.contains("get it by: a right PGSHRINK_PG18_BIN"), "{said}");
}
