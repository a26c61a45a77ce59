//! JSON text, with numbers kept as they are written: `jsonb` keeps every digit, and a parser that makes floating-point numbers
//! of them would not.
//!
//! Takes what `jsonb_in` takes, and refuses the rest: `src/common/jsonapi.c`, `src/backend/utils/adt/jsonb.c`.

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// As it is written: `1.50`, `-2e3`.
    Number(String),
    /// Without its escapes.
    String(String),
    /// In order.
    Array(Vec<Json>),
    /// As they are written, the same key perhaps several times: the last one counts.
    Object(Vec<(String, Json)>),
}

/// Arrays and objects in each other, at most. The server's limit is its stack; documents like that are not for advice.
const DEPTH_MAX: usize = 128;

/// A document. None: the server would not take it as `jsonb`, or it is nested more than [`DEPTH_MAX`] times.
pub fn parse(text: &str) -> Option<Json> {
    let mut parser = Parser { text, at: 0 };
    let json = parser.value(0)?;
    parser.skip_blanks();
    (parser.at == text.len()).then_some(json)
}

/// `at`: 0 to the text's length, always between two characters.
struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes the character if it is the next one behind blanks.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_blanks();
        match self.peek()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(Json::String),
            b'-' | b'0'..=b'9' => self.number().map(Json::Number),
            _ => [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))]
                .into_iter()
                .find_map(|(word, json)| {
                    let is_word = self.text.get(self.at..)?.starts_with(word);
                    self.at += if is_word { word.len() } else { 0 };
                    is_word.then_some(json)
                }),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        self.take(b'{');
        let mut members = Vec::new();
        if self.take(b'}') {
            return Some(Json::Object(members));
        }
        loop {
            self.skip_blanks();
            let key = self.string()?;
            if !self.take(b':') {
                return None;
            }
            members.push((key, self.value(depth + 1)?));
            if self.take(b'}') {
                return Some(Json::Object(members));
            }
            if !self.take(b',') {
                return None;
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Json> {
        self.take(b'[');
        let mut elements = Vec::new();
        if self.take(b']') {
            return Some(Json::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            if self.take(b']') {
                return Some(Json::Array(elements));
            }
            if !self.take(b',') {
                return None;
            }
        }
    }

    fn digits(&mut self) -> usize {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - from
    }

    fn number(&mut self) -> Option<String> {
        let from = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let first = self.peek();
        let whole = self.digits();
        if whole == 0 || (whole > 1 && first == Some(b'0')) {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return None;
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            if self.digits() == 0 {
                return None;
            }
        }
        self.text.get(from..self.at).map(str::to_owned)
    }

    fn string(&mut self) -> Option<String> {
        if self.peek() != Some(b'"') {
            return None;
        }
        self.at += 1;
        let mut string = String::new();
        loop {
            let rest = self.text.get(self.at..)?;
            let end = rest.find(|c: char| c == '"' || c == '\\' || c < ' ')?;
            string.push_str(&rest[..end]);
            self.at += end + 1;
            match rest.as_bytes()[end] {
                b'"' => return Some(string),
                b'\\' => string.push(self.escape()?),
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += 1;
        Some(match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.unit()?;
                let code = match unit {
                    0xd800..=0xdbff => {
                        if !self.text.get(self.at..)?.starts_with("\\u") {
                            return None;
                        }
                        self.at += 2;
                        let low = self.unit().filter(|low| (0xdc00..=0xdfff).contains(low))?;
                        0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00)
                    }
                    _ => unit,
                };
                // The server has no text with a zero byte in it.
                char::from_u32(code).filter(|c| *c != '\0')?
            }
            _ => return None,
        })
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.at += 4;
        u32::from_str_radix(digits, 16).ok().filter(|_| are_digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits_and_strings_lose_their_escapes() {
        let text = r#" { "a" : [1.50, -2E+3, true, null] , "b":"\u00e9\ud83d\ude00\n\/" } "#;
        let number = |text: &str| Json::Number(text.to_owned());
        let array = Json::Array(vec![number("1.50"), number("-2E+3"), Json::Bool(true), Json::Null]);
        let string = Json::String("é😀\n/".to_owned());
        let expected = Json::Object(vec![("a".to_owned(), array), ("b".to_owned(), string)]);
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("{}"), Some(Json::Object(Vec::new())));
    }

    #[test]
    fn what_the_server_refuses_is_none() {
        for text in [
            "",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "[1,]",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "tru",
            "\"\u{1}\"",
            "\"\\u0000\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\x\"",
            "1 2",
            "nan",
            "[1}",
            "\"\\u12",
            "\"\\u+123\"",
            "'a'",
            "{\"a\":1,}",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"[".repeat(1_000_000)), None);
        assert!(parse(&format!("{}{}", "[".repeat(100), "]".repeat(100))).is_some());
    }
}
