//! The seam for encryption: what is stored passes through here when a container is sealed.

/// Bytes at most that sealing adds to what it seals.
pub const SEAL_OVERHEAD_MAX: usize = 64;

/// Authenticated encryption of records and roots, with one container's data key.
///
/// The engine hands over the associated data that binds bytes to their place in the container; it keeps no key and draws
/// no nonce. An implementation takes every nonce from the system's generator at the time of the call: the engine
/// can promise no number that is never used twice, as a discarded tail gives versions back to a copied file.
pub trait Seal {
    /// Which key, as the roots name it; never all zeros, which means not sealed.
    fn key_id(&self) -> [u8; 16];

    /// Appends the sealed form of `plaintext`, at most [`SEAL_OVERHEAD_MAX`] bytes longer, to `out`.
    fn seal(&self, associated: &[u8], plaintext: &[u8], out: &mut Vec<u8>);

    /// Writes the plaintext to the begin of `out` and returns its length. None: these bytes were not sealed with this
    /// key and associated data, or `out` is too short.
    fn open(&self, associated: &[u8], sealed: &[u8], out: &mut [u8]) -> Option<usize>;
}
