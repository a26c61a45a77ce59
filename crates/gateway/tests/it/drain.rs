//! Shutting down and reloading.

use std::time::Duration;

use pgshrink_gateway::{Control, start_gateway};
use pgshrink_testkit::{Auth, wait_until};

use crate::harness::{Raw, cluster, connector, field, gateway, gateway_config, port, tags};

#[test]
fn a_drain_closes_idle_sessions_at_once_and_lets_transactions_finish() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let near = connector(&gateway, "ack", "zstd:1");
    let mut idle = Raw::login(port(&gateway));
    let mut busy = Raw::login(port(&gateway));
    let mut compressed = Raw::login(port(&near));
    for (raw, name) in [(&mut busy, "a"), (&mut compressed, "b")] {
        raw.query(&format!("begin; create table {name} (n int)"));
        raw.until(b'Z');
    }
    let mut running = Raw::login(port(&gateway));
    running.query("select pg_sleep(1.5)");
    wait_until(Duration::from_secs(90), "the query to run", || {
        let asked =
            "select count(*) from pg_stat_activity where state = 'active' and query like '%sleep(1.5)'";
        cluster.sql(asked).unwrap() == "1"
    })
    .unwrap();
    gateway.order(Control::Drain);
    let (tag, body) = idle.message().unwrap();
    assert_eq!((tag, field(&body, b'C')), (b'E', "57P01".to_string()));
    assert_eq!(field(&body, b'H'), "Reconnect: no transaction was open.");
    assert!(idle.ends());
    assert!(std::net::TcpStream::connect(("127.0.0.1", port(&gateway))).is_err(), "accepts no more");
    for raw in [&mut busy, &mut compressed] {
        raw.query("commit");
        assert_eq!(tags(&raw.until(b'Z')), "CZ");
        let (tag, body) = raw.message().unwrap();
        assert_eq!((tag, field(&body, b'C')), (b'E', "57P01".to_string()));
    }
    assert_eq!(tags(&running.until(b'Z')), "TDCZ");
    assert_eq!(running.message().unwrap().0, b'E');
    gateway.end(Control::Reload).unwrap();
    assert_eq!(cluster.sql("select count(*) from pg_tables where tablename in ('a', 'b')").unwrap(), "2");
}

#[test]
fn what_does_not_finish_in_the_drain_time_is_closed() {
    let cluster = cluster(Auth::Trust);
    let mut config = gateway_config(&cluster);
    config.timeouts.drain_timeout_s = 1;
    let gateway = start_gateway(config).unwrap();
    let mut raw = Raw::login(port(&gateway));
    raw.query("begin");
    raw.until(b'Z');
    gateway.end(Control::Drain).unwrap();
    let (tag, body) = raw.message().unwrap();
    assert_eq!((tag, field(&body, b'C')), (b'E', "57P01".to_string()));
    assert_eq!(field(&body, b'D'), "A transaction or statement was in progress.");
    assert!(field(&body, b'H').starts_with("Reconnect and repeat it"), "{}", field(&body, b'H'));
    wait_until(Duration::from_secs(90), "the server's session to end", || {
        cluster.sql("select count(*) from pg_stat_activity where state like 'idle in%'").unwrap() == "0"
    })
    .unwrap();
}
