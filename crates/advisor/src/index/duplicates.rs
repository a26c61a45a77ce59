//! How many rows of a table share a key, from a sample of its blocks.
//!
//! A key that was seen in some of the sampled blocks is in more blocks of the table, and keys that were not seen are there too.
//! The model: a key is in `b` blocks of the table, and each of them was sampled with the same chance `F`. So it was seen
//! in `c` of them with the probability of a binomial distribution, and not seen at all with `(1 - F)^b`. How many keys have
//! which `b` is the mixture that makes the observed `c` most likely. Its parts are keys with the same `b` (each order has four lines) and
//! keys whose `b` are spread like numbers of independent events (Poisson: customers of orders). In each block a key has as many
//! rows as it had in those where it was seen.
//!
//! Counting blocks instead of rows makes rows of a key that lie together (lines of an order) what they are: seen all or not at all.
//! Keys are divided by their rows per block, so that the two ways of lying do not mix, and by their lengths: short texts have more
//! duplicates than long ones, and their bytes are not those of long ones.
//!
//! What it cannot know: whether a group of rows that ends with its block goes on in the next one. Such pieces are put together
//! as often as neighbouring rows within blocks have the same key.

use std::collections::HashMap;

/// Keys that were seen in more blocks than that are extrapolated in proportion.
const HEAVY: u32 = 24;
/// Rounds of expectation and maximization for each part that is taken in.
const ROUNDS: usize = 300;
/// Parts of a mixture.
const PARTS_MAX: usize = 24;
/// What a further part must be able to gain.
const GAIN_MIN: f64 = 1.0;
/// Least part of a posterior distribution that is kept.
const NEGLIGIBLE: f64 = 1e-3;

/// A key of the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Sampled rows with it.
    pub rows: u32,
    /// Sampled blocks with it.
    pub blocks: u32,
    /// Bytes of its tuple.
    pub bytes: usize,
    /// It is the first of a block, and nowhere else.
    pub begins_block: bool,
    /// It is the last of a block, and nowhere else.
    pub ends_block: bool,
}

/// So many keys of the table, with so many rows each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Rows that share the key.
    pub rows: f64,
    /// How many such keys there are.
    pub keys: f64,
}

/// What is known of a table's keys.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// By stratum and blocks: blocks in the table, and how many keys of the table one seen key stands for.
    posteriors: HashMap<(Stratum, u32), Vec<(f64, f64)>>,
    fraction: f64,
    /// How often the row before or behind has the same key.
    continued: f64,
    /// Rows of a piece at a block's beginning on average.
    piece_rows: f64,
}

impl Model {
    /// From all keys of the sample, `fraction` of the table's blocks (more than 0, less than 1), and the part of neighbouring
    /// sampled rows that have the same key.
    pub fn new(seen: &[Seen], fraction: f64, continued: f64) -> Model {
        let mut counts: HashMap<Stratum, HashMap<u32, f64>> = HashMap::new();
        let (mut pieces, mut piece_rows) = (0u64, 0u64);
        for key in seen {
            if key.blocks <= HEAVY {
                *counts.entry(stratum(key)).or_default().entry(key.blocks).or_default() += 1.0;
            }
            if key.begins_block {
                (pieces, piece_rows) = (pieces + 1, piece_rows + u64::from(key.rows));
            }
        }
        let mut posteriors = HashMap::new();
        for (stratum, counts) in counts {
            let mut counts: Vec<_> = counts.into_iter().collect();
            // What is found must not depend on the order of a hash map.
            counts.sort_unstable_by_key(|(blocks, _)| *blocks);
            for (blocks, posterior) in posteriors_of(&counts, fraction) {
                posteriors.insert((stratum, blocks), posterior);
            }
        }
        let piece_rows = if pieces == 0 { 0.0 } else { piece_rows as f64 / pieces as f64 };
        Model { posteriors, fraction, continued, piece_rows }
    }

