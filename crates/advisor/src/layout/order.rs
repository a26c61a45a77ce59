//! The order of columns that makes rows shortest.
//!
//! Columns of fixed length that are never NULL go first. Their order is searched exactly: what matters of a column is its
//! alignment and its length modulo eight, so there are few kinds, and of each prefix only how many of each kind it has and where
//! it ends modulo eight. Columns that may be NULL or differ in length follow, by alignment, and are then moved one by one as
//! long as sampled rows get shorter. The order in which equal ones stand is kept.

use super::{Column, Shape, Value};
use std::collections::HashMap;

/// Prefixes that the exact search looks at, at most. With more kinds than that, columns are sorted by alignment.
const PREFIXES_MAX: usize = 200_000;
/// Rows that are laid out to compare two orders, at most.
const ROWS_MAX: usize = 1_000;
/// Values that are laid out while columns are moved, at most: some ten milliseconds.
const VALUES_MAX: usize = 5_000_000;

/// The best order that was found, as indexes in `columns`, without dropped columns. It is never worse on these rows than the
/// columns' own order without dropped ones. The same rows give the same order.
pub fn best(columns: &[Column], rows: &[Vec<Value>]) -> Vec<usize> {
    let stride = rows.len().div_ceil(ROWS_MAX).max(1);
    let sample: Vec<&[Value]> = rows.iter().step_by(stride).map(Vec::as_slice).collect();
    let bytes = |order: &[usize]| -> usize {
        let shape = Shape { columns, order };
        sample.iter().map(|row| shape.row_bytes(row).next_multiple_of(8)).sum()
    };
    let own: Vec<usize> = (0..columns.len()).filter(|index| !columns[*index].is_dropped).collect();
    let is_rigid = |index: &usize| columns[*index].length.is_some() && columns[*index].is_not_null;
    let (rigid, mut rest): (Vec<usize>, Vec<usize>) = own.iter().partition(|index| is_rigid(index));
    // Stable: fixed lengths by falling alignment, then what has a header, those that are often aligned first.
    rest.sort_by_key(|index| {
        (columns[*index].length.is_none(), std::cmp::Reverse(columns[*index].alignment))
    });
    let mut best = (bytes(&own), own);
    for first in rigid_orders(columns, &rigid) {
        let order = [first, rest.clone()].concat();
        let found = bytes(&order);
        if found < best.0 {
            best = (found, order);
        }
    }
    let orders_max = VALUES_MAX / (sample.len() * columns.len()).max(1);
    improve(best, orders_max, bytes)
}

/// Moves columns while rows get shorter, and looks at so many orders at most.
fn improve(
    (mut least, mut order): (usize, Vec<usize>),
    mut left: usize,
    bytes: impl Fn(&[usize]) -> usize,
) -> Vec<usize> {
    loop {
        let before = least;
        for from in 0..order.len() {
            for to in (0..order.len()).filter(|to| *to != from) {
                if left == 0 {
                    return order;
                }
                left -= 1;
                let mut moved = order.clone();
                let column = moved.remove(from);
                moved.insert(to, column);
                let found = bytes(&moved);
                if found < least {
                    (least, order) = (found, moved);
                    break;
                }
            }
        }
        if least == before {
            return order;
        }
    }
}

/// What of a column counts for the place of others: its alignment, and its length modulo eight.
type Kind = (usize, usize);

/// Orders of columns of fixed length with the least padding: one for each place modulo eight where they can end.
fn rigid_orders(columns: &[Column], rigid: &[usize]) -> Vec<Vec<usize>> {
    let kind = |index: usize| -> Kind {
        (columns[index].alignment as usize, usize::from(columns[index].length.unwrap_or_default()) % 8)
    };
    let mut kinds: Vec<(Kind, Vec<usize>)> = Vec::new();
    for index in rigid {
        match kinds.iter_mut().find(|(known, _)| *known == kind(*index)) {
            Some((_, members)) => members.push(*index),
            None => kinds.push((kind(*index), vec![*index])),
        }
    }
    kinds.sort_by_key(|(kind, _)| std::cmp::Reverse(*kind));
    let prefixes = kinds.iter().map(|(_, members)| members.len() + 1).try_fold(8, usize::checked_mul);
    if prefixes.is_none_or(|count| count > PREFIXES_MAX) {
        return vec![kinds.into_iter().flat_map(|(_, members)| members).collect()];
    }
    let ends = search(&kinds, rigid.len());
    ends.into_iter().map(|steps| named(&kinds, &steps)).collect()
}

/// How many columns of each kind a prefix has, and where it ends modulo eight.
type Prefix = (Vec<u16>, usize);

/// Kinds one after the other, for each end that can be reached, with the least padding before it.
fn search(kinds: &[(Kind, Vec<usize>)], count: usize) -> Vec<Vec<usize>> {
    let mut reached: HashMap<Prefix, (usize, Vec<usize>)> = HashMap::new();
    reached.insert((vec![0; kinds.len()], 0), (0, Vec::new()));
    for _ in 0..count {
        let mut longer: HashMap<Prefix, (usize, Vec<usize>)> = HashMap::new();
        let mut prefixes: Vec<_> = reached.into_iter().collect();
        // What is found must not depend on the order of a hash map.
        prefixes.sort_unstable();
        for ((used, end), (padding, steps)) in prefixes {
            for (step, ((alignment, length), members)) in kinds.iter().enumerate() {
                if usize::from(used[step]) == members.len() {
                    continue;
                }
                let begin = end.next_multiple_of(*alignment);
                let mut used = used.clone();
                used[step] += 1;
                let (key, padding) = ((used, (begin + length) % 8), padding + begin - end);
                if longer.get(&key).is_none_or(|(least, _)| padding < *least) {
                    let mut steps = steps.clone();
                    steps.push(step);
                    longer.insert(key, (padding, steps));
                }
            }
        }
        reached = longer;
    }
    let mut ends: Vec<_> =
        reached.into_iter().map(|((_, end), (padding, steps))| (padding, end, steps)).collect();
    ends.sort_unstable();
    ends.into_iter().map(|(_, _, steps)| steps).collect()
}

