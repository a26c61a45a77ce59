//! A repository in an object store, by `object_store`.
//!
//! Small objects are one conditional request (`If-None-Match: *`). Large ones are uploaded in parts of [`PART_BYTES`], of which
//! [`UPLOADS_MAX`] are on their way at a time; an upload that is not completed leaves no object. Requests that fail for a
//! passing reason are repeated: most of them by `object_store`. It does not repeat a conditional request that was interrupted,
//! nor one whose answer broke off; [`Shared::request`] does.

mod writer;

pub(crate) use writer::PART_BYTES;

use crate::location::{Store, Variables};
use crate::{Error, Found, Location, ObjectName, ObjectWriter, Repository};
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, RetryConfig};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use writer::CloudWriter;

/// For one request: a part takes so long at 70 kB/s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// For a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// From the first attempt of a request to the last, of those that `object_store` makes.
const RETRY_TIMEOUT: Duration = Duration::from_secs(120);
/// From the first attempt of a request to the last that is begun here.
const REPEAT_TIMEOUT: Duration = Duration::from_secs(60);
/// Before the first repetition; each pause is twice as long as the one before.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);
const REPEAT_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Attempts of a request after the first, of a store that has not answered yet: its place may be mistyped.
const RETRIES_MAX: usize = 8;
/// The same afterwards. Pauses grow to 15 seconds at most, so [`RETRY_TIMEOUT`] ends it.
const PATIENT_RETRIES_MAX: usize = 1000;
/// Where a machine in a cloud gets its credentials.
const METADATA_SERVICE: &str = "169.254.169.254";
/// Threads for requests; the work is waiting.
const THREADS: usize = 2;

/// Objects of a bucket below a prefix.
#[derive(Debug, Clone)]
pub(crate) struct Cloud {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Gives up soon.
    brief: Arc<dyn ObjectStore>,
    /// Waits for a store that is started again.
    patient: Arc<dyn ObjectStore>,
    /// The store has answered a request.
    has_answered: AtomicBool,
    /// What to do about a store that is not reached, or refuses.
    advice: &'static str,
    prefix: String,
    place: String,
    runtime: Runtime,
}

impl Cloud {
    pub(crate) fn open(location: &Location, variables: &Variables) -> Result<Cloud, Error> {
        let place = location.to_string();
        let Location::Bucket { store, bucket, prefix } = location else {
            return Err(Error::Location { place, reason: "it is a directory".to_owned() });
        };
        // The process may have chosen one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if let Some((name, _)) = variables.below(store.prefix()).find(|(key, url)| !is_endpoint(key, url)) {
            let reason = format!(
                "{} in the environment: expected a URL such as http://host:9000 or https://host",
                name.to_ascii_uppercase()
            );
            return Err(Error::Location { place, reason });
        }
        let refused = |error: object_store::Error| Error::Location {
            place: location.to_string(),
            reason: format!("{error}; {}", store.advice()),
        };
        let client = |retries| client(*store, bucket, variables, retries).map_err(refused);
        let (brief, patient) = (client(RETRIES_MAX)?, client(PATIENT_RETRIES_MAX)?);
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
        let runtime =
            runtime.map_err(|source| Error::Io { what: "start threads for", path: place.clone(), source })?;
        let shared = Shared {
            brief,
            patient,
            has_answered: AtomicBool::new(false),
            advice: store.advice(),
            prefix: prefix.clone(),
            place,
            runtime,
        };
        Ok(Cloud { shared: Arc::new(shared) })
    }
}

/// The store's client, with credentials and endpoint of the environment.
fn client(
    store: Store,
    bucket: &str,
    variables: &Variables,
    max_retries: usize,
) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
    let retry = RetryConfig { max_retries, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
    // An endpoint of http:// was chosen by who wrote it; the stores' own are https. The environment may say something else, such
    // as AWS_TIMEOUT.
    let options = ClientOptions::new()
        .with_allow_http(true)
        .with_timeout(REQUEST_TIMEOUT)
        .with_connect_timeout(CONNECT_TIMEOUT);
    // Each store's builder has its own type and the same methods.
    macro_rules! built {
        ($builder:expr) => {{
            let mut builder = $builder.with_client_options(options);
            for (key, value) in variables.below(store.prefix()) {
                // What this client does not know is for other programs.
                if let Ok(key) = key.parse() {
                    builder = builder.with_config(key, value);
                }
            }
            Arc::new(builder.with_retry(retry).build()?)
        }};
    }
    Ok(match store {
        Store::S3 => built!(AmazonS3Builder::new().with_bucket_name(bucket)),
        Store::Azure => built!(MicrosoftAzureBuilder::new().with_container_name(bucket)),
        Store::Google => built!(GoogleCloudStorageBuilder::new().with_bucket_name(bucket)),
    })
}

