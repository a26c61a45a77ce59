//! Values of variable length: their headers, and what is behind a compressed one.
//!
//! Sources: `src/include/varatt.h`, `src/include/access/toast_compression.h`, `toast_internals.c`.

use pgshrink_codec::{Algorithm, Choice, block, pglz};

/// `VARHDRSZ_EXTERNAL` and `varatt_external`: a value that is in the TOAST table.
pub const POINTER_BYTES: usize = 18;
/// `VARTAG_ONDISK`.
const TAG_ON_DISK: u8 = 18;
/// Most bytes of data behind a header of one byte.
pub const SHORT_DATA_MAX: usize = 126;
/// A header of four bytes.
pub const LONG_HEADER_BYTES: usize = 4;
/// The raw size and the method, behind the header of a compressed value.
pub const COMPRESSED_HEADER_BYTES: usize = 8;
/// Values are never longer: 1 GB.
const RAW_BYTES_MAX: usize = 1 << 30;

/// How a value is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `TOAST_PGLZ_COMPRESSION_ID`.
    Pglz,
    /// `TOAST_LZ4_COMPRESSION_ID`.
    Lz4,
}

impl Method {
    /// By its name in SQL.
    pub fn from_name(name: &str) -> Option<Method> {
        match name {
            "pglz" => Some(Method::Pglz),
            "lz4" => Some(Method::Lz4),
            _ => None,
        }
    }
}

/// A stored value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Varlena<'v> {
    /// Its data, uncompressed.
    Plain(&'v [u8]),
    /// Compressed in the row.
    Compressed {
        /// By what.
        method: Method,
        /// Bytes that come out.
        raw_bytes: usize,
        /// What goes in.
        payload: &'v [u8],
    },
    /// In the TOAST table.
    External,
}

/// Bytes of the value that begins here, with its header. None: there is none, or it is longer than what is here.
pub fn stored_bytes(value: &[u8]) -> Option<usize> {
    let first = *value.first()?;
    let bytes = match first {
        1 if *value.get(1)? == TAG_ON_DISK => POINTER_BYTES,
        1 => return None,
        first if first & 1 == 1 => usize::from(first >> 1),
        _ => (super::u32_at(value, 0)? >> 2) as usize,
    };
    let least = if first & 1 == 1 { 1 } else { LONG_HEADER_BYTES };
    (bytes >= least && bytes <= value.len()).then_some(bytes)
}

/// Whether a stored value is a pointer to one in the TOAST table.
pub fn is_external(value: &[u8]) -> bool {
    value.first() == Some(&1)
}

/// Takes a stored value apart, all of it. None: it is damaged.
pub fn parse(value: &[u8]) -> Option<Varlena<'_>> {
    if stored_bytes(value)? != value.len() {
        return None;
    }
    match value[0] {
        1 => Some(Varlena::External),
        first if first & 1 == 1 => Some(Varlena::Plain(&value[1..])),
        first if first & 3 == 0 => Some(Varlena::Plain(&value[LONG_HEADER_BYTES..])),
        _ => {
            let info = super::u32_at(value, LONG_HEADER_BYTES)?;
            let method = match info >> 30 {
                0 => Method::Pglz,
                1 => Method::Lz4,
                _ => return None,
            };
            let raw_bytes = (info & 0x3fff_ffff) as usize;
            Some(Varlena::Compressed { method, raw_bytes, payload: &value[COMPRESSED_HEADER_BYTES..] })
        }
    }
}

/// The data of a value, decompressed. None: it is in the TOAST table, damaged, or would have more than `bytes_max`.
pub fn raw(value: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    match parse(value)? {
        Varlena::Plain(data) => (data.len() <= bytes_max).then(|| data.to_vec()),
        Varlena::External => None,
        Varlena::Compressed { method, raw_bytes, payload } => {
            if raw_bytes > bytes_max.min(RAW_BYTES_MAX) {
                return None;
            }
            let mut out = Vec::new();
            let done = match method {
                Method::Pglz => pglz::decompress(payload, raw_bytes, &mut out),
                Method::Lz4 => {
                    block::Decompressor::new().decompress(Algorithm::Lz4, payload, raw_bytes, &mut out)
                }
            };
            (done.is_ok() && out.len() == raw_bytes).then_some(out)
        }
    }
}

/// Data with a header: of one byte where the value may have it and is short enough.
pub fn plain(data: &[u8], is_packable: bool) -> Vec<u8> {
    let mut value = Vec::with_capacity(data.len() + LONG_HEADER_BYTES);
    if is_packable && data.len() <= SHORT_DATA_MAX {
        value.push(((data.len() + 1) << 1) as u8 | 1);
    } else {
        let size = (data.len() + LONG_HEADER_BYTES).min(RAW_BYTES_MAX - 1) as u32;
        value.extend_from_slice(&(size << 2).to_le_bytes());
    }
    value.extend_from_slice(data);
    value
}

/// A pointer to a value in the TOAST table: `number` makes it differ from others.
pub fn pointer(raw_bytes: usize, stored_bytes: usize, number: u32) -> Vec<u8> {
    let mut value = vec![1, TAG_ON_DISK];
    let fields = [raw_bytes as u32 + LONG_HEADER_BYTES as u32, stored_bytes as u32, number, 16_385];
    fields.iter().for_each(|field| value.extend_from_slice(&field.to_le_bytes()));
    value
}

/// Compresses as the server does, with memory that is kept.
#[derive(Default)]
pub struct Compressor {
    pglz: pglz::Workspace,
    lz4: block::Compressor,
    out: Vec<u8>,
}

impl Compressor {
    /// Without anything yet.
    pub fn new() -> Compressor {
        Compressor::default()
    }

    /// The whole compressed value with its header. None: the server would leave it as it is: pglz wants a quarter off
    /// values of at least 32 bytes, and the whole value must be more than two bytes shorter than the data
    /// (`toast_compress_datum`).
    pub fn compress(&mut self, method: Method, data: &[u8]) -> Option<Vec<u8>> {
        self.out.clear();
        match method {
            Method::Pglz => {
                if !pglz::compress(&mut self.pglz, &pglz::Strategy::DEFAULT, data, &mut self.out) {
                    return None;
                }
            }
            Method::Lz4 => {
                let choice = Choice::from(Algorithm::Lz4);
                self.lz4.compress(choice, data, &mut self.out).ok()?;
            }
        }
        let bytes = self.out.len() + COMPRESSED_HEADER_BYTES;
        if data.len() >= RAW_BYTES_MAX || bytes >= data.len().saturating_sub(2) {
            return None;
        }
        let mut value = Vec::with_capacity(bytes);
        value.extend_from_slice(&((bytes as u32) << 2 | 2).to_le_bytes());
        let method = u32::from(method == Method::Lz4) << 30;
        value.extend_from_slice(&(data.len() as u32 | method).to_le_bytes());
        value.extend_from_slice(&self.out);
        Some(value)
    }
}
