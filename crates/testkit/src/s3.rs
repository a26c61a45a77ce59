//! A private S3 server: s3s-fs, which checks signatures and `If-None-Match`.

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::daemon::Daemon;
use crate::error::{Doing, Error, Missing};
use crate::port::Port;
use crate::scratch::TempDir;
use crate::skip::checkout;
use crate::wait::wait_until;

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

    /// Looks for the program.
    ///
    /// # Errors
    /// What is lacking, when `tools/setup test` has not built it.
    pub fn find() -> Result<(), Missing> {
        let program = checkout().join("target/tools/bin/s3s-fs");
        if program.exists() {
            return Ok(());
        }
        Err(Missing::new("s3s-fs", format!("{} is not there", program.display()), "tools/setup test"))
    }

    /// Starts it.
    ///
    /// # Errors
    /// What kept it from listening.
    pub fn start() -> Result<S3, Error> {
        let folder = TempDir::new()?;
        let bucket = folder.path().join(Self::BUCKET);
        std::fs::create_dir(&bucket).doing(|| format!("creating {}", bucket.display()))?;
        let port = Port::reserve()?;
        let mut command = Command::new(checkout().join("target/tools/bin/s3s-fs"));
        command.args(["--access-key", "someone", "--secret-key", "secret", "--host", "127.0.0.1"]);
        command.arg("--port").arg(port.number().to_string()).arg(folder.path());
        let server = Daemon::spawn(&mut command)?;
        let address = ("127.0.0.1", port.number());
        wait_until(START_MAX, "s3s-fs", || TcpStream::connect(address).is_ok())?;
        Ok(S3 { server, port, folder })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where it keeps objects, as files below their bucket.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Environment variables for its clients, with this secret; `secret` is the right one.
    pub fn variables(&self, secret: &str) -> Vec<(String, String)> {
        let endpoint = format!("http://127.0.0.1:{}", self.port());
        let variables = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "someone"),
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
