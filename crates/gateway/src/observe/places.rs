//! How many bursts are recorded or wait for the sampler at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bursts of bulk. One takes about 1 MiB and a few milliseconds of the sampler.
const BULK_MAX: usize = 16;
/// Bursts of small messages, which may take minutes to record.
const SMALL_MAX: usize = 256;
/// Bytes of all together.
const HELD_SIZE_MAX: usize = 16 << 20;

/// All places.
#[derive(Debug, Default)]
pub(super) struct Places {
    bulk: AtomicUsize,
    small: AtomicUsize,
    held_size: AtomicUsize,
    /// How many of either the sampler has time for.
    room: [AtomicUsize; 2],
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    is_bulk: bool,
    size: usize,
}

impl Places {
    pub(super) fn take(self: &Arc<Self>, is_bulk: bool) -> Option<Place> {
        let (taken, most) = self.of(is_bulk);
        if taken.load(Ordering::Relaxed) >= most || self.held_size.load(Ordering::Relaxed) >= HELD_SIZE_MAX {
            return None;
        }
        // Counted first, so that the drop of the guard is always right.
        let before = taken.fetch_add(1, Ordering::Relaxed);
        let place = Place { places: self.clone(), is_bulk, size: 0 };
        (before < most).then_some(place)
    }

    /// The sampler has time for so many bursts of bulk and of small messages.
    pub(super) fn set_room(&self, room: [usize; 2]) {
        for (place, room) in self.room.iter().zip(room) {
            place.store(room, Ordering::Relaxed);
        }
    }

    /// Bursts that are recorded or wait.
    pub(super) fn taken(&self) -> usize {
        self.bulk.load(Ordering::Relaxed) + self.small.load(Ordering::Relaxed)
    }

    fn of(&self, is_bulk: bool) -> (&AtomicUsize, usize) {
        let [bulk, small] = &self.room;
        if is_bulk {
            (&self.bulk, BULK_MAX.min(bulk.load(Ordering::Relaxed)))
        } else {
            (&self.small, SMALL_MAX.min(small.load(Ordering::Relaxed)))
        }
    }
}

impl Place {
    pub(super) fn is_bulk(&self) -> bool {
        self.is_bulk
    }

    /// The burst holds so many bytes. False when all together hold too many: it is to end.
    pub(super) fn holds(&mut self, size: usize) -> bool {
        let more = size.saturating_sub(self.size);
        self.size += more;
        self.places.held_size.fetch_add(more, Ordering::Relaxed) + more < HELD_SIZE_MAX
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.of(self.is_bulk).0.fetch_sub(1, Ordering::Relaxed);
        self.places.held_size.fetch_sub(self.size, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_and_bytes_are_counted_together() {
        let places = Arc::new(Places::default());
        assert!(places.take(true).is_none() && places.take(false).is_none());
        places.set_room([1000, 1000]);
        let taken: Vec<_> = (0..2 * BULK_MAX).filter_map(|_| places.take(true)).collect();
        assert_eq!(taken.len(), BULK_MAX);
        let mut small = places.take(false).unwrap();
        assert!(small.holds(HELD_SIZE_MAX / 2));
        assert!(!small.holds(HELD_SIZE_MAX));
        assert!(places.take(false).is_none());
        drop((taken, small));
        assert!(places.take(true).is_some() && places.take(false).is_some());
    }
}
