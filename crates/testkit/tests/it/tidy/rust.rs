//! Rules about Rust code, on its text: enough of a lexer to know code from comments and strings.

const FUNCTION_LINES_MAX: usize = 70;
const MARKER: &str = "// tidy: long, ";

/// The code with every comment, string and character literal blanked, line by line as it was.
pub(super) fn blanked(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Where the comment or literal that starts at `at` ends; `at` itself when there is none.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = |offset: usize| chars.get(at + offset).copied().unwrap_or('\0');
    let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match chars[at] {
        '/' if next(1) == '/' => position(chars, at, |rest| rest[0] == '\n'),
        '/' if next(1) == '*' => block_comment_end(chars, at),
        '"' => string_end(chars, at + 1),
        'r' | 'b' | 'c' if !after_word => prefixed_end(chars, at),
        '\'' => character_end(chars, at),
        _ => at,
    }
}

fn position(chars: &[char], from: usize, found: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len()).find(|at| found(&chars[*at..])).unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < chars.len() {
        match chars[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

fn string_end(chars: &[char], start: usize) -> usize {
    let mut at = start;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// Of `r"…"`, `br#"…"#`, `b"…"`, `b'…'`; `start` when it is an ordinary word.
fn prefixed_end(chars: &[char], start: usize) -> usize {
    let mut at = start;
    while at < chars.len() && at - start < 2 && matches!(chars[at], 'r' | 'b' | 'c') {
        at += 1;
    }
    let raw = chars[start..at].contains(&'r');
    let hashes = chars[at..].iter().take_while(|c| **c == '#').count();
    match chars.get(at + hashes) {
        Some('"') if raw => position(chars, at + hashes + 1, |rest| {
            rest[0] == '"' && rest[1..].iter().take_while(|c| **c == '#').count() >= hashes
        })
        .saturating_add(1 + hashes)
        .min(chars.len()),
        Some('"') if hashes == 0 => string_end(chars, at + 1),
        Some('\'') if hashes == 0 && !raw => character_end(chars, at),
        _ => start,
    }
}

/// Of a character literal; a lifetime is none.
fn character_end(chars: &[char], start: usize) -> usize {
    match chars[start + 1..] {
        ['\\', _, ..] => {
            position(chars, start + 3, |rest| rest[0] == '\'').saturating_add(1).min(chars.len())
        }
        [_, '\'', ..] => start + 3,
        _ => start,
    }
}

/// Functions longer than the limit, without the marker on one of the lines before.
pub(super) fn long_functions(path: &str, source: &str) -> Vec<String> {
    let code = blanked(source);
    let original: Vec<&str> = source.lines().collect();
    words(&code, "fn")
        .filter_map(|at| {
            let body = at + code[at..].find(['{', ';'])?;
            let end = body + matching_brace(&code[body..])?;
            let first = code[..at].matches('\n').count();
            let length = code[at..end].matches('\n').count() + 1;
            let marked = original[first.saturating_sub(8)..first].iter().any(|line| has_reason(line));
            (length > FUNCTION_LINES_MAX && !marked)
                .then(|| format!("{path}:{}: {length} lines: {}", first + 1, original[first].trim()))
        })
        .collect()
}

fn has_reason(line: &str) -> bool {
    line.trim_start().strip_prefix(MARKER).is_some_and(|reason| reason.trim().len() > 3)
}

/// The distance to the brace that closes the one `text` starts with.
fn matching_brace(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            // A declaration without a body.
            ';' if depth == 0 => return None,
            _ => continue,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Where `word` stands by itself.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let boundary = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        boundary(text[..*at].chars().next_back()) && boundary(text[at + word.len()..].chars().next())
    })
}

pub(super) fn placeholder_macros(path: &str, source: &str) -> Vec<String> {
    let code = blanked(source);
    ["todo", "unimplemented", "dbg"]
        .into_iter()
        .flat_map(|name| words(&code, name).map(move |at| (name, at)).collect::<Vec<_>>())
        .filter(|(name, at)| code[at + name.len()..].starts_with('!'))
        .map(|(name, at)| format!("{path}:{}: {name}!", line_number(&code, at)))
        .collect()
}

/// `unsafe` without the file's permission and its reason, or a block without its SAFETY comment.
pub(super) fn undeclared_unsafe(path: &str, source: &str) -> Vec<String> {
    let code = blanked(source);
    let lines: Vec<&str> = source.lines().collect();
    let permission = code.lines().position(|line| line.contains("#![allow(unsafe_code)]"));
    let reasoned = permission.is_some_and(|line| {
        lines[line].contains("//") || line > 0 && lines[line - 1].trim_start().starts_with("//")
    });
    words(&code, "unsafe")
        .filter_map(|at| {
            let number = line_number(&code, at);
            if !reasoned {
                return Some(format!(
                    "{path}:{number}: no `#![allow(unsafe_code)]` with a reason in this file"
                ));
            }
            let is_block = code[at + "unsafe".len()..].trim_start().starts_with('{');
            let before = &lines[number.saturating_sub(6)..number];
            let defended = before.iter().any(|line| line.contains("SAFETY:"));
            (is_block && !defended)
                .then(|| format!("{path}:{number}: an unsafe block without a SAFETY comment"))
        })
        .collect()
}

/// What pure crates take as an argument: the clock, files, the environment, sockets.
pub(super) fn outside_world(path: &str, source: &str) -> Vec<String> {
    let code = blanked(source);
    // Tests measure and read as they like.
    let code = &code[..code.find("#[cfg(test)]").unwrap_or(code.len())];
    ["Instant", "SystemTime", "std::fs", "std::env", "std::net", "std::process", "std::os::unix::net"]
        .into_iter()
        .flat_map(|name| words(code, name).map(move |at| (name, at)))
        .map(|(name, at)| format!("{path}:{}: {name}", line_number(code, at)))
        .collect()
}

/// Reads of a message's header beside the walker.
pub(super) fn header_readers(path: &str, source: &str) -> Vec<String> {
    let code = blanked(source);
    let code = &code[..code.find("#[cfg(test)]").unwrap_or(code.len())];
    words(code, "message::header")
        .map(|at| format!("{path}:{}: message::header", line_number(code, at)))
        .collect()
}

fn line_number(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[test]
fn literals_and_comments_are_not_code() {
    let source = r##"a"x\"y" 'b' '\'' 'c: r#"q"z"# b"w" // t
/* /* u */ */ d br"e" fn"##;
    let code = blanked(source);
    assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "'c:", "d", "fn"]);
    assert_eq!(code.len(), source.len());
    assert_eq!(code.matches('\n').count(), 1);
}

