//! Writes an object of any size to an object store.

use super::Cloud;
use crate::{Error, ObjectName, ObjectWriter, Repository};
use object_store::{ObjectStoreExt, WriteMultipart};
use std::io::{self, Write};

/// Bytes of a part of a large object. S3 allows 10,000 parts: 80 GiB.
pub(crate) const PART_BYTES: usize = 8 << 20;
/// Parts of one object that are uploaded at a time.
const UPLOADS_MAX: usize = 2;

/// An object that is uploaded in parts, or in one conditional request if it is small: a writer that was taken for dead then
/// replaces nothing.
pub(super) struct CloudWriter {
    cloud: Cloud,
    name: ObjectName,
    upload: Upload,
    /// Bytes so far.
    bytes: u64,
}

/// How far it is.
enum Upload {
    /// No more than one part has come.
    Small(Vec<u8>),
    Parts(WriteMultipart),
    /// It has failed, or is finished.
    Over,
}

impl CloudWriter {
    pub(super) fn new(cloud: Cloud, name: ObjectName) -> CloudWriter {
        CloudWriter { cloud, name, upload: Upload::Small(Vec::new()), bytes: 0 }
    }

    fn failed(&self, error: object_store::Error) -> Error {
        self.cloud.shared.failed("write", self.name.as_str(), error)
    }

    /// Begins to upload parts, with what has come so far.
    fn begin(&self, first: &[u8]) -> Result<WriteMultipart, Error> {
        let shared = &self.cloud.shared;
        let path = shared.path(self.name.as_str());
        let upload = shared.request("create", self.name.as_str(), || shared.store().put_multipart(&path))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        let _inside = shared.runtime.enter();
        upload.write(first);
        Ok(upload)
    }
}

impl Write for CloudWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Upload::Small(first) = &mut self.upload {
            if first.len() + bytes.len() <= PART_BYTES {
                first.extend_from_slice(bytes);
                self.bytes += bytes.len() as u64;
                return Ok(bytes.len());
            }
            let first = std::mem::take(first);
            self.upload = Upload::Over;
            self.upload = Upload::Parts(self.begin(&first).map_err(io::Error::other)?);
        }
        let Upload::Parts(upload) = &mut self.upload else {
            return Err(io::Error::other(format!("the upload of {} has already failed", self.name)));
        };
        // Parts are sent by the runtime's threads; `write` only starts them, inside of the runtime.
        let runtime = &self.cloud.shared.runtime;
        let _inside = runtime.enter();
        let room = runtime.block_on(upload.wait_for_capacity(UPLOADS_MAX));
        let bytes = &bytes[..bytes.len().min(PART_BYTES)];
        match room {
            Ok(()) => upload.write(bytes),
            Err(error) => {
                let error = self.failed(error);
                self.abort();
                return Err(io::Error::other(error));
            }
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CloudWriter {
    /// Tells the store to forget the parts. It is not needed for correctness.
    fn abort(&mut self) {
        if let Upload::Parts(upload) = std::mem::replace(&mut self.upload, Upload::Over) {
            let _ = self.cloud.shared.runtime.block_on(upload.abort());
        }
    }
}

impl ObjectWriter for CloudWriter {
    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        let shared = &self.cloud.shared;
        match std::mem::replace(&mut self.upload, Upload::Over) {
            Upload::Small(bytes) => self.cloud.create(&self.name, &bytes),
            Upload::Parts(upload) => match shared.runtime.block_on(upload.finish()) {
                // The first request may have succeeded, and its answer was lost: the store then knows the upload no more.
                Err(_) if self.cloud.size(&self.name).is_ok_and(|size| size == self.bytes) => Ok(()),
                done => done.map(|_| ()).map_err(|error| self.failed(error)),
            },
            Upload::Over => Err(Error::Store {
                what: "write",
                place: shared.place.clone(),
                name: self.name.to_string(),
                reason: "a part could not be uploaded".to_owned(),
            }),
        }
    }
}

impl Drop for CloudWriter {
    fn drop(&mut self) {
        self.abort();
    }
}
