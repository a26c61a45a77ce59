//! The testkit against real servers, real sockets and the source tree it guards.

mod cluster;
mod corpora;
mod daemon;
mod guardian;
mod netns;
mod relay;
mod tls;
