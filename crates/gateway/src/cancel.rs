//! Cancel requests: which server a key belongs to.
//!
//! A cancel request names neither database nor server, only the pid and the secret that the server handed out. Keys
//! seen by this process point to their server. A key that another gateway with the same configuration handed through
//! is tried at every server; one that does not know it ignores it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Duration, timeout};

use crate::stream::Stream;
use crate::throttle::limited;
use crate::upstream::{Target, TcpOptions};

/// Length and code ahead of pid and secret.
const CANCEL_HEADER_SIZE: usize = 8;

/// Keys of the sessions that live in this process.
pub(crate) struct CancelTable<T> {
    keys: Mutex<HashMap<Vec<u8>, Arc<T>>>,
}

impl<T> Default for CancelTable<T> {
    fn default() -> Self {
        Self { keys: Mutex::default() }
    }
}

impl<T> CancelTable<T> {
    /// Remembers where the session with `key` (BackendKeyData's body) lives, until the guard is dropped.
    pub(crate) fn remember(self: &Arc<Self>, key: Vec<u8>, place: Arc<T>) -> KnownKey<T> {
        self.lock().insert(key.clone(), place);
        KnownKey { table: self.clone(), key }
    }

    /// Where the session of a cancel request lives, if it lives here.
    pub(crate) fn find(&self, request: &[u8]) -> Option<Arc<T>> {
        self.lock().get(request.get(CANCEL_HEADER_SIZE..)?).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, Arc<T>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key in the table.
pub(crate) struct KnownKey<T> {
    table: Arc<CancelTable<T>>,
    key: Vec<u8>,
}

impl<T> KnownKey<T> {
    /// The server's process, as its log names it.
    pub(crate) fn pid(&self) -> u32 {
        self.key.first_chunk::<4>().map_or(0, |b| u32::from_be_bytes(*b))
    }
}

impl<T> Drop for KnownKey<T> {
    fn drop(&mut self) {
        self.table.lock().remove(&self.key);
    }
}

/// Hands `request` to each target at once, and waits until each has closed, as libpq waits for the server.
pub(crate) async fn relay(request: &[u8], targets: &[&Target], tcp: &TcpOptions, limit: Duration) {
    let mut tasks = tokio::task::JoinSet::new();
    for target in targets {
        let (target, request, tcp) = ((*target).clone(), request.to_vec(), tcp.clone());
        tasks.spawn(async move {
            let sent = timeout(limit, send(&request, &target, &tcp)).await;
            match sent {
                Ok(Ok(())) => tracing::debug!(server = %target.describe(), "cancel request relayed"),
                Ok(Err(e)) => {
                    limited!(warn, server = %target.describe(), error = %e, "cancel request not relayed");
                }
                Err(_) => limited!(warn, server = %target.describe(), "cancel request not relayed in time"),
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

async fn send(request: &[u8], target: &Target, tcp: &TcpOptions) -> Result<(), String> {
    let mut stream: Stream = target.open_any(tcp).await?;
    stream.write_all(request).await.map_err(|e| e.to_string())?;
    stream.flush().await.map_err(|e| e.to_string())?;
    let mut rest = [0; 64];
    // The server closes when it has signalled the backend; a reset then says the same.
    while matches!(stream.read(&mut rest).await, Ok(n) if n > 0) {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_while_its_session_lives() {
        let table = Arc::new(CancelTable::default());
        let request = [&[0, 0, 0, 16, 4, 210, 22, 46][..], &[0, 0, 0, 9, 1, 2, 3, 4]].concat();
        assert!(table.find(&request).is_none());
        let known = table.remember(request[8..].to_vec(), Arc::new("a"));
        assert_eq!((table.find(&request).as_deref(), known.pid()), (Some(&"a"), 9));
        drop(known);
        assert!(table.find(&request).is_none());
        assert!(table.find(b"short").is_none());
    }
}
