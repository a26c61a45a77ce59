//! The gateway's own account of what it moved, from its metrics page.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::failure::Failure;

const TIME_MAX: Duration = Duration::from_secs(10);
const PAGE_SIZE_MAX: u64 = 1 << 20;
const WIRE_BYTES: &str = "pgshrink_wire_bytes_total";

/// What the gateway says it moved on its compressed side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WireBytes {
    pub(super) to_server: u64,
    pub(super) to_client: u64,
}

impl WireBytes {
    /// Both directions.
    pub(super) fn sum(self) -> u64 {
        self.to_server + self.to_client
    }

    /// True when each direction falls short of `counted` by at most `short_max`, and exceeds it by nothing.
    pub(super) fn explains(self, counted: WireBytes, short_max: u64) -> bool {
        let explained = |reported: u64, counted: u64| (reported..=reported + short_max).contains(&counted);
        explained(self.to_server, counted.to_server) && explained(self.to_client, counted.to_client)
    }
}

/// Reads the page of the gateway on this machine.
pub(super) fn read(port: u16) -> Result<WireBytes, Failure> {
    let page = fetch(port).map_err(|error| {
        let what = format!("reading the gateway's metrics page at 127.0.0.1:{port}/metrics");
        Failure::with_advice(
            format!("{what}: {error}"),
            "nothing of your machine is at fault: please report this",
        )
    })?;
    parse(&page).ok_or_else(|| Failure::with_advice(format!("the metrics page has no {WIRE_BYTES}:"), page))
}

fn fetch(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(TIME_MAX))?;
    // HTTP/1.0: the page ends with the connection, without chunks.
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(PAGE_SIZE_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(std::io::Error::other(format!("answered `{status}`")));
    }
    Ok(answer)
}

/// Sums the samples of all servers.
fn parse(page: &str) -> Option<WireBytes> {
    let mut found = None;
    for line in page.lines() {
        let Some(sample) = line.strip_prefix(WIRE_BYTES).and_then(|rest| rest.strip_prefix('{')) else {
            continue;
        };
        let (labels, rest) = sample.rsplit_once('}')?;
        let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
        let sum: &mut WireBytes = found.get_or_insert_default();
        if labels.contains("direction=\"to_server\"") {
            sum.to_server += value as u64;
        } else if labels.contains("direction=\"to_client\"") {
            sum.to_client += value as u64;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortfall_within_the_bound_is_explained_and_nothing_else_is() {
        let reported = WireBytes { to_server: 100, to_client: 200 };
        let counted = |to_server, to_client| WireBytes { to_server, to_client };
        assert!(reported.explains(counted(100, 200), 0) && reported.explains(counted(110, 205), 10));
        assert!(!reported.explains(counted(111, 200), 10), "too much is missing");
        assert!(!reported.explains(counted(100, 199), 10), "the gateway claims more than passed");
    }

    #[test]
    fn samples_of_all_servers_are_summed_by_direction() {
        let page = "HTTP/1.0 200 OK\r\n\r\n# TYPE pgshrink_wire_bytes counter\n\
            pgshrink_wire_bytes_total{server=\"a\",direction=\"to_client\"} 5\n\
            pgshrink_wire_bytes_total{server=\"b\",direction=\"to_client\"} 6\n\
            pgshrink_wire_bytes_total{server=\"a\",direction=\"to_server\"} 7\n\
            pgshrink_raw_bytes_total{server=\"a\",direction=\"to_server\"} 70\n";
        assert_eq!(parse(page), Some(WireBytes { to_server: 7, to_client: 11 }));
        assert_eq!(parse("# EOF\n"), None);
    }
}
