//! Taking idle leaves of the map out of memory again, while others read and write.
//!
//! A leaf goes only if its record says all that memory does: it is loaded, it has a record, nothing in it
//! changed since that was written, and no entry is marked for the next commit. Afterwards the map is what it
//! is after opening, not complete: commits free no space until it is.
//!
//! Reads and writes take no lock. So, under the collector's, the commit and the loaders' lock, which nobody
//! holds across I/O but the first two:
//!
//! 1. what is not counted any more is said to be so, and the load limit is raised over the leaves;
//! 2. `Shared::unloads` becomes odd;
//! 3. the leaf is not loaded any more: who finds an entry missing from now on loads the leaf, and waits for
//!    the loaders' lock to do so;
//! 4. each entry is swapped for a missing one. One that is marked by now ends this: the leaf keeps its
//!    memory;
//! 5. the leaf is not touched any more, and its memory is given back;
//! 6. `Shared::unloads` becomes even.
//!
//! A writer whose swap comes before 4 is seen there; one whose swap comes later finds `unloads` other than
//! before, waits, and publishes its entry again. A process that dies on the way leaves a leaf that is not
//! loaded, and an odd number, which the next holder of the loaders' lock makes even.

use std::ops::Range;

use crate::device::{Device, ProcessTable};
use crate::engine::container::Container;
use crate::engine::leaves;
use crate::fault::Fault;
use crate::format::entry::Entry;
use crate::format::error::Error;
use crate::format::root::Root;
use crate::format::units::{Block, Leaf, Location};
use crate::shared::lock::{CollectorGuard, CommitGuard, LoaderGuard};
use crate::shared::region::{FIXED_WORDS, IDLE};
use crate::shared::state::SharedState;
use crate::shared::word::Word;

impl<W: Word> SharedState<'_, W> {
    /// Takes the loaders' lock. What a process that died in an unloading left is ended.
    pub(crate) fn lock_loader(&self, processes: &impl ProcessTable) -> LoaderGuard<'_, W> {
        let guard = LoaderGuard::lock(self.shared(), processes);
        if !self.unloads().is_multiple_of(2) {
            self.shared().unloads.add(1);
        }
        guard
    }

    /// Changes whenever leaves are unloaded; odd while they are.
    pub(crate) fn unloads(&self) -> u64 {
        self.shared().unloads.load()
    }

    /// The same, once nobody is unloading.
    pub(crate) fn settled_unloads(&self, processes: &impl ProcessTable) -> u64 {
        loop {
            let unloads = self.unloads();
            if unloads.is_multiple_of(2) {
                return unloads;
            }
            drop(self.lock_loader(processes));
        }
    }

    /// Lets loaders fill in what is missing below the end of the leaf. Nothing between the old limit and the
    /// new one is missing: the leaf ends below the page count, and whoever grows or cuts the segment waits.
    fn raise_load_limit(&self, end: u64, _: &LoaderGuard<'_, W>) {
        let limit = &self.shared().load_limit;
        if end <= limit.load() {
            return;
        }
        // What the old limit says of those behind it, each now says by itself.
        leaves::all().filter(|leaf| self.is_loaded(*leaf)).for_each(|leaf| self.set_loaded(leaf));
        limit.store(end);
    }

    /// All blocks that the leaf can have.
    fn blocks_of(&self, leaf: Leaf) -> impl DoubleEndedIterator<Item = Block> + Clone + use<W> {
        leaf.blocks(self.geometry().pages_max)
    }

    /// Whether a leaf's record says all that memory does, as far as can be seen without keeping writers out.
    /// The segment's end, where it grows, is not in such a leaf.
    fn is_in_its_record(&self, leaf: Leaf, pages: u32, fault: Fault) -> bool {
        let mut blocks = self.blocks_of(leaf);
        let is_below_end = blocks.clone().last().is_some_and(|last| last.0 < pages);
        is_below_end
            && self.is_loaded(leaf)
            && self.is_touched(leaf)
            && self.leaf_place(leaf).location != Location(0)
            && !self.leaf_is_marked(leaf)
            && (fault.is(Fault::UnloadsDirty) || blocks.all(|block| !self.entry(block).is_dirty()))
    }
}

impl<D: Device, P: ProcessTable, W: Word> Container<'_, D, P, W> {
    /// Takes those leaves of the map out of memory of which no page was asked for since the last call, and
    /// which changed in nothing since a map checkpoint wrote them. A leaf is loaded again when one of its
    /// pages is read. Returns how many went. Waits for no commit and no collection: while there is one,
    /// nothing goes.
    ///
    /// `give_back` gets the words of each, by their index in the shared memory: 512 of them, of the last leaf
    /// of a segment perhaps fewer, at the begin of a page of memory if the shared memory begins one. They are
    /// zeros but for what a writer is about to write again. It may leave them as they are, or make them zeros
    /// by giving their memory to the system. It is called with locks of the engine held and must not come
    /// back into it.
    ///
    /// # Errors
    /// [`Error::OtherContainer`].
    pub fn unload_idle(&self, give_back: impl Fn(Range<usize>)) -> Result<u32, Error> {
        self.check_container()?;
        let shared = self.state.shared();
        let Some(_collector) = CollectorGuard::try_lock(shared, &self.processes) else { return Ok(0) };
        let Some(commit) = self.try_lock_commit() else { return Ok(0) };
        if shared.poisoned.load() != 0 || shared.unfinished.load() != IDLE {
            return Ok(0);
        }
        let pages = self.state.pages();
        let is_idle = |leaf: &Leaf| {
            !self.state.take_used(*leaf) && self.state.is_in_its_record(*leaf, pages, self.options.fault)
        };
        let idle: Vec<Leaf> = leaves::all().filter(is_idle).collect();
        let Some(end) = idle.last().and_then(|last| self.state.blocks_of(*last).last()) else { return Ok(0) };
        self.stop_counting(&self.root_held(&commit)?, &commit);
        let loader = self.state.lock_loader(&self.processes);
        self.state.raise_load_limit(u64::from(end.0) + 1, &loader);
        shared.unloads.add(1);
        let gone = idle.iter().filter(|leaf| self.unload(**leaf, &give_back, &loader)).count();
        shared.unloads.add(1);
        Ok(gone as u32)
    }

    /// Says that extents cannot be counted, before they cannot.
    fn stop_counting(&self, root: &Root, _: &CommitGuard<'_, W>) {
        let shared = self.state.shared();
        shared.load_end.store(shared.load_end.load().max(root.end));
        if self.state.is_complete() {
            shared.known_end.store(root.known_end);
            shared.known_free.store(root.known_free);
        }
        if !self.state.is_unloaded() && !self.options.fault.is(Fault::CountsUnloaded) {
            shared.unloaded_at.store(self.state.used_extents() + 1);
        }
    }

    /// Returns whether its memory went.
    fn unload(&self, leaf: Leaf, give_back: &impl Fn(Range<usize>), _: &LoaderGuard<'_, W>) -> bool {
        self.state.set_unloaded(leaf);
        self.device.pause();
        let blocks = self.state.blocks_of(leaf);
        for block in blocks.clone() {
            let entry = self.state.entry(block);
            let is_kept = entry.is_dirty() && !self.options.fault.is(Fault::UnloadsDirty);
            if is_kept || !self.state.replace_clean(block, entry, Entry::MISSING) {
                return false;
            }
        }
        self.state.untouch(leaf);
        let first = FIXED_WORDS + leaf.first().0 as usize;
        give_back(first..first + blocks.count());
        true
    }
}
