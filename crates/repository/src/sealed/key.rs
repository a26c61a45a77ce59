//! Keys of encrypted objects.

use std::fmt;
use zeroize::Zeroizing;

/// Names a key without telling anything of it: a hash, made by whoever has read the key. The same key has the same id
/// everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId(pub [u8; 16]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key from which the keys of objects are derived. It encrypts nothing itself. Wiped when it is dropped.
pub struct SealKey {
    id: KeyId,
    pub(super) key: Zeroizing<[u8; 32]>,
}

impl SealKey {
    /// A key of 32 random bytes.
    pub fn new(id: KeyId, key: Zeroizing<[u8; 32]>) -> SealKey {
        SealKey { id, key }
    }

    /// As objects name it.
    pub fn id(&self) -> KeyId {
        self.id
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKey({})", self.id)
    }
}
