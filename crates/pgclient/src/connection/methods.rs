//! `require_auth`: which authentication methods a server may use.

use crate::Error;

/// A way of proving who the client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Password,
    Md5,
    Gss,
    Sspi,
    Scram,
    OAuth,
    /// No proof at all.
    None,
}

const WORDS: [(&str, Method); 7] = [
    ("password", Method::Password),
    ("md5", Method::Md5),
    ("gss", Method::Gss),
    ("sspi", Method::Sspi),
    ("scram-sha-256", Method::Scram),
    ("oauth", Method::OAuth),
    ("none", Method::None),
];

/// The methods of a list, or all but those of a list of negations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Methods {
    listed: Vec<Method>,
    excluded: bool,
}

impl Methods {
    /// Every method.
    pub(super) fn any() -> Self {
        Self { listed: Vec::new(), excluded: true }
    }

    /// Reads `require_auth`.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || Error::InvalidValue {
            keyword: "require_auth",
            value: text.to_owned(),
            allowed: "methods, or negated methods: password, md5, gss, sspi, scram-sha-256, oauth, none",
        };
        let excluded = text.starts_with('!');
        let mut listed = Vec::new();
        for word in text.split(',') {
            let name = match (excluded, word.strip_prefix('!')) {
                (true, Some(name)) => name,
                (false, None) => word,
                _ => return Err(wrong()),
            };
            let known = WORDS.iter().find(|(known, _)| *known == name);
            listed.push(known.ok_or_else(wrong)?.1);
        }
        Ok(Self { listed, excluded })
    }

    pub(super) fn allow(&self, method: Method) -> bool {
        self.listed.contains(&method) != self.excluded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_allows_what_it_names_and_negations_all_else() {
        let list = Methods::parse("scram-sha-256,none").unwrap();
        assert!(list.allow(Method::Scram) && list.allow(Method::None) && !list.allow(Method::Md5));
        let negated = Methods::parse("!password,!md5").unwrap();
        assert!(
            negated.allow(Method::Scram) && !negated.allow(Method::Password) && !negated.allow(Method::Md5)
        );
        assert!(Methods::any().allow(Method::Password) && Methods::any().allow(Method::None));
        for wrong in ["scram-sha-256,!md5", "!md5,none", "scram", ",", "md5, none"] {
            assert!(Methods::parse(wrong).is_err(), "{wrong}");
        }
    }
}
