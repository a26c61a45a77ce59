//! The bytes around a frame's payload, in both dialects.

use crate::message::{self, HEADER_SIZE, tag};
use crate::negotiate::Dialect;

/// A frame that says that its sender forgets: header, perhaps a restart byte, and an empty flush of zlib at most.
pub(super) const END_FRAME_SIZE_MAX: i64 = 10;
/// A SetCompressionMethod.
const METHOD_MESSAGE_SIZE: usize = 6;

/// Writes the method message, if one is due, and a frame header to be completed; returns where that begins.
pub(super) fn open_wrapper(
    dialect: Dialect,
    code: u8,
    announced: Option<u8>,
    new_stream: bool,
    out: &mut Vec<u8>,
) -> usize {
    match dialect {
        Dialect::Ack => {
            if announced != Some(code) {
                let method = message::message(tag::SET_COMPRESSION_METHOD, &[code]);
                debug_assert_eq!(method.len(), METHOD_MESSAGE_SIZE);
                out.extend_from_slice(&method);
            }
            let at = out.len();
            out.extend_from_slice(&[tag::COMPRESSED_DATA, 0, 0, 0, 0]);
            at
        }
        Dialect::Restart => {
            let at = out.len();
            let restart_byte = if new_stream { code } else { 0 };
            out.extend_from_slice(&[tag::COMPRESSION_ACK, 0, 0, 0, 0, restart_byte]);
            at
        }
    }
}

pub(super) fn close_wrapper(at: usize, out: &mut [u8]) {
    let length = (out.len() - at - 1) as u32;
    out[at + 1..at + HEADER_SIZE].copy_from_slice(&length.to_be_bytes());
}
