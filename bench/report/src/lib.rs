//! What a bench run found, and the page it is published on.
//!
//! A [`Page`] is a JSON file of [`Table`]s, each with the command that made it, and [`Verdict`]s on what had to be
//! reached; its Markdown is rendered from that and from nothing else. A run replaces its own tables and leaves
//! the others. It does not measure: [`cpu`] and [`samples`] are for those who do.

pub mod arguments;
pub mod cpu;
pub mod machine;
pub mod markdown;
pub mod page;
pub mod publish;
pub mod samples;

pub use arguments::Arguments;
pub use cpu::cpu_seconds_of_thread;
pub use machine::Machine;
pub use page::{Column, Page, Run, Table, Unit, Value, Verdict};
pub use publish::{Publication, checkout};
pub use samples::Samples;

/// Whatever went wrong; a bench has nobody to tell but its user.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// A result with that.
pub type Result<T> = std::result::Result<T, Error>;
