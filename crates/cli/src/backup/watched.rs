//! A repository for tests: it notes what is done to it, and something else may happen right before.

use pgshrink_repository::{Error, Found, Location, ObjectName, ObjectWriter, Repository, Variables};
use pgshrink_testkit::TempDir;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

type Before = Arc<dyn Fn(&str, &dyn Repository) + Send + Sync>;

/// In a directory of its own.
pub(super) struct Watched {
    inner: Arc<dyn Repository>,
    /// `create NAME`, `finish NAME`, `read NAME` and so on, in their order.
    calls: Arc<Mutex<Vec<String>>>,
    before: Before,
    pub(super) folder: TempDir,
}

struct WatchedWriter {
    inner: Box<dyn ObjectWriter>,
    repository: Arc<dyn Repository>,
    calls: Arc<Mutex<Vec<String>>>,
    before: Before,
    call: String,
}

impl Watched {
    /// Before every call, `before` gets what it is, and the repository below this one.
    pub(super) fn new(before: impl Fn(&str, &dyn Repository) + Send + Sync + 'static) -> Watched {
        let folder = TempDir::new().unwrap();
        let inner = Location::Directory(folder.path().to_owned()).create(&Variables::default()).unwrap();
        Watched { inner, calls: Arc::default(), before: Arc::new(before), folder }
    }

    /// Where nothing else happens.
    pub(super) fn quiet() -> Watched {
        Watched::new(|_, _| ())
    }

    /// Without anybody who watches.
    pub(super) fn inner(&self) -> &dyn Repository {
        &*self.inner
    }

    /// What was done so far that begins with this.
    pub(super) fn calls(&self, beginning: &str) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| call.starts_with(beginning)).cloned().collect()
    }

    fn note(&self, what: &str, name: &str) {
        let call = format!("{what} {name}");
        (self.before)(&call, &*self.inner);
        self.calls.lock().unwrap().push(call);
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Repository for Watched {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Error> {
        self.note("create", name.as_str());
        self.inner.create(name, bytes)
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>, Error> {
        Ok(Box::new(WatchedWriter {
            inner: self.inner.writer(name)?,
            repository: Arc::clone(&self.inner),
            calls: Arc::clone(&self.calls),
            before: Arc::clone(&self.before),
            call: format!("finish {name}"),
        }))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Error> {
        self.note("size", name.as_str());
        self.inner.size(name)
    }

    fn read(&self, name: &ObjectName, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        self.note("read", name.as_str());
        self.inner.read(name, offset, bytes)
    }

    fn list(&self, below: Option<&ObjectName>, count_max: usize) -> Result<Vec<Found>, Error> {
        self.note("list", below.map_or("", ObjectName::as_str));
        self.inner.list(below, count_max)
    }

    fn top(&self, count_max: usize) -> Result<Vec<String>, Error> {
        self.note("top", "");
        self.inner.top(count_max)
    }

    fn below(&self, folder: &ObjectName, count_max: usize) -> Result<Vec<String>, Error> {
        self.note("below", folder.as_str());
        self.inner.below(folder, count_max)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Error> {
        self.note("remove", name.as_str());
        self.inner.remove(name)
    }
}

impl Write for WatchedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl ObjectWriter for WatchedWriter {
    fn finish(self: Box<Self>) -> Result<(), Error> {
        (self.before)(&self.call, &*self.repository);
        self.calls.lock().unwrap().push(self.call);
        self.inner.finish()
    }
}
