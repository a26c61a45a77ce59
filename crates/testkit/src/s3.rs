//! Private S3 servers: s3s-fs, which checks signatures and `If-None-Match`, and versitygw for soak tests.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::daemon::Daemon;
use crate::error::{Doing, Error, Missing};
use crate::port::Port;
use crate::scratch::TempDir;
use crate::skip::checkout;
use crate::wait::wait_until;

const S3S: &str = "s3s-fs";
const VERSITY: &str = "versitygw";
const ACCESS_KEY: &str = "someone";
const SECRET: &str = "secret";
/// How long it may take to listen.
const START_MAX: Duration = Duration::from_secs(20);

/// A server with one bucket, gone when dropped.
#[derive(Debug)]
pub struct S3 {
    server: Daemon,
    port: Port,
    folder: TempDir,
}

impl S3 {
    /// The bucket.
    pub const BUCKET: &str = "backups";

    /// Looks for s3s-fs.
    ///
    /// # Errors
    /// What is lacking, when `tools/setup test` has not built it.
    pub fn find() -> Result<(), Missing> {
        installed(S3S, "tools/setup test")
    }

    /// Starts s3s-fs.
    ///
    /// # Errors
    /// What kept it from listening.
    pub fn start() -> Result<S3, Error> {
        Self::listening(S3S, |command, port, folder| {
            command.args(["--access-key", ACCESS_KEY, "--secret-key", SECRET, "--host", "127.0.0.1"]);
            command.arg("--port").arg(port.to_string()).arg(folder);
        })
    }

    /// Looks for versitygw, which shares no code with s3s-fs.
    ///
    /// # Errors
    /// What is lacking, when `tools/setup soak` has not built it.
    pub fn find_versity() -> Result<(), Missing> {
        installed(VERSITY, "tools/setup soak")
    }

    /// Starts versitygw.
    ///
    /// # Errors
    /// What kept it from listening.
    pub fn start_versity() -> Result<S3, Error> {
        Self::listening(VERSITY, |command, port, folder| {
            command.args([
                "--access",
                ACCESS_KEY,
                "--secret",
                SECRET,
                "--port",
                &format!("127.0.0.1:{port}"),
            ]);
            command.arg("posix").arg(folder);
        })
    }

    fn listening(program: &str, arguments: impl FnOnce(&mut Command, u16, &Path)) -> Result<S3, Error> {
        let folder = TempDir::new()?;
        let bucket = folder.path().join(Self::BUCKET);
        std::fs::create_dir(&bucket).doing(|| format!("creating {}", bucket.display()))?;
        let port = Port::reserve()?;
        let mut command = Command::new(path_of(program));
        arguments(&mut command, port.number(), folder.path());
        let server = Daemon::spawn(&mut command)?;
        let address = ("127.0.0.1", port.number());
        wait_until(START_MAX, program, || TcpStream::connect(address).is_ok())?;
        Ok(S3 { server, port, folder })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where it keeps objects, as files below their bucket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Environment variables for its clients, with this secret; `secret` is the right one.
    pub fn variables(&self, secret: &str) -> Vec<(String, String)> {
        let endpoint = format!("http://127.0.0.1:{}", self.port());
        let variables = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_REGION", "us-east-1"),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// Ends it. Its port stays reserved.
    pub fn stop(self) -> Port {
        drop(self.server);
        self.port
    }
}

fn path_of(program: &str) -> PathBuf {
    checkout().join("target/tools/bin").join(program)
}

fn installed(program: &str, by: &str) -> Result<(), Missing> {
    let path = path_of(program);
    if path.exists() {
        return Ok(());
    }
    Err(Missing::new(program, format!("{} is not there", path.display()), by))
}
