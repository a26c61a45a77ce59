//! `global/pg_control`, as far as a copy of it has to be checked.
//!
//! A server writes the file in one call, and whoever reads it at the same time may still see half of the old one. Its
//! CRC-32C tells (`src/include/catalog/pg_control.h`, `get_controlfile` of `src/common/controldata_utils.c`).

use crate::checksum::Crc32c;
use crate::error::Error;
use crate::manifest::SystemIdentifier;

/// Bytes of the file (`PG_CONTROL_FILE_SIZE`).
pub const CONTROL_BYTES: usize = 8192;

/// Checks a copy of the file, and gives the identifier of its cluster.
///
/// # Errors
/// [`Error::Malformed`] when it has another size, or its checksum is not that of its content: it is to be read again.
/// [`Error::Unsupported`] for a layout of other versions than 15 to 18.
pub fn check(file: &[u8]) -> Result<SystemIdentifier, Error> {
    let Some((identifier, rest)) = file.split_first_chunk().filter(|_| file.len() == CONTROL_BYTES) else {
        let found = format!("{} bytes", file.len());
        return Err(Error::malformed("global/pg_control", "8192 bytes", found.as_bytes()));
    };
    let version = rest.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let checksum_at = match version {
        // 15 to 17.
        1300 => 288,
        // 18.
        1800 => 292,
        _ => {
            return Err(Error::Unsupported {
                what: "pg_control_version",
                found: version.to_string(),
                known: "1300 (PostgreSQL 15 to 17) and 1800 (18)",
            });
        }
    };
    let (content, rest) = file.split_at(checksum_at);
    let stored = rest.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let computed = Crc32c::of(content).0;
    if stored != computed {
        let found = format!("{stored:08x}, but its content has {computed:08x}");
        return Err(Error::malformed(
            "CRC-32C of global/pg_control",
            "that of its content",
            found.as_bytes(),
        ));
    }
    Ok(SystemIdentifier(u64::from_le_bytes(*identifier)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(version: u32, checksum_at: usize) -> Vec<u8> {
        let mut file = vec![0; CONTROL_BYTES];
        file[..8].copy_from_slice(&7_712_174_098_617_853_094_u64.to_le_bytes());
        file[8..12].copy_from_slice(&version.to_le_bytes());
        file[100] = 7;
        let checksum = Crc32c::of(&file[..checksum_at]).0;
        file[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_le_bytes());
        file
    }

    #[test]
    fn a_whole_control_file_is_taken_and_a_torn_one_is_not() {
        for (version, checksum_at) in [(1300, 288), (1800, 292)] {
            let file = control(version, checksum_at);
            assert_eq!(check(&file), Ok(SystemIdentifier(7_712_174_098_617_853_094)));
            for at in [0, 50, 100, checksum_at - 1, checksum_at] {
                let mut torn = file.clone();
                torn[at] ^= 1;
                assert!(matches!(check(&torn), Err(Error::Malformed { .. })), "{at}");
            }
            assert!(check(&file[..8191]).is_err());
        }
        assert!(matches!(check(&control(1201, 288)), Err(Error::Unsupported { .. })));
        assert!(check(&[]).is_err());
    }
}
