//! A relation's first dictionary, by the samples that `pack` and `estimate` both take.

use super::Failure;
use pgshrink_cfs::dictionary_policy::{DictionaryPolicy, Thresholds};
use pgshrink_cfs::page::{PAGE_SIZE, PageCodec, PageDictionary, Policy};
use std::path::Path;

/// A page with its number in the relation.
pub(super) type Sample = (u32, [u8; PAGE_SIZE]);

/// A dictionary trained on these, if it pays for pages that are encoded so, and what will decide on the next
/// one.
pub(super) fn first(
    samples: &[Sample],
    pages: u32,
    how: &Policy,
    path: &Path,
) -> Result<(DictionaryPolicy, Option<PageDictionary>), Failure> {
    let mut policy = DictionaryPolicy::new(Thresholds::default());
    for (block, page) in samples {
        policy.note(*block, page, PAGE_SIZE);
    }
    // What an encoder remembers is of pages that are not to be written by it.
    let tried = policy.trial(&mut PageCodec::new(), how, None, pages);
    Ok((policy, tried.map_err(|error| Failure::new(path, error))?))
}
