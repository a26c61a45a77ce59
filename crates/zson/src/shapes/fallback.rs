//! For which documents zstd is tried as well.
//!
//! Trying it costs as long as writing by zstd takes, so it is tried only where it may pay: where a payload takes more of its
//! document than nearly all that were learned from, or than those of its size for which it paid. It is not tried where nearly
//! all of the payload is one long text, which is by zstd already.

use super::reading::Rest;

/// Documents by the bits of their length.
const CLASSES: usize = 29;
/// What a payload takes of its document is counted in so many parts.
const PARTS: usize = 128;
/// Of a class in which zstd is never tried.
const NEVER: u8 = 255;
/// Of those that were learned from, one in so many may take more than what is tried from.
const STRANGE_ONE_IN: usize = 200;
/// A trial that was not needed counts as so much lost: one byte in so many of the document.
const TRIAL_COST: usize = 16;
/// Of a payload, at least one byte in so many is not of the longest text where zstd is tried.
const OTHER_ONE_IN: usize = 16;
/// Bytes in a dictionary.
#[cfg(test)]
pub(super) const STORED_BYTES: usize = 2 * CLASSES + 1;

/// The rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fallback {
    /// zstd is taken if shapes take more than so many hundredths of it.
    factor: u8,
    /// For documents of so many bits of length: zstd is tried from so many parts of the document on.
    from: [u8; CLASSES],
    /// And from so many on a document is unlike those that were learned from.
    strange: [u8; CLASSES],
}

/// A document that both have written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Measured {
    /// Bytes of the document.
    pub(crate) raw: usize,
    /// The payload of shapes.
    pub(crate) shapes: Payload,
    /// Bytes of the payload by zstd.
    pub(crate) zstd: usize,
}

/// What shapes have written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Payload {
    /// Its bytes.
    pub(crate) len: usize,
    /// How many of them are one long text by zstd, at most.
    pub(crate) longest: usize,
}

impl Payload {
    /// Whether zstd has written nearly all of it already.
    fn is_by_zstd(self) -> bool {
        self.len.saturating_sub(self.longest) < self.len / OTHER_ONE_IN
    }
}

fn class_of(raw: usize) -> usize {
    ((usize::BITS - raw.leading_zeros()) as usize).min(CLASSES - 1)
}

fn parts_of(raw: usize, payload: usize) -> u8 {
    (payload.saturating_mul(PARTS) / raw.max(1)).min(usize::from(NEVER) - 1) as u8
}

fn is_from(from: u8, raw: usize, payload: usize) -> bool {
    from != NEVER && parts_of(raw, payload) >= from
}

impl Fallback {
    /// zstd is tried for none.
    pub(crate) const NEVER: Fallback =
        Fallback { factor: 100, from: [NEVER; CLASSES], strange: [NEVER; CLASSES] };

    /// Whether zstd is to be tried for a document.
    pub(crate) fn is_doubtful(&self, raw: usize, payload: Payload) -> bool {
        !payload.is_by_zstd() && is_from(self.from[class_of(raw)], raw, payload.len)
    }

    /// Whether a document takes more than nearly all of its size that were learned from, or none of its size was.
    pub(crate) fn is_strange(&self, raw: usize, payload: usize) -> bool {
        is_from(self.strange[class_of(raw)], raw, payload)
    }

    /// Whether a payload takes no larger part of its document than another of its own.
    pub(crate) fn takes_no_more(raw: usize, payload: usize, other_raw: usize, other_payload: usize) -> bool {
        parts_of(raw, payload) <= parts_of(other_raw, other_payload)
    }

    /// Whether zstd is to be taken.
    pub(crate) fn prefers_zstd(&self, shapes: usize, zstd: usize) -> bool {
        shapes * 100 > zstd * usize::from(self.factor)
    }

    /// Bytes of documents that are written by this rule.
    pub(crate) fn bytes_of(&self, documents: &[Measured]) -> usize {
        let bytes = |document: &Measured| {
            let is_zstd = self.is_doubtful(document.raw, document.shapes)
                && self.prefers_zstd(document.shapes.len, document.zstd);
            if is_zstd { document.zstd } else { document.shapes.len }
        };
        documents.iter().map(bytes).sum()
    }

