//! Taking turns.

use pgshrink_bench_report::{Result, Samples};

use super::measure::Outcome;

/// What one way took, round by round.
#[derive(Debug, Clone, Default)]
pub struct Series(Vec<Outcome>);

impl Series {
    /// Whether it was left out in every round.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Wall seconds.
    pub fn seconds(&self) -> Samples {
        self.each(|one| one.seconds)
    }

    /// Processor seconds of the program.
    pub fn client_cpu(&self) -> Samples {
        self.each(|one| one.client_cpu)
    }

    /// Processor seconds of the server.
    pub fn server_cpu(&self) -> Samples {
        self.each(|one| one.server_cpu)
    }

    /// Processor seconds of both.
    pub fn cpu(&self) -> Samples {
        self.each(|one| one.client_cpu + one.server_cpu)
    }

    /// The most memory in any round, in MiB.
    pub fn peak_mib(&self) -> f64 {
        self.each(|one| one.peak_bytes as f64 / f64::from(1 << 20)).max()
    }

    /// Bytes of what is stored.
    pub fn stored_bytes(&self) -> f64 {
        self.each(|one| one.stored_bytes as f64).median()
    }

    fn each(&self, figure: impl Fn(&Outcome) -> f64) -> Samples {
        self.0.iter().map(figure).collect()
    }
}

/// Each way once a round, each first as often as the others. `run` gets the way and the round; it may leave one out.
pub fn rounds(
    count: usize,
    ways: usize,
    mut run: impl FnMut(usize, usize) -> Result<Option<Outcome>>,
) -> Result<Vec<Series>> {
    let mut series = vec![Series::default(); ways];
    for round in 0..count {
        for way in (0..ways).map(|at| (at + round) % ways) {
            series[way].0.extend(run(way, round)?);
        }
    }
    Ok(series)
}
