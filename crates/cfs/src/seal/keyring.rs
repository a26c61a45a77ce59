//! The secrets at hand, and which of them opens a container.

use super::master::{KeyId, KeySlot, MasterKey, stretch_of};
use super::secret::Secret;
use super::stretch::Stretch;
use super::{DataKey, HexId, KeyError, Random};
use std::fmt;

/// Keys at most that are remembered.
const MADE_MAX: usize = 64;

/// Secrets in order: the first is for new containers, all are tried on existing ones (while keys are rotated,
/// the old one is the second). Remembers the keys that it stretched, so that a passphrase costs its quarter
/// of a second once per salt.
pub struct Keyring {
    secrets: Vec<Secret>,
    /// By the index of the secret that each was made of.
    made: Vec<(usize, MasterKey)>,
}

impl Keyring {
    /// Over these secrets.
    pub fn new(secrets: Vec<Secret>) -> Keyring {
        Keyring { secrets, made: Vec::new() }
    }

    /// Whether there is no secret.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// The data key of a container whose root says `needed` and `slot`.
    ///
    /// # Errors
    /// [`KeyError::Missing`] without any secret, [`KeyError::Wrong`] if none is the key,
    /// [`KeyError::Damaged`] if the right one does not open the slot; what the slot itself shows to be
    /// damaged or unknown.
    pub fn data_key(
        &mut self,
        container: &[u8; 16],
        needed: &KeyId,
        slot: &KeySlot,
    ) -> Result<DataKey, KeyError> {
        let stretch = stretch_of(slot)?;
        if self.is_empty() {
            return Err(KeyError::Missing { needed: HexId(*needed) });
        }
        for index in 0..self.secrets.len() {
            let Some(master) = self.made_of(index, &stretch)? else { continue };
            if master.id() == *needed {
                return master.unwrap(container, slot);
            }
        }
        let of = if stretch.is_some() { "a passphrase" } else { "a key of 32 bytes" };
        Err(KeyError::Wrong { needed: HexId(*needed), of, tried: self.secrets.len() })
    }

    /// The master key for new containers and for rotation: the first secret's. A passphrase that has been
    /// stretched for a container already keeps that salt, so that containers share it.
    ///
    /// # Errors
    /// [`KeyError::Secret`] without any secret, [`KeyError::Memory`].
    pub fn master(&mut self, random: &dyn Random) -> Result<&MasterKey, KeyError> {
        let Some(first) = self.secrets.first() else {
            return Err(KeyError::Secret { reason: "encryption needs a key, and none was given" });
        };
        let at = match self.made.iter().position(|(index, _)| *index == 0) {
            Some(at) => at,
            None => {
                self.made.push((0, MasterKey::new(first, random)?));
                self.made.len() - 1
            }
        };
        Ok(&self.made[at].1)
    }

    /// A key that was made before, by its id: after [`data_key`](Self::data_key) that of the container.
    pub fn made(&self, id: &KeyId) -> Option<&MasterKey> {
        self.made.iter().map(|(_, made)| made).find(|made| made.id() == *id)
    }

    /// The key that a secret gives for slots that `stretch` stands in; none if it is of the other kind.
    fn made_of(&mut self, index: usize, stretch: &Option<Stretch>) -> Result<Option<&MasterKey>, KeyError> {
        let same = |(of, made): &(usize, MasterKey)| *of == index && made.stretch() == stretch.as_ref();
        if let Some(at) = self.made.iter().position(same) {
            return Ok(Some(&self.made[at].1));
        }
        if self.made.len() >= MADE_MAX {
            self.made.remove(0);
        }
        let made = MasterKey::made(&self.secrets[index], stretch.clone())?;
        self.made.extend(made.map(|master| (index, master)));
        Ok(self.made.last().filter(|made| same(made)).map(|(_, master)| master))
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({} secrets)", self.secrets.len())
    }
}
