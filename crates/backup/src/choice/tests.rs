//! Choices in situations that servers are in.

use super::*;
use CompressionAlgorithm::{Gzip, Lz4, Zstd};

const MB: f64 = 1e6;

fn codec(algorithm: CompressionAlgorithm, level: i32, numbers: [f64; 3]) -> CodecRates {
    let [ratio, compress, decompress] = numbers;
    let level = (algorithm != Lz4).then_some(level);
    CodecRates { algorithm, level, ratio, compress: compress * MB, decompress: decompress * MB }
}

/// Rows and indexes on a processor of today.
fn rows() -> Vec<CodecRates> {
    vec![
        codec(Lz4, 0, [2.9, 900.0, 2500.0]),
        codec(Zstd, 1, [4.0, 600.0, 1200.0]),
        codec(Zstd, 3, [4.4, 280.0, 1100.0]),
        codec(Zstd, 5, [4.6, 130.0, 1100.0]),
        codec(Zstd, 9, [4.8, 55.0, 1100.0]),
        codec(Gzip, 1, [3.6, 110.0, 350.0]),
    ]
}

/// Photographs.
fn incompressible() -> Vec<CodecRates> {
    rows()
        .into_iter()
        .map(|codec| CodecRates { ratio: 1.001, compress: 2.0 * codec.compress, ..codec })
        .collect()
}

const APART: Processors = Processors::Apart { server: 4, client: 4 };
const PLAIN: Keeping = Keeping::Plain { writers: 2 };
const ARCHIVE: Keeping = Keeping::Archive { rate: 100.0 * MB, threads: 4 };

fn situation(link: f64, processors: Processors, keeping: Keeping) -> Situation {
    Situation {
        link: Some(Link { one: link * MB, several: None }),
        read: None,
        processors,
        codecs: rows(),
        keeping,
        routes: Routes { stream: true, parallel: Vec::new() },
    }
}

fn text(choice: &Choice) -> String {
    let Plan { route, compression } = choice.best.plan;
    match route {
        Route::Stream => compression.to_string(),
        Route::Parallel { connections } => format!("parallel {connections}"),
    }
}

fn chosen(situation: &Situation) -> String {
    text(&choose(situation).unwrap())
}

#[test]
fn what_is_chosen_fits_the_situation() {
    let one = Processors::Apart { server: 1, client: 1 };
    let many = Processors::Apart { server: 32, client: 32 };
    let wide = Keeping::Archive { rate: 100.0 * MB, threads: 32 };
    for (link, processors, keeping, expected) in [
        // One machine: compression takes the processor time that it would save.
        (2_000.0, Processors::Shared(2), PLAIN, "none"),
        (2_000.0, Processors::Shared(2), ARCHIVE, "none"),
        (2_000.0, Processors::Shared(16), PLAIN, "none"),
        // 10 Gbit/s, 1 Gbit/s, 125 Mbit/s, 8 Mbit/s.
        (1_200.0, APART, PLAIN, "none"),
        (125.0, APART, PLAIN, "zstd:level=1"),
        (125.0, APART, ARCHIVE, "lz4"),
        (16.0, APART, PLAIN, "zstd:level=3"),
        (16.0, APART, ARCHIVE, "zstd:level=3"),
        (1.0, APART, ARCHIVE, "zstd:level=3"),
        // The link could carry more than one process compresses.
        (250.0, many, PLAIN, "zstd:level=1,workers=2"),
        (250.0, many, wide, "zstd:level=1,workers=2"),
        (125.0, one, PLAIN, "zstd:level=1"),
        // The client's one processor is the bottleneck; then the server need not compress much.
        (125.0, one, Keeping::Archive { rate: 60.0 * MB, threads: 1 }, "none"),
        (16.0, one, PLAIN, "zstd:level=3"),
        // Tar files are as large as they come: the smallest that the link still waits for.
        (16.0, APART, Keeping::Tar, "zstd:level=9,workers=2"),
        (125.0, APART, Keeping::Tar, "zstd:level=3,workers=2"),
        (16.0, one, Keeping::Tar, "zstd:level=5"),
    ] {
        let found = situation(link, processors, keeping);
        let choice = choose(&found).unwrap();
        assert_eq!(text(&choice), expected, "{link} {processors:?} {keeping:?}: {choice:#?}");
    }
}

#[test]
fn a_backup_on_the_servers_host_is_compressed_for_its_disk() {
    let disk = Keeping::OnServer { disk: 200.0 * MB };
    let on_server = Situation { link: None, ..situation(1.0, APART, disk) };
    let choice = choose(&on_server).unwrap();
    assert_eq!(choice.best.plan.compression.algorithm, Zstd, "{choice:#?}");
    let none = choice.candidates[0];
    assert_eq!((none.ratio, none.bottleneck), (1.0, Bottleneck::ServerDisk));
    assert!(choice.candidates.iter().all(|candidate| candidate.bottleneck != Bottleneck::Link));
}

#[test]
fn data_that_do_not_compress_are_not_compressed() {
    for link in [1.0, 16.0, 125.0, 1_200.0, 5_000.0] {
        for keeping in [PLAIN, ARCHIVE, Keeping::Tar, Keeping::OnServer { disk: 200.0 * MB }] {
            let found = Situation { codecs: incompressible(), ..situation(link, APART, keeping) };
            assert_eq!(chosen(&found), "none", "{link} {keeping:?}");
        }
    }
}

#[test]
fn what_a_server_lacks_is_not_chosen_and_the_next_best_is() {
    let mut found = situation(16.0, APART, PLAIN);
    for (lacks, expected) in [(Zstd, "gzip:level=1"), (Gzip, "lz4"), (Lz4, "none")] {
        found.codecs.retain(|codec| codec.algorithm != lacks);
        assert_eq!(chosen(&found), expected);
    }
}

