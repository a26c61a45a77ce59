//! Bugs that tests inject into the engine, to prove that the simulator finds them.
//!
//! They are compiled in with the feature `injected-faults` alone, which this crate's own tests turn on and
//! nothing else does.

/// One injected fault. Shells never set it; see [`Options`](crate::engine::container::Options).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub enum Fault {
    /// None: the engine as it is meant.
    #[default]
    None,
    /// Against I1: a commit does not wait for the data before it writes the root.
    MapBeforeData,
    /// Against I1: one fdatasync is taken for those of all containers of a group.
    GroupSyncedByOne,
    /// Against I2: extents are free before the commit that empties them is durable.
    ReuseBeforeCommit,
    /// Against I2: an extent is free although a writer has not finished in it.
    ReuseUnderWriter,
    /// Against I3: a root is taken whatever its check sum says.
    TornRootAccepted,
    /// Against I4: a missing entry reads as an empty page.
    MissingReadsAsZeros,
    /// Against I5: a failed fsync is forgotten and the next commit goes on.
    FsyncErrorSwallowed,
    /// Against I5: after a failed fsync the commit syncs again and believes it.
    FsyncRetried,
    /// Against I6: the name of a new container is never synced.
    NameNotSynced,
    /// Against I7: recovery rolls forward records of epochs that were discarded.
    StaleEpochRolledForward,
    /// Against I8: a collector's copy replaces whatever the entry holds by then.
    CollectorOverwrites,
    /// Against I8: a collector's copy is a new version.
    CollectorRaisesVersion,
    /// Against I9: a commit takes the dirty marks after it has waited for the data.
    DirtyClearedAfterSync,
    /// Against I10: a reader takes any valid record of its block.
    ReaderIgnoresTag,
    /// Against I11: truncation leaves the entries in memory.
    TruncationForgotten,
    /// Against I12: what a dead process left of a commit is taken for whole.
    DeadHolderTrusted,
    /// Against I14: a leaf is loaded over what was published since.
    LoaderOverwrites,
    /// Against I14: a leaf is loaded as far as it reached before a truncation.
    LoaderForgetsTruncation,
    /// Against I14: a leaf is loaded from a record that it had before it was unloaded.
    LoaderTrustsPlace,
    /// Against I14: a leaf is unloaded with what was published since its record was written.
    UnloadsDirty,
    /// Against I15: space is freed although leaves were unloaded.
    CountsUnloaded,
    /// Against I15: space is freed although not all of the map is in memory.
    ReuseBeforeLoaded,
    /// Against I3: a commit writes over the only durable root.
    RootInPlace,
    /// Against I13: a dictionary that no page needs is dropped although somebody may be writing one.
    DictionaryDroppedUnderWriter,
    /// Against I13: the number of a dropped dictionary is given out again.
    DictionaryNumberReused,
    /// Against B2: a state in which writers use the base ends although one may be writing.
    FrozenWithoutWaiting,
    /// Against B3: a copy replaces whatever the entry holds by then.
    BaseCopyOverwrites,
    /// Against B4 and B5: the base is never synced.
    BaseNotSynced,
    /// Against P3: the codec's payload is not the page's.
    CodecLies,
    /// Against P4: dictionaries are kept by number alone.
    CacheIgnoresContainer,
}

impl Fault {
    /// Whether this is `bug`. Never without the feature: then the compiler leaves the bug out.
    pub(crate) const fn is(self, bug: Fault) -> bool {
        cfg!(feature = "injected-faults") && self as u8 == bug as u8
    }
}
