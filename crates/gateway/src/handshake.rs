//! What happens before the pump: first packet, TLS, routing, negotiation, authentication.
//!
//! [`first`] reads what every client begins with, [`gateway`] and [`connector`] decide where the session goes and
//! whether it is compressed, [`auth`] relays the authentication. Each stage is message by message and capped; all of it
//! together is under the login timeout. [`leg::Leg`] is a stream with the bytes read ahead of it.

pub(crate) mod auth;
pub(crate) mod connector;
pub(crate) mod first;
pub(crate) mod gateway;
pub(crate) mod leg;
pub(crate) mod start;

use std::time::Duration;

use pgshrink_wire::Link;
use rustix::time::{ClockId, clock_gettime};

use crate::observe::Meter;

/// A session that is ready for the pump.
pub(crate) struct Ready {
    pub(crate) client: leg::Leg,
    pub(crate) server: leg::Leg,
    /// The engine, when the two ends agreed.
    pub(crate) link: Option<Box<Link>>,
    /// What counts its traffic, when that is observed.
    pub(crate) meter: Option<Box<Meter>>,
}

/// What links time the codec by.
fn clock() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // The kernel counts it from its start: neither is ever negative.
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
