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
    /// Against L2: an open that an exchange may have overtaken is believed.
    OpenLooksOnce,
    /// Against L1: a stat by path that an exchange may have overtaken is believed.
    StatLooksOnce,
    /// Against L2: so is a truncation or an unlink.
    ChangeLooksOnce,
    /// Against L2: descriptors of before that can write are not waited for.
    HoldersIgnored,
    /// Against L2: it is looked for them before the exchange.
    ScanBeforeExchange,
    /// Against L2: one look at all processes does for files that were exchanged after it.
    OldLookTaken,
    /// Against L2: only those are seen that the last exchange has given their name.
    HoldersOfOneName,
    /// Against L2: pages have returned while others write them.
    WholeWithoutFreezing,
    /// Against L3: the base's name is not durable before the exchange.
    LinkNotSynced,
    /// Against L3: the exchange is not durable before the base stops changing.
    AboveNotSynced,
    /// Against L3: a container is emptied that R may turn out to be.
    RemovedBeforeSynced,
    /// Against L3: what lies beside R is removed though R is not there.
    SweptWithoutSegment,
    /// Against L4: the base is unlinked before a root is durable that does not need it.
    BaseUnlinkedEarly,
    /// Against L5: a container's base is opened by the segment's name, which may be another container's.
    BaseOpenedByName,
    /// Against L5: names are not compared with the inode that was looked at.
    NameNotChecked,
}

impl Fault {
    /// Whether this is `bug`. Never without the feature: then the compiler leaves the bug out.
    pub(crate) const fn is(self, bug: Fault) -> bool {
        cfg!(feature = "injected-faults") && self as u8 == bug as u8
    }
}
