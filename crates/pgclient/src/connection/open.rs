//! Which servers are tried, in which ways and order. libpq's `PQconnectPoll`.
//!
//! The next address, then the next host, is tried when nobody answers, the network fails, or the server cannot
//! take connections now. An answer that is final (wrong password, no such database, bad certificate) ends the
//! search, but for the other way that `sslmode` allow or prefer still has.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::methods::Methods;
use super::route::{Route, TlsRoute, Way};
use super::startup::{self, Credentials};
use super::{Connection, Options, password, socket};
use crate::conninfo::{self, Conninfo, Setting};
use crate::ssl::{
    ChannelBinding, RootCertificate, SslCertMode, SslMode, SslNegotiation, TlsVersion, Verification,
};
use crate::target::{self, Endpoint, Keepalive, Target};
use crate::tls::{Check, ClientTls, Identity, Roots, server_name};
use crate::{Error, Parameters, SslParameters, Surroundings};

/// libpq's shortest `connect_timeout`.
const CONNECT_SECONDS_MIN: u64 = 2;
/// SQLSTATE of a server that starts, stops or recovers.
const CANNOT_CONNECT_NOW: &str = "57P03";

impl Connection {
    /// Connects as libpq would with this connection string, URI or database name.
    ///
    /// ```no_run
    /// # fn around() -> pgshrink_pgclient::Surroundings<'static> { unreachable!() }
    /// use pgshrink_pgclient::connection::{Connection, Options};
    /// let around = around();
    /// let mut session = Connection::open(b"host=db.example user=backup", &around, &Options::default())?;
    /// let version = session.simple_query("SHOW server_version")?;
    /// println!("{:?}", version[0].text(0, 0));
    /// # Ok::<(), pgshrink_pgclient::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the parameters, and of [`connect`](Self::connect).
    pub fn open(text: &[u8], around: &Surroundings<'_>, options: &Options) -> Result<Self, Error> {
        let settings = match conninfo::is_recognized(text) {
            true => Conninfo::parse_strict(text)?.settings(),
            false if text.is_empty() => Vec::new(),
            false => vec![Setting { keyword: b"dbname".to_vec(), value: text.to_vec() }],
        };
        Self::connect(&Parameters::merge(&settings, around)?, around, options)
    }

    /// Connects to the first server that the parameters name and that will do.
    ///
    /// # Errors
    /// Parameters that cannot be used; else the reason why the only attempt failed, or [`Error::AllFailed`] with
    /// the reasons in order.
    pub fn connect(
        parameters: &Parameters,
        around: &Surroundings<'_>,
        options: &Options,
    ) -> Result<Self, Error> {
        Plan::new(parameters, around, options)?.run()
    }
}

struct Plan<'a> {
    parameters: &'a Parameters,
    around: &'a Surroundings<'a>,
    options: &'a Options,
    /// `None` when every target is a Unix socket, where TLS is not used and its files need not be there.
    ssl: Option<SslParameters>,
    keepalive: Keepalive,
    targets: Vec<Target>,
    user: String,
    methods: Methods,
    binding: ChannelBinding,
    attributes: Attributes,
    limit: Duration,
}

/// `target_session_attrs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attributes {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// Whether another attempt may do better.
enum Failure {
    /// At another address or host.
    Elsewhere(Error),
    /// Nowhere.
    Final(Error),
}

impl<'a> Plan<'a> {
    fn new(
        parameters: &'a Parameters,
        around: &'a Surroundings<'a>,
        options: &'a Options,
    ) -> Result<Self, Error> {
        let targets = target::targets(parameters, around)?;
        let tcp = targets.iter().any(|target| matches!(target.endpoint(), Endpoint::Tcp { .. }));
        let ssl = if tcp { Some(SslParameters::resolve(parameters, around)?) } else { None };
        refuse_unsupported(parameters, ssl.as_ref())?;
        let methods = parameters.text("require_auth")?.map_or(Ok(Methods::any()), Methods::parse)?;
        let limit = match parameters.integer("connect_timeout")?.map(u64::try_from) {
            Some(Ok(seconds)) if seconds > 0 => Duration::from_secs(seconds.max(CONNECT_SECONDS_MIN)),
            _ => options.connect_timeout,
        };
        Ok(Self {
            parameters,
            around,
            options,
            ssl,
            keepalive: target::keepalive(parameters)?,
            targets,
            user: password::user(parameters, around)?,
            methods,
            binding: binding(parameters)?,
            attributes: Attributes::parse(parameters)?,
            limit,
        })
    }

    fn run(&self) -> Result<Connection, Error> {
        let mut errors = Vec::new();
        let passes: &[Attributes] = match self.attributes {
            Attributes::PreferStandby => &[Attributes::Standby, Attributes::Any],
            _ => &[self.attributes],
        };
        for wanted in passes {
            errors.clear();
            for target in &self.targets {
                match self.reach(target, *wanted, &mut errors) {
                    Ok(Some(connection)) => return Ok(connection),
                    Ok(None) => {}
                    Err(last) => {
                        errors.push(last);
                        return Err(all(errors));
                    }
                }
            }
        }
        Err(all(errors))
    }

