//! One connection that the command may make: its parameters and where they were said.

use super::error::RunError;
use pgshrink_codec::AlgorithmList;
use pgshrink_pgclient::conninfo::Setting;
use pgshrink_pgclient::target::{Endpoint, Target};
use pgshrink_pgclient::{Parameters, Source, Surroundings};
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;

/// What `on` stands for.
pub(crate) const COMPRESSION_DEFAULT: &str = "zstd:1,lz4:1";

/// What the part 3 patch calls the zlib format.
const PART3_ZLIB_NAME: &str = "gzip";

/// The merged parameters of a connection, and how to call it in messages.
pub(crate) struct Site {
    pub(crate) place: String,
    pub(crate) parameters: Parameters,
    /// What to ask for; `None` when the connection is left alone.
    pub(crate) compression: Option<String>,
}

impl Site {
    /// Merges; `flag` is what `--compression` said.
    pub(crate) fn new(
        place: &str,
        explicit: &[Setting],
        flag: Option<&str>,
        around: &Surroundings<'_>,
    ) -> Result<Self, RunError> {
        let wrong = |source| RunError::Connection { place: place.to_owned(), source };
        let parameters = Parameters::merge(explicit, around).map_err(wrong)?;
        let said = parameters.get("compression").map(|text| String::from_utf8_lossy(text).into_owned());
        let (text, origin) = match (said, parameters.source("compression"), flag) {
            (Some(text), Some(Source::Explicit), _) => (text, place.to_owned()),
            (Some(text), Some(Source::Service), _) => (text, "service file".to_owned()),
            (_, _, Some(flag)) => (flag.to_owned(), "--compression".to_owned()),
            (Some(text), _, None) => (text, "PGCOMPRESSION".to_owned()),
            (None, _, None) => (String::new(), String::new()),
        };
        let compression = algorithms(&text).map_err(|reason| {
            let text = text.clone();
            RunError::Compression { place: origin, text, reason }
        })?;
        Ok(Self { place: place.to_owned(), parameters, compression })
    }

    pub(crate) fn error(&self, source: pgshrink_pgclient::Error) -> RunError {
        RunError::Connection { place: self.place.clone(), source }
    }

    /// Whether the service that takes part mentions the keyword.
    pub(crate) fn service_says(&self, keyword: &str) -> bool {
        let says = |setting: &Setting| setting.keyword == keyword.as_bytes();
        self.parameters.service().is_some_and(|service| service.settings.iter().any(says))
    }

    /// Fails where the client would ask the kernel who serves a socket: it would ask about the stand-in's. Over TCP
    /// libpq ignores `requirepeer`.
    pub(crate) fn check_peer(&self, targets: &[Target]) -> Result<(), RunError> {
        let on_socket = targets.iter().any(|target| !matches!(target.endpoint(), Endpoint::Tcp { .. }));
        match self.parameters.get_nonempty("requirepeer").filter(|_| on_socket) {
            None => Ok(()),
            Some(user) => Err(RunError::Impossible {
                place: self.place.clone(),
                keyword: "requirepeer",
                value: String::from_utf8_lossy(user).into_owned(),
                reason: "it checks the user of the process that owns the socket, which is the connector",
                advice: "Connect without compression; on one machine it saves nothing.",
            }),
        }
    }

    /// Fails on what nobody but the client itself can do with its server.
    pub(crate) fn check_possible(&self) -> Result<(), RunError> {
        let require = |keyword, reason, advice| match self.parameters.get(keyword) {
            Some(b"require") => {
                let value = "require".to_owned();
                Err(RunError::Impossible { place: self.place.clone(), keyword, value, reason, advice })
            }
            _ => Ok(()),
        };
        require(
            "channel_binding",
            "it proves that nothing decrypts the connection between client and server, but compression has to",
            "Use channel_binding=prefer and sslmode=verify-full to verify the server instead.",
        )?;
        require(
            "gssencmode",
            "the client itself does GSSAPI encryption",
            "Use sslmode=verify-full for encryption instead.",
        )
    }
}

/// Checks a list; `off` (also `none` and nothing at all) is no list, `on` the default one.
fn algorithms(text: &str) -> Result<Option<String>, String> {
    let text = match text.trim() {
        "" | "off" | "none" => return Ok(None),
        "on" => COMPRESSION_DEFAULT,
        list => list,
    };
    let text = if is_part3(text) { from_part3(text)? } else { text.to_owned() };
    let list = AlgorithmList::parse(&text, WIRE_ALGORITHMS).map_err(|error| error.to_string())?;
    Ok((!list.is_empty()).then_some(text))
}

/// `zstd:level=3;lz4;gzip`: the option as libpq of the part 3 patch takes it. Its items are separated by `;`, its gzip is zlib.
fn is_part3(text: &str) -> bool {
    text.contains([';', '=']) || text.split(',').any(|item| item.trim().eq_ignore_ascii_case(PART3_ZLIB_NAME))
}

/// The same in our grammar. A level of 0 or less is the library's own default there.
fn from_part3(text: &str) -> Result<String, String> {
    let items = text.split(';').map(str::trim).filter(|item| !item.is_empty()).map(|item| {
        let (name, options) = item.split_once(':').unwrap_or((item, ""));
        let name = if name.eq_ignore_ascii_case(PART3_ZLIB_NAME) { "zlib" } else { name };
        let mut level = None;
        for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            match option.split_once('=').unwrap_or((option, "on")) {
                ("level", value) => {
                    let number: i32 = value.parse().map_err(|_| format!("\"{value}\" is not a level"))?;
                    level = (number > 0).then_some(number);
                }
                ("compress" | "decompress", "on" | "true" | "yes" | "1") => {}
                ("compress" | "decompress", _) => {
                    return Err(format!("{option}: pgshrink compresses both directions; leave it out"));
                }
                _ => {
                    return Err(format!(
                        "unknown option \"{option}\": expected level, compress or decompress"
                    ));
                }
            }
        }
        Ok(level.map_or_else(|| name.to_owned(), |level| format!("{name}:{level}")))
    });
    items.collect::<Result<Vec<_>, _>>().map(|items| items.join(","))
}
