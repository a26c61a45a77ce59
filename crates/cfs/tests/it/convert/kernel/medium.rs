//! Files and directories as programs see them, and as the medium has them.

use std::collections::BTreeMap;

use super::File;

/// The pages of a plain file: each is the number of the write that it has, 0 for zeros.
#[derive(Default)]
pub struct Pages {
    pub cache: Vec<u64>,
    pub medium: Vec<u64>,
    pub pending: Vec<Change>,
    pub failures: u64,
}

#[derive(Clone, Copy)]
pub enum Change {
    Write(usize, u64),
    Length(usize),
}

/// The names of a directory.
#[derive(Default)]
pub struct Names {
    pub cache: BTreeMap<String, usize>,
    pub medium: BTreeMap<String, File>,
    pub pending: Vec<NameChange>,
}

#[derive(Clone)]
pub enum NameChange {
    Made(String, File),
    Removed(String, File),
    Exchanged(String, File, String, File),
}

impl Pages {
    pub fn write(&mut self, page: usize, value: u64) {
        if page >= self.cache.len() {
            self.set_length(page + 1);
        }
        self.cache[page] = value;
        self.pending.push(Change::Write(page, value));
    }

    pub fn set_length(&mut self, pages: usize) {
        self.cache.resize(pages, 0);
        self.pending.push(Change::Length(pages));
    }

    pub fn sync(&mut self) {
        self.medium.clone_from(&self.cache);
        self.pending.clear();
    }

    pub fn lose_power(&mut self, mut keeps: impl FnMut() -> bool) {
        for change in std::mem::take(&mut self.pending) {
            if !keeps() {
                continue;
            }
            match change {
                Change::Length(pages) => self.medium.resize(pages, 0),
                Change::Write(page, value) => {
                    if let Some(found) = self.medium.get_mut(page) {
                        *found = value;
                    }
                }
            }
        }
        self.cache.clone_from(&self.medium);
    }
}

impl Names {
    fn apply(&mut self, change: NameChange) {
        let has = |names: &Names, name: &str, file| names.medium.get(name) == Some(&file);
        match change {
            NameChange::Made(name, file) => {
                self.medium.entry(name).or_insert(file);
            }
            NameChange::Removed(name, file) if has(self, &name, file) => {
                self.medium.remove(&name);
            }
            NameChange::Exchanged(one, a, other, b) if has(self, &one, a) && has(self, &other, b) => {
                self.medium.insert(one, b);
                self.medium.insert(other, a);
            }
            _ => {}
        }
    }

    pub fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            self.apply(change);
        }
    }

    /// They are durable as they are now.
    pub fn sync_with(&mut self, file_of: impl Fn(usize) -> File) {
        self.pending.clear();
        self.medium = self.cache.iter().map(|(name, dentry)| (name.clone(), file_of(*dentry))).collect();
    }

    pub fn lose_power(&mut self, mut keeps: impl FnMut() -> bool) {
        for change in std::mem::take(&mut self.pending) {
            if keeps() {
                self.apply(change);
            }
        }
        self.cache.clear();
    }
}
