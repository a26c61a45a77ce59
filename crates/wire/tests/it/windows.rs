//! `window_log = "auto"`: what a larger window gains, and when there is none.

use std::sync::Arc;

use pgshrink_wire::negotiate::{Dialect, Offer};
use pgshrink_wire::{Agreed, Link, LinkConfig, MemoryBudget, Policy, Role, WindowLog, message};

use crate::pair::{Random, carry, list};

const MIB: usize = 1 << 20;

/// Lines that repeat `period` bytes later, in CopyData messages: noise in hexadecimal, so that nothing nearer is like it.
fn far_repeats(period: usize, size: usize) -> Vec<u8> {
    let mut random = Random(0x51ed_270b);
    let mut lines = Vec::new();
    while lines.len() < period {
        let line: String = (0..24).map(|_| format!("{:016x}", random.next())).collect();
        lines.extend(message::message(b'd', format!("{line}\n").as_bytes()));
    }
    lines.repeat(size.div_ceil(period))
}

struct Session {
    gateway: Link,
    connector: Link,
    budget: MemoryBudget,
}

fn session(window_log: WindowLog, budget_bytes: usize, invited: Option<u32>) -> Session {
    let offered = list("zstd:1");
    let offer = Offer::new(Dialect::Ack, &offered);
    let offer = match invited {
        Some(log) => offer.invite_window(log),
        None => offer,
    };
    let answer = offer.answer(&offered, 19);
    let mine = Agreed::from_ack(&offered, &answer.ack.unwrap()[5..]).unwrap().unwrap();
    let policy = Policy { window_log, ..Policy::default() };
    let config = Arc::new(LinkConfig { policy, ..LinkConfig::default() });
    let budget = MemoryBudget::new(budget_bytes as u64);
    Session {
        gateway: Link::new(Role::Gateway, answer.agreed.unwrap(), config.clone(), budget.clone()),
        connector: Link::new(Role::Connector, mine, config, MemoryBudget::default()),
        budget,
    }
}

/// Wire bytes of `plain` sent down, which must come back.
fn down(session: &mut Session, plain: &[u8]) -> usize {
    let (wire, back) = carry(&mut session.gateway, &mut session.connector, plain, 64 << 10);
    assert!(back == plain);
    wire.len()
}

#[test]
fn bulk_that_repeats_far_apart_shrinks_and_what_does_not_keeps_its_window() {
    let plain = far_repeats(3 * MIB, 24 * MIB);
    let mut fixed = session(WindowLog::Fixed(19), 1 << 30, Some(23));
    let mut auto = session(WindowLog::Auto, 1 << 30, Some(23));
    let (before, after) = (down(&mut fixed, &plain), down(&mut auto, &plain));
    assert!(after * 2 < before, "{after} of {before}");
    assert!(auto.budget.used() > 8 << 20, "the window is counted: {}", auto.budget.used());
    // Nothing repeats within 8 MiB: the larger window is given back.
    let mut plain_only = session(WindowLog::Auto, 1 << 30, Some(23));
    down(&mut plain_only, &far_repeats(14 * MIB, 14 * MIB));
    assert!(plain_only.budget.used() < 2 << 20, "{} held", plain_only.budget.used());
}

#[test]
fn a_window_grows_only_as_far_as_the_peer_invites_and_half_of_the_memory_allows() {
    let plain = far_repeats(MIB, 4 * MIB);
    for (budget, invited, least, most) in [
        (1 << 30, Some(21), 2 << 20, 4 << 20),
        (1 << 30, None, 0, 2 << 20),
        (1 << 30, Some(19), 0, 2 << 20),
        // Twice 2^21 and 1 MiB are reserved until the encoder is there.
        (12 << 20, Some(23), 2 << 20, 4 << 20),
        (4 << 20, Some(23), 0, 2 << 20),
    ] {
        let mut auto = session(WindowLog::Auto, budget, invited);
        down(&mut auto, &plain);
        let used = auto.budget.used();
        assert!(least <= used && used <= most, "{budget} {invited:?}: {used}");
    }
}
