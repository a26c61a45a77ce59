//! What the server compresses archives with: `zstd:level=3,workers=2`.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// zstd's own limit of threads on 64-bit machines (`ZSTDMT_NBWORKERS_MAX`).
pub const WORKERS_MAX: u32 = 256;

/// A compression algorithm of `BASE_BACKUP`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CompressionAlgorithm {
    /// Archives come as they are.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl CompressionAlgorithm {
    /// All of them.
    pub const ALL: [CompressionAlgorithm; 4] = [Self::None, Self::Gzip, Self::Lz4, Self::Zstd];

    /// The name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// What the names of archives end with, behind `.tar`.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Lz4 => ".lz4",
            Self::Zstd => ".zst",
        }
    }

    /// The lowest and the highest level; none: it has no levels.
    pub fn levels(self) -> Option<(i32, i32)> {
        match self {
            Self::None => None,
            Self::Gzip => Some((1, 9)),
            Self::Lz4 => Some((1, 12)),
            Self::Zstd => Some((-131_072, 22)),
        }
    }
}

/// An algorithm and its settings.
///
/// The text form is `ALGORITHM[:DETAIL]`. A detail is a number, the level, or a list of `level=N`,
/// `workers=N` and `long[=on|off]`, divided by commas as in pg_basebackup or by colons: `zstd:3`,
/// `zstd:level=3,workers=2`, `zstd:workers=2:long`.
///
/// `server-zstd` means `zstd`, as the server compresses in any case. `client-zstd` is refused: what pgshrink
/// compresses itself is chosen by the format of the backup, and to take the prefix and let the server
/// compress would load the host that the user wanted to spare. A number alone (pg_basebackup's `-Z 5`) is
/// refused, as it does not name gzip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compression {
    /// The algorithm.
    pub algorithm: CompressionAlgorithm,
    /// Its level; none: the server's default.
    pub level: Option<i32>,
    /// Threads beside the server's process, zstd only; none: the process itself compresses.
    pub workers: Option<u32>,
    /// Long-distance matching, zstd only.
    pub long: bool,
}

impl Compression {
    /// No compression.
    pub const NONE: Compression =
        Compression { algorithm: CompressionAlgorithm::None, level: None, workers: None, long: false };

    /// Checks levels, workers and what the algorithm knows.
    ///
    /// # Errors
    /// [`Error::Malformed`] names the range.
    pub fn check(&self) -> Result<(), Error> {
        let refused = |what, expected, found: &dyn fmt::Display| {
            Err(Error::malformed(what, expected, found.to_string().as_bytes()))
        };
        let algorithm = self.algorithm;
        if let Some(level) = self.level {
            let fits = algorithm.levels().is_some_and(|(low, high)| (low..=high).contains(&level));
            match algorithm {
                _ if fits => {}
                CompressionAlgorithm::None => return refused("compression none", "no level", &level),
                CompressionAlgorithm::Gzip => {
                    return refused("level of gzip", "a number from 1 to 9", &level);
                }
                CompressionAlgorithm::Lz4 => return refused("level of lz4", "a number from 1 to 12", &level),
                CompressionAlgorithm::Zstd => {
                    return refused("level of zstd", "a number from -131072 to 22", &level);
                }
            }
        }
        if algorithm != CompressionAlgorithm::Zstd && (self.workers.is_some() || self.long) {
            return refused("compression with workers or long", "zstd", &algorithm.name());
        }
        match self.workers {
            Some(workers) if workers > WORKERS_MAX => {
                refused("workers of zstd", "a number from 0 to 256", &workers)
            }
            _ => Ok(()),
        }
    }

    /// The value of `COMPRESSION_DETAIL`; none where nothing is set.
    pub fn detail(&self) -> Option<String> {
        let level = self.level.map(|level| format!("level={level}"));
        let workers = self.workers.map(|workers| format!("workers={workers}"));
        let long = self.long.then(|| "long".to_owned());
        let parts: Vec<String> = [level, workers, long].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(","))
    }
}