#[test]
fn a_long_function_is_found_unless_it_gives_a_reason() {
    let long = format!("fn f() {{\n{}}}\nfn g();\n", "    let _ = \"}\";\n".repeat(FUNCTION_LINES_MAX));
    assert_eq!(long_functions("a.rs", &long), ["a.rs:1: 72 lines: fn f() {"]);
    assert!(long_functions("a.rs", &format!("{MARKER}a table of cases\n{long}")).is_empty());
    assert_eq!(long_functions("a.rs", &format!("{MARKER}\n{long}")).len(), 1);
}

#[test]
fn a_header_read_beside_the_walker_is_found() {
    let source =
        "// message::header\nlet header = message::header(bytes)?;\nlet size = message::header_size;\n";
    assert_eq!(header_readers("a.rs", source), ["a.rs:2: message::header"]);
}

#[test]
fn clocks_and_files_are_found_in_code_but_not_in_its_tests() {
    let source = "// Instant\nuse std::time::Instant;\nlet now = SystemTime::now();\nuse std::fs;\n";
    assert_eq!(outside_world("a.rs", source), ["a.rs:2: Instant", "a.rs:3: SystemTime", "a.rs:4: std::fs"]);
    assert!(outside_world("a.rs", &format!("use std::io;\n#[cfg(test)]\n{source}")).is_empty());
}

#[test]
fn placeholders_and_unsafe_are_found_in_code_only() {
    let source = "// todo!()\nfn f() { todo!() }\nlet s = \"dbg!\";\n";
    assert_eq!(placeholder_macros("a.rs", source), ["a.rs:2: todo!"]);
    let plain = "fn f() { unsafe { g() } }\n";
    assert_eq!(undeclared_unsafe("a.rs", plain).len(), 1);
    let allowed =
        format!("// The kernel's interface is C.\n#![allow(unsafe_code)]\n{}{plain}", "\n".repeat(9));
    assert_eq!(undeclared_unsafe("a.rs", &allowed), ["a.rs:12: an unsafe block without a SAFETY comment"]);
    let defended = allowed.replace("fn f", "// SAFETY: g has no conditions.\nfn f");
    assert!(undeclared_unsafe("a.rs", &defended).is_empty());
}
