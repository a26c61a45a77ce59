//! JSON tokens of a manifest, from bytes that come in pieces.
//!
//! It keeps at most one token, of at most [`STRING_BYTES_MAX`] bytes. What it takes for a token is what RFC
//! 8259 does, but for nesting, which is the reader's business, and for strings with a NUL, which PostgreSQL
//! refuses too.

/// The longest string, without its quotes and with its escapes resolved: an encoded path of 1023 bytes.
pub const STRING_BYTES_MAX: usize = 2048;
/// The longest number or word.
const WORD_BYTES_MAX: usize = 32;

/// A token, or that there is none yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// One of `{}[]:,`.
    Mark(u8),
    /// A string; its bytes are [`Lexer::text`]. They are UTF-8 and hold no NUL.
    String,
    /// A number or a word such as `true`; its bytes are [`Lexer::text`].
    Word,
}

/// Why bytes are no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    /// This byte, where something else must be.
    Byte { expected: &'static str, found: u8 },
    /// A string or word over its limit.
    Long { what: &'static str, allowed: usize },
    /// A string that is not UTF-8.
    NotUtf8,
    /// Half of a surrogate pair, or a NUL.
    Character { code: u32 },
}

#[derive(Debug)]
pub(super) struct Lexer {
    state: State,
    text: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Between,
    Word,
    String,
    /// Behind a backslash; `high` is the first half of a surrogate pair, or 0.
    Escape {
        high: u32,
    },
    /// `\u` and so many digits.
    Unicode {
        high: u32,
        code: u32,
        digits: u8,
    },
    /// Behind the first half of a surrogate pair.
    LowExpected {
        high: u32,
    },
}

impl Lexer {
    pub(super) fn new() -> Lexer {
        Lexer { state: State::Between, text: Vec::new() }
    }

    /// The bytes of the string or word that was found last.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// True when no token is half read.
    pub(super) fn is_between(&self) -> bool {
        self.state == State::Between
    }

    /// Takes the next byte. `Ok(None)`: more is needed. The flag says whether the byte was used; one that
    /// ends a word is not, and has to be given again.
    pub(super) fn byte(&mut self, byte: u8) -> Result<(Option<Token>, bool), Wrong> {
        let token = match self.state {
            State::Between => self.begin(byte)?,
            State::Word => {
                if is_of_word(byte) {
                    self.push(byte, "a number", WORD_BYTES_MAX)?;
                    None
                } else {
                    self.state = State::Between;
                    return Ok((Some(Token::Word), false));
                }
            }
            State::String => self.in_string(byte)?,
            State::Escape { high } => {
                self.escape(byte, high)?;
                None
            }
            State::Unicode { high, code, digits } => {
                self.digit(byte, (high, code, digits))?;
                None
            }
            State::LowExpected { high } => {
                let expected = "a backslash that begins the second half of a surrogate pair";
                if byte != b'\\' {
                    return Err(Wrong::Byte { expected, found: byte });
                }
                self.state = State::Escape { high };
                None
            }
        };
        Ok((token, true))
    }

    /// Takes the bytes of a string up to the next that is not plain, and says how many they are. Most bytes
    /// of a manifest are taken here.
    pub(super) fn plain(&mut self, bytes: &[u8]) -> usize {
        if self.state != State::String {
            return 0;
        }
        let special = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
        let room = STRING_BYTES_MAX - self.text.len();
        let bytes = &bytes[..bytes.len().min(room)];
        let count = bytes.iter().position(special).unwrap_or(bytes.len());
        self.text.extend_from_slice(&bytes[..count]);
        count
    }

    fn begin(&mut self, byte: u8) -> Result<Option<Token>, Wrong> {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'{' | b'}' | b'[' | b']' | b':' | b',' => return Ok(Some(Token::Mark(byte))),
            b'"' => {
                self.text.clear();
                self.state = State::String;
            }
            _ if is_of_word(byte) => {
                self.text.clear();
                self.text.push(byte);
                self.state = State::Word;
            }
            _ => return Err(Wrong::Byte { expected: "a JSON token", found: byte }),
        }
        Ok(None)
    }

    fn in_string(&mut self, byte: u8) -> Result<Option<Token>, Wrong> {
        match byte {
            b'"' => {
                if std::str::from_utf8(&self.text).is_err() {
                    return Err(Wrong::NotUtf8);
                }
                self.state = State::Between;
                return Ok(Some(Token::String));
            }
            b'\\' => self.state = State::Escape { high: 0 },
            0..0x20 => return Err(Wrong::Byte { expected: "a character of a string", found: byte }),
            _ => self.push(byte, "a string", STRING_BYTES_MAX)?,
        }
        Ok(None)
    }

    fn escape(&mut self, byte: u8, high: u32) -> Result<(), Wrong> {
        if byte == b'u' {
            self.state = State::Unicode { high, code: 0, digits: 0 };
            return Ok(());
        }
        let character = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            _ => return Err(Wrong::Byte { expected: "one of \"\\/bfnrtu", found: byte }),
        };
        if high != 0 {
            return Err(Wrong::Byte { expected: "the second half of a surrogate pair", found: byte });
        }
        self.state = State::String;
        self.push(character, "a string", STRING_BYTES_MAX)
    }

    fn digit(&mut self, byte: u8, (high, code, digits): (u32, u32, u8)) -> Result<(), Wrong> {
        let value = char::from(byte).to_digit(16);
        let value = value.ok_or(Wrong::Byte { expected: "a hexadecimal digit", found: byte })?;
        let code = code << 4 | value;
        if digits < 3 {
            self.state = State::Unicode { high, code, digits: digits + 1 };
            return Ok(());
        }
        let code = match (high, code) {
            (0, 0xd800..0xdc00) => {
                self.state = State::LowExpected { high: code };
                return Ok(());
            }
            (0, _) => code,
            (_, 0xdc00..0xe000) => 0x10000 + ((high - 0xd800) << 10 | (code - 0xdc00)),
            (_, _) => return Err(Wrong::Character { code }),
        };
        let character = char::from_u32(code).filter(|character| *character != '\0');
        let character = character.ok_or(Wrong::Character { code })?;
        self.state = State::String;
        let mut bytes = [0; 4];
        for byte in character.encode_utf8(&mut bytes).bytes() {
            self.push(byte, "a string", STRING_BYTES_MAX)?;
        }
        Ok(())
    }

    fn push(&mut self, byte: u8, what: &'static str, allowed: usize) -> Result<(), Wrong> {
        if self.text.len() == allowed {
            return Err(Wrong::Long { what, allowed });
        }
        self.text.push(byte);
        Ok(())
    }
}

/// Of numbers, `true`, `false` and `null`; which of them it is shows when it is used.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}
