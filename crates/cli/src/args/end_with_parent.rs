//! `pgshrink end-with-parent`, which pgshrink calls itself.

use clap::Args;
use std::ffi::OsString;

/// A program that ends when the process that started it does.
#[derive(Debug, Clone, Args)]
pub struct EndWithParentArgs {
    /// The process that starts it
    #[arg(value_name = "PID")]
    pub parent: i32,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<OsString>,
}