#[test]
fn several_connections_are_taken_where_they_may_be_and_are_faster() {
    let many = Processors::Apart { server: 32, client: 32 };
    let mut found = situation(1_000.0, many, Keeping::Plain { writers: 6 });
    found.link = Some(Link { one: 1_000.0 * MB, several: Some(2_500.0 * MB) });
    assert_eq!(chosen(&found), "none", "without the rights");
    found.routes.parallel = vec![4, 2];
    assert_eq!(chosen(&found), "parallel 4");
    found.read = Some(700.0 * MB);
    assert_eq!(chosen(&found), "none", "when the server's disk is the bottleneck");
    found.read = None;
    found.link = Some(Link { one: 16.0 * MB, several: Some(20.0 * MB) });
    assert_eq!(chosen(&found), "zstd:level=3", "what is compressed is faster on a slow link");
    found.routes.stream = false;
    assert_eq!(chosen(&found), "parallel 4", "when it is the only way that is allowed");
    found.routes.parallel = vec![0];
    assert_eq!(choose(&found), None);
    for keeping in [PLAIN, ARCHIVE] {
        let mut local = situation(2_000.0, Processors::Shared(2), keeping);
        local.routes.parallel = vec![2];
        assert_eq!(chosen(&local), "none", "it takes more processor time, and no processor is free");
    }
    let mut local = situation(2_000.0, Processors::Shared(2), Keeping::Plain { writers: 0 });
    local.routes.parallel = vec![2];
    assert_eq!(
        chosen(&local),
        "parallel 2",
        "one thread takes archives apart and writes; several connections share that"
    );
}

#[test]
fn a_slower_link_never_gets_less_compression() {
    let machines = [Processors::Shared(2), Processors::Apart { server: 1, client: 1 }, APART];
    let machines = machines.into_iter().chain([Processors::Apart { server: 64, client: 8 }]);
    for processors in machines {
        for keeping in [PLAIN, ARCHIVE, Keeping::Archive { rate: 60.0 * MB, threads: 1 }, Keeping::Tar] {
            for codecs in [rows(), incompressible(), rows()[..1].to_vec()] {
                let mut before = 0.0;
                let mut link = 10_000.0;
                while link > 0.01 {
                    let found = Situation { codecs: codecs.clone(), ..situation(link, processors, keeping) };
                    let best = choose(&found).unwrap().best;
                    assert!(best.ratio >= before, "{link} {processors:?} {keeping:?}: {best:?}");
                    (before, link) = (best.ratio, link * 0.97);
                }
            }
        }
    }
}

#[test]
fn the_choice_is_nearly_the_fastest_and_says_what_it_waits_for() {
    for (link, bottleneck) in [(16.0, Bottleneck::Link), (5_000.0, Bottleneck::ServerProcess)] {
        let found = situation(link, APART, PLAIN);
        let choice = choose(&found).unwrap();
        assert_eq!(choice.best.bottleneck, bottleneck);
        assert_eq!(choose(&found).unwrap(), choice, "the same again");
        let fastest = choice.candidates.iter().map(|candidate| candidate.rate).fold(0.0, f64::max);
        assert!(choice.best.rate >= NEARLY * fastest);
        let is_there = choice.candidates.contains(&choice.best);
        assert!(is_there && choice.candidates[0].plan.compression == Compression::NONE);
    }
    let slow = choose(&situation(16.0, APART, PLAIN)).unwrap();
    assert_eq!(slow.candidates[0].rate.round(), 16.0 * MB, "none: as fast as the link");
    // At 125 MB/s one process compresses with level 1 as fast as the link takes it: each waits for the other at times.
    let rate = |compression: &str| {
        let found =
            choose(&situation(125.0, Processors::Apart { server: 32, client: 32 }, Keeping::Tar)).unwrap();
        let mut candidates = found.candidates.into_iter();
        candidates.find(|candidate| candidate.plan.compression.to_string() == compression).unwrap().rate
    };
    let (alone, workers) = (rate("zstd:level=1"), rate("zstd:level=1,workers=2"));
    assert!(workers > 490.0 * MB && (0.8..0.95).contains(&(alone / workers)), "{alone} {workers}");
}

#[test]
fn long_is_never_chosen_and_workers_only_for_zstd() {
    for link in [0.1, 16.0, 125.0, 1_000.0] {
        for candidate in choose(&situation(link, APART, Keeping::Tar)).unwrap().candidates {
            let Compression { algorithm, workers, long, .. } = candidate.plan.compression;
            assert!(!long && (workers.is_none() || algorithm == Zstd), "{candidate:?}");
            candidate.plan.compression.check().unwrap();
        }
    }
}

#[test]
fn nonsense_that_was_measured_gives_a_choice_all_the_same() {
    let nonsense = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, f64::MAX, f64::MIN_POSITIVE];
    for number in nonsense {
        let codecs = vec![codec(Zstd, 1, [number, number, number]); 2 * CODECS_MAX];
        for keeping in [
            PLAIN,
            Keeping::Tar,
            Keeping::Archive { rate: number, threads: 0 },
            Keeping::OnServer { disk: number },
        ] {
            let found = Situation {
                link: Some(Link { one: number, several: Some(number) }),
                read: Some(number),
                processors: Processors::Apart { server: 0, client: 0 },
                codecs: codecs.clone(),
                keeping,
                routes: Routes { stream: true, parallel: vec![usize::MAX] },
            };
            assert!(choose(&found).is_some(), "{number} {keeping:?}");
        }
    }
}
