//! Which codec the chunks of one relation want.
//!
//! Only compressing a chunk both ways tells, which costs twice. Chunks of one relation are alike, so the first
//! one is compressed both ways, then one in [`PAUSE`], and any that comes out much larger as columns than the
//! last one that was tried. Where columns gain next to nothing, the chunks between go by zstd: some of them
//! would be larger as columns, and a relation must not become larger than by zstd. Nothing is measured in
//! time: payloads must not depend on a machine's load.

/// What was learned from chunks of one relation. It is a few bytes; keep one for each relation and thread.
#[derive(Copy, Clone, Debug, Default)]
pub struct Habit {
    /// Whether columns were clearly smaller the last time; `None` before the first.
    columns_won: Option<bool>,
    /// Chunks until both ways are tried again.
    pause: u32,
    /// Bytes that columns took of 1,000 raw bytes, the last time.
    per_mille: usize,
}

/// What to do with a chunk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Advice {
    /// Compress it both ways, and tell what came of it.
    Try,
    Columns,
    Zstd,
}

/// One chunk of so many is compressed both ways.
const PAUSE: u32 = 16;
/// Columns win by a fiftieth of what zstd makes of the chunk.
const MARGIN: usize = 50;
/// Columns this much larger than they were are not believed to have won again: five quarters.
const SURPRISE: (usize, usize) = (5, 4);

impl Habit {
    pub(super) fn advice(&mut self) -> Advice {
        let Some(columns_won) = self.columns_won.filter(|_| self.pause > 0) else { return Advice::Try };
        self.pause -= 1;
        if columns_won { Advice::Columns } else { Advice::Zstd }
    }

    /// Whether columns of this size are about what they were the last time.
    pub(super) fn expects(&self, columns: usize, raw: usize) -> bool {
        per_mille(columns, raw) * SURPRISE.1 <= (self.per_mille + 1) * SURPRISE.0
    }

    pub(super) fn learn(&mut self, columns: usize, zstd: usize, raw: usize) {
        let per_mille = per_mille(columns, raw);
        let columns_won = Some(columns + zstd / MARGIN <= zstd);
        *self = Habit { columns_won, pause: PAUSE - 1, per_mille };
    }
}

fn per_mille(size: usize, raw: usize) -> usize {
    size * 1000 / raw.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_chunk_and_one_in_sixteen_are_tried() {
        let mut habit = Habit::default();
        let mut tried = Vec::new();
        for chunk in 0..40 {
            match habit.advice() {
                Advice::Try => {
                    tried.push(chunk);
                    habit.learn(100, 200, 1000);
                }
                advice => assert_eq!(advice, Advice::Columns),
            }
        }
        assert_eq!(tried, [0, 16, 32]);
        habit.learn(200, 100, 1000);
        assert_eq!(habit.advice(), Advice::Zstd);
        habit.learn(199, 200, 1000);
        assert_eq!(habit.advice(), Advice::Zstd, "next to nothing was gained");
    }

    #[test]
    fn only_what_is_much_larger_than_before_is_a_surprise() {
        let mut habit = Habit::default();
        habit.learn(100, 200, 1000);
        assert!(habit.expects(0, 1000) && habit.expects(125, 1000) && !habit.expects(130, 1000));
        // Where hardly anything is left, a few bytes more are none.
        habit.learn(0, 10, 1000);
        assert!(habit.expects(1, 1000) && !habit.expects(3, 1000));
    }
}
