//! What CopyData messages carry: archives one after the other, progress, and the manifest.

use std::fmt;

use super::compression::CompressionAlgorithm;
use super::rows::Tablespace;
use crate::error::Error;

/// The content of one CopyData message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// `n`: an archive begins.
    Archive {
        /// Its name: `base.tar`, `16384.tar.zst`.
        name: &'a [u8],
        /// Where the tablespace lies; empty for the data directory.
        location: &'a [u8],
    },
    /// `d`: bytes of the archive or the manifest that began last.
    Data(&'a [u8]),
    /// `p`: bytes of archives so far, before compression.
    Progress(u64),
    /// `m`: the manifest begins.
    Manifest,
}

impl<'a> Message<'a> {
    /// Decodes what is behind the header of a CopyData message.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn decode(content: &'a [u8]) -> Result<Message<'a>, Error> {
        let refused = |expected| Err(Error::malformed("message of BASE_BACKUP", expected, content));
        match content {
            [b'n', strings @ ..] => {
                let mut strings = strings.split(|byte| *byte == 0);
                match (strings.next(), strings.next(), strings.next(), strings.next()) {
                    (Some(name), Some(location), Some([]), None) => Ok(Message::Archive { name, location }),
                    _ => refused("two strings that end with NUL bytes after `n`"),
                }
            }
            [b'd', data @ ..] => Ok(Message::Data(data)),
            [b'p', bytes @ ..] => match bytes.try_into().map(i64::from_be_bytes) {
                Ok(done @ 0..) => Ok(Message::Progress(done as u64)),
                _ => refused("a number of 64 bits after `p`, not negative"),
            },
            [b'm'] => Ok(Message::Manifest),
            _ => refused("one of n, d, p, or m alone"),
        }
    }
}

/// What the name of an archive says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchiveName {
    /// The tablespace's OID; none for `base`.
    pub tablespace: Option<u32>,
    /// What the archive is compressed with.
    pub compression: CompressionAlgorithm,
}

impl ArchiveName {
    /// Reads `base.tar` or `OID.tar`, with or without `.gz`, `.lz4` or `.zst`.
    ///
    /// # Errors
    /// [`Error::Malformed`] for all other names, such as those with a slash.
    pub fn parse(name: &[u8]) -> Result<ArchiveName, Error> {
        let parsed = std::str::from_utf8(name).ok().and_then(|text| {
            let (stem, suffix) = text.split_once(".tar")?;
            let compression = CompressionAlgorithm::ALL.into_iter().find(|known| known.suffix() == suffix)?;
            if stem == "base" {
                return Some(ArchiveName { tablespace: None, compression });
            }
            let plain = !stem.starts_with('0') && stem.bytes().all(|byte| byte.is_ascii_digit());
            let oid = stem.parse().ok().filter(|_| plain)?;
            Some(ArchiveName { tablespace: Some(oid), compression })
        });
        parsed.ok_or_else(|| {
            Error::malformed("name of an archive", "base.tar or OID.tar, and .gz, .lz4 or .zst", name)
        })
    }
}

/// `base.tar.zst`
impl fmt::Display for ArchiveName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tablespace {
            None => f.write_str("base")?,
            Some(oid) => write!(f, "{oid}")?,
        }
        write!(f, ".tar{}", self.compression.suffix())
    }
}

