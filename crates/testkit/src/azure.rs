//! A private server of Azure's blob protocol for soak tests: Azurite, Microsoft's emulator.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::daemon::Daemon;
use crate::error::{Error, Missing};
use crate::port::Port;
use crate::run::output;
use crate::scratch::TempDir;
use crate::skip::checkout;
use crate::wait::wait_until;

/// How long it may take to listen.
const START_MAX: Duration = Duration::from_secs(60);
/// The emulator's own account and key, which its documentation prints.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// A container has to be there before objects are, and clients of this workspace make none.
const MAKE_CONTAINER: &str = include_str!("azure/container.js");

/// A server with one container, gone when dropped.
#[derive(Debug)]
pub struct Azure {
    _server: Daemon,
    port: Port,
    _folder: TempDir,
}

fn program() -> PathBuf {
    checkout().join("target/tools/azurite/node_modules/azurite/dist/src/blob/main.js")
}

impl Azure {
    /// The container.
    pub const CONTAINER: &str = "backups";

    /// Looks for the program and what runs it.
    ///
    /// # Errors
    /// What is lacking, when `tools/setup soak` has not installed it.
    pub fn find() -> Result<(), Missing> {
        let program = program();
        if !program.exists() {
            let why = format!("{} is not there", program.display());
            return Err(Missing::new("azurite", why, "tools/setup soak"));
        }
        match Command::new("node").arg("--version").output() {
            Ok(_) => Ok(()),
            Err(error) => Err(Missing::new("node", error.to_string(), "tools/setup soak")),
        }
    }

    /// Starts it.
    ///
    /// # Errors
    /// What kept it from listening, or from making the container.
    pub fn start() -> Result<Azure, Error> {
        let folder = TempDir::new()?;
        let port = Port::reserve()?;
        let mut command = Command::new("node");
        command.arg(program()).args(["--blobHost", "127.0.0.1", "--blobPort", &port.number().to_string()]);
        command.args(["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location"]);
        let server = Daemon::spawn(command.arg(folder.path()))?;
        let address = ("127.0.0.1", port.number());
        wait_until(START_MAX, "azurite", || TcpStream::connect(address).is_ok())?;
        let mut make = Command::new("node");
        make.args(["-e", MAKE_CONTAINER, &port.number().to_string(), ACCOUNT, KEY, Self::CONTAINER]);
        output(&mut make)?;
        Ok(Azure { _server: server, port, _folder: folder })
    }

    /// Environment variables for its clients.
    pub fn variables(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://127.0.0.1:{}/{ACCOUNT}", self.port.number());
        let variables = [
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
            ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
            ("AZURE_STORAGE_ENDPOINT", endpoint.as_str()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }
}
