//! Tests of a server's files, in processes of their own: the working directory is the server's data directory.

mod files;
mod server;
