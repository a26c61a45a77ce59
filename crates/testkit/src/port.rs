//! TCP ports that nobody else will take.
//!
//! A port found by binding to 0 can be given to another process between the look and the use. Ours come from
//! below the range the kernel hands out by itself, each behind a lock that test processes respect.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;
use crate::scratch::Reservation;

/// Below Linux's default `net.ipv4.ip_local_port_range`.
const PORTS: Range<u32> = 17_000..32_000;

/// A port reserved until dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _hold: Reservation,
}

impl Port {
    /// Reserves a port on which nothing listens at any address.
    pub fn reserve() -> Result<Port, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let count = PORTS.end - PORTS.start;
        // Processes start at different places: they would else try the same locks in the same order.
        let start = std::process::id().wrapping_mul(2_654_435_761);
        for _ in 0..count {
            let at = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
            let number =
                u16::try_from(PORTS.start + at).map_err(|_| Error::Usage("port range".to_owned()))?;
            let Some(hold) = Reservation::take("ports", &number.to_string())? else { continue };
            if TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).is_ok() {
                return Ok(Port { number, _hold: hold });
            }
        }
        Err(Error::Usage(format!("no free port in {PORTS:?}")))
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// A port reserved for the rest of this process.
pub fn free_port() -> Result<u16, Error> {
    static HELD: Mutex<Vec<Port>> = Mutex::new(Vec::new());
    let port = Port::reserve()?;
    let number = port.number();
    HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(port);
    Ok(number)
}