impl Store {
    /// What its variables of the environment begin with.
    fn prefix(self) -> &'static str {
        match self {
            Store::S3 => "AWS_",
            Store::Azure => "AZURE_",
            Store::Google => "GOOGLE_",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Store::S3 => "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
            Store::Azure => "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
            Store::Google => "set GOOGLE_APPLICATION_CREDENTIALS",
        }
    }
}

/// Whether a variable is none for an endpoint, or has a URL. The client panics at a request to what is none.
fn is_endpoint(key: &str, url: &str) -> bool {
    let is_url = ["_endpoint", "_endpoint_url", "_endpoint_url_s3"].iter().any(|end| key.ends_with(end));
    if !is_url || key.contains("use_fabric") {
        return true;
    }
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !host.is_empty() && host.bytes().all(allowed) && url.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Shared {
    fn path(&self, name: &str) -> Path {
        match self.prefix.as_str() {
            "" => Path::from(name),
            prefix => Path::from(format!("{prefix}/{name}")),
        }
    }

    fn store(&self) -> &dyn ObjectStore {
        let is_known = self.has_answered.load(Ordering::Relaxed);
        if is_known { &*self.patient } else { &*self.brief }
    }

    /// Runs a request on the calling thread, again if the network has interrupted it, and says what failed.
    fn request<T, F: Future<Output = Result<T, object_store::Error>>>(
        &self,
        what: &'static str,
        name: &str,
        mut request: impl FnMut() -> F,
    ) -> Result<T, Error> {
        let (began, mut pause) = (Instant::now(), REPEAT_PAUSE);
        loop {
            match self.runtime.block_on(request()) {
                Err(error) if is_interrupted(&error) && began.elapsed() < REPEAT_TIMEOUT => {
                    thread::sleep(pause);
                    pause = (pause * 2).min(REPEAT_PAUSE_MAX);
                }
                done => {
                    if done.as_ref().err().and_then(http_error).is_none() {
                        self.has_answered.store(true, Ordering::Relaxed);
                    }
                    return done.map_err(|error| self.failed(what, name, error));
                }
            }
        }
    }

    fn failed(&self, what: &'static str, name: &str, error: object_store::Error) -> Error {
        let place = self.place.clone();
        match (ObjectName::new(name), &error) {
            (Ok(name), object_store::Error::NotFound { .. }) => Error::NotFound { place, name },
            (
                Ok(name),
                object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. },
            ) => Error::Exists { place, name },
            _ => {
                let mut reason = with_causes(&error);
                // The client asks the machine's own metadata service where the environment has no credentials.
                if reason.contains(METADATA_SERVICE) {
                    reason = format!("no credentials were found: {}; {reason}", self.advice);
                } else if reason.contains("NoSuchBucket") {
                    reason = format!("the bucket does not exist; create it first: {reason}");
                }
                Error::Store { what, place, name: name.to_owned(), reason }
            }
        }
    }

    /// `None`: the name is not one of ours.
    fn found(&self, meta: ObjectMeta) -> Option<Found> {
        let path = meta.location.as_ref();
        let name = match self.prefix.as_str() {
            "" => path,
            prefix => path.strip_prefix(prefix)?.strip_prefix('/')?,
        };
        Some(Found {
            name: ObjectName::new(name).ok()?,
            bytes: meta.size,
            written: meta.last_modified.into(),
        })
    }

    fn folder(&self, below: Option<&ObjectName>) -> Option<Path> {
        match (below, self.prefix.as_str()) {
            (Some(name), _) => Some(self.path(name.as_str())),
            (None, "") => None,
            (None, prefix) => Some(Path::from(prefix)),
        }
    }

    fn limit(&self, limit: usize) -> Error {
        Error::Limit { place: self.place.clone(), limit }
    }
}