/// What a message means at its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The archive of the tablespace with this index in the list begins. The one before it is complete.
    ArchiveBegins(usize),
    /// Bytes of it.
    ArchiveData(&'a [u8]),
    /// Bytes of all archives so far, before compression. It may come at any time.
    Progress(u64),
    /// The manifest begins. All archives are complete.
    ManifestBegins,
    /// Bytes of it.
    ManifestData(&'a [u8]),
}

/// Checks that messages come in the server's order: an archive for each tablespace in the order of the list,
/// then the manifest if one was asked for.
///
/// ```text
///   Start --n--> Archive --n--> ... Archive --m--> Manifest
///                  | ^ d               | ^ d          | ^ d
/// ```
#[derive(Clone, Debug)]
pub struct Sequence {
    tablespaces: Vec<Tablespace>,
    compression: CompressionAlgorithm,
    manifest: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Start,
    /// In the archive with this index.
    Archive(usize),
    Manifest,
}

impl Sequence {
    /// Before the first message. `manifest`: whether one was asked for.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the list of tablespaces has not exactly one data directory, at its end.
    pub fn new(
        tablespaces: Vec<Tablespace>,
        compression: CompressionAlgorithm,
        manifest: bool,
    ) -> Result<Sequence, Error> {
        let base = tablespaces.iter().position(|tablespace| tablespace.space.is_none());
        if base.is_none() || base != tablespaces.len().checked_sub(1) {
            let found = format!("{} tablespaces, the first such row is {base:?}", tablespaces.len());
            let expected = "a row of the data directory, as the last one";
            return Err(Error::malformed("list of tablespaces", expected, found.as_bytes()));
        }
        Ok(Sequence { tablespaces, compression, manifest, state: State::Start })
    }

    /// The list of tablespaces, the data directory last.
    pub fn tablespaces(&self) -> &[Tablespace] {
        &self.tablespaces
    }

    /// Takes the content of the next CopyData message.
    ///
    /// # Errors
    /// [`Error::Malformed`] for a message that is none or that may not come here.
    pub fn handle<'a>(&mut self, content: &'a [u8]) -> Result<Event<'a>, Error> {
        let message = Message::decode(content)?;
        match (self.state, message) {
            (_, Message::Progress(bytes)) => Ok(Event::Progress(bytes)),
            (State::Archive(_), Message::Data(data)) => Ok(Event::ArchiveData(data)),
            (State::Manifest, Message::Data(data)) => Ok(Event::ManifestData(data)),
            (State::Start, Message::Archive { name, location }) => self.begin(0, name, location),
            (State::Archive(index), Message::Archive { name, location }) => {
                self.begin(index + 1, name, location)
            }
            (State::Archive(index), Message::Manifest) if self.is_last(index) && self.manifest => {
                self.state = State::Manifest;
                Ok(Event::ManifestBegins)
            }
            _ => Err(Error::malformed("order of messages of BASE_BACKUP", self.expects(), content)),
        }
    }

    /// CopyDone has come.
    ///
    /// # Errors
    /// [`Error::Malformed`] when archives or the manifest are missing.
    pub fn finish(self) -> Result<(), Error> {
        let whole = match self.state {
            State::Start => false,
            State::Archive(index) => self.is_last(index) && !self.manifest,
            State::Manifest => true,
        };
        if whole { Ok(()) } else { Err(Error::malformed("end of BASE_BACKUP", self.expects(), b"CopyDone")) }
    }

    fn begin<'a>(&mut self, index: usize, name: &[u8], location: &[u8]) -> Result<Event<'a>, Error> {
        let Some(tablespace) = self.tablespaces.get(index) else {
            return Err(Error::malformed("order of messages of BASE_BACKUP", self.expects(), name));
        };
        let parsed = ArchiveName::parse(name)?;
        let (oid, place) = match &tablespace.space {
            None => (None, &[][..]),
            Some((oid, place)) => (Some(*oid), &place[..]),
        };
        if parsed.tablespace != oid {
            return Err(Error::malformed(
                "name of an archive",
                "the name of the next tablespace in the list",
                name,
            ));
        }
        if location != place {
            return Err(Error::malformed(
                "location of an archive",
                "that of the list of tablespaces",
                location,
            ));
        }
        if parsed.compression != self.compression {
            return Err(Error::malformed("name of an archive", "the requested compression", name));
        }
        self.state = State::Archive(index);
        Ok(Event::ArchiveBegins(index))
    }

    fn is_last(&self, index: usize) -> bool {
        index + 1 == self.tablespaces.len()
    }

    fn expects(&self) -> &'static str {
        match self.state {
            State::Start => "the first archive",
            State::Archive(index) if !self.is_last(index) => "data or the next archive",
            State::Archive(_) if self.manifest => "data or the manifest",
            State::Archive(_) => "data or the end",
            State::Manifest => "data of the manifest or the end",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(manifest: bool) -> Sequence {
        let space = Tablespace { space: Some((16384, b"/a".to_vec())), size_bytes: None };
        let base = Tablespace { space: None, size_bytes: None };
        Sequence::new(vec![space, base], CompressionAlgorithm::Zstd, manifest).unwrap()
    }

    const WHOLE: [&[u8]; 9] = [
        b"n16384.tar.zst\0/a\0",
        b"dabc",
        b"p\0\0\0\0\0\0\x01\0",
        b"nbase.tar.zst\0\0",
        b"d",
        b"p\0\0\0\0\0\0\x02\0",
        b"m",
        b"d{ ",
        b"p\0\0\0\0\0\0\x02\0",
    ];

    fn take(sequence: &mut Sequence, messages: &[&[u8]]) {
        for message in messages {
            sequence.handle(message).unwrap();
        }
    }

    #[test]
    fn messages_in_the_servers_order_are_taken() {
        let mut whole = sequence(true);
        let events: Vec<Event<'_>> = WHOLE.iter().map(|message| whole.handle(message).unwrap()).collect();
        let expected = [
            Event::ArchiveBegins(0),
            Event::ArchiveData(b"abc"),
            Event::Progress(256),
            Event::ArchiveBegins(1),
            Event::ArchiveData(b""),
            Event::Progress(512),
            Event::ManifestBegins,
            Event::ManifestData(b"{ "),
            Event::Progress(512),
        ];
        assert_eq!(events, expected);
        whole.finish().unwrap();
        let mut without = sequence(false);
        take(&mut without, &WHOLE[..6]);
        without.clone().finish().unwrap();
        assert!(without.handle(b"m").is_err());
    }

    #[test]
    fn an_end_before_the_manifest_is_refused() {
        for length in 0..=7 {
            let mut cut = sequence(true);
            take(&mut cut, &WHOLE[..length]);
            assert_eq!(cut.finish().is_ok(), length == 7, "{length}");
        }
    }

    #[test]
    fn messages_out_of_order_are_refused() {
        let after = |before: &[&[u8]], message: &[u8]| {
            let mut sequence = sequence(true);
            take(&mut sequence, before);
            sequence.handle(message).map(drop).map_err(|error| error.to_string())
        };
        for (count, message, why) in [
            (0, &b"dabc"[..], "the first archive"),
            (0, b"m", "the first archive"),
            (0, b"nbase.tar.zst\0\0", "next tablespace in the list"),
            (0, b"n16384.tar.zst\0/b\0", "location"),
            (0, b"n16384.tar\0/a\0", "the requested compression"),
            (1, b"m", "data or the next archive"),
            (1, b"n16384.tar.zst\0/a\0", "next tablespace in the list"),
            (4, b"nbase.tar.zst\0\0", "data or the manifest"),
            (7, b"m", "data of the manifest or the end"),
            (7, b"nbase.tar.zst\0\0", "data of the manifest or the end"),
        ] {
            let refused = after(&WHOLE[..count], message).expect_err(why);
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn messages_that_are_none_are_refused() {
        for content in [
            &b""[..],
            b"x",
            b"mm",
            b"p",
            b"p1234567",
            b"p123456789",
            b"p\xff\0\0\0\0\0\0\0",
            b"n",
            b"nbase.tar",
            b"nbase.tar\0",
            b"nbase.tar\0/a",
            b"nbase.tar\0/a\0b",
            b"nbase.tar\0/a\0\0",
        ] {
            assert!(Message::decode(content).is_err(), "{content:?}");
        }
        for name in [
            "",
            ".tar",
            "base",
            "base.tar.bz2",
            "base.tar.tar",
            "../base.tar",
            "016384.tar",
            "0.tar",
            "+1.tar",
            "4294967296.tar",
        ] {
            assert!(ArchiveName::parse(name.as_bytes()).is_err(), "{name}");
        }
        for name in ["base.tar", "16384.tar.gz", "base.tar.zst"] {
            assert_eq!(ArchiveName::parse(name.as_bytes()).unwrap().to_string(), name);
        }
        assert_eq!(
            ArchiveName::parse(b"4294967295.tar.lz4"),
            Ok(ArchiveName { tablespace: Some(u32::MAX), compression: CompressionAlgorithm::Lz4 })
        );
    }

    #[test]
    fn a_list_without_the_data_directory_at_its_end_is_refused() {
        let space = Tablespace { space: Some((1, b"/a".to_vec())), size_bytes: None };
        let base = Tablespace { space: None, size_bytes: None };
        for list in [vec![], vec![space.clone()], vec![base.clone(), space], vec![base.clone(), base]] {
            assert!(Sequence::new(list, CompressionAlgorithm::None, true).is_err());
        }
    }
}
