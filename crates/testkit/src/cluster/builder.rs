//! Describing a cluster before it exists.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::template::{self, Recipe};
use super::{Cluster, set, write_owned};
use crate::certs::Authority;
use crate::error::{Doing, Error, Kind, Missing};
use crate::port::Port;
use crate::run::{self, Owner};
use crate::scratch::TempDir;
use crate::server::{Server, ServerBinaries};

/// How the server authenticates everybody, unless [`ClusterBuilder::hba`] says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// No challenge.
    Trust,
    /// SCRAM-SHA-256.
    Scram,
    /// MD5, and passwords stored that way.
    Md5,
    /// The password in clear.
    Password,
    /// The socket's peer, mapped to any role, on the Unix socket; SCRAM on TCP.
    Peer,
    /// A client certificate whose common name is the role, over TLS; trust on the Unix socket.
    Cert,
}

impl Auth {
    /// The methods for the Unix socket and for TCP.
    fn methods(self) -> (&'static str, &'static str) {
        match self {
            Auth::Trust => ("trust", "trust"),
            Auth::Scram => ("scram-sha-256", "scram-sha-256"),
            Auth::Md5 => ("md5", "md5"),
            Auth::Password => ("password", "password"),
            Auth::Peer => ("peer map=testkit", "scram-sha-256"),
            Auth::Cert => ("trust", "cert"),
        }
    }

    pub(super) fn asks_for_password(self) -> bool {
        !matches!(self, Auth::Trust | Auth::Cert)
    }

    fn password_encryption(self) -> &'static str {
        if self == Auth::Md5 { "md5" } else { "scram-sha-256" }
    }

    fn hba(self) -> String {
        let (local, tcp) = self.methods();
        let kind = if self == Auth::Cert { "hostssl" } else { "host" };
        ["all", "replication"]
            .map(|database| format!("local {database} all {local}\n{kind} {database} all all {tcp}\n"))
            .concat()
    }
}

/// A cluster to be; every setting has a default.
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    major: u32,
    server: Option<ServerBinaries>,
    auth: Auth,
    tls: bool,
    authority: Option<Arc<Authority>>,
    fsync: bool,
    settings: Vec<(String, String)>,
    hba: Vec<String>,
    initdb: Vec<String>,
    environment: Vec<(String, String)>,
}

