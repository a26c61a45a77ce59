//! Estimates agree with what pages become.

use std::time::Duration;

use pgshrink_cfs::estimate::{Allocation, Method, estimate};
use pgshrink_cfs::page::{PAGE_SIZE, PageCodec, Policy, TransformPolicy};

use super::{Page, real_pages};

#[test]
fn an_estimate_is_the_sum_of_its_payloads() {
    let mut pages: Vec<Page> = real_pages().into_iter().map(|(_, page)| page).collect();
    pages.push([0; PAGE_SIZE]);
    let method = Method { policy: Policy::default(), dictionary_size_max: 0 };
    let allocation = Allocation { header_bytes: 40, granule_bytes: 64 };
    let mut ticks = 0;
    let mut clock = || {
        ticks += 1;
        Duration::from_secs(ticks)
    };
    let found = estimate(&pages, 0, &[method], allocation, &mut clock).unwrap();
    let (mut codec, mut payload, mut bytes, mut allocated) = (PageCodec::new(), vec![], 0, 0);
    for (page, block) in pages.iter().zip(0..) {
        payload.clear();
        codec.encode(page, Some(block), &method.policy, None, &mut payload).unwrap();
        bytes += payload.len() as u64;
        allocated += if payload.is_empty() { 0 } else { (payload.len() as u64 + 40).next_multiple_of(64) };
    }
    assert_eq!((found[0].payload_bytes, found[0].allocated_bytes), (bytes, allocated));
    assert_eq!((found[0].page_count, found[0].raw_count), (pages.len(), 0));
    assert_eq!((found[0].encode, found[0].decode), (Duration::from_secs(1), Duration::from_secs(1)));
}

#[test]
fn every_algorithm_is_estimated_and_pages_rearranged_are_smaller_by_each() {
    let pages: Vec<Page> = real_pages().into_iter().map(|(_, page)| page).collect();
    let plain = Method::all().into_iter().map(|mut method| {
        method.policy.transform = TransformPolicy::Off;
        method
    });
    let methods: Vec<Method> = Method::all().into_iter().chain(plain).collect();
    let mut clock = || Duration::ZERO;
    let found = estimate(&pages, 0, &methods, Allocation::default(), &mut clock).unwrap();
    let (ours, plain) = found.split_at(methods.len() / 2);
    for (ours, plain) in ours.iter().zip(plain) {
        assert!(ours.ratio() > plain.ratio(), "{ours:?} and {plain:?}");
    }
}
