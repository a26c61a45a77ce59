//! Repeated measurements of one thing.

use crate::page::Value;

/// Samples in the order they were taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds one.
    pub fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The middle one; not a number without samples.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The sample below which this share of all lies, interpolated; not a number without samples.
    pub fn quantile(&self, share: f64) -> f64 {
        let sorted = self.sorted();
        let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
        let at = share.clamp(0.0, 1.0) * last as f64;
        let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
        low + (high - low) * at.fract()
    }

    /// The largest.
    pub fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// Median and quartiles.
    pub fn spread(&self) -> Value {
        Value::Spread { median: self.median(), low: self.quantile(0.25), high: self.quantile(0.75) }
    }

    /// Round by round, this divided by `other`: what two things measured side by side are to each other.
    pub fn over(&self, other: &Samples) -> Samples {
        self.0.iter().zip(&other.0).map(|(mine, theirs)| mine / theirs).collect()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Samples(samples.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        let samples: Samples = [4.0, 1.0, 3.0, 2.0].into_iter().collect();
        assert_eq!((samples.median(), samples.quantile(0.0), samples.max()), (2.5, 1.0, 4.0));
        assert!(Samples::default().median().is_nan());
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let ours: Samples = [2.0, 30.0].into_iter().collect();
        let theirs: Samples = [1.0, 10.0].into_iter().collect();
        assert_eq!(ours.over(&theirs).median(), 2.5);
    }
}