    /// The rule that costs the least for documents like these. `factor`: in hundredths.
    pub(crate) fn learned(factor: u8, documents: &[Measured]) -> Fallback {
        let mut rule = Fallback { factor, ..Fallback::NEVER };
        for class in 0..CLASSES {
            let mut of_class: Vec<(u8, &Measured)> = documents
                .iter()
                .filter(|document| class_of(document.raw) == class)
                .map(|document| (parts_of(document.raw, document.shapes.len), document))
                .collect();
            of_class.sort_by_key(|(parts, _)| *parts);
            // A class that was never seen is strange as a whole.
            let Some(last) = of_class.len().checked_sub(1) else {
                (rule.from[class], rule.strange[class]) = (0, 0);
                continue;
            };
            // From the largest down: what trying from there on gains.
            let strange = of_class[last - last / STRANGE_ONE_IN].0.saturating_add(1).min(NEVER - 1);
            let (mut best, mut gain) = ((0isize, strange), 0isize);
            for (parts, Measured { raw, shapes, zstd }) in of_class.iter().rev() {
                gain += if shapes.is_by_zstd() {
                    0
                } else if rule.prefers_zstd(shapes.len, *zstd) {
                    (shapes.len - *zstd) as isize
                } else {
                    -((raw / TRIAL_COST).max(1) as isize)
                };
                if gain > best.0 {
                    best = (gain, *parts);
                }
            }
            (rule.from[class], rule.strange[class]) = (best.1.min(strange), strange);
        }
        rule
    }

    pub(super) fn push(&self, out: &mut Vec<u8>) {
        out.push(self.factor);
        out.extend_from_slice(&self.from);
        out.extend_from_slice(&self.strange);
    }

    pub(super) fn read(rest: &mut Rest<'_>) -> Option<Fallback> {
        let factor = rest.byte().filter(|factor| *factor >= 100)?;
        let from = *rest.take(CLASSES)?.first_chunk()?;
        Some(Fallback { factor, from, strange: *rest.take(CLASSES)?.first_chunk()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No long text.
    fn codes(len: usize) -> Payload {
        Payload { len, longest: 0 }
    }

    #[test]
    fn zstd_is_tried_where_it_paid_and_for_what_is_strange() {
        // Those of 100 bytes are shorter by shapes, but for some that take half of their document.
        let mut documents: Vec<Measured> =
            (0..1000).map(|n| Measured { raw: 100, shapes: codes(10 + n % 5), zstd: 20 }).collect();
        documents.extend((0..100).map(|_| Measured { raw: 100, shapes: codes(50), zstd: 20 }));
        let rule = Fallback::learned(120, &documents);
        assert!(
            !rule.is_doubtful(100, codes(14))
                && rule.is_doubtful(100, codes(50))
                && rule.is_doubtful(100, codes(90))
        );
        assert!(
            !rule.is_strange(100, 50) && rule.is_strange(100, 90),
            "zstd is tried for more than what is strange"
        );
        assert!(
            rule.is_doubtful(1 << 20, codes(10)) && rule.is_strange(1 << 20, 10),
            "of a length that nobody has seen"
        );
        // Longer than the document, even by far.
        for payload in [128, 199, 200, 201, 300, 10_000] {
            assert!(rule.is_doubtful(100, codes(payload)) && rule.is_strange(100, payload), "{payload}");
        }
        assert!(rule.prefers_zstd(25, 20) && !rule.prefers_zstd(24, 20));
        // Those for which zstd never paid are tried only if they are longer than all of them.
        let rule = Fallback::learned(120, &documents[..1000]);
        assert!(!rule.is_doubtful(100, codes(14)) && rule.is_doubtful(100, codes(16)));
        assert!(!Fallback::NEVER.is_doubtful(100, codes(200)));
    }

    #[test]
    fn zstd_is_not_tried_for_what_is_one_long_text() {
        let by_zstd = |len| Payload { len, longest: len - len / 16 + 1 };
        // Trying would make each of them a little shorter.
        let documents = [Measured { raw: 4000, shapes: by_zstd(1600), zstd: 1590 }; 100];
        let rule = Fallback::learned(100, &documents);
        assert_eq!(rule.bytes_of(&documents), 100 * 1600);
        // From a sixteenth on, the rest counts.
        let rule = Fallback { from: [0; CLASSES], ..rule };
        assert!(!rule.is_doubtful(4000, by_zstd(1600)));
        assert!(rule.is_doubtful(4000, Payload { len: 1600, longest: 1500 }));
        assert!(rule.is_doubtful(4000, codes(1600)));
        // Where other documents of the size are tried, it costs those nothing.
        let gain = Measured { raw: 4000, shapes: codes(1600), zstd: 900 };
        let mixed = [[gain; 100], documents].concat();
        let rule = Fallback::learned(100, &mixed);
        assert_eq!(rule.bytes_of(&mixed), 100 * 900 + 100 * 1600);
    }

    #[test]
    fn a_rule_is_read_as_it_was_written() {
        let rule = Fallback::learned(120, &[Measured { raw: 700, shapes: codes(90), zstd: 100 }]);
        let mut stored = Vec::new();
        rule.push(&mut stored);
        assert_eq!(stored.len(), STORED_BYTES);
        assert_eq!(Fallback::read(&mut Rest::new(&stored)), Some(rule));
        stored[0] = 99;
        assert_eq!(Fallback::read(&mut Rest::new(&stored)), None);
        assert_eq!(Fallback::read(&mut Rest::new(&stored[..7])), None);
    }
}
