//! Plans of rewrites, run by psql against real servers.

mod failures;
mod helpers;
mod in_place;
mod related;
mod rich;
mod writers;