/// Whether a request was sent, and its answer did not come, or not all of it.
fn is_interrupted(error: &object_store::Error) -> bool {
    http_error(error)
        .is_some_and(|error| matches!(error.kind(), HttpErrorKind::Timeout | HttpErrorKind::Interrupted))
}

/// What kept a request from being answered.
fn http_error(error: &object_store::Error) -> Option<&HttpError> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

/// An error and what caused it: the store's own words come last.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

impl Repository for Cloud {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Error> {
        let shared = &self.shared;
        let payload = Bytes::copy_from_slice(bytes);
        let path = shared.path(name.as_str());
        let put = || shared.store().put_opts(&path, payload.clone().into(), PutMode::Create.into());
        match shared.request("create", name.as_str(), put) {
            // A first attempt may have succeeded and its answer was lost. Writers' bytes differ.
            Err(Error::Exists { .. }) if self.size(name)? == bytes.len() as u64 => {
                match self.read(name, 0, bytes.len())? == bytes {
                    true => Ok(()),
                    false => Err(Error::Exists { place: shared.place.clone(), name: name.clone() }),
                }
            }
            done => done.map(|_| ()),
        }
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>, Error> {
        Ok(Box::new(CloudWriter::new(self.clone(), name.clone())))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Error> {
        let shared = &self.shared;
        let path = shared.path(name.as_str());
        Ok(shared.request("look at", name.as_str(), || shared.store().head(&path))?.size)
    }

    fn read(&self, name: &ObjectName, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        let shared = &self.shared;
        let expected = offset.saturating_add(bytes as u64);
        let path = shared.path(name.as_str());
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let read =
            shared.request("read", name.as_str(), || shared.store().get_range(&path, offset..expected));
        let found = match read {
            Ok(read) if read.len() == bytes => return Ok(read.into()),
            Ok(read) => offset + read.len() as u64,
            // A range behind the end is an error of the store.
            Err(error @ Error::Store { .. }) => match self.size(name)? {
                size if size < expected => size,
                _ => return Err(error),
            },
            Err(error) => return Err(error),
        };
        Err(Error::Short { place: shared.place.clone(), name: name.clone(), expected, found })
    }

    fn list(&self, below: Option<&ObjectName>, count_max: usize) -> Result<Vec<Found>, Error> {
        let shared = &self.shared;
        let folder = shared.folder(below);
        let what = folder.as_ref().map_or("", |path| path.as_ref()).to_owned();
        let listing = || async {
            let mut objects = shared.store().list(folder.as_ref());
            let mut found = Vec::new();
            while let Some(meta) = objects.try_next().await? {
                let Some(object) = shared.found(meta) else { continue };
                if found.len() == count_max {
                    return Ok(None);
                }
                found.push(object);
            }
            Ok(Some(found))
        };
        let found = shared.request("list", &what, listing)?;
        let mut found = found.ok_or_else(|| shared.limit(count_max))?;
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn top(&self, count_max: usize) -> Result<Vec<String>, Error> {
        self.shared.names(None, count_max)
    }

    fn below(&self, folder: &ObjectName, count_max: usize) -> Result<Vec<String>, Error> {
        self.shared.names(Some(folder), count_max)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Error> {
        let shared = &self.shared;
        let path = shared.path(name.as_str());
        match shared.request("remove", name.as_str(), || shared.store().delete(&path)) {
            Err(Error::NotFound { .. }) => Ok(()),
            done => done,
        }
    }
}

impl Shared {
    /// First components of names.
    fn names(&self, below: Option<&ObjectName>, count_max: usize) -> Result<Vec<String>, Error> {
        let folder = self.folder(below);
        let what = below.map_or("", ObjectName::as_str);
        let list = self.request("list", what, || self.store().list_with_delimiter(folder.as_ref()))?;
        let objects = list.objects.into_iter().map(|meta| meta.location);
        let last = |path: Path| path.filename().map(str::to_owned);
        let names = objects.chain(list.common_prefixes).filter_map(last);
        let mut names: Vec<String> = names.filter(|name| ObjectName::new(name).is_ok()).collect();
        if names.len() > count_max {
            return Err(self.limit(count_max));
        }
        names.sort();
        Ok(names)
    }
}
