//! What sealing a record costs, beside the cipher it was chosen over and one that it must not be.

use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use pgshrink_bench_report::{Result, Samples, Table, Unit, cpu_seconds_of_thread};
use pgshrink_cfs::seal::{MasterKey, OVERHEAD_BYTES, Random, Seal, Secret};
use rustix::rand::{GetRandomFlags, getrandom};

const ROUNDS: usize = 9;
/// Bytes of a record's payload: a compressed page is mostly between 1 and 2 KB.
const SIZES: [usize; 4] = [256, 1024, 1536, 2048];
const ASSOCIATED: [u8; 32] = [1; 32];

struct Kernel;

impl Random for Kernel {
    fn fill(&self, bytes: &mut [u8]) {
        let wanted = bytes.len();
        assert_eq!(getrandom(bytes, GetRandomFlags::empty()), Ok(wanted));
    }
}

/// Something that seals into and opens out of one buffer.
trait Cipher {
    fn seal(&self, plaintext: &[u8], out: &mut Vec<u8>);
    fn open(&self, sealed: &[u8], out: &mut [u8]) -> bool;
}

struct Ours<S>(S);

impl<S: Seal> Cipher for Ours<S> {
    fn seal(&self, plaintext: &[u8], out: &mut Vec<u8>) {
        self.0.seal(&ASSOCIATED, plaintext, out);
    }

    fn open(&self, sealed: &[u8], out: &mut [u8]) -> bool {
        self.0.open(&ASSOCIATED, sealed, out).is_some()
    }
}

impl Cipher for XChaCha20Poly1305 {
    fn seal(&self, plaintext: &[u8], out: &mut Vec<u8>) {
        let mut nonce = [0; 24];
        Kernel.fill(&mut nonce);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(plaintext);
        let tag = self.encrypt_inout_detached(&nonce.into(), &ASSOCIATED, out[24..].as_mut().into());
        out.extend_from_slice(&tag.unwrap_or_default());
    }

    fn open(&self, sealed: &[u8], out: &mut [u8]) -> bool {
        let (Some((nonce, rest)), length) = (sealed.split_first_chunk::<24>(), out.len()) else {
            return false;
        };
        let Some((ciphertext, tag)) = rest.split_last_chunk::<16>() else { return false };
        let out = &mut out[..ciphertext.len().min(length)];
        out.copy_from_slice(ciphertext);
        self.decrypt_inout_detached(nonce.into(), &ASSOCIATED, out.into(), tag.into()).is_ok()
    }
}

/// Measures in turn, round by round.
pub fn table(full: bool) -> Result<Table> {
    let secret = Secret::parse("5a".repeat(32).as_bytes())?;
    let master = MasterKey::new(&secret, &Kernel)?;
    let (data_key, _) = master.new_data_key(&[1; 16], &Kernel);
    let ours = Ours(data_key.into_seal(master.id(), Kernel));
    let rival = XChaCha20Poly1305::new(&[7; 32].into());
    let ciphers: [(&str, usize, &dyn Cipher); 2] =
        [("AES-256-GCM-SIV (ours)", OVERHEAD_BYTES, &ours), ("XChaCha20-Poly1305", 40, &rival)];
    let times = if full { 50_000 } else { 5_000 };
    let mut table = Table::new(
        "seal",
        "Sealing a record",
        "Payloads of records sealed and opened one by one, each nonce by a call of getrandom(2), which is in the time; 32 bytes of \
        associated data. Processor time of one thread, 9 rounds in turn. RustCrypto's crates with what the processor was found to have.",
        &[
            ("cipher", Unit::Text),
            ("payload", Unit::Bytes),
            ("added", Unit::Bytes),
            ("seal", Unit::MegabytesPerSecond),
            ("open", Unit::MegabytesPerSecond),
        ],
    );
    let mut sealing = Vec::new();
    for size in SIZES {
        let mut samples =
            [[Samples::default(), Samples::default()], [Samples::default(), Samples::default()]];
        for _ in 0..ROUNDS {
            for ((_, _, cipher), found) in ciphers.iter().zip(&mut samples) {
                let [seal, open] = round(*cipher, size, times)?;
                found[0].push(seal);
                found[1].push(open);
            }
        }
        for ((name, added, _), [seal, open]) in ciphers.iter().zip(&samples) {
            let (size, added) = (size as f64, *added as f64);
            table.row([(*name).into(), size.into(), added.into(), seal.spread(), open.spread()]);
        }
        sealing.push(samples[0][0].over(&samples[1][0]).median());
    }
    let found = sealing[SIZES.iter().position(|size| *size == 1536).unwrap_or(0)];
    table.verdict(
        "sealing 1.5 KB, over XChaCha20-Poly1305",
        "at least 1.0x",
        format!("{found:.2}x"),
        found >= 1.0,
    );
    Ok(table)
}

/// 10^6 bytes a second, sealing and opening.
fn round(cipher: &dyn Cipher, size: usize, times: usize) -> Result<[f64; 2]> {
    let plaintext: Vec<u8> = (0..size).map(|at| at as u8).collect();
    let (mut sealed, mut opened) = (Vec::with_capacity(size + 64), vec![0; size]);
    let rate = |seconds: f64| (size * times) as f64 / seconds / 1e6;
    let begun = cpu_seconds_of_thread();
    for _ in 0..times {
        sealed.clear();
        cipher.seal(&plaintext, &mut sealed);
    }
    let middle = cpu_seconds_of_thread();
    let mut all = true;
    for _ in 0..times {
        all &= cipher.open(&sealed, &mut opened);
    }
    let end = cpu_seconds_of_thread();
    if !all || opened != plaintext {
        return Err("a record did not open".into());
    }
    Ok([rate(middle - begun), rate(end - middle)])
}