    /// What one key of the sample stands for.
    pub fn groups(&self, key: &Seen) -> Vec<Group> {
        let per_block = f64::from(key.rows) / f64::from(key.blocks.max(1));
        let Some(posterior) = self.posteriors.get(&(stratum(key), key.blocks)) else {
            return vec![Group { rows: f64::from(key.rows) / self.fraction, keys: 1.0 }];
        };
        // A piece at the beginning of a block is a group of its own only if it begins there; else it belongs to one that
        // ended the block before.
        let begins = if key.begins_block { 1.0 - self.continued } else { 1.0 };
        let longer = if key.ends_block { self.continued * self.piece_rows } else { 0.0 };
        let group =
            |(blocks, keys): &(f64, f64)| Group { rows: blocks * per_block + longer, keys: keys * begins };
        posterior.iter().map(group).collect()
    }
}

/// Classes of rows per block and of length.
type Stratum = (u32, u32);

/// Keys of about the same length with about the same number of rows per block.
fn stratum(key: &Seen) -> Stratum {
    let length = (key.bytes / 8).max(1).ilog2();
    match (key.rows, key.blocks.max(1)) {
        (rows, blocks) if rows <= blocks => (0, length),
        (rows, blocks) => (1 + (rows / blocks).max(1).ilog2(), length),
    }
}

/// For each number of blocks in which keys were seen: in how many they are, and how many there are of them.
fn posteriors_of(counts: &[(u32, f64)], fraction: f64) -> Vec<(u32, Vec<(f64, f64)>)> {
    let most = counts.iter().map(|(blocks, _)| *blocks).max().unwrap_or(1);
    let parts = parts(f64::from(most) / fraction * 1.5);
    let chances = counts.iter().map(|(c, _)| parts.iter().map(|part| part.chance(*c, fraction)).collect());
    let chances: Vec<Vec<f64>> = chances.collect();
    let keys: Vec<f64> = counts.iter().map(|(_, keys)| *keys).collect();
    let mixture = mixture(&keys, &chances);
    let posterior = |((c, _), chances): (&(u32, f64), &Vec<f64>)| {
        let likelihood: f64 = mixture.iter().map(|(at, weight)| weight * chances[*at]).sum();
        let shares = mixture.iter().map(|(at, weight)| (*at, weight * chances[*at] / likelihood));
        let spread = |(at, share): (usize, f64)| {
            parts[at].spread(*c, fraction).into_iter().map(move |(blocks, part)| (blocks, part * share))
        };
        let kept = shares.flat_map(spread).filter(|(_, share)| *share > NEGLIGIBLE);
        // One that was seen stands for all that were not.
        let counted = kept.map(|(blocks, share)| (blocks, share / (1.0 - (1.0 - fraction).powf(blocks))));
        (*c, counted.collect())
    };
    counts.iter().zip(&chances).map(posterior).collect()
}

/// The mixture of parts that makes what was seen most likely: their places with their weights.
///
/// It begins with the best single part, and takes another one in as long as that can make the logarithm of the likelihood larger by
/// more than [`GAIN_MIN`]: fewer parts say less that the sample does not.
fn mixture(keys: &[f64], chances: &[Vec<f64>]) -> Vec<(usize, f64)> {
    let total: f64 = keys.iter().sum();
    let places = chances.first().map_or(0, Vec::len);
    let alone = |at: usize| keys.iter().zip(chances).map(|(keys, row)| keys * row[at].ln()).sum::<f64>();
    let best = (0..places).max_by(|a, b| alone(*a).total_cmp(&alone(*b))).unwrap_or(0);
    let mut mixture = vec![(best, 1.0)];
    for _ in 0..PARTS_MAX {
        let likelihoods: Vec<f64> = likelihoods(chances, &mixture);
        // No place can gain more than this.
        let gain = |at: usize| {
            let parts = keys.iter().zip(chances).zip(&likelihoods);
            parts
                .map(|((keys, row), likelihood)| keys * row[at] / likelihood.max(f64::MIN_POSITIVE))
                .sum::<f64>()
                - total
        };
        let Some(next) = (0..places).max_by(|a, b| gain(*a).total_cmp(&gain(*b))) else { break };
        if gain(next) < GAIN_MIN || mixture.iter().any(|(at, _)| *at == next) {
            break;
        }
        mixture.iter_mut().for_each(|(_, weight)| *weight *= 0.9);
        mixture.push((next, 0.1));
        for _ in 0..ROUNDS {
            improve(&mut mixture, keys, chances, total);
        }
        mixture.retain(|(_, weight)| *weight > 1e-9);
    }
    mixture
}

