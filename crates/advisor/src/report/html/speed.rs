//! Size against speed, for each algorithm of compressed pages.

use maud::{Markup, html};

use super::bytes::amount;
use super::{Section, percent, scatter, scrolling};
use crate::finding::{CodecFigure, Report};
use crate::report::shown;

/// One algorithm over all relations that it was tried on.
pub(super) struct Codec<'a> {
    pub name: &'a str,
    /// Of those relations.
    before: u64,
    after: u64,
    /// MB/s over all of their bytes; None if one of them was not measured.
    pub compress_mb_s: Option<f64>,
    pub decompress_mb_s: Option<f64>,
}

impl Codec<'_> {
    pub fn ratio(&self) -> f64 {
        self.before as f64 / (self.after as f64).max(1.0)
    }
}

pub(super) fn speed(report: &Report) -> Option<Section> {
    let codecs = codecs(report);
    if codecs.is_empty() {
        return None;
    }
    let has_speeds =
        codecs.iter().any(|codec| codec.compress_mb_s.is_some() || codec.decompress_mb_s.is_some());
    let content = html! {
        @if has_speeds {
            p {
                "Further to the right is faster, higher is smaller. All tables and indexes that were measured, one thread."
            }
            div.pair {
                (scatter::scatter("Compressing", &codecs, |codec| codec.compress_mb_s))
                (scatter::scatter("Decompressing", &codecs, |codec| codec.decompress_mb_s))
            }
        } @else {
            p { "All tables and indexes that were measured. Speeds were not measured here." }
        }
        (scrolling("Size and speed, by algorithm", &table(&codecs, has_speeds)))
    };
    Some(Section { id: "speed", title: "Size against speed", content })
}

fn table(codecs: &[Codec], has_speeds: bool) -> Markup {
    let longest = codecs.iter().map(Codec::ratio).fold(1.0, f64::max);
    let speed = |mb_s: Option<f64>| mb_s.map_or_else(|| "–".to_owned(), |mb_s| format!("{mb_s:.0}"));
    html! {
        table.speeds {
            caption { "Compressed pages, by algorithm" }
            thead {
                tr {
                    th scope="col" { "Algorithm" }
                    th.number scope="col" { "Before" }
                    th.number scope="col" { "After" }
                    th.number scope="col" { "Ratio" }
                    @if has_speeds {
                        th.number scope="col" { "MB/s in" }
                        th.number scope="col" { "MB/s out" }
                    } @else { th scope="col" { span.hidden { "Drawn" } } }
                }
            }
            tbody {
                @for codec in codecs {
                    tr {
                        th scope="row" { bdi { (shown::name(codec.name)) } }
                        td.number { (amount(codec.before)) }
                        td.number { (amount(codec.after)) }
                        td.number { (shown::ratio(codec.before, codec.after)) }
                        @if has_speeds {
                            td.number { (speed(codec.compress_mb_s)) }
                            td.number { (speed(codec.decompress_mb_s)) }
                        } @else {
                            td.drawn {
                                div.bars aria-hidden="true" {
                                    div.after style={ "width:" (percent((codec.ratio() * 1e3) as u64, (longest * 1e3) as u64)) "%" } {}
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// In the order in which the report has them first.
fn codecs(report: &Report) -> Vec<Codec<'_>> {
    let mut codecs: Vec<(Codec, Seconds, Seconds)> = Vec::new();
    for relation in report.codecs.iter().filter(|relation| relation.bytes > 0) {
        for figure in relation.pages.iter().filter(|figure| figure.bytes > 0) {
            let index =
                codecs.iter().position(|(codec, ..)| codec.name == figure.codec).unwrap_or_else(|| {
                    codecs.push((new(figure), Seconds::default(), Seconds::default()));
                    codecs.len() - 1
                });
            if let Some((codec, compress, decompress)) = codecs.get_mut(index) {
                codec.before = codec.before.saturating_add(relation.bytes);
                codec.after = codec.after.saturating_add(figure.bytes);
                compress.add(relation.bytes, figure.compress_mb_s);
                decompress.add(relation.bytes, figure.decompress_mb_s);
            }
        }
    }
    let done = codecs.into_iter().map(|(codec, compress, decompress)| Codec {
        compress_mb_s: compress.mb_s(codec.before),
        decompress_mb_s: decompress.mb_s(codec.before),
        ..codec
    });
    done.collect()
}

fn new(figure: &CodecFigure) -> Codec<'_> {
    Codec { name: &figure.codec, before: 0, after: 0, compress_mb_s: None, decompress_mb_s: None }
}

/// How long all bytes take, in microseconds: speeds are bytes over time, and have no mean of their own.
#[derive(Default)]
struct Seconds {
    micros: f64,
    is_unknown: bool,
}

impl Seconds {
    fn add(&mut self, bytes: u64, mb_s: Option<f64>) {
        match mb_s {
            Some(mb_s) if mb_s.is_finite() && mb_s > 0.0 => self.micros += bytes as f64 / mb_s,
            _ => self.is_unknown = true,
        }
    }

    fn mb_s(&self, bytes: u64) -> Option<f64> {
        (!self.is_unknown && self.micros > 0.0).then(|| bytes as f64 / self.micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::RelationCodecs;

    #[test]
    fn speeds_of_relations_are_combined_by_their_time() {
        let relation = |bytes, mb_s| RelationCodecs {
            bytes,
            pages: vec![CodecFigure {
                codec: "lz4:1".to_owned(),
                bytes: bytes / 2,
                compress_mb_s: Some(mb_s),
                decompress_mb_s: None,
            }],
            ..RelationCodecs::default()
        };
        // One second and three seconds for 400 MB.
        let report = Report {
            codecs: vec![relation(100_000_000, 100.0), relation(300_000_000, 100.0)],
            ..Report::default()
        };
        assert_eq!(codecs(&report)[0].compress_mb_s, Some(100.0));
        let report = Report {
            codecs: vec![relation(300_000_000, 300.0), relation(100_000_000, 100.0 / 3.0)],
            ..Report::default()
        };
        assert!((codecs(&report)[0].compress_mb_s.unwrap() - 100.0).abs() < 1e-9);
        assert_eq!(codecs(&report)[0].decompress_mb_s, None);
        assert!((codecs(&report)[0].ratio() - 2.0).abs() < 1e-9);
    }
}
