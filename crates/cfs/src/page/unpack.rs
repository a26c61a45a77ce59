//! Values of few bits from where they are packed, the lowest bit first.
//!
//! Eight values of a width are as many bytes, so for a width known to the compiler every load and shift of
//! eight values is too, and nothing is checked in between.

/// Fills `values` from `bytes`, which must be as many as values of this width take.
pub(super) fn by_width(width: u32, bytes: &[u8], values: &mut [u32]) {
    macro_rules! widths {
        ($($width:literal)*) => {
            match width {
                $($width => unpack::<$width>(bytes, values),)*
                _ => {}
            }
        };
    }
    widths!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
}

const GROUP: usize = 8;
const WIDTH_MAX: usize = 32;

fn unpack<const WIDTH: usize>(bytes: &[u8], values: &mut [u32]) {
    let (slots, tail) = values.as_chunks_mut::<GROUP>();
    let (groups, rest) = bytes.split_at(slots.len() * WIDTH);
    groups.as_chunks::<WIDTH>().0.iter().zip(slots).for_each(|(group, slots)| *slots = eight(group));
    // A last group may lack values, and the bytes of values that nobody wants are missing.
    let mut group = [0; WIDTH];
    let len = rest.len().min(WIDTH);
    group[..len].copy_from_slice(&rest[..len]);
    tail.iter_mut().zip(eight(&group)).for_each(|(slot, value)| *slot = value);
}

#[inline(always)]
fn eight<const WIDTH: usize>(group: &[u8; WIDTH]) -> [u32; GROUP] {
    const { assert!(0 < WIDTH && WIDTH <= WIDTH_MAX) };
    let mask = u64::MAX >> (64 - WIDTH);
    std::array::from_fn(|i| {
        // From the byte it begins in, or as far behind that as leaves eight bytes: then it ends with the
        // group.
        let from = (i * WIDTH / 8).min(WIDTH.saturating_sub(8));
        let mut word = [0; 8];
        let len = WIDTH.min(8);
        word[..len].copy_from_slice(&group[from..from + len]);
        (u64::from_le_bytes(word) >> (i * WIDTH - 8 * from) & mask) as u32
    })
}
