//! Writing a manifest, byte for byte as the server does.

use std::io::Write;

use sha2::{Digest, Sha256};

use super::{FileEntry, SystemIdentifier, WalRange};
use crate::checksum::ChecksumAlgorithm;

/// How paths are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PathEncoding {
    /// As text where they are UTF-8, else in hexadecimal digits: the server's default.
    #[default]
    AsNeeded,
    /// Always in hexadecimal digits: `MANIFEST 'force-encode'`.
    Always,
}

/// Writes a manifest: [`Writer::new`], [`Writer::file`] for each file, [`Writer::end`].
///
/// What each call adds to `out` is the next part of the file. It is not looked at again.
#[derive(Debug)]
pub struct Writer {
    hash: Sha256,
    encoding: PathEncoding,
    files: u64,
}

impl Writer {
    /// Begins a manifest: of version 2 with a system identifier, of version 1 without.
    pub fn new(system: Option<SystemIdentifier>, encoding: PathEncoding, out: &mut Vec<u8>) -> Writer {
        let mut writer = Writer { hash: Sha256::new(), encoding, files: 0 };
        writer.add(out, |out| {
            out.extend_from_slice(b"{ \"PostgreSQL-Backup-Manifest-Version\": ");
            match system {
                None => out.extend_from_slice(b"1,\n"),
                Some(system) => print(out, format_args!("2,\n\"System-Identifier\": {system},\n")),
            }
            out.extend_from_slice(b"\"Files\": [");
        });
        writer
    }

    /// Adds a file. The caller sees to it that no path comes twice.
    pub fn file(&mut self, entry: &FileEntry, out: &mut Vec<u8>) {
        let encode = self.encoding == PathEncoding::Always;
        let first = self.files == 0;
        self.files += 1;
        self.add(out, |out| {
            out.extend_from_slice(if first { b"\n" } else { b",\n" });
            match entry.path.as_str() {
                Some(path) if !encode => {
                    out.extend_from_slice(b"{ \"Path\": \"");
                    escape(path, out);
                }
                _ => {
                    out.extend_from_slice(b"{ \"Encoded-Path\": \"");
                    hex(entry.path.as_bytes(), out);
                }
            }
            print(out, format_args!("\", \"Size\": {}", entry.size));
            if let Some(time) = entry.last_modified {
                print(out, format_args!(", \"Last-Modified\": \"{time}\""));
            }
            let algorithm = entry.checksum.algorithm();
            if algorithm != ChecksumAlgorithm::None {
                print(out, format_args!(", \"Checksum-Algorithm\": \"{algorithm}\", \"Checksum\": \""));
                hex(entry.checksum.as_bytes(), out);
                out.push(b'"');
            }
            out.extend_from_slice(b" }");
        });
    }

    /// Ends the list of files and adds the WAL that the backup needs, newest timeline first, and the
    /// checksum.
    pub fn end(mut self, ranges: &[WalRange], out: &mut Vec<u8>) {
        self.add(out, |out| {
            out.extend_from_slice(b"\n],\n\"WAL-Ranges\": [\n");
            for (index, WalRange { timeline, start, end }) in ranges.iter().enumerate() {
                let comma = if index == 0 { "" } else { ",\n" };
                print(
                    out,
                    format_args!(
                        "{comma}{{ \"Timeline\": {timeline}, \"Start-LSN\": \"{start}\", \"End-LSN\": \"{end}\" }}"
                    ),
                );
            }
            out.extend_from_slice(b"\n],\n");
        });
        out.extend_from_slice(b"\"Manifest-Checksum\": \"");
        hex(&self.hash.finalize(), out);
        out.extend_from_slice(b"\"}\n");
    }

    /// Hashes what `write` adds to `out`.
    fn add(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let from = out.len();
        write(out);
        self.hash.update(&out[from..]);
    }
}

/// As `escape_json` of `src/backend/utils/adt/json.c`.
fn escape(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => print(out, format_args!("\\u{byte:04x}")),
            _ => out.push(byte),
        }
    }
}

fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

fn print(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A vector takes everything.
    let _ = out.write_fmt(text);
}
