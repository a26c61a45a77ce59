//! Where nonces, data keys and salts come from.

/// The system's generator, given by the shell.
///
/// # Contract
/// - Every call asks the kernel: getrandom(2) with no flags. No buffer, pool or seed of the process's own,
///   which a fork would duplicate.
/// - It does not fail. getrandom(2) cannot, for the at most 32 bytes asked for here, once it has succeeded
///   (man 2 getrandom: EAGAIN needs a flag, EINTR more than 256 bytes or a kernel that is still starting,
///   ENOSYS shows at the first call). So a shell draws once when it makes its generator and reports what
///   fails then; if a later call fails all the same, the process must end: there is nothing to go on with,
///   and a page sealed with bytes that are not random is worse than a page not written.
///
/// The cipher is one that survives a repeated nonce (see `docs/decisions/2026-11-21-cfs-sealing.md`), so that
/// a cloned virtual machine or a broken generator costs no plaintext; data keys have no such second line.
pub trait Random {
    /// Fills `bytes`, at most 32.
    fn fill(&self, bytes: &mut [u8]);
}

impl<R: Random + ?Sized> Random for &R {
    fn fill(&self, bytes: &mut [u8]) {
        (**self).fill(bytes);
    }
}
