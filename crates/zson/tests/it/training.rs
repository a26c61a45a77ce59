//! Training: the winner is what measures best on documents it has not seen.

use std::ops::ControlFlow;

use pgshrink_codec::{Algorithm, Dictionary};
use pgshrink_testkit::seed::{Rng, Seed};
use pgshrink_zson::training::{Kind, Options, Report, Shapes, train};
use pgshrink_zson::{Codec, Encoder, Error, estimate};

use crate::fixtures::{choice, current, decode, documents, learned, object, reading, writing};
use crate::jsonb::nested;
use crate::records::{any_object, anything, article, measurement, order};

fn records(rng: &mut Rng, count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|_| {
            let fields = rng.between(3, 20);
            object(rng, fields)
        })
        .collect()
}

fn run(samples: &[Vec<u8>], options: &Options) -> Report {
    train(samples, options, &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn the_winner_saves_at_least_a_quarter_of_what_no_dictionary_gives() {
    let samples = records(&mut Seed(1).rng(), 3000);
    for text in ["zstd:1", "zstd:3", "lz4"] {
        let report = run(&samples, &Options::new(choice(text)));
        let winner = report.candidates[report.winner_index];
        assert!(winner.size > 0 && report.winner.as_ref().unwrap().bytes().len() == winner.size);
        assert!(report.winner_bytes() * 4 < report.none_bytes() * 3, "{text}: {report:?}");
        assert_eq!(report.candidates[0].kind, Kind::None);
        let best = report.candidates.iter().map(|candidate| candidate.holdout_bytes).min().unwrap();
        assert!(winner.holdout_bytes <= best + best / 100);
        assert_eq!(report.training_documents + report.holdout_documents, 3000);
    }
}

#[test]
fn the_figures_are_those_of_datums() {
    let samples = records(&mut Seed(2).rng(), 800);
    let options = Options::new(choice("zstd:3"));
    let report = run(&samples, &options);
    // Whatever was held out, all samples together are about four times that.
    let dictionary = writing(1, &report.winner.unwrap(), options.choice);
    let (mut encoder, mut all) = (Encoder::new(), Vec::new());
    for sample in &samples {
        encoder.encode(options.choice, Some(&dictionary), sample, &mut all).unwrap();
    }
    let whole = all.len() as f64 * report.holdout_documents as f64 / samples.len() as f64;
    let measured = report.candidates[report.winner_index].holdout_bytes as f64;
    assert!((0.8..1.25).contains(&(measured / whole)), "{measured} of {whole}");
}

#[test]
fn nothing_wins_on_documents_that_have_nothing_in_common() {
    let mut rng = Seed::from_env_or_time().rng();
    let samples: Vec<Vec<u8>> = (0..400).map(|_| rng.bytes(700)).collect();
    for text in ["zstd:3", "lz4"] {
        let report = run(&samples, &Options::new(choice(text)));
        assert_eq!((report.winner, report.winner_index), (None, 0));
        assert_eq!(
            report.candidates[0].holdout_bytes,
            report.holdout_raw_bytes + report.holdout_documents as u64 * 5
        );
    }
}

#[test]
fn the_same_samples_give_the_same_dictionary() {
    let samples = records(&mut Seed(3).rng(), 1000);
    let options = Options::new(choice("zstd:3"));
    let (first, second) = (run(&samples, &options), run(&samples, &options));
    assert_eq!(first.winner.unwrap().hash(), second.winner.unwrap().hash());
    assert_eq!(first.candidates, second.candidates);
}

#[test]
fn the_incumbent_is_measured_on_the_same_documents() {
    let samples = records(&mut Seed(4).rng(), 1000);
    let mut options = Options::new(choice("zstd:3"));
    let first = run(&samples, &options);
    assert_eq!(first.incumbent_bytes, None);
    let codec = choice("zstd:3").into();
    options.incumbent = first.winner.clone().map(|winner| (winner, codec));
    assert_eq!(run(&samples, &options).incumbent_bytes, Some(first.winner_bytes()));
    options.incumbent = Some((Dictionary::new(b"of no use at all".to_vec()).unwrap(), codec));
    let useless = run(&samples, &options).incumbent_bytes.unwrap();
    assert!(useless > first.winner_bytes() * 5 / 4, "{useless} against {}", first.winner_bytes());
}

#[test]
fn words_are_a_candidate_and_can_win() {
    // Values that the trainer cannot find, as no sample repeats what it holds out.
    let mut rng = Seed(5).rng();
    let vocabulary: Vec<Vec<u8>> = (0..400).map(|_| rng.bytes(24)).collect();
    let samples: Vec<Vec<u8>> =
        (0..120).map(|_| (0..3).flat_map(|_| rng.pick(&vocabulary).clone()).collect()).collect();
    let mut options = Options::new(choice("zstd:3"));
    options.words = vocabulary;
    let report = run(&samples, &options);
    let kinds: Vec<Kind> = report.candidates.iter().map(|candidate| candidate.kind).collect();
    assert!(kinds.contains(&Kind::Words));
    assert_eq!(report.candidates[report.winner_index].kind, Kind::Words);
}

#[test]
fn few_samples_and_none_give_a_report_and_no_failure() {
    let samples = records(&mut Seed(6).rng(), 10);
    for count in 0..samples.len() {
        let report = run(&samples[..count], &Options::new(choice("zstd:3")));
        assert!(report.holdout_documents <= count && report.candidates[0].kind == Kind::None);
    }
    let empty = [vec![], vec![]];
    assert_eq!(run(&empty, &Options::new(choice("zstd:3"))).holdout_documents, 0);
}

#[test]
fn no_dictionary_is_tried_for_an_algorithm_without() {
    let samples = records(&mut Seed(7).rng(), 500);
    let report = run(&samples, &Options::new(Algorithm::None.into()));
    assert!(report.winner.is_none() && report.candidates.len() == 1);
}

#[test]
fn the_caller_can_stop_it_at_every_report() {
    let samples = records(&mut Seed(8).rng(), 700);
    let options = Options::new(choice("zstd:1"));
    let mut reports = 0;
    train(&samples, &options, &mut |now| {
        assert!(now.done <= now.total);
        reports += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(reports > 6, "{reports} reports");
    for stop in 1..=reports {
        let mut left = stop;
        let stopped = train(&samples, &options, &mut |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}

#[test]
fn a_winner_reads_back_what_it_wrote() {
    let mut rng = Seed(9).rng();
    let samples = records(&mut rng, 1000);
    let options = Options::new(choice("zstd:3"));
    let dictionary = run(&samples, &options).winner.unwrap();
    let (with, back) = (writing(12, &dictionary, options.choice), reading(12, &dictionary));
    for document in records(&mut rng, 50) {
        let mut datum = Vec::new();
        Encoder::new().encode(options.choice, Some(&with), &document, &mut datum).unwrap();
        assert_eq!(current(&datum).unwrap().dictionary(), Some(back.id()));
        assert_eq!(decode(&datum, Some(&back)).unwrap(), document);
    }
}

#[test]
fn an_estimate_has_a_line_for_every_codec_with_and_without_dictionary() {
    let samples = records(&mut Seed(10).rng(), 1200);
    let options = estimate::Options::usual();
    let begin = std::time::Instant::now();
    let clock = || begin.elapsed();
    let lines = estimate::measure(&samples, &options, &clock, &mut |_| ControlFlow::Continue(())).unwrap();
    // Nothing alone, four algorithms with a dictionary and without, and shapes, which always have one.
    assert_eq!(lines.len(), 1 + 2 * 4 + 1);
    for line in &lines {
        assert!(line.documents > 200 && line.encode_ns > 0.0 && line.decode_ns > 0.0);
        assert_eq!(line.dictionary_size > 0, line.dictionary_kind != Kind::None);
        assert!(line.ratio() > 0.9, "{line:?}");
    }
    let raw = lines[0];
    assert_eq!(
        (raw.codec.choice.algorithm, raw.bytes),
        (Algorithm::None, raw.raw_bytes + raw.documents as u64 * 5)
    );
    assert!(estimate::measure::<Vec<u8>>(&[], &options, &clock, &mut |_| ControlFlow::Continue(())).is_ok());
}

#[test]
fn large_documents_do_not_keep_an_interrupt_waiting() {
    let mut rng = Seed(7).rng();
    let samples: Vec<Vec<u8>> = (0..5).map(|_| object(&mut rng, 20_000)).collect();
    let (held_out, mut reports) = (samples[0].len(), 0);
    let mut options = Options::new(choice("zstd:13"));
    options.sizes = Vec::new();
    let report = train(&samples, &options, &mut |_| {
        reports += 1;
        ControlFlow::Continue(())
    });
    // One document is held out; only "no dictionary" is tried.
    assert_eq!(report.unwrap().holdout_documents, 1);
    assert!(held_out > 500_000 && reports >= held_out / (128 << 10), "{reports} reports");
}

/// Documents of all kinds, some of them nested too deeply, and some that are no jsonb.
fn mixed(rng: &mut Rng, count: usize) -> Vec<Vec<u8>> {
    let no_jsonb = documents(rng);
    (0..count)
        .map(|_| match rng.below(8) {
            0 | 1 => order(rng).document(),
            2 => measurement(rng).document(),
            3 => any_object(rng, 3).document(),
            4 => anything(rng, 3).document(),
            5 => article(rng, 100).document(),
            6 => {
                let depth = rng.below(90);
                nested(depth, anything(rng, 1)).document()
            }
            _ => rng.pick(&no_jsonb[..60]).clone(),
        })
        .collect()
}

#[test]
fn whatever_shapes_are_learned_from_documents_come_back() {
    let mut rng = Seed::from_env_or_time().rng();
    for count in [0, 1, 2, 3, 10, 30, 100, 300, 1000] {
        let samples = mixed(&mut rng, count);
        for shapes in [Shapes::Only, Shapes::IfBest] {
            let report = learned(&samples, shapes);
            let Some(dictionary) = report.winner else { continue };
            let (with, back) = (writing(12, &dictionary, report.codec), reading(12, &dictionary));
            let unseen = mixed(&mut rng, 100);
            for document in samples.iter().chain(&unseen) {
                let mut datum = Vec::new();
                Encoder::new().encode(with.choice(), Some(&with), document, &mut datum).unwrap();
                assert!(decode(&datum, Some(&back)).unwrap() == *document);
            }
        }
    }
}

#[test]
fn the_same_samples_give_the_same_dictionary_of_shapes() {
    let samples = mixed(&mut Seed(21).rng(), 700);
    let (first, second) = (learned(&samples, Shapes::Only), learned(&samples, Shapes::Only));
    assert!(
        first.codec == Codec::shapes()
            && first.winner.as_ref().unwrap().bytes() == second.winner.unwrap().bytes()
    );
    assert_eq!(first.candidates, second.candidates);
}

#[test]
fn learning_shapes_can_be_stopped_at_every_report() {
    let mut rng = Seed(22).rng();
    let samples: Vec<Vec<u8>> = (0..400).map(|_| order(&mut rng).document()).collect();
    let mut options = Options::new(choice("zstd:1"));
    options.shapes = Shapes::IfBest;
    let mut reports = 0;
    train(&samples, &options, &mut |now| {
        assert!(now.done <= now.total);
        reports += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    for stop in (1..=reports).step_by(1 + reports / 40) {
        let mut left = stop;
        let stopped = train(&samples, &options, &mut |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(stopped, Err(Error::Interrupted)), "{stop} of {reports}");
    }
}
