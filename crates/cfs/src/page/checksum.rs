//! The server's page checksum (`checksum_impl.h`): FNV-1a in 32 lanes, folded, with the block number in it.

use super::PAGE_SIZE;

const LANES: usize = 32;
const PRIME: u32 = 16_777_619;
const BASES: [u32; LANES] = [
    0x5b1f_36e9,
    0xb852_5960,
    0x02ab_50aa,
    0x1de6_6d2a,
    0x79ff_467a,
    0x9bb9_f8a3,
    0x217e_7cd2,
    0x83e1_3d2c,
    0xf8d4_474f,
    0xe39e_b970,
    0x42c6_ae16,
    0x9932_16fa,
    0x7b09_3b5d,
    0x98da_ff3c,
    0xf718_902a,
    0x0b1c_9cdb,
    0xe58f_764b,
    0x1876_36bc,
    0x5d7b_3bb1,
    0xe73d_e7de,
    0x92be_c979,
    0xcca6_c0b2,
    0x304a_0979,
    0x85aa_43d4,
    0x7831_25bb,
    0x6ca8_eaa2,
    0xe407_eac6,
    0x4b5c_fc3e,
    0x9fbf_8c76,
    0x15ca_20be,
    0xf2ca_9fd3,
    0x959b_d756,
];
/// Where `pd_checksum` is. It counts as zero.
pub(super) const CHECKSUM_AT: usize = 8;

/// What `pd_checksum` of this page should be at `block` of its relation.
pub fn checksum(page: &[u8; PAGE_SIZE], block: u32) -> u16 {
    let mut sums = BASES;
    for (i, row) in page.as_chunks::<{ 4 * LANES }>().0.iter().enumerate() {
        for (lane, (sum, bytes)) in sums.iter_mut().zip(row.as_chunks::<4>().0).enumerate() {
            let mut value = u32::from_le_bytes(*bytes);
            if i == 0 && lane == CHECKSUM_AT / 4 {
                value &= 0xffff_0000;
            }
            *sum = mix(*sum, value);
        }
    }
    // Two rounds of zeros, so that the last values are mixed too.
    let folded = sums.into_iter().fold(0, |all, sum| all ^ mix(mix(sum, 0), 0)) ^ block;
    // Never zero, which means that there is none.
    (folded % 65_535 + 1) as u16
}

fn mix(sum: u32, value: u32) -> u32 {
    let mixed = sum ^ value;
    mixed.wrapping_mul(PRIME) ^ mixed >> 17
}
