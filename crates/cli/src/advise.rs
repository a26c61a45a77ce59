//! `pgshrink advise`: what a database's layout wastes.

pub mod collect;