impl ClusterBuilder {
    pub(super) fn new() -> Self {
        Self {
            major: 15,
            server: None,
            auth: Auth::Trust,
            tls: false,
            authority: None,
            fsync: false,
            settings: Vec::new(),
            hba: Vec::new(),
            initdb: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// The server's major version; 15 unless said.
    pub fn major(mut self, major: u32) -> Self {
        self.major = major;
        self.server = None;
        self
    }

    /// The very server, as [`Server::each`] hands it out.
    pub fn server(mut self, server: &ServerBinaries) -> Self {
        self.server = Some(server.clone());
        self
    }

    /// How clients are authenticated; trust unless said.
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// TLS with a certificate for localhost, 127.0.0.1 and db.example from [`Cluster::authority`].
    pub fn tls(mut self, on: bool) -> Self {
        self.tls = on;
        self
    }

    /// TLS with a certificate of an authority that the test shares among servers.
    pub fn tls_from(mut self, authority: Arc<Authority>) -> Self {
        self.tls = true;
        self.authority = Some(authority);
        self
    }

    /// Real `fsync`; off unless said.
    pub fn fsync(mut self, on: bool) -> Self {
        self.fsync = on;
        self
    }

    /// Sets a configuration parameter.
    pub fn conf(mut self, name: &str, value: impl ToString) -> Self {
        set(&mut self.settings, name, value.to_string());
        self
    }

    /// Adds a line of `pg_hba.conf` before those of [`Auth`].
    pub fn hba(mut self, line: &str) -> Self {
        self.hba.push(line.to_owned());
        self
    }

    /// Adds an argument of `initdb`: `--data-checksums`, `--wal-segsize=1`.
    pub fn initdb_arg(mut self, argument: &str) -> Self {
        self.initdb.push(argument.to_owned());
        self
    }

    /// Sets a variable of the server's environment, as `LD_PRELOAD`.
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        set(&mut self.environment, name, value.to_string());
        self
    }

    /// Makes the cluster and starts it.
    pub fn start(self) -> Result<Cluster, Error> {
        let cluster = self.create()?;
        cluster.start()?;
        Ok(cluster)
    }

    /// Makes the cluster without starting it.
    pub fn create(self) -> Result<Cluster, Error> {
        let owner = Owner::find()?;
        let server = match self.server {
            Some(server) => server,
            None => Server::find(self.major)?,
        };
        let home = new_home(&owner)?;
        let data = home.path().join("data");
        let recipe = Recipe {
            version: &server.version,
            bin: &server.bin,
            password_encryption: self.auth.password_encryption(),
            initdb: &self.initdb,
        };
        template::copy(&owner, &server, &recipe, &data)?;
        let port = Port::reserve()?;
        let authority = match (self.tls, self.authority) {
            (false, _) => None,
            (true, Some(authority)) => Some(authority),
            (true, None) => Some(Arc::new(Authority::new()?)),
        };
        let mut settings = base_settings(self.auth, self.fsync);
        if let Some(authority) = &authority {
            check_tls(&owner, &server, &data)?;
            install_certificate(&owner, &data, authority)?;
            settings.extend(TLS_SETTINGS.map(owned));
        }
        settings.extend(place_settings(&home, &port));
        for (name, value) in self.settings {
            set(&mut settings, &name, value);
        }
        let lines = self.hba.iter().map(|line| format!("{line}\n")).collect::<String>();
        write_owned(&owner, &data.join("pg_hba.conf"), (lines + &self.auth.hba()).as_bytes())?;
        write_owned(&owner, &data.join("pg_ident.conf"), b"testkit /^.*$ postgres\n")?;
        Ok(Cluster {
            server,
            owner,
            auth: self.auth,
            authority,
            port,
            settings: Mutex::new(settings),
            environment: Mutex::new(self.environment),
            arguments: Mutex::default(),
            postmaster: Mutex::default(),
            home,
        })
    }
}

const TLS_SETTINGS: [(&str, &str); 4] = [
    ("ssl", "on"),
    ("ssl_cert_file", "server.crt"),
    ("ssl_key_file", "server.key"),
    ("ssl_ca_file", "ca.crt"),
];

/// A cluster's home: `data`, the socket directory `s`, the log.
pub(super) fn new_home(owner: &Owner) -> Result<TempDir, Error> {
    let home = TempDir::owned_by(owner)?;
    let sockets = home.path().join("s");
    fs::create_dir(&sockets)
        .and_then(|()| fs::set_permissions(&sockets, fs::Permissions::from_mode(0o755)))
        .doing(|| format!("creating {}", sockets.display()))?;
    owner.take(&sockets)?;
    Ok(home)
}

/// Where this cluster, as no other, is reached.
pub(super) fn place_settings(home: &TempDir, port: &Port) -> Vec<(String, String)> {
    let sockets = home.path().join("s");
    vec![
        owned(("listen_addresses", "127.0.0.1")),
        ("port".to_owned(), port.number().to_string()),
        ("unix_socket_directories".to_owned(), sockets.to_string_lossy().into_owned()),
    ]
}

fn base_settings(auth: Auth, fsync: bool) -> Vec<(String, String)> {
    [
        ("fsync", if fsync { "on" } else { "off" }),
        ("password_encryption", auth.password_encryption()),
        ("shared_buffers", "32MB"),
        ("log_line_prefix", "%m [%p] %q%u@%d/%a %r "),
        ("log_timezone", "UTC"),
        ("lc_messages", "C"),
    ]
    .map(owned)
    .into()
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn check_tls(owner: &Owner, server: &ServerBinaries, data: &Path) -> Result<(), Error> {
    let mut command = owner.command(server.program("postgres"));
    let library = run::output(command.args(["-C", "ssl_library", "-D"]).arg(data))?;
    if !library.trim().is_empty() {
        return Ok(());
    }
    let what = format!("TLS in PostgreSQL {}", server.version);
    let why = format!("{} was built without it", server.program("postgres").display());
    let get = format!("a build with OpenSSL, named in PGSHRINK_PG{}_BIN", server.major);
    Err(Missing::new(what, why, get).of(Kind::Server).into())
}

fn install_certificate(owner: &Owner, data: &Path, authority: &Authority) -> Result<(), Error> {
    let server = authority.server(&["localhost", "127.0.0.1", "::1", "db.example"])?;
    write_owned(owner, &data.join("server.crt"), server.certificate_pem.as_bytes())?;
    write_owned(owner, &data.join("server.key"), server.key_pem.as_bytes())?;
    write_owned(owner, &data.join("ca.crt"), authority.certificate_pem().as_bytes())
}