fn likelihoods(chances: &[Vec<f64>], mixture: &[(usize, f64)]) -> Vec<f64> {
    chances.iter().map(|row| mixture.iter().map(|(at, weight)| weight * row[*at]).sum()).collect()
}

/// One round of expectation and maximization.
fn improve(mixture: &mut [(usize, f64)], keys: &[f64], chances: &[Vec<f64>], total: f64) {
    let likelihoods = likelihoods(chances, mixture);
    for (at, weight) in mixture {
        let parts = keys.iter().zip(chances).zip(&likelihoods).filter(|(_, likelihood)| **likelihood > 0.0);
        *weight *= parts.map(|((keys, row), likelihood)| keys * row[*at] / likelihood).sum::<f64>() / total;
    }
}

/// A kind of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// Each is in so many blocks.
    Exactly(f64),
    /// They are in so many blocks on average, those that are in none included.
    About(f64),
}

impl Part {
    /// Probability that a key is seen in so many blocks, if it is seen.
    fn chance(self, seen: u32, fraction: f64) -> f64 {
        match self {
            Part::Exactly(blocks) => binomial(blocks, seen, fraction) / (1.0 - (1.0 - fraction).powf(blocks)),
            Part::About(mean) => poisson(mean * fraction, seen) / -(-mean * fraction).exp_m1(),
        }
    }

    /// In how many blocks a key is that was seen in so many, each with its probability.
    fn spread(self, seen: u32, fraction: f64) -> Vec<(f64, f64)> {
        match self {
            Part::Exactly(blocks) => vec![(blocks, 1.0)],
            // Those that were not sampled do not depend on those that were.
            Part::About(mean) => {
                let more = mean * (1.0 - fraction);
                let at = |more: f64| f64::from(seen) + more;
                if more > 30.0 {
                    return vec![(at(more), 1.0)];
                }
                (0..80).map(|n| (at(f64::from(n)), poisson(more, n))).collect()
            }
        }
    }
}

/// Kinds of keys in up to so many blocks: all small numbers, and then ever larger steps.
fn parts(most: f64) -> Vec<Part> {
    let mut parts = vec![Part::Exactly(1.0)];
    let mut last = 1.0f64;
    while last < most && parts.len() < 300 {
        last = (last * 1.12).round().max(last + 1.0);
        parts.push(Part::Exactly(last));
    }
    let mut mean = 0.25;
    while mean < most && parts.len() < 600 {
        parts.push(Part::About(mean));
        mean = (mean * 1.12f64).max(mean + 0.25);
    }
    parts
}

/// Probability of so many independent events where so many are expected.
fn poisson(expected: f64, events: u32) -> f64 {
    let ratios: f64 = (1..=events).map(|n| (expected / f64::from(n)).ln()).sum();
    (ratios - expected).exp()
}

/// Probability that exactly `seen` of `blocks` are in a sample of this fraction.
fn binomial(blocks: f64, seen: u32, fraction: f64) -> f64 {
    let c = f64::from(seen);
    if blocks < c {
        return 0.0;
    }
    let choices: f64 = (0..seen).map(|i| ((blocks - f64::from(i)) / f64::from(i + 1)).ln()).sum();
    (choices + c * fraction.ln() + (blocks - c) * (1.0 - fraction).ln()).exp()
}

