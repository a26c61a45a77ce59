//! What a tablespace's option `compression` says.

use std::fmt;
use std::str::FromStr;

use pgshrink_codec::{Algorithm, Choice, Level};

/// How pages are written into a tablespace's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Setting {
    /// Algorithm and level; `None`: new files are plain.
    pub compression: Option<Choice>,
    /// Whether new files are encrypted; only with compression.
    pub is_encrypted: bool,
}

/// Words for "as recommended", and for "not at all".
const YES: [&str; 4] = ["true", "on", "yes", "default"];
const NO: [&str; 4] = ["none", "off", "no", "false"];
/// What a security label begins with.
const LABEL: &str = "compression=";
/// What the label of an encrypted tablespace ends with.
const LABEL_ENCRYPTED: &str = ", encryption=on";

/// What is recommended: `zstd:1`.
pub const DEFAULT: Choice = Choice { algorithm: Algorithm::Zstd, level: Level(1) };

/// An option's value that means nothing here.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingError {
    /// No such word or algorithm.
    #[error("invalid value for \"compression\": \"{0}\"")]
    Word(String),
    /// The algorithm has no such level.
    #[error("invalid level for \"compression\": \"{found}\"")]
    Level {
        /// What was given.
        found: String,
        /// What the algorithm has.
        allowed: String,
    },
    /// A security label that is none of ours.
    #[error("invalid security label for provider \"cfs\": \"{0}\"")]
    Label(String),
}

impl SettingError {
    /// What may be given instead.
    pub fn hint(&self) -> String {
        match self {
            SettingError::Level { allowed, .. } => allowed.clone(),
            SettingError::Word(_) => {
                let names: Vec<_> = algorithms().map(Algorithm::name).collect();
                format!(
                    "Valid values are true, default, none, and an algorithm with or without a level, as in 'zstd:3': {}.",
                    names.join(", ")
                )
            }
            SettingError::Label(_) => {
                "Labels look like 'compression=zstd:1', 'compression=zstd:1, encryption=on' or \
                 'compression=none'. ALTER TABLESPACE … SET (compression = …) creates them."
                    .into()
            }
        }
    }
}

/// Algorithms that pages can be compressed with.
fn algorithms() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.iter().copied().filter(|algorithm| *algorithm != Algorithm::None)
}

impl Setting {
    /// New files are plain.
    pub const PLAIN: Setting = Setting { compression: None, is_encrypted: false };
    /// New files are compressed as recommended and encrypted: where it is not known what they are to be.
    pub const SAFE: Setting = Setting { compression: Some(DEFAULT), is_encrypted: true };

    /// With encryption; `None` for what is not compressed.
    pub fn encrypted(self) -> Option<Setting> {
        self.compression.is_some().then_some(Setting { is_encrypted: true, ..self })
    }

    /// The value of the option `compression`.
    pub fn compression(&self) -> String {
        self.compression.map_or_else(|| "none".to_owned(), |choice| choice.to_string())
    }

    /// The text of the tablespace's security label.
    pub fn label(&self) -> String {
        format!("{LABEL}{}{}", self.compression(), if self.is_encrypted { LABEL_ENCRYPTED } else { "" })
    }

    /// What a security label says.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn from_label(label: &str) -> Result<Setting, SettingError> {
        let unknown = || SettingError::Label(label.into());
        let value = label.strip_prefix(LABEL).ok_or_else(unknown)?;
        match value.strip_suffix(LABEL_ENCRYPTED) {
            Some(value) => value.parse::<Setting>()?.encrypted().ok_or_else(unknown),
            None => value.parse(),
        }
    }
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Setting, SettingError> {
        let word = text.trim().to_ascii_lowercase();
        if YES.contains(&word.as_str()) {
            return Ok(Setting { compression: Some(DEFAULT), is_encrypted: false });
        }
        if NO.contains(&word.as_str()) {
            return Ok(Setting::PLAIN);
        }
        let (name, level) = match word.split_once(':') {
            Some((name, level)) => (name.trim(), Some(level.trim())),
            None => (word.as_str(), None),
        };
        let algorithm = algorithms().find(|algorithm| algorithm.name() == name);
        let algorithm = algorithm.ok_or_else(|| SettingError::Word(text.into()))?;
        let choice = match level {
            // zstd without a level is what the recommendation is.
            None if algorithm == DEFAULT.algorithm => DEFAULT,
            None => algorithm.into(),
            Some(level) => {
                let levels = algorithm.levels();
                let allowed = match algorithm.has_levels() {
                    true => format!("Levels of {name} are {levels}."),
                    false => format!("{name} has no levels."),
                };
                let wrong = || SettingError::Level { found: text.into(), allowed: allowed.clone() };
                let level: i64 = level.parse().map_err(|_| wrong())?;
                if !algorithm.has_levels() {
                    return Err(wrong());
                }
                Choice::new(algorithm, level).map_err(|_| wrong())?
            }
        };
        Ok(Setting { compression: Some(choice), is_encrypted: false })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.compression(), if self.is_encrypted { ", encrypted" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_algorithms_and_levels_are_read() {
        let shown = |text: &str| text.parse::<Setting>().map(|setting| setting.to_string());
        for (text, expected) in [
            ("true", "zstd:1"),
            ("Default", "zstd:1"),
            ("zstd", "zstd:1"),
            (" ZSTD : 9 ", "zstd:9"),
            ("lz4", "lz4:1"),
            ("pglz", "pglz"),
            ("none", "none"),
            ("off", "none"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "gzip", "zstd:", "zstd:99", "zstd:1:2", "pglz:1", "none:1", "1", "zstd 1"] {
            let error = shown(text).unwrap_err();
            assert!(error.to_string().contains(&format!("\"{text}\"")), "{error}");
            assert!(!error.hint().is_empty());
        }
    }

    #[test]
    fn labels_come_back() {
        for text in ["zstd:-7", "lz4:1", "none", "snappy"] {
            let setting: Setting = text.parse().unwrap();
            assert_eq!(Setting::from_label(&setting.label()), Ok(setting));
            let sealed = setting.encrypted();
            assert_eq!(sealed.is_none(), text == "none");
            assert!(sealed.is_none_or(|sealed| Setting::from_label(&sealed.label()) == Ok(sealed)));
        }
        for label in
            ["compression=none, encryption=on", "compression=zstd:1, encryption=off", "encryption=on"]
        {
            assert!(Setting::from_label(label).is_err(), "{label}");
        }
        assert!(matches!(Setting::from_label("secret"), Err(SettingError::Label(_))));
        assert!(matches!(Setting::from_label("compression=gzip"), Err(SettingError::Word(_))));
    }
}
