//! The testkit against real servers.

mod cluster;
