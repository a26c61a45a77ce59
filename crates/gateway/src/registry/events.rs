//! Counts of what happened to connections. They only go up; the groups are label values of metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Refusal, sqlstate};

/// A closed list of label values.
pub trait Label: Copy + Sized + 'static {
    /// All of them, in the order of their indexes.
    const ALL: &'static [Self];

    /// The text in metrics and in the console.
    fn name(self) -> &'static str;

    /// Position in [`Label::ALL`].
    fn index(self) -> usize;
}

/// A label value and its count.
pub type Reason = (&'static str, u64);

/// All counts.
#[derive(Debug, Default)]
pub struct Events {
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections closed before their first packet was here: too many at once.
    pub dropped: AtomicU64,
    /// Sessions that got past authentication.
    pub sessions: AtomicU64,
    /// Of these, with compression.
    pub compressed: AtomicU64,
    /// Cancel requests relayed.
    pub cancels: AtomicU64,
    /// Cancel requests closed without being relayed: too many at once.
    pub dropped_cancels: AtomicU64,
    /// `limits.max_clients` or `limits.max_clients_per_address` was reached.
    pub refused_limit: AtomicU64,
    /// The process drains.
    pub refused_draining: AtomicU64,
    /// `tls.required`.
    pub refused_tls_required: AtomicU64,
    /// The server asked for no password.
    pub refused_unchallenged: AtomicU64,
    /// The connector insists on compression.
    pub refused_plain: AtomicU64,
    /// No server is configured for the database and user.
    pub refused_no_server: AtomicU64,
    /// The console does not admit the client.
    pub refused_console: AtomicU64,
    /// Refused for any other reason.
    pub refused_other: AtomicU64,
    /// `timeouts.login_timeout_s`.
    pub login_timeouts: AtomicU64,
    /// The client went away, or TLS with it failed.
    pub login_client_lost: AtomicU64,
    /// The server went away.
    pub login_server_lost: AtomicU64,
    /// The server answered with an error: a wrong password, no such database.
    pub login_rejected: AtomicU64,
    /// Attempts to reach a server that failed.
    pub connect_failures: AtomicU64,
    /// The peer broke the protocol, a limit, or sent what does not decode.
    pub protocol_errors: AtomicU64,
    /// Of these, sizes and counts over a limit: bombs, oversize wrappers and messages.
    pub limit_errors: AtomicU64,
    /// The client asked for no compression, or the connector is told to ask for none.
    pub plain_unasked: AtomicU64,
    /// Nothing in common.
    pub plain_no_common: AtomicU64,
    /// Compression was asked for, and this process only observes.
    pub plain_observed: AtomicU64,
    /// The peer refuses to be asked.
    pub plain_refused_by_peer: AtomicU64,
    /// Items of offers that mean nothing here.
    pub unknown_algorithms: AtomicU64,
}

impl Events {
    /// Counts one.
    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts hostile or broken input, by what the client is told.
    pub(crate) fn count_hostile(&self, refusal: &Refusal) {
        Self::count(&self.protocol_errors);
        if refusal.sqlstate == sqlstate::LIMIT_EXCEEDED {
            Self::count(&self.limit_errors);
        }
    }

    /// Clients turned away with a clear error (`dropped`: without), by reason.
    pub fn refused(&self) -> Vec<Reason> {
        read(&[
            ("limit", &self.refused_limit),
            ("dropped", &self.dropped),
            ("cancel_flood", &self.dropped_cancels),
            ("draining", &self.refused_draining),
            ("tls_required", &self.refused_tls_required),
            ("unchallenged", &self.refused_unchallenged),
            ("compression_required", &self.refused_plain),
            ("no_server", &self.refused_no_server),
            ("console", &self.refused_console),
            ("other", &self.refused_other),
        ])
    }

    /// Logins that did not get as far as AuthenticationOk and were not refused here, by reason.
    pub fn login_failures(&self) -> Vec<Reason> {
        read(&[
            ("timeout", &self.login_timeouts),
            ("client_lost", &self.login_client_lost),
            ("server_lost", &self.login_server_lost),
            ("rejected_by_server", &self.login_rejected),
        ])
    }

    /// Sessions without compression, by reason.
    pub fn plain(&self) -> Vec<Reason> {
        read(&[
            ("not_asked", &self.plain_unasked),
            ("nothing_common", &self.plain_no_common),
            ("observing", &self.plain_observed),
            ("refused_by_peer", &self.plain_refused_by_peer),
        ])
    }

    /// Hostile or broken input, by kind.
    pub fn hostile(&self) -> Vec<Reason> {
        let [all, limit] = [&self.protocol_errors, &self.limit_errors].map(|c| c.load(Ordering::Relaxed));
        vec![("protocol", all.saturating_sub(limit)), ("limit", limit)]
    }
}

fn read(counters: &[(&'static str, &AtomicU64)]) -> Vec<Reason> {
    counters.iter().map(|(name, counter)| (*name, counter.load(Ordering::Relaxed))).collect()
}
