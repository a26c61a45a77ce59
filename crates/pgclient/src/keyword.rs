//! The connection parameters libpq knows, with the environment variable and default of each.
//!
//! The union of PostgreSQL 15 to 18 (and `servicefile` of 19), because the client's libpq may be any of them.
//! Defaults are those of a build with TLS and GSSAPI, which distributions ship.

/// One connection parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keyword {
    /// As written in connection strings.
    pub name: &'static str,
    /// The variable that supplies it when neither string nor service does.
    pub env: Option<&'static str>,
    /// Compiled-in value when nothing supplies it.
    pub default: Option<&'static str>,
    /// Never shown in messages.
    pub secret: bool,
    /// First major release of libpq that accepts it, 15 meaning 15 or before.
    pub since: u16,
}

/// pgshrink's own parameter: an algorithm list such as `zstd:1,lz4:2`. A stock libpq rejects it.
pub const COMPRESSION: Keyword = k("compression", "PGCOMPRESSION", 0);

/// Every parameter a libpq of 15 to 19 accepts, in libpq's order.
pub const KEYWORDS: &[Keyword] = &[
    k("service", "PGSERVICE", 15),
    k("servicefile", "PGSERVICEFILE", 19),
    k("user", "PGUSER", 15),
    k("password", "PGPASSWORD", 15).secret(),
    k("passfile", "PGPASSFILE", 15),
    k("channel_binding", "PGCHANNELBINDING", 15).or("prefer"),
    k("connect_timeout", "PGCONNECT_TIMEOUT", 15),
    k("dbname", "PGDATABASE", 15),
    k("host", "PGHOST", 15),
    k("hostaddr", "PGHOSTADDR", 15),
    k("port", "PGPORT", 15).or("5432"),
    k("client_encoding", "PGCLIENTENCODING", 15),
    k("options", "PGOPTIONS", 15).or(""),
    k("application_name", "PGAPPNAME", 15),
    bare("fallback_application_name", 15),
    bare("keepalives", 15),
    bare("keepalives_idle", 15),
    bare("keepalives_interval", 15),
    bare("keepalives_count", 15),
    bare("tcp_user_timeout", 15),
    k("sslmode", "PGSSLMODE", 15).or("prefer"),
    k("sslnegotiation", "PGSSLNEGOTIATION", 17).or("postgres"),
    k("sslcompression", "PGSSLCOMPRESSION", 15).or("0"),
    k("sslcert", "PGSSLCERT", 15),
    k("sslkey", "PGSSLKEY", 15),
    k("sslcertmode", "PGSSLCERTMODE", 16),
    bare("sslpassword", 15).secret(),
    k("sslrootcert", "PGSSLROOTCERT", 15),
    k("sslcrl", "PGSSLCRL", 15),
    k("sslcrldir", "PGSSLCRLDIR", 15),
    k("sslsni", "PGSSLSNI", 15).or("1"),
    k("requirepeer", "PGREQUIREPEER", 15),
    k("require_auth", "PGREQUIREAUTH", 16),
    k("min_protocol_version", "PGMINPROTOCOLVERSION", 18),
    k("max_protocol_version", "PGMAXPROTOCOLVERSION", 18),
    k("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", 15).or("TLSv1.2"),
    k("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", 15),
    k("gssencmode", "PGGSSENCMODE", 15).or("prefer"),
    k("krbsrvname", "PGKRBSRVNAME", 15).or("postgres"),
    k("gsslib", "PGGSSLIB", 15),
    k("gssdelegation", "PGGSSDELEGATION", 16).or("0"),
    bare("replication", 15),
    k("target_session_attrs", "PGTARGETSESSIONATTRS", 15).or("any"),
    k("load_balance_hosts", "PGLOADBALANCEHOSTS", 16).or("disable"),
    bare("scram_client_key", 18).secret(),
    bare("scram_server_key", 18).secret(),
    bare("oauth_issuer", 18),
    bare("oauth_client_id", 18),
    bare("oauth_client_secret", 18).secret(),
    bare("oauth_scope", 18),
    bare("sslkeylogfile", 18),
];

/// The parameter of that name, ours included.
pub fn find(name: &[u8]) -> Option<&'static Keyword> {
    if name == COMPRESSION.name.as_bytes() {
        return Some(&COMPRESSION);
    }
    KEYWORDS.iter().find(|known| known.name.as_bytes() == name)
}

/// Whether a value of this parameter must not appear in messages. Unknown names are taken for harmless.
pub fn is_secret(name: &[u8]) -> bool {
    find(name).is_some_and(|known| known.secret)
}

impl Keyword {
    const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }
}

const fn k(name: &'static str, env: &'static str, since: u16) -> Keyword {
    Keyword { name, env: Some(env), default: None, secret: false, since }
}

const fn bare(name: &'static str, since: u16) -> Keyword {
    Keyword { name, env: None, default: None, secret: false, since }
}