/// As pg_basebackup takes it: `zstd:level=3,workers=2`.
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm.name())?;
        self.detail().map_or(Ok(()), |detail| write!(f, ":{detail}"))
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Compression, Error> {
        let (name, detail) = match text.split_once(':') {
            None => (text, None),
            Some((name, detail)) => (name, Some(detail)),
        };
        if name.starts_with("client-") {
            let expected =
                "an algorithm without `client-`: the server compresses, or the archive format does";
            return Err(Error::malformed("compression", expected, text.as_bytes()));
        }
        let plain = name.strip_prefix("server-").unwrap_or(name);
        let algorithm = CompressionAlgorithm::ALL.into_iter().find(|known| known.name() == plain);
        let algorithm = algorithm.ok_or_else(|| {
            Error::malformed("compression algorithm", "none, gzip, lz4 or zstd", name.as_bytes())
        })?;
        let mut compression = Compression { algorithm, ..Compression::NONE };
        if let Some(detail) = detail {
            read_detail(&mut compression, detail)?;
        }
        compression.check()?;
        Ok(compression)
    }
}

fn read_detail(compression: &mut Compression, detail: &str) -> Result<(), Error> {
    if let Ok(level) = detail.parse() {
        compression.level = Some(level);
        return Ok(());
    }
    let mut long = None;
    for option in detail.split([',', ':']) {
        let (keyword, value) = match option.split_once('=') {
            None => (option, None),
            Some((keyword, value)) => (keyword, Some(value)),
        };
        let twice = match keyword {
            "level" => {
                compression.level.replace(number("level of compression", "an integer", value)?).is_some()
            }
            "workers" => {
                let workers = number("workers of compression", "an integer of at least 0", value)?;
                compression.workers.replace(workers).is_some()
            }
            "long" => long.replace(switch(value)?).is_some(),
            _ => {
                let expected = "level=N, workers=N or long";
                return Err(Error::malformed("compression option", expected, option.as_bytes()));
            }
        };
        if twice {
            return Err(Error::malformed("compression option", "each option once", option.as_bytes()));
        }
    }
    compression.long = long.unwrap_or(false);
    Ok(())
}

fn number<T: FromStr>(what: &'static str, expected: &'static str, value: Option<&str>) -> Result<T, Error> {
    let value = value.unwrap_or_default();
    value.parse().map_err(|_| Error::malformed(what, expected, value.as_bytes()))
}

/// As `expect_boolean_value` of `compression.c`.
fn switch(value: Option<&str>) -> Result<bool, Error> {
    let Some(value) = value else { return Ok(true) };
    match value.to_ascii_lowercase().as_str() {
        "yes" | "on" | "1" => Ok(true),
        "no" | "off" | "0" => Ok(false),
        _ => Err(Error::malformed("compression option long", "on or off", value.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        text.parse().map(|parsed: Compression| parsed.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn both_styles_of_details_mean_the_same() {
        for (text, same) in [
            ("none", "none"),
            ("gzip", "gzip"),
            ("server-lz4", "lz4"),
            ("gzip:9", "gzip:level=9"),
            ("zstd:-7", "zstd:level=-7"),
            ("zstd:level=-131072", "zstd:level=-131072"),
            ("zstd:workers=2", "zstd:workers=2"),
            ("zstd:level=3,workers=2,long", "zstd:level=3,workers=2,long"),
            ("zstd:level=3:workers=2:long", "zstd:level=3,workers=2,long"),
            ("server-zstd:long=OFF:workers=0,level=22", "zstd:level=22,workers=0"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(same), "{text}");
            assert_eq!(parse(same).as_deref(), Ok(same), "{same}");
        }
    }

    #[test]
    fn what_an_algorithm_does_not_take_is_refused_with_its_range() {
        for (text, why) in [
            ("", "none, gzip, lz4 or zstd"),
            ("9", "none, gzip, lz4 or zstd"),
            ("ZSTD", "none, gzip, lz4 or zstd"),
            ("server-", "none, gzip, lz4 or zstd"),
            ("client-gzip", "without `client-`"),
            ("none:1", "no level"),
            ("gzip:0", "from 1 to 9"),
            ("gzip:10", "from 1 to 9"),
            ("lz4:level=13", "from 1 to 12"),
            ("zstd:23", "from -131072 to 22"),
            ("zstd:-131073", "from -131072 to 22"),
            ("zstd:workers=257", "from 0 to 256"),
            ("zstd:workers=-1", "an integer of at least 0"),
            ("zstd:level=99999999999", "an integer"),
            ("zstd:workers", "an integer"),
            ("gzip:workers=2", "zstd"),
            ("lz4:long", "zstd"),
            ("zstd:", "level=N, workers=N or long"),
            ("zstd:3,long", "level=N, workers=N or long"),
            ("zstd:level=3,,long", "level=N, workers=N or long"),
            ("zstd:level=3:level=4", "each option once"),
            ("zstd:long=maybe", "on or off"),
            ("zstd:window=27", "level=N, workers=N or long"),
        ] {
            let refused = parse(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
