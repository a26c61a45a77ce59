//! The seam for encryption: what is stored passes through here when a container is sealed.
//!
//! The engine knows [`Seal`] only. What stands behind it: [`RecordSeal`], with one container's **data key**;
//! the data key lies in the container's roots, wrapped by a **master key** ([`MasterKey`]); a master key is
//! made of a [`Secret`], which a shell fetches from a command, a file or the environment; [`Keyring`] finds
//! the secret that opens a container. Nothing here reads a file, a variable or the system's generator:
//! randomness comes in through [`Random`].
//!
//! - S1 Every nonce is fresh from [`Random`] at the call that uses it. None is kept, counted or derived.
//! - S2 What one container sealed opens in no other, and nowhere but under the associated data it was sealed
//!   with.
//! - S3 Changing the master key wraps the data key anew; no record is touched.
//! - S4 No key and no secret in messages, `Debug` or dropped memory.
//! - S5 Sizes and costs that a damaged or crafted slot names are checked before they are obeyed.
//!
//! The layout is in `formats/cfs-seal.md`.
//!
//! ```
//! use pgshrink_cfs::seal::{Keyring, MasterKey, Random, Seal, Secret};
//!
//! struct Fixed; // A shell's calls getrandom(2).
//! impl Random for Fixed {
//!     fn fill(&self, bytes: &mut [u8]) {
//!         bytes.fill(7);
//!     }
//! }
//!
//! let secret = || Secret::parse(b"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
//! let container = [1; 16];
//! let master = MasterKey::new(&secret()?, &Fixed)?;
//! let (data_key, slot) = master.new_data_key(&container, &Fixed);
//! let mut sealed = Vec::new();
//! data_key.into_seal(master.id(), Fixed).seal(b"place", b"page", &mut sealed);
//!
//! let mut keyring = Keyring::new(vec![secret()?]);
//! let seal = keyring.data_key(&container, &master.id(), &slot)?.into_seal(master.id(), Fixed);
//! let mut page = [0; 4];
//! assert_eq!(seal.open(b"place", &sealed, &mut page), Some(4));
//! assert_eq!(&page, b"page");
//! # Ok::<(), pgshrink_cfs::seal::KeyError>(())
//! ```

mod aead;
mod error;
mod keyring;
mod master;
mod random;
mod secret;
mod stretch;

pub use aead::{DataKey, NONCE_BYTES, OVERHEAD_BYTES, RecordSeal, TAG_BYTES};
pub use error::{HexId, KeyError};
pub use keyring::Keyring;
pub use master::{KEY_SLOT_BYTES, KeyId, KeySlot, MASTER_KEY_BYTES, MasterKey, Recipe};
pub use random::Random;
pub use secret::{SECRET_BYTES_MAX, Secret, is_private};
pub use stretch::{Stretch, StretchCost};

/// Bytes at most that sealing adds to what it seals.
pub const SEAL_OVERHEAD_MAX: usize = 64;
const _: () = assert!(OVERHEAD_BYTES <= SEAL_OVERHEAD_MAX);

/// Authenticated encryption of records and roots, with one container's data key.
///
/// The engine hands over the associated data that binds bytes to their place in the container; it keeps no
/// key and draws no nonce. An implementation takes every nonce from the system's generator at the time of the
/// call: the engine can promise no number that is never used twice, as a discarded tail gives versions back
/// to a copied file.
pub trait Seal {
    /// Which key, as the roots name it; never all zeros, which means not sealed.
    fn key_id(&self) -> [u8; 16];

    /// Appends the sealed form of `plaintext`, at most [`SEAL_OVERHEAD_MAX`] bytes longer, to `out`.
    fn seal(&self, associated: &[u8], plaintext: &[u8], out: &mut Vec<u8>);

    /// Writes the plaintext to the begin of `out` and returns its length. None: these bytes were not sealed
    /// with this key and associated data, or `out` is too short.
    fn open(&self, associated: &[u8], sealed: &[u8], out: &mut [u8]) -> Option<usize>;
}
