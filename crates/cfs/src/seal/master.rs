//! Master keys, and the slot in which a container carries its data key wrapped by one.

use super::aead::{Cipher, DataKey, NONCE_BYTES, TAG_BYTES};
use super::secret::{Kind, Secret};
use super::stretch::{STRETCH_BYTES, Stretch};
use super::{HexId, KeyError, Random, StretchCost};
use sha2::{Digest, Sha256};
use std::fmt;
use zeroize::Zeroizing;

/// A master key's id: a hash of the key, so that the same key has the same id everywhere. Never all zeros.
pub type KeyId = [u8; 16];
/// Bytes of a key slot.
pub const KEY_SLOT_BYTES: usize = 96;
/// What a root carries of the data key. All zeros: the container is not sealed.
pub type KeySlot = [u8; KEY_SLOT_BYTES];

const CIPHER: u8 = 1;
const NOT_STRETCHED: u8 = 0;
const ARGON2ID: u8 = 1;
const STRETCH_AT: usize = 4;
const NONCE_AT: usize = STRETCH_AT + STRETCH_BYTES;
const KEY_AT: usize = NONCE_AT + NONCE_BYTES;
const TAG_AT: usize = KEY_AT + 32;
const RESERVED_AT: usize = TAG_AT + TAG_BYTES;
const _: () = assert!(RESERVED_AT == 88 && RESERVED_AT <= KEY_SLOT_BYTES);

/// Bytes of [`MasterKey::to_bytes`].
pub const MASTER_KEY_BYTES: usize = 32 + RECIPE_BYTES;
const RECIPE_BYTES: usize = 8 + STRETCH_BYTES;

/// How a master key is made of its secret, public: as it is, or stretched with this salt at this cost.
///
/// Eight bytes of which the first is the derivation, 0 or 1, then the stretch as a key slot has it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Recipe(pub [u8; RECIPE_BYTES]);

impl Recipe {
    fn stretch(&self) -> Result<Option<Stretch>, KeyError> {
        let mut bytes = [0; STRETCH_BYTES];
        bytes.copy_from_slice(&self.0[8..]);
        match self.0[0] {
            NOT_STRETCHED => Ok(None),
            ARGON2ID => Stretch::from_bytes(&bytes).map(Some),
            found => Err(KeyError::Unsupported { what: "derivation", found, known: ARGON2ID }),
        }
    }
}

/// Set apart from anything else that is hashed or authenticated with the same bytes.
const ID_LABEL: &[u8] = b"pgshrink cfs master key id 1";
const WRAP_LABEL: &[u8] = b"pgshrink cfs data key wrap 1";

/// A key that wraps data keys. It seals no page.
pub struct MasterKey {
    key: Zeroizing<[u8; 32]>,
    id: KeyId,
    stretch: Option<Stretch>,
}

impl MasterKey {
    /// For new containers. A passphrase is stretched with a salt of its own at [`StretchCost::DEFAULT`]: make
    /// one per server start, not one per container.
    ///
    /// # Errors
    /// [`KeyError::Memory`].
    pub fn new(secret: &Secret, random: &dyn Random) -> Result<MasterKey, KeyError> {
        Self::with_cost(secret, StretchCost::DEFAULT, random)
    }

    /// As [`new`](Self::new), with another cost of stretching.
    ///
    /// # Errors
    /// [`KeyError::Memory`], and [`KeyError::Slot`] for a cost that no reader would accept.
    pub fn with_cost(secret: &Secret, cost: StretchCost, random: &dyn Random) -> Result<MasterKey, KeyError> {
        match &secret.0 {
            Kind::Key(key) => Ok(Self::of(key.clone(), None)),
            Kind::Passphrase(text) => {
                let stretch = Stretch::new(cost, random)?;
                Ok(Self::of(stretch.key(text)?, Some(stretch)))
            }
        }
    }

    /// The key that `secret` gives for the slots that `stretch` stands in; none if it is of the other kind.
    pub(super) fn made(secret: &Secret, stretch: Option<Stretch>) -> Result<Option<MasterKey>, KeyError> {
        Ok(match (&secret.0, stretch) {
            (Kind::Key(key), None) => Some(Self::of(key.clone(), None)),
            (Kind::Passphrase(text), Some(stretch)) => Some(Self::of(stretch.key(text)?, Some(stretch))),
            _ => None,
        })
    }

