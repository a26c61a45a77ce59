//! Bare zstd: what documents cost with a dictionary and nothing around them, and how long its calls take.

use pgshrink_bench_report::{Result, cpu_seconds_of_thread};
use zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict, DParameter, FrameFormat};

/// Sizes of dictionaries that are tried.
pub const SIZES: [usize; 5] = [4 << 10, 16 << 10, 32 << 10, 64 << 10, 112 << 10];
/// More samples take the trainer longer and give nothing, for each byte of the dictionary.
const SAMPLE_BYTES_PER_BYTE: usize = 200;

/// The dictionary under which documents became smallest.
#[derive(Debug, Clone, Default)]
pub struct Best {
    /// None at all when empty.
    pub dictionary: Vec<u8>,
    /// Bytes of all documents as frames.
    pub bytes: usize,
}

/// The best of zstd's own trainer at several sizes, and of no dictionary, measured on the documents it is for: no
/// choice that did not see them can be better.
pub fn best(training: &[&[u8]], documents: &[&[u8]], level: i32) -> Result<Best> {
    let mut best = Best { dictionary: Vec::new(), bytes: frames(documents, &[], level)? };
    for size in SIZES {
        let Some(dictionary) = trained(training, size) else { continue };
        let bytes = frames(documents, &dictionary, level)?;
        if bytes < best.bytes {
            best = Best { dictionary, bytes };
        }
    }
    Ok(best)
}

/// A dictionary of at most so many bytes by zstd's own trainer; none if it makes none of these.
pub fn trained(samples: &[&[u8]], size: usize) -> Option<Vec<u8>> {
    let total: usize = samples.iter().map(|sample| sample.len()).sum();
    let step = total.div_ceil(SAMPLE_BYTES_PER_BYTE * size).max(1);
    let taken: Vec<&[u8]> = samples.iter().step_by(step).copied().collect();
    let sizes: Vec<usize> = taken.iter().map(|sample| sample.len()).collect();
    let mut dictionary = Vec::with_capacity(size);
    zstd_safe::train_from_buffer(&mut dictionary, &taken.concat(), &sizes).ok()?;
    Some(dictionary)
}

/// Bytes of all documents as frames of their own: no magic number, content size, check sum or dictionary id.
fn frames(documents: &[&[u8]], dictionary: &[u8], level: i32) -> Result<usize> {
    let digested = Digested::new(dictionary, level);
    let mut bare = Bare::new(digested.as_ref(), level)?;
    let mut total = 0;
    for document in documents {
        total += bare.compress(document)?.len();
    }
    Ok(total)
}

/// A dictionary, digested for both directions.
pub struct Digested {
    compressor: CDict<'static>,
    decompressor: DDict<'static>,
}

impl Digested {
    /// None for an empty dictionary.
    pub fn new(dictionary: &[u8], level: i32) -> Option<Digested> {
        let digest = || Digested {
            compressor: CDict::create(dictionary, level),
            decompressor: DDict::create(dictionary),
        };
        (!dictionary.is_empty()).then(digest)
    }
}

/// zstd's calls with contexts that are kept.
pub struct Bare<'a> {
    compressor: CCtx<'a>,
    decompressor: DCtx<'a>,
    out: Vec<u8>,
}

impl<'a> Bare<'a> {
    /// With a dictionary or without.
    pub fn new(dictionary: Option<&'a Digested>, level: i32) -> Result<Bare<'a>> {
        let mut bare = Bare { compressor: CCtx::create(), decompressor: DCtx::create(), out: Vec::new() };
        for parameter in [
            CParameter::CompressionLevel(level),
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            bare.compressor.set_parameter(parameter).map_err(zstd_safe::get_error_name)?;
        }
        let format = DParameter::Format(FrameFormat::Magicless);
        bare.decompressor.set_parameter(format).map_err(zstd_safe::get_error_name)?;
        if let Some(dictionary) = dictionary {
            bare.compressor.ref_cdict(&dictionary.compressor).map_err(zstd_safe::get_error_name)?;
            bare.decompressor.ref_ddict(&dictionary.decompressor).map_err(zstd_safe::get_error_name)?;
        }
        Ok(bare)
    }

    /// The frame of a document.
    pub fn compress(&mut self, document: &[u8]) -> Result<&[u8]> {
        self.out.clear();
        self.out.reserve(zstd_safe::compress_bound(document.len()));
        self.compressor.compress2(&mut self.out, document).map_err(zstd_safe::get_error_name)?;
        Ok(&self.out)
    }

    /// The document of a frame, at most as long as `target`.
    pub fn decompress(&mut self, frame: &[u8], target: &mut [u8]) -> Result<usize> {
        Ok(self.decompressor.decompress(target, frame).map_err(zstd_safe::get_error_name)?)
    }
}

/// Processor seconds of `work`.
pub fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = cpu_seconds_of_thread();
    work()?;
    Ok(cpu_seconds_of_thread() - began)
}
