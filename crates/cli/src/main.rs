//! The binary `pgshrink`.

fn main() -> std::process::ExitCode {
    pgshrink_cli::main(std::env::args_os())
}
