//! One server's compressed files: which there are, who has them open, how they are written.

pub mod setting;
