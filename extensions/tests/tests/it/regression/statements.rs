//! A psql script as single statements, and what each of them says.

use std::io::Read;
use std::process::Stdio;

use pgshrink_testkit::Psql;

/// One statement, or one psql command, of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// As it stands in the script, comments before it left out.
    pub text: String,
}

impl Statement {
    /// On one line: what the list of differences calls it.
    pub fn name(&self) -> String {
        self.text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Splits as psql does: at semicolons outside of quotes, comments and parentheses, and at lines of psql commands.
pub fn split(script: &str) -> Vec<Statement> {
    let mut statements = Vec::new();
    let (mut text, mut rest, mut depth) = (String::new(), script, 0);
    while !rest.is_empty() {
        if text.trim().is_empty() && rest.starts_with('\\') {
            let end = rest.find('\n').unwrap_or(rest.len());
            statements.push(Statement { text: rest[..end].trim_end().to_owned() });
            rest = &rest[end..];
            text.clear();
            continue;
        }
        let length = token_length(rest);
        let (token, after) = rest.split_at(length);
        rest = after;
        if token.starts_with("--") || token.starts_with("/*") {
            text.push(' ');
            continue;
        }
        match token {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        text.push_str(token);
        if token == ";" && depth <= 0 {
            statements.push(Statement { text: text.trim().to_owned() });
            text.clear();
            depth = 0;
        }
    }
    statements
}

/// The bytes of the comment, literal or quoted name at the start, or of its first character.
fn token_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let until =
        |from: usize, end: &str| text[from..].find(end).map_or(text.len(), |at| from + at + end.len());
    match bytes[0] {
        b'-' if bytes.get(1) == Some(&b'-') => text.find('\n').unwrap_or(text.len()),
        b'/' if bytes.get(1) == Some(&b'*') => until(2, "*/"),
        b'\'' => until(1, "'"),
        b'"' => until(1, "\""),
        b'E' | b'e' if bytes.get(1) == Some(&b'\'') => escaped_length(bytes),
        b'$' => {
            let tag = text[1..].find(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
            if bytes.get(tag) == Some(&b'$') && tag > 0 { until(tag + 1, &text[..=tag]) } else { 1 }
        }
        first if first.is_ascii_alphanumeric() || first == b'_' => {
            text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
        }
        _ => text.chars().next().map_or(1, char::len_utf8),
    }
}

fn escaped_length(bytes: &[u8]) -> usize {
    let mut at = 2;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'\'' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The same statement with names replaced where they stand by themselves, in literals too: `'jsonb'::regtype`.
pub fn replaced(statement: &str, names: &[(&str, &str)]) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::with_capacity(statement.len());
    let mut rest = statement;
    while let Some(start) = rest.find(is_word) {
        let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |at| start + at);
        let word = &rest[start..end];
        out.push_str(&rest[..start]);
        out.push_str(names.iter().find(|(name, _)| *name == word).map_or(word, |(_, new)| new));
        rest = &rest[end..];
    }
    out + rest
}

/// What psql says to each statement of a session, errors and notices in their places.
pub fn outcomes(psql: Psql, preamble: &str, statements: &[String]) -> Vec<String> {
    let mut script = format!("\\pset tuples_only off\n\\pset format unaligned\n{preamble}\n");
    for statement in statements {
        script.push_str(&format!("\\echo {MARK}\n{statement}\n"));
    }
    script.push_str(&format!("\\echo {MARK}\n"));
    let (mut said, pipe) = std::io::pipe().unwrap();
    let mut command = psql.arg("-v").arg("ON_ERROR_STOP=0").arg("-f").arg("-").command();
    command.stdin(Stdio::piped()).stdout(pipe.try_clone().unwrap()).stderr(pipe);
    let mut child = command.spawn().unwrap();
    // The command holds the writing ends.
    drop(command);
    let mut stdin = child.stdin.take().unwrap();
    let writer =
        std::thread::spawn(move || std::io::Write::write_all(&mut stdin, script.as_bytes()).unwrap());
    let mut output = Vec::new();
    said.read_to_end(&mut output).unwrap();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    let output = String::from_utf8_lossy(&output).into_owned();
    let mark = format!("{MARK}\n");
    let mut parts = output.split(&mark).map(str::to_owned);
    let before = parts.next().unwrap_or_default();
    assert!(before.is_empty(), "the session's beginning says: {before}");
    let mut outcomes: Vec<String> = parts.collect();
    assert_eq!(outcomes.pop().as_deref(), Some(""), "the session ended early:\n{output}");
    assert_eq!(outcomes.len(), statements.len());
    outcomes
}

const MARK: &str = "=====next=====";

#[test]
fn a_script_is_split_where_psql_splits_it() {
    let script = "-- a;\nselect ';' as \"b;\"; select E'\\';' /* ; */ , $x$;$$;$x$;\n\\x\nselect (1;2)\n;\n";
    let texts: Vec<String> = split(script).into_iter().map(|statement| statement.name()).collect();
    assert_eq!(texts, ["select ';' as \"b;\";", "select E'\\';' , $x$;$$;$x$;", "\\x", "select (1;2) ;"]);
    let names = [("jsonb", "zson")];
    assert_eq!(replaced("'jsonb'::jsonb_x, (jsonb)", &names), "'zson'::jsonb_x, (zson)");
}
