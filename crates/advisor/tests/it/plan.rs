//! Plans of rewrites, run by psql against real servers.

mod compared;
mod failures;
mod in_place;
mod random;
mod related;
mod rich;
mod writers;
