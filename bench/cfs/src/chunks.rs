//! What file systems with compression do: chunks of many pages by zstd, without knowing what is in them.

use zstd_safe::CCtx;

/// Bytes that chunks of `chunk_bytes` compress to by zstd at `level`, chunks that do not shrink as they are.
pub fn compressed_bytes(bytes: &[u8], chunk_bytes: usize, level: i32) -> u64 {
    let mut context = CCtx::create();
    let mut room = vec![0; zstd_safe::compress_bound(chunk_bytes)];
    let sizes = bytes.chunks(chunk_bytes).map(|chunk| match context.compress(&mut room[..], chunk, level) {
        Ok(size) if size < chunk.len() => size as u64,
        _ => chunk.len() as u64,
    });
    sizes.sum()
}
