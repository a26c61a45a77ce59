//! A repository in a real S3 server: s3s-fs, which checks signatures and `If-None-Match`.

use super::model::{self, name};
use pgshrink_repository::{Error, Location, Repository, Variables};
use pgshrink_testkit::error::Missing;
use pgshrink_testkit::{Daemon, Port, TempDir, skipped, wait_until};
use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A server with the bucket `backups`.
struct S3 {
    server: Daemon,
    port: Port,
    folder: TempDir,
}

impl S3 {
    /// `None`: the program is not there, which was reported.
    fn start(test: &str) -> Option<S3> {
        let program = pgshrink_testkit::checkout().join("target/tools/bin/s3s-fs");
        if !program.exists() {
            let why = format!("{} is not there", program.display());
            skipped(test, &Missing::new("s3s-fs", why, "tools/setup test"));
            return None;
        }
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("backups")).unwrap();
        let port = Port::reserve().unwrap();
        let mut command = Command::new(program);
        command.args(["--access-key", "someone", "--secret-key", "secret", "--host", "127.0.0.1"]);
        command.arg("--port").arg(port.number().to_string()).arg(folder.path());
        let server = Daemon::spawn(&mut command).unwrap();
        let address = ("127.0.0.1", port.number());
        wait_until(Duration::from_secs(20), "s3s-fs", || TcpStream::connect(address).is_ok())
            .unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
        Some(S3 { server, port, folder })
    }

    fn variables(&self, secret: &str) -> Variables {
        let endpoint = format!("http://127.0.0.1:{}", self.port.number());
        let variables = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "someone"),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_REGION", "us-east-1"),
            ("AWS_SOMETHING_NEW", "is for others"),
            ("HOME", "/nowhere"),
        ];
        variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn open(&self, location: &str) -> Arc<dyn Repository> {
        Location::parse(location).unwrap().open(&self.variables("secret")).unwrap()
    }
}

fn on_a_server(test: &str, run: impl FnOnce(&dyn Repository)) {
    if let Some(s3) = S3::start(test) {
        run(&*s3.open("s3://backups/some/prefix"));
    }
}

#[test]
fn objects_are_kept_and_listed() {
    on_a_server("s3::objects_are_kept_and_listed", model::keeps_objects);
}

/// One after the other: this server looks for the object, and then writes it, so that of several at once all succeed. S3
/// itself does better. Whoever relies on it reads again what it has created.
#[test]
fn an_object_is_created_once() {
    on_a_server("s3::an_object_is_created_once", model::creates_once);
}

#[test]
fn large_objects_are_kept() {
    on_a_server("s3::large_objects_are_kept", model::keeps_large_objects);
}

#[test]
fn what_was_not_finished_is_not_there() {
    on_a_server("s3::what_was_not_finished_is_not_there", model::forgets_unfinished_objects);
}

#[test]
fn two_prefixes_of_a_bucket_know_nothing_of_each_other() {
    let Some(s3) = S3::start("s3::two_prefixes") else { return };
    let (one, other, root) =
        (s3.open("s3://backups/db1"), s3.open("s3://backups/db10"), s3.open("s3://backups"));
    one.create(&name("x"), b"1").unwrap();
    other.create(&name("x"), b"10").unwrap();
    assert_eq!(one.list(None, 10).unwrap().len(), 1);
    assert_eq!(other.read(&name("x"), 0, 2).unwrap(), b"10");
    assert_eq!(root.top(10).unwrap(), ["db1", "db10"]);
    assert!(s3.folder.path().join("backups/db1/x").exists());
}

#[test]
fn a_wrong_secret_and_a_server_that_is_gone_are_errors() {
    let Some(s3) = S3::start("s3::errors") else { return };
    let wrong = Location::parse("s3://backups/x").unwrap().open(&s3.variables("wrong")).unwrap();
    let error = wrong.create(&name("x"), b"x").unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("s3://backups/x") && !text.contains("wrong"), "{text}");

    let repository = s3.open("s3://backups");
    let S3 { server, port, .. } = s3;
    drop(server);
    let started = std::time::Instant::now();
    let error = repository.create(&name("x"), b"x").unwrap_err();
    assert!(error.to_string().contains(&port.number().to_string()), "{error}");
    // It is tried again for a while, and not for ever.
    assert!(started.elapsed() < Duration::from_secs(200), "{:?}", started.elapsed());
}
