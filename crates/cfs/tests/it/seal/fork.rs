//! Nonces on both sides of a fork.

// The standard library cannot fork.
#![allow(unsafe_code)]

use super::{Kernel, Seeded, key, opened, repeated_nonces, sealed};
use crate::shell::starting;
use pgshrink_cfs::seal::{MasterKey, Seal};
use std::cell::RefCell;
use std::io::{Read, Write};

const RECORDS: usize = 200;
const PLAINTEXT: &[u8] = b"hint bits set twice";
const RECORD_BYTES: usize = PLAINTEXT.len() + 28;

#[test]
fn a_fork_of_the_process_repeats_no_nonce() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (data, _) = master.new_data_key(&[1; 16], &Kernel);
    let seal = data.into_seal(master.id(), Kernel);
    let mut records: Vec<Vec<u8>> = vec![sealed(&seal, b"place", PLAINTEXT)];
    for _ in 0..3 {
        starting(|| seal_on_both_sides(&seal, &mut records));
    }
    assert_eq!(records.len(), 1 + 6 * RECORDS);
    assert!(records.iter().all(|record| opened(&seal, b"place", record).as_deref() == Some(PLAINTEXT)));
    assert_eq!(repeated_nonces(&records), 0);
}

/// Seals records in this process and in a child, and adds all of them.
fn seal_on_both_sides(seal: &impl Seal, records: &mut Vec<Vec<u8>>) {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: the child allocates (glibc keeps its allocator usable over a fork), writes to a pipe and
    // leaves by _exit; it takes no lock that another thread of the test could hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let mut batch: Vec<u8> = Vec::with_capacity(RECORDS * RECORD_BYTES);
        (0..RECORDS).for_each(|_| seal.seal(b"place", PLAINTEXT, &mut batch));
        let written = writer.write_all(&batch);
        // SAFETY: ends the child without running what the test harness registered.
        unsafe { libc::_exit(i32::from(written.is_err())) };
    }
    drop(writer);
    records.extend((0..RECORDS).map(|_| sealed(seal, b"place", PLAINTEXT)));
    let mut theirs = Vec::new();
    reader.read_to_end(&mut theirs).unwrap();
    records.extend(theirs.chunks(RECORD_BYTES).map(<[u8]>::to_vec));
    let mut status = -1;
    // SAFETY: waits for a child of this test's own.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn a_generator_that_a_fork_duplicates_is_found_out_and_costs_no_plaintext() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (data, _) = master.new_data_key(&[1; 16], &Kernel);
    let planted = Seeded(RefCell::new(42));
    let parent = data.clone().into_seal(master.id(), planted.clone());
    let child = data.into_seal(master.id(), planted);
    let of_parent = sealed(&parent, b"place", b"one version of a page");
    let of_child = sealed(&child, b"place", b"two version of a page");
    assert_eq!(repeated_nonces([&of_parent, &of_child]), 1, "the test for nonces can tell");
    // A stream cipher's outputs would differ in the first three bytes only; here the tag makes the stream.
    let same = |from: usize, to: usize| of_parent[from..to] == of_child[from..to];
    assert!(same(0, 12) && !same(12, 20) && !same(20, 33));
}
