//! E: versions last for a container's life.

use crate::fixture::{Bench, content, read, write};

fn version_limit(bench: &Bench) -> u64 {
    let bytes = bench.bytes();
    let limit = |sheet: &[u8]| u64::from_le_bytes(sheet[84..92].try_into().unwrap());
    bytes[..12288].chunks_exact(4096).map(limit).max().unwrap()
}

#[test]
fn openings_that_are_closed_cost_no_versions_and_others_few_and_an_odd_number() {
    let bench = Bench::small();
    bench.create(1).close().unwrap();
    let start = version_limit(&bench);
    for generation in 0..50 {
        let (container, _) = bench.open().unwrap();
        write(&container, 0, generation);
        container.close().unwrap();
    }
    // A sheet of the ring may still be an opening's.
    let steps_of_writes = version_limit(&bench) - start;
    assert!(steps_of_writes < 1000 + (1 << 23), "{steps_of_writes}");
    drop(bench.open().unwrap());
    let crashed = version_limit(&bench);
    drop(bench.open().unwrap());
    let step = version_limit(&bench) - crashed;
    assert!(step % 2 == 1 && (1 << 44) / step > 3_000_000, "{step}");
}

#[test]
fn a_container_is_written_to_after_it_was_closed() {
    let bench = Bench::small();
    let container = bench.create(1);
    write(&container, 0, 1);
    container.close().unwrap();
    write(&container, 0, 2);
    container.write_zeros(1).unwrap();
    container.extend(5).unwrap();
    container.close().unwrap();
    container.extend(7).unwrap();
    container.close().unwrap();
    container.write_zeros(2).unwrap();
    container.commit().unwrap();
    let (container, report) = bench.open().unwrap();
    assert!(!report.was_closed && container.pages() == 7);
    assert_eq!(read(&container, 0).unwrap(), content(0, 2));
}
