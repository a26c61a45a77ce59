//! A passphrase into a key, slowly on purpose: Argon2id (RFC 9106).

use super::{KeyError, Random};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use zeroize::Zeroizing;

/// Bytes of the salt.
const SALT_BYTES: usize = 16;
/// Bytes of [`Stretch`] in a key slot.
pub(super) const STRETCH_BYTES: usize = 24;
/// Memory at most that a slot may ask for: 1 GiB.
const MEMORY_KIB_MAX: u32 = 1 << 20;
/// Memory at least: a block of 1 KiB for each of the four slices and two more (RFC 9106, 3.1).
const MEMORY_KIB_MIN: u32 = 8;
/// Passes at most that a slot may ask for.
const PASSES_MAX: u32 = 64;

/// How much work stretching is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StretchCost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
}

impl StretchCost {
    /// 64 MiB and 3 passes, the second choice of RFC 9106 with one lane instead of four: about a quarter of a
    /// second of one core.
    pub const DEFAULT: StretchCost = StretchCost { memory_kib: 64 << 10, passes: 3 };
}

/// How a passphrase was stretched: the same again gives the same key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stretch {
    cost: StretchCost,
    salt: [u8; SALT_BYTES],
}

impl Stretch {
    /// With a salt of its own.
    ///
    /// # Errors
    /// [`KeyError::Slot`] for a cost that no reader would accept.
    pub fn new(cost: StretchCost, random: &dyn Random) -> Result<Stretch, KeyError> {
        let mut salt = [0; SALT_BYTES];
        random.fill(&mut salt);
        Stretch { cost, salt }.checked()
    }

    /// What it costs.
    pub fn cost(&self) -> StretchCost {
        self.cost
    }

    pub(super) fn to_bytes(&self) -> [u8; STRETCH_BYTES] {
        let mut bytes = [0; STRETCH_BYTES];
        bytes[..4].copy_from_slice(&self.cost.memory_kib.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.cost.passes.to_le_bytes());
        bytes[8..].copy_from_slice(&self.salt);
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; STRETCH_BYTES]) -> Result<Stretch, KeyError> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut salt = [0; SALT_BYTES];
        salt.copy_from_slice(&bytes[8..]);
        Stretch { cost: StretchCost { memory_kib: number(0), passes: number(4) }, salt }.checked()
    }

    fn checked(self) -> Result<Stretch, KeyError> {
        let StretchCost { memory_kib, passes } = self.cost;
        if !(MEMORY_KIB_MIN..=MEMORY_KIB_MAX).contains(&memory_kib) {
            let found = memory_kib.into();
            return Err(KeyError::Slot {
                property: "stretching memory in KiB",
                expected: "8 to 1048576",
                found,
            });
        }
        if !(1..=PASSES_MAX).contains(&passes) {
            let found = passes.into();
            return Err(KeyError::Slot { property: "stretching passes", expected: "1 to 64", found });
        }
        Ok(self)
    }

    /// The key. Takes the time and the memory of the cost.
    pub(super) fn key(&self, passphrase: &[u8]) -> Result<Zeroizing<[u8; 32]>, KeyError> {
        let StretchCost { memory_kib, passes } = self.cost;
        let failed = |_| KeyError::Memory { memory_kib };
        let params = Params::new(memory_kib, passes, 1, Some(32)).map_err(failed)?;
        // Reserved beforehand: a server is not to end because a slot names more memory than there is.
        let mut blocks = Zeroizing::new(Vec::new());
        blocks.try_reserve_exact(params.block_count()).map_err(|_| KeyError::Memory { memory_kib })?;
        blocks.resize(params.block_count(), Block::default());
        let mut key = Zeroizing::new([0; 32]);
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon2
            .hash_password_into_with_memory(passphrase, &self.salt, key.as_mut_slice(), &mut **blocks)
            .map_err(failed)?;
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_cannot_ask_for_more_work_than_the_limits() {
        let ask = |memory_kib: u32, passes: u32| {
            let bytes = Stretch { cost: StretchCost { memory_kib, passes }, salt: [1; 16] }.to_bytes();
            Stretch::from_bytes(&bytes).is_ok()
        };
        assert!(ask(8, 1) && ask(1 << 20, 64));
        assert!(
            !ask(7, 1) && !ask((1 << 20) + 1, 1) && !ask(8, 0) && !ask(8, 65) && !ask(u32::MAX, u32::MAX)
        );
    }

    /// Expected: the output of OpenSSL's implementation (python3-cryptography 44, `Argon2id`).
    #[test]
    fn stretching_is_argon2id() {
        let mut salt = [0; 16];
        salt.copy_from_slice(b"sixteen of bytes");
        let stretch = Stretch { cost: StretchCost { memory_kib: 64, passes: 3 }, salt };
        let key = stretch.key(b"a passphrase").unwrap();
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "36b46bccef445f0574e5804d34302b3e4419d929dea4cf5530be35a2ccac2c59");
    }
}
