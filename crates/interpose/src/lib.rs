//! Puts functions of our own in the place of libc's file functions that a program imports.
//!
//! This crate refuses to know what is in a file: it knows paths, descriptors and whole pages, and asks a
//! [`Front`]. It allocates nothing in a call that a program makes, never unwinds into it, and answers with
//! libc's own error numbers.

pub mod front;
pub mod pages;
pub mod table;

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
pub mod hooks;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
pub mod imports;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
pub mod install;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod original;

pub use front::{Advice, Attributes, Errno, Front, Listed, Moment, Outcome, PAGE_BYTES};
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
pub use install::{Installed, Refused, install, install_despite, install_in_tool, prepare};
pub use pages::{Page, PagesToRead, PagesToWrite};
