//! Names of objects.

use crate::Error;
use std::fmt;

/// The longest name, in bytes: what S3 allows, less room for a prefix.
const NAME_BYTES_MAX: usize = 512;

/// Components of letters, digits, `.`, `_`, `-` and `+`, with `/` between them; none begins with a dot. The same in a directory
/// and in every object store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(Box<str>);

impl ObjectName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Error::Name`] says what is wrong with it.
    pub fn new(name: &str) -> Result<ObjectName, Error> {
        let refused = |reason| Err(Error::Name { name: name.to_owned(), reason });
        if name.len() > NAME_BYTES_MAX {
            return refused("it is longer than 512 bytes");
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
        for part in name.split('/') {
            if part.is_empty() {
                return refused("a component is empty");
            }
            if part.starts_with('.') {
                return refused("a component begins with a dot");
            }
            if !part.bytes().all(is_allowed) {
                return refused("only letters, digits and ._-+ are allowed");
            }
        }
        Ok(ObjectName(name.into()))
    }

    /// The name, with `/` between components.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first component.
    pub fn first(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
