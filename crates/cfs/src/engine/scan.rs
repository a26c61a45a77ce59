//! Finding records by themselves, without a map.

use std::ops::Range;

use crate::device::Device;
use crate::format::error::Error;
use crate::format::record::{self, HEADER_BYTES, Header, META_PAYLOAD_MAX};
use crate::format::units::{Location, UNIT_BYTES};

/// Bytes looked at in one go.
const WINDOW_BYTES: usize = 4 << 20;

/// Calls `found` with each record in these bytes of the file, by location. What lies inside a record is not
/// looked at: a page's bytes are the user's.
///
/// # Errors
/// [`Error::Device`]. What is no whole record is stepped over.
pub(crate) fn scan(
    device: &impl Device,
    seed: u32,
    range: Range<u64>,
    mut found: impl FnMut(Location, Header),
) -> Result<(), Error> {
    let mut window = vec![0; WINDOW_BYTES.min((range.end.saturating_sub(range.start)) as usize)];
    let mut start = range.start;
    while start + HEADER_BYTES as u64 <= range.end {
        let length = window.len().min((range.end - start) as usize);
        let got = device.pread(&mut window[..length], start);
        let got = got.map_err(|source| Error::device("read", start, length, source))?;
        let is_last = got < window.len() || start + got as u64 >= range.end;
        let mut at = 0;
        while at + HEADER_BYTES <= got {
            if !is_last && at + HEADER_BYTES + META_PAYLOAD_MAX > got {
                break;
            }
            let location = Location::of_offset(start + at as u64);
            at += match record::check(&window[at..got], seed, location) {
                Ok(header) => {
                    found(location, header);
                    header.units().bytes()
                }
                Err(_) => UNIT_BYTES,
            };
        }
        if is_last {
            break;
        }
        start += at as u64;
    }
    Ok(())
}
