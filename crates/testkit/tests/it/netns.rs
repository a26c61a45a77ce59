//! Shaped links.

use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Instant;

use pgshrink_testkit::netns::{Link, LinkShape};
use pgshrink_testkit::or_skip;

#[test]
fn a_link_carries_its_rate_and_no_more() {
    let rate = 4_000_000;
    let link = or_skip!("a link carries its rate", Link::new(LinkShape::of(rate))).unwrap();
    let listener = TcpListener::bind((link.near(), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec 3<>/dev/tcp/{}/{port}; cat <&3 | wc -c", link.near());
    let far = link.command("bash").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stream, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), link.far());
    let sent = 4 * rate as usize;
    let start = Instant::now();
    stream.write_all(&vec![7; sent]).unwrap();
    drop(stream);
    let done = far.wait_with_output().unwrap();
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), sent.to_string());
    println!("{:.2} MB/s through {} MB/s", sent as f64 / seconds / 1e6, rate / 1_000_000);
    // Four seconds of traffic; the first burst is free, TCP's headers are not.
    assert!(seconds > 3.5, "{seconds}");
}

#[test]
fn a_link_goes_away_with_its_value() {
    let link = or_skip!("a link goes away", Link::new(LinkShape::of(1_000_000))).unwrap();
    let near = link.near();
    assert!(TcpListener::bind((near, 0)).is_ok());
    let record = format!("/run/netns/{}", link.namespace());
    assert!(std::path::Path::new(&record).exists());
    drop(link);
    assert!(!std::path::Path::new(&record).exists());
    assert!(TcpListener::bind((near, 0)).is_err());
}
