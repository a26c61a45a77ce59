//! File descriptors: whether the process may have as many as `limits.max_clients` needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::places::{DESCRIPTORS_EACH, DESCRIPTORS_SPARE};

/// Descriptors that so many clients need: some for each, and a fixed number beside them.
fn needed(clients_max: usize) -> u64 {
    (DESCRIPTORS_EACH * clients_max + DESCRIPTORS_SPARE) as u64
}

/// Raises this process's soft limit as far as `clients_max` sessions need and the hard limit allows, and warns when that is
/// not enough. Called at start and after each reload.
pub(crate) fn provide(clients_max: usize) {
    let limit = getrlimit(Resource::Nofile);
    if let Some(wanted) = raised(&limit, needed(clients_max)) {
        match setrlimit(Resource::Nofile, wanted) {
            Ok(()) => tracing::debug!(limit = wanted.current, "limit of open files raised"),
            Err(error) => tracing::debug!(%error, "limit of open files not raised"),
        }
    }
    if let Some(warning) = warning(&getrlimit(Resource::Nofile), clients_max) {
        tracing::warn!("{warning}");
    }
}

/// The limit to set, if another one is better. No limit at all is `None`.
fn raised(limit: &Rlimit, needed: u64) -> Option<Rlimit> {
    let current = limit.current.filter(|current| *current < needed)?;
    let wanted = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    (wanted > current).then_some(Rlimit { current: Some(wanted), maximum: limit.maximum })
}

fn warning(limit: &Rlimit, clients_max: usize) -> Option<String> {
    let needed = needed(clients_max);
    let current = limit.current.filter(|current| *current < needed)?;
    let enough_for = current.saturating_sub(DESCRIPTORS_SPARE as u64) / DESCRIPTORS_EACH as u64;
    Some(format!(
        "the open files limit (ulimit -n) is {current}, but limits.max_clients = {clients_max} needs \
         {needed}: it is enough for {enough_for} clients only; raise it (LimitNOFILE= in a systemd unit), \
         or lower max_clients"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_as_far_as_it_may_and_a_shortage_is_named() {
        let limit = |current, maximum| Rlimit { current, maximum };
        let spare = DESCRIPTORS_SPARE as u64;
        assert_eq!(
            raised(&limit(Some(1024), Some(1 << 20)), 21_000),
            Some(limit(Some(21_000), Some(1 << 20)))
        );
        assert_eq!(raised(&limit(Some(1024), Some(4096)), 21_000), Some(limit(Some(4096), Some(4096))));
        assert_eq!(raised(&limit(Some(1024), Some(1024)), 21_000), None);
        assert_eq!(raised(&limit(Some(1024), None), 21_000), Some(limit(Some(21_000), None)));
        assert_eq!(raised(&limit(None, None), 21_000), None);
        assert_eq!(warning(&limit(Some(spare + 300), None), 100), None);
        let said = warning(&limit(Some(spare + 150), None), 100).unwrap();
        assert!(
            said.contains(&format!("is {}", spare + 150)) && said.contains("enough for 50 clients"),
            "{said}"
        );
    }
}
