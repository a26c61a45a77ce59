//! Where a repository is, as a user writes it.

use crate::cloud::Cloud;
use crate::directory::Directory;
use crate::{Error, Repository};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A directory, or a bucket with a prefix.
///
/// | written as | |
/// |---|---|
/// | `/backups`, `backups`, `file:///backups` | a directory |
/// | `s3://bucket/prefix` | S3 and what speaks its protocol: `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, … |
/// | `az://container/prefix`, `azure://…` | Azure Blob Storage: `AZURE_STORAGE_ACCOUNT_NAME`, … |
/// | `gs://bucket/prefix` | Google Cloud Storage: `GOOGLE_APPLICATION_CREDENTIALS`, … |
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A directory of this machine.
    Directory(PathBuf),
    /// An object store.
    Bucket {
        /// Which one.
        store: Store,
        /// The bucket or container.
        bucket: String,
        /// What all names begin with; empty, or without a slash at either end.
        prefix: String,
    },
}

/// A kind of object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Amazon S3, and others that speak its protocol.
    S3,
    /// Azure Blob Storage.
    Azure,
    /// Google Cloud Storage.
    Google,
}

/// Environment variables: an object store's endpoint, region and credentials come from there, as its own tools have them.
#[derive(Clone, Default)]
pub struct Variables(Vec<(String, String)>);

impl Variables {
    /// Those of this process that are UTF-8.
    pub fn of_process() -> Variables {
        let text = |text: OsString| text.into_string().ok();
        std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
    }

    /// Those whose names begin with a prefix, with names in lower case.
    pub(crate) fn below<'v>(&'v self, prefix: &'v str) -> impl Iterator<Item = (String, &'v str)> {
        let found = self.0.iter().filter(move |(name, _)| name.starts_with(prefix));
        found.map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()))
    }
}

impl FromIterator<(String, String)> for Variables {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Variables {
        Variables(variables.into_iter().collect())
    }
}

/// Values are secrets.
impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Store {
    fn scheme(self) -> &'static str {
        match self {
            Store::S3 => "s3",
            Store::Azure => "az",
            Store::Google => "gs",
        }
    }
}

impl Location {
    /// Reads what a user has written.
    ///
    /// # Errors
    /// [`Error::Location`] for another scheme, a bucket without a name, or credentials in the text.
    pub fn parse(text: &str) -> Result<Location, Error> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text {
                "" => Err(refused("", "give a directory, or a URL such as s3://bucket/prefix")),
                _ => match mistyped(text) {
                    Some(scheme) => Err(refused(
                        &format!("{scheme}:…"),
                        "a URL has two slashes: s3://bucket/prefix. For a directory of that name write ./ before it",
                    )),
                    None => Ok(Location::Directory(PathBuf::from(text))),
                },
            };
        };
        let store = match scheme {
            "file" if rest.starts_with('/') => return Ok(Location::Directory(PathBuf::from(rest))),
            "file" => return Err(refused(text, "a file URL has three slashes: file:///backups")),
            "s3" => Store::S3,
            "az" | "azure" => Store::Azure,
            "gs" => Store::Google,
            _ => {
                let scheme = format!("{scheme}://…");
                return Err(refused(
                    &scheme,
                    "only s3://, az://, gs://, file:// and directories are supported",
                ));
            }
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains('@') {
            let known = format!("{scheme}://…");
            return Err(refused(&known, "credentials do not belong in the URL; set them in the environment"));
        }
        if bucket.is_empty() {
            return Err(refused(text, "the bucket has no name: s3://bucket/prefix"));
        }
        if rest.contains(['?', '#']) {
            return Err(refused(text, "a repository URL must not contain '?' or '#'"));
        }
        let prefix = prefix.trim_matches('/').to_owned();
        if prefix
            .split('/')
            .any(|part| part == "." || part == ".." || (part.is_empty() && !prefix.is_empty()))
        {
            return Err(refused(text, "the prefix has a component that is empty, '.' or '..'"));
        }
        Ok(Location::Bucket { store, bucket: bucket.to_owned(), prefix })
    }

    /// Opens the repository to write to it. A directory is made if it is not there; a bucket has to be there.
    ///
    /// # Errors
    /// Errors of the filesystem, and settings of the environment that the store's client refuses. Whether the store can be
    /// reached, and whether the credentials are good, only the first operation tells.
    pub fn create(&self, variables: &Variables) -> Result<Arc<dyn Repository>, Error> {
        if let Location::Directory(path) = self {
            Directory::make(path)?;
        }
        self.open(variables)
    }

    /// Opens a repository that is there.
    ///
    /// # Errors
    /// As [`Location::create`], and [`Error::Io`] for a directory that is not there.
    pub fn open(&self, variables: &Variables) -> Result<Arc<dyn Repository>, Error> {
        Ok(match self {
            Location::Directory(path) => Arc::new(Directory::open(path)?),
            Location::Bucket { .. } => Arc::new(Cloud::open(self, variables)?),
        })
    }
}

/// `s3:/bucket` is no directory that somebody wants, and `server:/path` is not to be read from here.
fn mistyped(text: &str) -> Option<&str> {
    const SCHEMES: [&str; 8] = ["s3", "az", "azure", "gs", "file", "http", "https", "server"];
    let (scheme, _) = text.split_once(':')?;
    SCHEMES.contains(&&*scheme.to_ascii_lowercase()).then_some(scheme)
}

fn refused(place: &str, reason: &str) -> Error {
    Error::Location { place: place.to_owned(), reason: reason.to_owned() }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Directory(path) => path.display().fmt(f),
            Location::Bucket { store, bucket, prefix } if prefix.is_empty() => {
                write!(f, "{}://{bucket}", store.scheme())
            }
            Location::Bucket { store, bucket, prefix } => write!(f, "{}://{bucket}/{prefix}", store.scheme()),
        }
    }
}
