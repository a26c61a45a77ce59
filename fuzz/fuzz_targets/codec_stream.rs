//! Stream decoders on anything: no panic, never more than the room, nothing allocated that is merely declared.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgshrink_codec::Algorithm;
use pgshrink_codec::stream::{Decoder, DecoderOptions};

fuzz_target!(|data: &[u8]| {
    let [pick, room, input @ ..] = data else { return };
    let algorithm = [Algorithm::Zstd, Algorithm::Lz4, Algorithm::Zlib][usize::from(pick % 3)];
    let options = DecoderOptions { algorithm, window_log_max: 20, block_raw_max: 64 << 10 };
    let Ok(mut decoder) = Decoder::new(options) else { return };
    let room = 1 + usize::from(*room) * 64;
    let (mut rest, mut total) = (input, 0);
    for _ in 0..64 {
        let mut out = Vec::new();
        let Ok(progress) = decoder.decode(rest, &mut out, room) else { return };
        assert!(out.len() <= room && out.len() == progress.produced);
        assert!(decoder.memory_bytes() < 4 << 20);
        total += out.len();
        rest = &rest[progress.consumed..];
        if (rest.is_empty() && !progress.more_output) || total > 1 << 22 {
            return;
        }
    }
});
