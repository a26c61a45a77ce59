//! Servers that break the rules, on purpose or because they are something else.

use crate::session::{open, open_with, options};
use pgshrink_pgclient::Error;
use pgshrink_pgclient::connection::Options;
use pgshrink_testkit::Authority;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a server does to each client, after it has read something.
enum Step {
    Send(Vec<u8>),
    /// The same, one byte at a time.
    Bytewise(Vec<u8>),
    /// Waits for the client's next message.
    Read,
    /// Sends one byte of an endless message now and then.
    Dribble,
}

/// A server for the life of the test process. Gives a connection string.
fn server(steps: Vec<Step>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            client.set_nodelay(true).unwrap();
            // A client that leaves early ends its session only.
            let _ = serve(&mut client, &steps);
        }
    });
    format!("host=127.0.0.1 port={port} user=ann password=hunter-two sslmode=disable connect_timeout=2")
}

fn serve(client: &mut TcpStream, steps: &[Step]) -> std::io::Result<()> {
    let mut seen = [0; 4096];
    let _ = client.read(&mut seen)?;
    for step in steps {
        match step {
            Step::Send(bytes) => client.write_all(bytes)?,
            Step::Bytewise(bytes) => {
                for byte in bytes {
                    client.write_all(&[*byte])?;
                }
            }
            Step::Read => {
                let _ = client.read(&mut seen)?;
            }
            Step::Dribble => {
                client.write_all(&[b'N', 0, 0, 200, 0])?;
                loop {
                    client.write_all(b"x")?;
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    }
    Ok(())
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

fn authentication(code: u32, rest: &[u8]) -> Vec<u8> {
    message(b'R', &[&code.to_be_bytes()[..], rest].concat())
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

/// A good start of a session.
fn welcome() -> Vec<u8> {
    let key = message(b'K', &[0, 0, 0, 1, 1, 2, 3, 4]);
    [authentication(0, b""), message(b'S', b"server_version\x0015.1\0"), key, ready()].concat()
}

fn refused(steps: Vec<Step>) -> Error {
    open(&server(steps)).unwrap_err()
}

#[test]
fn a_server_of_another_protocol_is_told_from_its_first_bytes() {
    for greeting in ["HTTP/1.1 400 Bad Request\r\n\r\n", "220 mail ESMTP\r\n", "\x16\x03\x01\x02\x00\x01\x00"]
    {
        let error = refused(vec![Step::Send(greeting.into()), Step::Read]);
        assert!(matches!(error, Error::Protocol { .. } | Error::Limit { .. }), "{greeting:?}: {error:?}");
    }
}

#[test]
fn authentication_out_of_order_is_refused() {
    let scram = || Step::Send(authentication(10, b"SCRAM-SHA-256\0\0"));
    let ok = || Step::Send([authentication(0, b""), ready()].concat());
    let foreign_nonce = || Step::Send(authentication(11, b"r=AAAA,s=QSXCR+Q6sek8bf92,i=4096"));
    let cases = [
        (vec![Step::Send(authentication(7, b""))], "GSSAPI is not supported"),
        (vec![Step::Send(authentication(9, b""))], "SSPI is not supported"),
        (vec![Step::Send(authentication(10, b"OAUTHBEARER\0\0"))], "OAUTHBEARER"),
        (vec![scram(), Step::Read, ok()], "before it authenticated itself"),
        (vec![scram(), Step::Read, foreign_nonce()], "SCRAM exchange failed"),
        (vec![scram(), Step::Read, scram()], "wrong order"),
        (vec![Step::Send(authentication(12, b"v=AAAA"))], "wrong order"),
        (vec![ok(), ok(), Step::Send(ready())], ""),
        (vec![Step::Send(ready())], "broke the protocol"),
    ];
    for (steps, expected) in cases {
        let mut steps = steps;
        steps.push(Step::Read);
        let found = open(&server(steps));
        match (found, expected) {
            (Ok(_), "") => {}
            (Err(error), expected) => {
                let text = format!("{error} {error:?}");
                assert!(!expected.is_empty() && text.contains(expected), "{expected}: {text}");
                assert!(!text.contains("hunter"), "{text}");
            }
            (Ok(_), expected) => panic!("let in, expected {expected:?}"),
        }
    }
}

#[test]
fn a_startup_that_is_too_long_or_cut_off_is_refused() {
    let long = message(b'S', &[b'a'; 70_000]);
    assert!(matches!(refused(vec![Step::Send(long), Step::Read]), Error::Limit { .. }));
    let many =
        [authentication(0, b""), message(b'S', b"a\0b\0").repeat(5000), message(b'K', &[0; 8]).repeat(1001)];
    assert!(matches!(refused(vec![Step::Send(many.concat()), Step::Read]), Error::Protocol { .. }));
    let whole = welcome();
    for cut in 0..whole.len() {
        let error = refused(vec![Step::Send(whole[..cut].to_vec())]);
        assert!(matches!(error, Error::Closed { .. } | Error::Lost { .. }), "cut at {cut}: {error:?}");
    }
}

#[test]
fn a_server_that_dribbles_does_not_outlast_the_connect_timeout() {
    let before = Instant::now();
    let error = refused(vec![Step::Dribble]);
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
}

#[test]
fn a_session_works_when_every_byte_comes_alone() {
    let columns = [&[0, 1][..], b"one\0", &[0; 6], &[0, 0, 0, 25], &[0; 8]].concat();
    let row = [&[0, 1][..], &[0, 0, 0, 2], b"42"].concat();
    let done = message(b'C', b"SELECT 1\0");
    let answer =
        [message(b'T', &columns), message(b'D', &row), done, message(b'A', &[0; 9]), ready()].concat();
    let steps = vec![Step::Bytewise(welcome()), Step::Read, Step::Bytewise(answer), Step::Read];
    let mut connection = open(&server(steps)).unwrap();
    let tables = connection.simple_query("select 42 as one").unwrap();
    assert_eq!((tables[0].columns[0].name.as_str(), tables[0].text(0, 0)), ("one", Some("42")));
    assert_eq!((connection.server_version(), connection.process_id()), (Some(150_001), Some(1)));
}

#[test]
fn damaged_answers_end_the_session_with_an_error() {
    let columns = [&[0, 1][..], b"one\0", &[0; 6], &[0, 0, 0, 25], &[0; 8]].concat();
    let cases = [
        message(b'D', &[0, 1, 0, 0, 0, 9, b'x']),
        message(b'T', &columns[..columns.len() - 1]),
        message(b'?', b""),
        vec![b'D', 0, 0, 0, 3],
        vec![b'D', 0x3f, 0xff, 0xff, 0xff],
    ];
    for case in cases {
        let steps = vec![Step::Send(welcome()), Step::Read, Step::Send(case.clone()), Step::Read];
        let mut connection = open(&server(steps)).unwrap();
        let error = connection.simple_query("select 1").unwrap_err();
        assert!(matches!(error, Error::Protocol { .. } | Error::Limit { .. }), "{case:?}: {error:?}");
        assert!(matches!(connection.simple_query("select 1"), Err(Error::Closed { .. })));
    }
}

#[test]
fn a_server_that_starts_up_is_passed_over_and_one_that_refuses_is_not() {
    let starting = |sqlstate: &str| message(b'E', format!("SFATAL\0C{sqlstate}\0Mnot you\0\0").as_bytes());
    let good = server(vec![Step::Send(welcome()), Step::Read]);
    let port = |conninfo: &str| conninfo.split_once("port=").unwrap().1.split_once(' ').unwrap().0.to_owned();
    for (sqlstate, passed_over) in [("57P03", true), ("28P01", false), ("53300", false)] {
        let bad = server(vec![Step::Send(starting(sqlstate))]);
        let both = format!("{good} host=127.0.0.1,127.0.0.1 port={},{}", port(&bad), port(&good));
        let found = open(&both);
        assert_eq!(found.is_ok(), passed_over, "{sqlstate}: {found:?}");
    }
}

#[test]
fn answers_to_the_ssl_request_are_taken_literally() {
    let with_tls =
        |conninfo: String, mode: &str| conninfo.replace("sslmode=disable", &format!("sslmode={mode}"));
    for (answer, expected) in [
        (b"N".to_vec(), "does not support SSL"),
        (b"E".to_vec(), "refused the SSL request"),
        (b"H".to_vec(), "not a PostgreSQL server"),
        (b"Sinjected plain text".to_vec(), "SSL error"),
    ] {
        let conninfo = with_tls(server(vec![Step::Send(answer), Step::Read]), "require");
        let error = open(&conninfo).unwrap_err();
        assert!(matches!(error, Error::Insecure { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let plain = server(vec![Step::Send(b"N".to_vec()), Step::Read, Step::Send(welcome()), Step::Read]);
    assert!(!open(&with_tls(plain, "prefer")).unwrap().is_encrypted());
}

/// A server with TLS from the first byte.
fn direct_server(protocols: &[&[u8]]) -> String {
    let identity = Authority::new().unwrap().server(&["localhost"]).unwrap();
    let cert = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
    let provider = pgshrink_pgclient::tls::provider();
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.unwrap().with_no_client_auth().with_single_cert(vec![cert], key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let client = listener.accept().unwrap().0;
        let session = rustls::ServerConnection::new(config).unwrap();
        let mut stream = rustls::StreamOwned::new(session, client);
        let mut seen = [0; 4096];
        let _ = stream.read(&mut seen).and_then(|_| stream.write_all(&welcome()));
        let _ = stream.read(&mut seen);
    });
    format!("host=127.0.0.1 port={port} user=ann sslmode=require sslnegotiation=direct")
}

#[test]
fn direct_tls_needs_a_server_that_agrees_on_the_protocol() {
    let connection = open(&direct_server(&[b"postgresql"])).unwrap();
    assert!(connection.is_encrypted());
    let without = open(&direct_server(&[])).unwrap_err();
    assert!(without.to_string().contains("without ALPN"), "{without}");
}

#[test]
fn silence_after_a_query_is_a_timeout_of_the_option() {
    let conninfo = server(vec![Step::Send(welcome()), Step::Read, Step::Read]);
    let options = Options { read_timeout: Some(Duration::from_millis(300)), ..options() };
    let mut connection = open_with(&conninfo, &options).unwrap();
    let error = connection.simple_query("select 1").unwrap_err();
    assert!(
        matches!(error, Error::TimedOut { after, .. } if after == Duration::from_millis(300)),
        "{error:?}"
    );
}
