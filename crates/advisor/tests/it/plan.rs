//! Plans of rewrites, run by psql against real servers.

mod helpers;
mod rich;