    fn of(key: Zeroizing<[u8; 32]>, stretch: Option<Stretch>) -> MasterKey {
        let hash = Sha256::new().chain_update(ID_LABEL).chain_update(key.as_slice()).finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&hash[..16]);
        MasterKey { key, id, stretch }
    }

    /// Its id, as roots name it.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The key for memory that processes share, and how it was made; [`from_bytes`](Self::from_bytes) reads it.
    pub fn to_bytes(&self) -> Zeroizing<[u8; MASTER_KEY_BYTES]> {
        let mut bytes = Zeroizing::new([0; MASTER_KEY_BYTES]);
        bytes[..32].copy_from_slice(self.key.as_slice());
        bytes[32..].copy_from_slice(&self.recipe().0);
        bytes
    }

    /// What [`to_bytes`](Self::to_bytes) gave; `None` where these bytes cannot be of a key.
    pub fn from_bytes(bytes: &[u8; MASTER_KEY_BYTES]) -> Option<MasterKey> {
        let mut recipe = Recipe::default();
        recipe.0.copy_from_slice(&bytes[32..]);
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(&bytes[..32]);
        recipe.stretch().ok().map(|stretch| Self::of(key, stretch))
    }

    /// How it is made of its secret: nothing of the key itself.
    pub fn recipe(&self) -> Recipe {
        let mut recipe = Recipe::default();
        if let Some(stretch) = &self.stretch {
            recipe.0[0] = ARGON2ID;
            recipe.0[8..].copy_from_slice(&stretch.to_bytes());
        }
        recipe
    }

    /// The key that `secret` gives by this recipe; none if it is of the other kind.
    ///
    /// # Errors
    /// [`KeyError::Memory`], [`KeyError::Slot`], [`KeyError::Unsupported`].
    pub fn by_recipe(secret: &Secret, recipe: &Recipe) -> Result<Option<MasterKey>, KeyError> {
        Self::made(secret, recipe.stretch()?)
    }

    pub(super) fn stretch(&self) -> Option<&Stretch> {
        self.stretch.as_ref()
    }

    /// A data key for a new container, and its slot.
    pub fn new_data_key(&self, container: &[u8; 16], random: &dyn Random) -> (DataKey, KeySlot) {
        let key = DataKey::new(random);
        let slot = self.wrap(container, &key, random);
        (key, slot)
    }

    /// The slot that carries `key` under this master key. Rotation is this, with a key that another one
    /// unwrapped, and a commit of the new id and slot; no record is touched.
    pub fn wrap(&self, container: &[u8; 16], key: &DataKey, random: &dyn Random) -> KeySlot {
        let mut slot = [0; KEY_SLOT_BYTES];
        slot[0] = CIPHER;
        if let Some(stretch) = &self.stretch {
            slot[1] = ARGON2ID;
            slot[STRETCH_AT..NONCE_AT].copy_from_slice(&stretch.to_bytes());
        }
        let mut nonce = [0; NONCE_BYTES];
        random.fill(&mut nonce);
        slot[NONCE_AT..KEY_AT].copy_from_slice(&nonce);
        let mut wrapped = key.0.clone();
        let tag =
            Cipher::new(&self.key).seal(nonce, &self.associated(container, &slot), wrapped.as_mut_slice());
        slot[KEY_AT..TAG_AT].copy_from_slice(wrapped.as_slice());
        slot[TAG_AT..RESERVED_AT].copy_from_slice(&tag);
        slot
    }

    /// The data key in `slot`.
    ///
    /// # Errors
    /// [`KeyError::Damaged`] if this key did not wrap it so, for this container; [`KeyError::Slot`] and
    /// [`KeyError::Unsupported`] for a slot that cannot be one.
    pub fn unwrap(&self, container: &[u8; 16], slot: &KeySlot) -> Result<DataKey, KeyError> {
        stretch_of(slot)?;
        let part = |from: usize, to: usize| &slot[from..to];
        let (mut nonce, mut tag) = ([0; NONCE_BYTES], [0; TAG_BYTES]);
        nonce.copy_from_slice(part(NONCE_AT, KEY_AT));
        tag.copy_from_slice(part(TAG_AT, RESERVED_AT));
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(part(KEY_AT, TAG_AT));
        let associated = self.associated(container, slot);
        let cipher = Cipher::new(&self.key);
        if cipher.open(&nonce.into(), &associated, key.as_mut_slice(), &tag.into()) {
            Ok(DataKey(key))
        } else {
            Err(KeyError::Damaged { needed: HexId(self.id) })
        }
    }

    /// Binds a wrapped key to its container, to this key and to how it is made.
    fn associated(&self, container: &[u8; 16], slot: &KeySlot) -> Vec<u8> {
        [WRAP_LABEL, container, &self.id, &slot[..NONCE_AT]].concat()
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", HexId(self.id))
    }
}

/// Checks everything of a slot that can be checked without a key, and says how its master key is made:
/// stretched so from a passphrase, or as it is.
pub(super) fn stretch_of(slot: &KeySlot) -> Result<Option<Stretch>, KeyError> {
    let damaged =
        |property, expected, found: u8| Err(KeyError::Slot { property, expected, found: found.into() });
    match slot[0] {
        0 => return damaged("cipher", "1", 0),
        CIPHER => {}
        found => return Err(KeyError::Unsupported { what: "cipher", found, known: CIPHER }),
    }
    let reserved = slot[2..STRETCH_AT].iter().chain(&slot[RESERVED_AT..]).find(|byte| **byte != 0);
    if let Some(found) = reserved {
        return damaged("reserved bytes", "0", *found);
    }
    let mut bytes = [0; STRETCH_BYTES];
    bytes.copy_from_slice(&slot[STRETCH_AT..NONCE_AT]);
    match slot[1] {
        NOT_STRETCHED => match bytes.iter().find(|byte| **byte != 0) {
            Some(found) => damaged("stretching of a key", "0", *found),
            None => Ok(None),
        },
        ARGON2ID => Stretch::from_bytes(&bytes).map(Some),
        found => Err(KeyError::Unsupported { what: "derivation", found, known: ARGON2ID }),
    }
}
