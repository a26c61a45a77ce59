//! A repository in a real S3 server: s3s-fs, which checks signatures and `If-None-Match`.

use super::model::{self, name};
use pgshrink_repository::{Error, Location, Repository, Variables};
use pgshrink_testkit::relay::{Cut, Direction, Endpoint};
use pgshrink_testkit::{Port, Relay, S3, skipped};
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// `None`: the program is not there, which was reported.
fn start(test: &str) -> Option<S3> {
    match S3::find() {
        Ok(()) => Some(S3::start().unwrap()),
        Err(missing) => {
            skipped(test, &missing);
            None
        }
    }
}

fn variables(s3: &S3, secret: &str) -> Variables {
    let others = [("AWS_SOMETHING_NEW", "is for others"), ("HOME", "/nowhere")];
    let others = others.map(|(name, value)| (name.to_owned(), value.to_owned()));
    s3.variables(secret).into_iter().chain(others).collect()
}

fn open(s3: &S3, location: &str) -> Arc<dyn Repository> {
    Location::parse(location).unwrap().open(&variables(s3, "secret")).unwrap()
}

fn on_a_server(test: &str, run: impl FnOnce(&dyn Repository)) {
    if let Some(s3) = start(test) {
        run(&*open(&s3, "s3://backups/some/prefix"));
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
    let Some(s3) = start("s3::two_prefixes") else { return };
    let (one, other, root) =
        (open(&s3, "s3://backups/db1"), open(&s3, "s3://backups/db10"), open(&s3, "s3://backups"));
    one.create(&name("x"), b"1").unwrap();
    other.create(&name("x"), b"10").unwrap();
    assert_eq!(one.list(None, 10).unwrap().len(), 1);
    assert_eq!(other.read(&name("x"), 0, 2).unwrap(), b"10");
    assert_eq!(root.top(10).unwrap(), ["db1", "db10"]);
    assert!(s3.folder().join("backups/db1/x").exists());
}

#[test]
fn a_wrong_secret_and_a_server_that_is_gone_are_errors() {
    let Some(s3) = start("s3::errors") else { return };
    let wrong = Location::parse("s3://backups/x").unwrap().open(&variables(&s3, "wrong")).unwrap();
    let error = wrong.create(&name("x"), b"x").unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("s3://backups/x") && !text.contains("wrong"), "{text}");

    let repository = open(&s3, "s3://backups");
    let port = s3.stop();
    let started = Instant::now();
    let error = repository.create(&name("x"), b"x").unwrap_err();
    assert!(error.to_string().contains(&port.number().to_string()), "{error}");
    // It is tried again for a while, and not for ever.
    assert!(started.elapsed() < Duration::from_secs(200), "{:?}", started.elapsed());
}

#[test]
fn a_writer_of_a_small_object_does_not_replace_one() {
    on_a_server("writers that come too late", |repository| {
        let mut late = repository.writer(&name("one")).unwrap();
        late.write_all(b"second").unwrap();
        repository.create(&name("one"), b"first").unwrap();
        assert!(matches!(late.finish(), Err(Error::Exists { .. })));
        assert_eq!(repository.read(&name("one"), 0, 5).unwrap(), b"first");
    });
}

/// The store does not know an upload any more: it was completed by a request whose answer was lost, or it was not. What is
/// there under its name tells.
#[test]
fn an_upload_that_is_lost_is_an_error_although_another_object_has_its_name() {
    let Some(s3) = start("s3::lost uploads") else { return };
    let repository = open(&s3, "s3://backups");
    let mut writer = repository.writer(&name("pack")).unwrap();
    writer.write_all(&vec![7; 20 << 20]).unwrap();
    repository.create(&name("pack"), b"another one's").unwrap();
    let left = || fs::read_dir(s3.folder()).unwrap().map(|entry| entry.unwrap().path());
    let uploads: Vec<_> = left().filter(|path| path.is_file()).collect();
    assert!(!uploads.is_empty(), "{:?}", left().collect::<Vec<_>>());
    uploads.iter().for_each(|path| fs::remove_file(path).unwrap());
    assert!(matches!(writer.finish(), Err(Error::Store { .. } | Error::NotFound { .. })));
    assert_eq!(repository.read(&name("pack"), 0, 13).unwrap(), b"another one's");
}

/// `object_store` repeats none of these: a conditional request, whose answer may be lost, and an answer that breaks off.
#[test]
fn a_request_that_was_interrupted_is_repeated_and_an_answer_that_was_lost_is_not_missed() {
    let Some(s3) = start("s3::interrupted requests") else { return };
    let relay = Relay::to(Endpoint::local(s3.port())).start().unwrap();
    let variables = s3.variables("secret").into_iter().map(|(name, value)| match name.as_str() {
        "AWS_ENDPOINT_URL" => (name, format!("http://127.0.0.1:{}", relay.port())),
        _ => (name, value),
    });
    let repository = Location::parse("s3://backups").unwrap().open(&variables.collect()).unwrap();
    let bytes = [7; 300_000];
    for (number, (direction, after)) in
        [(Direction::ToServer, 100), (Direction::ToServer, 200_000), (Direction::ToClient, 10)]
            .into_iter()
            .enumerate()
    {
        let object = name(&format!("one/{number}"));
        relay.cut_after(direction, after, Cut::Reset);
        repository.create(&object, &bytes).unwrap_or_else(|error| panic!("{direction:?} {after}: {error}"));
        assert!(matches!(repository.create(&object, b"another"), Err(Error::Exists { .. })));
        for after in [10, 100_000] {
            relay.cut_after(Direction::ToClient, after, Cut::Reset);
            assert!(repository.read(&object, 0, bytes.len()).unwrap() == bytes, "{after}");
        }
    }
}

/// A store that is started again, for an update, ends no backup of hours.
#[test]
fn a_store_that_has_answered_may_be_away_for_a_while() {
    let Some(s3) = start("s3::a store that is away") else { return };
    let (upstream, port) = (Endpoint::local(s3.port()), Port::reserve().unwrap());
    let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
    let relay = Relay::to(upstream.clone()).listen(address).start().unwrap();
    let variables = s3.variables("secret").into_iter().map(|(name, value)| match name.as_str() {
        "AWS_ENDPOINT_URL" => (name, format!("http://{address}")),
        _ => (name, value),
    });
    let repository = Location::parse("s3://backups").unwrap().open(&variables.collect()).unwrap();
    repository.create(&name("first"), b"1").unwrap();
    let mut writer = repository.writer(&name("pack")).unwrap();
    let bytes = vec![7; 20 << 20];
    writer.write_all(&bytes[..9 << 20]).unwrap();
    drop(relay);
    let away = thread::spawn(move || {
        // Longer than eight attempts take, nearly always.
        thread::sleep(Duration::from_secs(12));
        Relay::to(upstream).listen(address).start().unwrap()
    });
    thread::scope(|scope| {
        scope.spawn(|| repository.create(&name("second"), b"2").unwrap());
        scope.spawn(|| assert_eq!(repository.read(&name("first"), 0, 1).unwrap(), b"1"));
        scope.spawn(|| {
            writer.write_all(&bytes[9 << 20..]).unwrap();
            writer.finish().unwrap();
        });
    });
    let _relay = away.join().unwrap();
    assert_eq!(repository.size(&name("pack")).unwrap(), bytes.len() as u64);
    assert_eq!(repository.read(&name("second"), 0, 1).unwrap(), b"2");
}
