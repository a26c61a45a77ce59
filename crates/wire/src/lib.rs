//! PostgreSQL protocol compression without IO.
//!
//! This crate refuses to read a socket, look at a clock or log. Bytes go in, bytes come out; a shell
//! (`pgshrink-gateway`) moves them. It never sends more than a plain session would (see [`Link`]), never allocates
//! what a peer merely declares, and never compresses anything before authentication has ended.
//!
//! ```text
//!   plain side                      wire side
//!   ----------   Link::pump        ----------
//!   messages  ->  group, decide,  ->  frames and plain messages
//!                 encode
//!   messages  <-  check, decode,  <-  frames and plain messages
//!                 walk
//!               Link::handle_wire
//! ```
//!
//! * [`startup`]: packets before the first typed message.
//! * [`negotiate`]: startup keys, answers, level rules of the two dialects.
//! * [`link`]: the engine of one session; [`policy`] says when a frame pays, [`budget`] what all may hold.
//! * [`capture`]: what was said on a captured wire.
//! * [`walk`]: the one walker over messages; [`Conversation`]: where a session stands, by two of them.
//! * [`message`]: headers and builders; [`setting`]: `SET pgshrink.compression` in query texts; `follow`: its answers.
//!
//! Layouts are in `formats/wire.md` and nowhere else.

pub mod budget;
pub mod capture;
mod conversation;
pub mod error;
mod follow;
mod inbound;
pub mod link;
pub mod message;
pub mod negotiate;
mod outbound;
pub mod policy;
mod rows;
pub mod setting;
pub mod startup;
pub mod stats;
pub mod walk;
mod watch;

pub use budget::MemoryBudget;
pub use conversation::Conversation;
pub use error::Error;
pub use link::{Flush, Held, Limits, Link, LinkConfig, Pumped, Role};
pub use negotiate::{Agreed, Answer, Dialect, Offer};
pub use policy::{ContextMode, MessageTypes, Policy, WindowLog};
pub use stats::{Clock, DirectionStats, LinkStats};