/// The columns behind the kinds, those of one kind in the table's order.
fn named(kinds: &[(Kind, Vec<usize>)], steps: &[usize]) -> Vec<usize> {
    let mut left: Vec<_> = kinds.iter().map(|(_, members)| members.iter()).collect();
    steps.iter().filter_map(|step| left[*step].next().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Alignment;
    use super::*;
    use pgshrink_testkit::Seed;

    fn column(length: Option<u16>, letter: u8, is_not_null: bool) -> Column {
        let alignment = Alignment::of_letter(letter).unwrap();
        Column { name: String::new(), length, alignment, is_packable: true, is_not_null, is_dropped: false }
    }

    fn bytes(columns: &[Column], order: &[usize], rows: &[Vec<Value>]) -> usize {
        rows.iter().map(|row| Shape { columns, order }.row_bytes(row).next_multiple_of(8)).sum()
    }

    /// All orders of so many columns.
    fn permutations(count: usize) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new()];
        for _ in 0..count {
            all = all
                .into_iter()
                .flat_map(|order| {
                    let left = (0..count).filter(|index| !order.contains(index)).collect::<Vec<_>>();
                    left.into_iter().map(move |index| [order.clone(), vec![index]].concat())
                })
                .collect();
        }
        all
    }

    #[test]
    fn fixed_columns_get_the_shortest_rows_that_any_order_gives() {
        // timetz, macaddr, tid, uuid and name do not end where their alignment would have the next one begin.
        let kinds = [
            (12, b'd'),
            (6, b'i'),
            (6, b's'),
            (16, b'c'),
            (1, b'c'),
            (2, b's'),
            (4, b'i'),
            (8, b'd'),
            (64, b'c'),
            (12, b'i'),
        ];
        let mut rng = Seed(1).rng();
        for _ in 0..60 {
            let columns: Vec<_> = (0..6)
                .map(|_| kinds[rng.below(kinds.len())])
                .map(|(length, letter)| column(Some(length), letter, true))
                .collect();
            let rows = [vec![Value::Fixed; 6]];
            let least = permutations(6).iter().map(|order| bytes(&columns, order, &rows)).min().unwrap();
            let found = best(&columns, &rows);
            assert_eq!(bytes(&columns, &found, &rows), least, "{columns:?}: {found:?}");
        }
    }

    #[test]
    fn what_may_be_null_or_differs_in_length_is_never_worse_than_before() {
        let mut rng = Seed(2).rng();
        let (mut found_least, mut tries) = (0, 0);
        for _ in 0..40 {
            let columns: Vec<_> = (0..5)
                .map(|_| match rng.below(4) {
                    0 => column(None, b'i', rng.below(2) == 0),
                    1 => column(Some(8), b'd', rng.below(2) == 0),
                    2 => column(Some(4), b'i', rng.below(2) == 0),
                    _ => column(Some(1), b'c', rng.below(2) == 0),
                })
                .collect();
            let value = |rng: &mut pgshrink_testkit::Rng, column: &Column| match column {
                column if !column.is_not_null && rng.below(3) == 0 => Value::Null,
                Column { length: Some(_), .. } => Value::Fixed,
                _ => Value::Inline(rng.between(1, 200) as u32),
            };
            let rows: Vec<Vec<_>> =
                (0..50).map(|_| columns.iter().map(|column| value(&mut rng, column)).collect()).collect();
            let order = best(&columns, &rows);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..5).collect::<Vec<_>>(), "each column once");
            assert_eq!(order, best(&columns, &rows), "the same again");
            let (found, own) = (bytes(&columns, &order, &rows), bytes(&columns, &[0, 1, 2, 3, 4], &rows));
            let least = permutations(5).iter().map(|order| bytes(&columns, order, &rows)).min().unwrap();
            assert!(
                found <= own && found as f64 <= least as f64 * 1.02,
                "{found} {own} {least}: {columns:?}"
            );
            (found_least, tries) = (found_least + usize::from(found == least), tries + 1);
        }
        assert!(found_least * 10 >= tries * 9, "{found_least} of {tries} are the best there is");
    }

    #[test]
    fn many_columns_and_no_rows_are_no_trouble() {
        let kinds = [
            (12, b'd'),
            (6, b'i'),
            (6, b's'),
            (16, b'c'),
            (1, b'c'),
            (2, b's'),
            (4, b'i'),
            (8, b'd'),
            (7, b'c'),
            (3, b'c'),
        ];
        let columns: Vec<_> =
            (0..1600).map(|n| column(Some(kinds[n % 10].0), kinds[n % 10].1, true)).collect();
        assert_eq!(best(&columns, &[]).len(), 1600);
        assert_eq!(best(&[], &[]), Vec::<usize>::new());
        let mut dropped = vec![column(Some(4), b'i', true); 3];
        dropped[1].is_dropped = true;
        assert_eq!(best(&dropped, &[vec![Value::Fixed; 3]]), [0, 2]);
    }
}
