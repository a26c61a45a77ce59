//! Tests of the hooks in an ordinary process.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
// The hooks are C functions.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[global_allocator]
static COUNTING: pgshrink_testkit::allocations::Counting = pgshrink_testkit::allocations::Counting;

mod allocations;
mod calls;
mod checks;
mod installed;
mod plain_front;
mod random;
