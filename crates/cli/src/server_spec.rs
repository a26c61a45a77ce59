//! `--server [NAME:]KEYWORD=VALUE,…`.

use pgshrink_gateway::config::{ServerConfig, TargetConfig};
use serde::Deserialize;
use serde::de::value::StrDeserializer;

/// Keywords, in the order in which they are listed in messages.
const KEYWORDS: &str = "host, hostaddr, port, database, user, sslmode, sslrootcert, sslcert, sslkey, sslnegotiation, \
                        sslhost, libpq_compression, send_proxy";

/// Parses one server.
pub(crate) fn parse(text: &str) -> Result<ServerConfig, String> {
    let (name, settings) = split_name(text);
    let mut server = ServerConfig {
        name,
        ..ServerConfig::new(TargetConfig::new("", pgshrink_pgclient::target::DEFAULT_PORT))
    };
    for setting in split_settings(settings) {
        let Some((keyword, value)) = setting.split_once('=') else {
            return Err(format!("\"{setting}\": expected KEYWORD=VALUE with one of {KEYWORDS}"));
        };
        if let Some(right) = with_commas(text, value) {
            return Err(format!("\"{setting}\": settings are separated by commas: {right}"));
        }
        set(&mut server, keyword.trim(), value).map_err(|reason| format!("\"{setting}\": {reason}"))?;
    }
    if server.target.host.is_empty() {
        match server.target.hostaddr {
            Some(address) => server.target.host = address.to_string(),
            None => return Err("no host: name one as host=… (a directory means a Unix socket)".to_owned()),
        }
    }
    Ok(server)
}

/// The right form of what is written with blanks, as a connection string is: `host=a port=5432`.
fn with_commas(text: &str, value: &str) -> Option<String> {
    let is_setting = |word: &str| {
        let keyword = word.split_once('=').map(|(keyword, _)| keyword);
        keyword.is_some_and(|keyword| KEYWORDS.split(", ").any(|known| known == keyword))
    };
    let found = value.split_whitespace().skip(1).any(is_setting);
    found.then(|| text.split([' ', ',']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(","))
}

fn set(server: &mut ServerConfig, keyword: &str, value: &str) -> Result<(), String> {
    let target = &mut server.target;
    match keyword {
        "host" => target.host = value.to_owned(),
        "hostaddr" => target.hostaddr = Some(value.parse().map_err(|_| "not an IP address".to_owned())?),
        "port" => target.port = value.parse().map_err(|_| "not a port (1 to 65535)".to_owned())?,
        "database" => server.database.push(value.to_owned()),
        "user" => server.user.push(value.to_owned()),
        "sslmode" => target.tls.sslmode = word(value)?,
        "sslrootcert" => target.tls.sslrootcert = Some(value.into()),
        "sslcert" => target.tls.sslcert = Some(value.into()),
        "sslkey" => target.tls.sslkey = Some(value.into()),
        "sslnegotiation" => target.tls.sslnegotiation = word(value)?,
        "sslhost" => target.tls.sslhost = Some(value.to_owned()),
        "libpq_compression" => server.libpq_compression = Some(value.to_owned()),
        "send_proxy" => server.send_proxy = Some(value.parse().map_err(|_| "expected 1 or 2".to_owned())?),
        _ => return Err(format!("unknown keyword; allowed are {KEYWORDS}")),
    }
    Ok(())
}

/// A word of an enumeration, with the allowed ones in the message.
pub(crate) fn word<'de, T: Deserialize<'de>>(value: &'de str) -> Result<T, String> {
    let deserializer: StrDeserializer<'de, serde::de::value::Error> = StrDeserializer::new(value);
    T::deserialize(deserializer).map_err(|error| crate::toml_words::of_value(&error.to_string()))
}

/// A name ends at the first colon that stands before any `=`.
fn split_name(text: &str) -> (Option<String>, &str) {
    match text.find([':', '=']) {
        Some(at) if text.as_bytes()[at] == b':' => (Some(text[..at].trim().to_owned()), &text[at + 1..]),
        _ => (None, text),
    }
}

/// Splits at commas; `\,` is a comma in a value.
fn split_settings(text: &str) -> Vec<String> {
    let mut settings = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let last = settings.len() - 1;
        match c {
            '\\' if rest.peek() == Some(&',') => settings[last].extend(rest.next()),
            ',' => settings.push(String::new()),
            _ => settings[last].push(c),
        }
    }
    settings.retain(|setting| !setting.trim().is_empty());
    settings
}