    /// Tries every address of a target. `None` when none will do and the next target may.
    fn reach(
        &self,
        target: &Target,
        wanted: Attributes,
        errors: &mut Vec<Error>,
    ) -> Result<Option<Connection>, Error> {
        let addresses = match socket::addresses(target) {
            Ok(addresses) => addresses,
            Err(error) => {
                errors.push(error);
                return Ok(None);
            }
        };
        for address in addresses {
            let unix = address.place.is_unix();
            let tls = if unix { None } else { self.tls(target, address.place.address)? };
            let route = Route { address, keepalive: self.keepalive.clone(), tls, limit: self.limit };
            match self.take(&route, target, errors) {
                Ok(connection) => match wanted.refuse(&connection) {
                    None => return Ok(Some(connection)),
                    Some(reason) => {
                        errors.push(Error::WrongSession { place: connection.place().clone(), reason });
                        // Other addresses of this host are the same server or its equals.
                        return Ok(None);
                    }
                },
                Err(Failure::Elsewhere(error)) => errors.push(error),
                Err(Failure::Final(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Tries one address in the ways that `sslmode` has.
    fn take(&self, route: &Route, target: &Target, errors: &mut Vec<Error>) -> Result<Connection, Failure> {
        let mode = self.ssl.as_ref().map(|ssl| ssl.mode);
        let ways: &[Way] = match (&route.tls, mode) {
            (None, _) | (_, None | Some(SslMode::Disable)) => &[Way::Plain],
            (_, Some(SslMode::Allow)) => &[Way::Plain, Way::Tls],
            (_, Some(SslMode::Prefer)) => &[Way::TlsIfOffered, Way::Plain],
            _ => &[Way::Tls],
        };
        let (last, others) = ways.split_last().unwrap_or((&Way::Plain, &[]));
        for way in others {
            let (error, encrypted) = match self.attempt(route, target, *way) {
                Ok(connection) => return Ok(connection),
                Err(failed) => failed,
            };
            let another_way = matches!(error, Error::Insecure { .. } | Error::Server { .. })
                && error.sqlstate() != Some(CANNOT_CONNECT_NOW);
            // Without TLS, plain has been tried.
            if !another_way || (*way == Way::TlsIfOffered && !encrypted) {
                return Err(judged(error));
            }
            errors.push(error);
        }
        self.attempt(route, target, *last).map_err(|(error, _)| judged(error))
    }

    /// One attempt. An error comes with whether TLS was in use or tried.
    fn attempt(&self, route: &Route, target: &Target, way: Way) -> Result<Connection, (Error, bool)> {
        let deadline = Instant::now() + self.limit;
        let transport = route.open(way, deadline).map_err(|error| (error, true))?;
        let encrypted = transport.tls().is_some();
        let credentials = Credentials {
            user: &self.user,
            password: password::password(self.parameters, self.around, target, &self.user),
            methods: &self.methods,
            binding: self.binding,
        };
        let packet = startup::packet(self.parameters, &self.user, &self.options.application_name);
        let mut connection = Connection::over(transport, route.clone(), self.options);
        match connection.start(&packet, credentials, deadline) {
            Ok(()) => Ok(connection),
            Err(error) => Err((error, encrypted)),
        }
    }

    fn tls(&self, target: &Target, address: Option<IpAddr>) -> Result<Option<TlsRoute>, Error> {
        let Some(ssl) = self.ssl.as_ref().filter(|ssl| ssl.mode != SslMode::Disable) else { return Ok(None) };
        let host = target.host.as_deref().or(target.hostaddr.as_deref()).unwrap_or_default();
        let roots = match &ssl.root_cert {
            RootCertificate::None => None,
            RootCertificate::File(path) => Some(Roots::File(path)),
            RootCertificate::System => Some(Roots::System),
        };
        let check = match (ssl.verification(), roots) {
            (Verification::None, _) | (_, None) => Check::Nothing,
            (Verification::Chain, Some(roots)) => Check::Chain(roots),
            (Verification::ChainAndName, Some(roots)) => {
                let Some(name) = target.certificate_host() else {
                    let reason = "host name must be specified for a verified SSL connection".to_owned();
                    return Err(Error::Tls { what: "sslmode=verify-full", reason });
                };
                Check::ChainAndName(roots, name)
            }
        };
        let identity = match (&ssl.cert, &ssl.key) {
            (Some(cert), Some(key)) => Some(Identity { cert, key }),
            _ => None,
        };
        let mut config = ClientTls { check, identity, versions: versions(ssl)? }.load()?;
        config.enable_sni = ssl.sni;
        let direct = ssl.negotiation == SslNegotiation::Direct;
        Ok(Some(TlsRoute { config: Arc::new(config), name: server_name(host, address)?, direct }))
    }
}

impl Attributes {
    fn parse(parameters: &Parameters) -> Result<Self, Error> {
        const KEYWORD: &str = "target_session_attrs";
        match parameters.text(KEYWORD)? {
            None | Some("any") => Ok(Attributes::Any),
            Some("read-write") => Ok(Attributes::ReadWrite),
            Some("read-only") => Ok(Attributes::ReadOnly),
            Some("primary") => Ok(Attributes::Primary),
            Some("standby") => Ok(Attributes::Standby),
            Some("prefer-standby") => Ok(Attributes::PreferStandby),
            Some(other) => Err(Error::InvalidValue {
                keyword: KEYWORD,
                value: other.to_owned(),
                allowed: "any, read-write, read-only, primary, standby, prefer-standby",
            }),
        }
    }

    /// Why a session will not do. Servers since 14 report what it takes; one that does not is refused.
    fn refuse(self, connection: &Connection) -> Option<&'static str> {
        if self == Attributes::Any {
            return None;
        }
        let on = |name| connection.parameter(name).map(|value| value == "on");
        let (Some(standby), Some(read_only)) = (on("in_hot_standby"), on("default_transaction_read_only"))
        else {
            return Some("server does not say whether it is a standby");
        };
        match self {
            Attributes::ReadWrite if standby || read_only => Some("session is read-only"),
            Attributes::ReadOnly if !standby && !read_only => Some("session is not read-only"),
            Attributes::Primary if standby => Some("server is in hot standby mode"),
            Attributes::Standby if !standby => Some("server is not in hot standby mode"),
            _ => None,
        }
    }
}

fn judged(error: Error) -> Failure {
    let elsewhere = match &error {
        Error::Server { report, .. } => report.sqlstate == CANNOT_CONNECT_NOW,
        Error::Insecure { .. } | Error::Authentication { .. } | Error::Protocol { .. } => false,
        _ => true,
    };
    if elsewhere { Failure::Elsewhere(error) } else { Failure::Final(error) }
}

/// The error itself when it is alone.
fn all(mut errors: Vec<Error>) -> Error {
    match errors.pop() {
        Some(only) if errors.is_empty() => only,
        last => {
            errors.extend(last);
            Error::AllFailed(errors)
        }
    }
}

static TLS_1_2: [&rustls::SupportedProtocolVersion; 1] = [&rustls::version::TLS12];
static TLS_1_3: [&rustls::SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

fn versions(ssl: &SslParameters) -> Result<&'static [&'static rustls::SupportedProtocolVersion], Error> {
    let oldest = ssl.min_version.unwrap_or(TlsVersion::Tls12);
    let newest = ssl.max_version.unwrap_or(TlsVersion::Tls13);
    match (oldest >= TlsVersion::Tls13, newest) {
        (_, TlsVersion::Tls10 | TlsVersion::Tls11) => {
            Err(not_supported("ssl_max_protocol_version below TLSv1.2"))
        }
        (true, _) => Ok(&TLS_1_3),
        (false, TlsVersion::Tls12) => Ok(&TLS_1_2),
        (false, TlsVersion::Tls13) => Ok(rustls::DEFAULT_VERSIONS),
    }
}

fn not_supported(what: &str) -> Error {
    Error::NotSupported { what: what.to_owned() }
}

/// Better an error than less than what was asked for.
fn refuse_unsupported(parameters: &Parameters, ssl: Option<&SslParameters>) -> Result<(), Error> {
    let of_tls = |ssl: &SslParameters| {
        let cases = [
            (ssl.crl.is_some(), "a certificate revocation list (sslcrl, ~/.postgresql/root.crl)"),
            (ssl.crl_dir.is_some(), "sslcrldir"),
            (ssl.key_password.is_some() && ssl.key.is_some(), "sslpassword"),
            (ssl.cert_mode == SslCertMode::Require, "sslcertmode=require"),
        ];
        cases.into_iter().find(|(asked, _)| *asked)
    };
    let cases = [
        (parameters.get("gssencmode") == Some(b"require"), "gssencmode=require"),
        (parameters.get_nonempty("requirepeer").is_some(), "requirepeer"),
        (parameters.get_nonempty("scram_client_key").is_some(), "scram_client_key"),
    ];
    let encrypts = ssl.filter(|ssl| ssl.mode != SslMode::Disable);
    let found = cases.into_iter().find(|(asked, _)| *asked).or_else(|| encrypts.and_then(of_tls));
    found.map_or(Ok(()), |(_, what)| Err(not_supported(what)))
}

fn binding(parameters: &Parameters) -> Result<ChannelBinding, Error> {
    match parameters.text("channel_binding")? {
        None | Some("prefer") => Ok(ChannelBinding::Prefer),
        Some("disable") => Ok(ChannelBinding::Disable),
        Some("require") => Ok(ChannelBinding::Require),
        Some(other) => Err(Error::InvalidValue {
            keyword: "channel_binding",
            value: other.to_owned(),
            allowed: "disable, prefer, require",
        }),
    }
}