/// Keys of a table whose values are not known: from what `ANALYZE` found of its only column. `rows` without NULLs' are
/// shared out among the common values by their frequencies, and evenly among all others.
pub fn of_statistics(statistics: &crate::snapshot::ColumnStatistics, rows: f64) -> Vec<Group> {
    let distinct = match statistics.distinct {
        distinct if distinct < 0.0 => -distinct * rows,
        distinct => distinct,
    };
    let mut groups = Vec::new();
    let mut left = rows;
    let mut add = |rows: f64, keys: f64| {
        if rows >= 1.0 && keys > 0.0 {
            groups.push(Group { rows, keys });
        }
    };
    let nulls = (statistics.null_fraction.clamp(0.0, 1.0) * rows).min(left);
    add(nulls, 1.0);
    left -= nulls;
    for frequency in &statistics.common_frequencies {
        let common = (frequency.clamp(0.0, 1.0) * rows).min(left);
        add(common, 1.0);
        left -= common;
    }
    let others = (distinct - statistics.common_frequencies.len() as f64).clamp(1.0, left.max(1.0));
    add(left / others, others);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_testkit::Seed;

    /// Bytes of leaf tuples with a key of eight bytes, for each row.
    fn bytes(groups: impl Iterator<Item = Group> + Clone) -> f64 {
        let bytes = |rows: f64| if rows < 1.5 { 20.0 } else { 24.0 + 6.0 * rows };
        let rows: f64 = groups.clone().map(|group| group.rows * group.keys).sum();
        groups.map(|group| bytes(group.rows) * group.keys).sum::<f64>() / rows
    }

    /// Bytes that the model finds for a table of these groups, spread at random over blocks of 50 rows, beside those that
    /// there are.
    fn found(groups: &[(usize, usize)], percent: usize) -> f64 {
        let mut rng = Seed(7).rng();
        let mut table = Vec::new();
        for (rows, keys) in groups {
            for _ in 0..*keys {
                let key = table.last().map_or(0, |last| last + 1);
                table.extend(std::iter::repeat_n(key, *rows));
            }
        }
        for at in (1..table.len()).rev() {
            table.swap(at, rng.below(at + 1));
        }
        let mut seen: HashMap<usize, Seen> = HashMap::new();
        let (mut blocks, mut sampled) = (0, 0);
        for block in table.chunks(50) {
            blocks += 1;
            if !rng.chance(percent) {
                continue;
            }
            sampled += 1;
            let mut block = block.to_vec();
            block.sort_unstable();
            for rows in block.chunk_by(|a, b| a == b) {
                let key = seen.entry(rows[0]).or_default();
                (key.rows, key.blocks) = (key.rows + rows.len() as u32, key.blocks + 1);
            }
        }
        let seen: Vec<_> = seen.into_values().collect();
        let model = Model::new(&seen, f64::from(sampled) / f64::from(blocks), 0.0);
        let expected = groups.iter().map(|(rows, keys)| Group { rows: *rows as f64, keys: *keys as f64 });
        bytes(seen.iter().flat_map(|key| model.groups(key))) / bytes(expected)
    }

    #[test]
    fn keys_that_were_not_seen_are_counted() {
        for (groups, percent) in [
            (vec![(1, 200_000)], 10),
            (vec![(2, 100_000)], 10),
            (vec![(3, 70_000)], 10),
            (vec![(4, 50_000)], 10),
            (vec![(4, 50_000)], 4),
            (vec![(20, 10_000)], 10),
            (vec![(1, 80_000), (5, 20_000), (2_000, 10)], 10),
            (vec![(1, 100_000), (2, 50_000)], 10),
            (vec![(100_000, 2), (1, 20_000)], 10),
            (vec![(100, 1_000), (10, 10_000), (1, 100_000)], 5),
        ] {
            let found = found(&groups, percent);
            assert!((found - 1.0).abs() < 0.05, "{groups:?}: {found}");
        }
    }

    #[test]
    fn unique_keys_stay_unique() {
        let seen = vec![Seen { rows: 1, blocks: 1, ..Seen::default() }; 1000];
        let model = Model::new(&seen, 0.01, 0.0);
        for group in model.groups(&seen[0]) {
            assert!((group.rows, group.keys.round()) == (1.0, 100.0), "{group:?}");
        }
    }

    #[test]
    fn statistics_give_all_rows_to_keys() {
        let statistics = crate::snapshot::ColumnStatistics {
            null_fraction: 0.5,
            distinct: 102.0,
            common_frequencies: vec![0.25, 0.05],
            ..Default::default()
        };
        let groups = of_statistics(&statistics, 1000.0);
        assert_eq!(groups.iter().map(|group| group.rows * group.keys).sum::<f64>().round(), 1000.0);
        assert_eq!(groups.iter().map(|group| group.keys).sum::<f64>().round(), 103.0);
        let unique = crate::snapshot::ColumnStatistics { distinct: -1.0, ..Default::default() };
        assert_eq!(of_statistics(&unique, 500.0), [Group { rows: 1.0, keys: 500.0 }]);
    }
}
