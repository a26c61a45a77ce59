//! A repository in memory whose objects tests can change.

use pgshrink_repository::{Error, Found, ObjectName, ObjectWriter, Repository};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

type Objects = Arc<Mutex<BTreeMap<ObjectName, Vec<u8>>>>;

#[derive(Debug, Default)]
pub struct Memory(Objects);

struct MemoryWriter {
    objects: Objects,
    name: ObjectName,
    bytes: Vec<u8>,
}

impl Memory {
    pub fn get(&self, name: &str) -> Vec<u8> {
        self.0.lock().unwrap()[&ObjectName::new(name).unwrap()].clone()
    }

    pub fn put(&self, name: &str, bytes: Option<Vec<u8>>) {
        let (mut objects, name) = (self.0.lock().unwrap(), ObjectName::new(name).unwrap());
        match bytes {
            Some(bytes) => objects.insert(name, bytes),
            None => objects.remove(&name),
        };
    }

    pub fn any(&self, is_it: impl Fn(&[u8]) -> bool) -> bool {
        self.0.lock().unwrap().values().any(|bytes| is_it(bytes))
    }

    fn with<T>(&self, name: &ObjectName, take: impl FnOnce(&[u8]) -> T) -> Result<T, Error> {
        let objects = self.0.lock().unwrap();
        let missing = || Error::NotFound { place: "memory".to_owned(), name: name.clone() };
        objects.get(name).map(|bytes| take(bytes)).ok_or_else(missing)
    }
}

impl Repository for Memory {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Error> {
        let mut objects = self.0.lock().unwrap();
        if objects.contains_key(name) {
            return Err(Error::Exists { place: "memory".to_owned(), name: name.clone() });
        }
        objects.insert(name.clone(), bytes.to_vec());
        Ok(())
    }

    fn writer(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>, Error> {
        let (objects, name) = (Arc::clone(&self.0), name.clone());
        Ok(Box::new(MemoryWriter { objects, name, bytes: Vec::new() }))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Error> {
        self.with(name, |found| found.len() as u64)
    }

    fn read(&self, name: &ObjectName, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        let expected = offset + bytes as u64;
        self.with(name, |found| match found.get(offset as usize..expected as usize) {
            Some(read) => Ok(read.to_vec()),
            None => {
                let found = found.len() as u64;
                Err(Error::Short { place: "memory".to_owned(), name: name.clone(), expected, found })
            }
        })?
    }

    fn list(&self, below: Option<&ObjectName>, count_max: usize) -> Result<Vec<Found>, Error> {
        assert!(below.is_none() && count_max > 0, "not needed");
        let objects = self.0.lock().unwrap();
        let found = objects.iter().map(|(name, bytes)| Found {
            name: name.clone(),
            bytes: bytes.len() as u64,
            written: SystemTime::UNIX_EPOCH,
        });
        Ok(found.collect())
    }

    fn top(&self, _: usize) -> Result<Vec<String>, Error> {
        panic!("not needed")
    }

    fn below(&self, _: &ObjectName, _: usize) -> Result<Vec<String>, Error> {
        panic!("not needed")
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Error> {
        self.0.lock().unwrap().remove(name);
        Ok(())
    }
}

impl Write for MemoryWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ObjectWriter for MemoryWriter {
    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.objects.lock().unwrap().insert(self.name, self.bytes);
        Ok(())
    }
}
