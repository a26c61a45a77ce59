//! Pages whose checksums are wrong. As with BASE_BACKUP they end the backup when all of it was read, so that one run names
//! them all.

use super::pieces::OpenFile;
use crate::backup::Failure;
use pgshrink_backup::pages::WrongPage;
use pgshrink_codec::counted;
use std::sync::Mutex;

/// Pages of one file that are named, and files that the error names.
const PAGES_NAMED_MAX: u64 = 5;
const FILES_NAMED_MAX: usize = 20;

#[derive(Default)]
pub(super) struct Damage(Mutex<Found>);

#[derive(Default)]
struct Found {
    pages: u64,
    files: u64,
    named: Vec<String>,
}

impl Damage {
    /// Takes note of pages of a file, and says it.
    pub(super) fn note(&self, file: &OpenFile, pages: &[WrongPage]) {
        if pages.is_empty() {
            return;
        }
        let path = &file.listed.path;
        let count = pages.len() as u64;
        let before = file.count_wrong(count);
        for (page, number) in pages.iter().zip(before..) {
            if number < PAGES_NAMED_MAX {
                let WrongPage { block, stored, computed } = page;
                eprintln!(
                    "pgshrink: {path}: the checksum of block {block} is {stored:04x}, but its content has \
                     {computed:04x}"
                );
            } else if number == PAGES_NAMED_MAX {
                eprintln!("pgshrink: {path}: more of its blocks have wrong checksums");
            }
        }
        if let Ok(mut found) = self.0.lock() {
            found.pages += count;
            if before == 0 {
                found.files += 1;
                if found.named.len() < FILES_NAMED_MAX {
                    found.named.push(path.to_string());
                }
            }
        }
    }

    /// # Errors
    /// When there was any.
    pub(super) fn result(self) -> Result<(), Failure> {
        let found = self.0.into_inner().unwrap_or_default();
        if found.pages == 0 {
            return Ok(());
        }
        let more = if found.files > found.named.len() as u64 { ", …" } else { "" };
        let what = format!(
            "{} in {} {}: {}{more}. They are damaged on the server. Restore \
             them from an older backup; --no-verify-checksums backs them up as they are",
            counted(found.pages, "page", "pages"),
            counted(found.files, "file", "files"),
            if found.pages == 1 { "has a wrong checksum" } else { "have wrong checksums" },
            found.named.join(", ")
        );
        Err(Failure::new("the backup", what))
    }
}
