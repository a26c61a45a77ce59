//! A program's arguments, read as its `getopt_long` reads them: which word is an option, which is a value.
//!
//! GNU rules: options and other words may be mixed, `--` ends the options, a long name may be cut short as long
//! as it stays unique, `-abVALUE` is `-a -b VALUE` when `b` takes a value. What the table does not know is taken
//! for an option without a value.

use super::programs::Program;
use pgshrink_pgclient::conninfo;

/// One word or option, with where its value stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Letter or full long name; `None` for a word that is no option.
    pub(crate) option: Option<String>,
    pub(crate) value: Option<Place>,
}

/// Bytes of an argument, from an offset to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) argument: usize,
    pub(crate) offset: usize,
}

/// Reads the arguments after the program's name.
pub(crate) fn read(program: &Program, argv: &[Vec<u8>]) -> Vec<Item> {
    let mut items = Vec::new();
    let mut at = 1;
    while let Some(word) = argv.get(at) {
        let has_next = at + 1 < argv.len();
        match &word[..] {
            b"--" => {
                items.extend((at + 1..argv.len()).map(Item::word));
                break;
            }
            [b'-', b'-', name @ ..] => at += long(program, name, at, has_next, &mut items),
            [b'-', _, ..] => at += cluster(program, word, at, has_next, &mut items),
            _ => items.push(Item::word(at)),
        }
        at += 1;
    }
    items
}

impl Item {
    fn word(argument: usize) -> Self {
        Self { option: None, value: Some(Place { argument, offset: 0 }) }
    }

    fn option(name: impl Into<String>, value: Option<Place>) -> Self {
        Self { option: Some(name.into()), value }
    }
}

/// Reads `--name`, and returns how many more arguments it took.
fn long(program: &Program, text: &[u8], at: usize, has_next: bool, items: &mut Vec<Item>) -> usize {
    let equals = text.iter().position(|&byte| byte == b'=');
    let given = String::from_utf8_lossy(&text[..equals.unwrap_or(text.len())]).into_owned();
    let (name, takes_value) = resolve(program, &given).unwrap_or((given, false));
    let attached = equals.map(|equals| Place { argument: at, offset: 2 + equals + 1 });
    let separate = takes_value && attached.is_none() && has_next;
    let value = attached.or(separate.then_some(Place { argument: at + 1, offset: 0 }));
    items.push(Item::option(name, value));
    usize::from(separate)
}

/// The one long option that a name, possibly cut short, means.
fn resolve(program: &Program, given: &str) -> Option<(String, bool)> {
    // Debian's pg_wrapper takes this one away before the program sees it.
    let known = program.long.split_whitespace().chain(["cluster="]).map(|word| {
        let name = word.trim_end_matches(['=', '?']);
        (name, word.ends_with('='))
    });
    let matching: Vec<_> = known.filter(|(name, _)| name.starts_with(given)).collect();
    let exact = matching.iter().find(|(name, _)| *name == given);
    let only = exact.or(matching.first().filter(|_| matching.len() == 1));
    only.map(|(name, takes_value)| ((*name).to_owned(), *takes_value))
}

/// Reads `-abc`, and returns how many more arguments it took.
fn cluster(program: &Program, word: &[u8], at: usize, has_next: bool, items: &mut Vec<Item>) -> usize {
    for (index, &letter) in word.iter().enumerate().skip(1) {
        let name = char::from(letter).to_string();
        let rest = &word[index + 1..];
        let attached = (!rest.is_empty()).then_some(Place { argument: at, offset: index + 1 });
        match marker(program, letter) {
            Some(b':') => {
                let separate = attached.is_none() && has_next;
                let value = attached.or(separate.then_some(Place { argument: at + 1, offset: 0 }));
                items.push(Item::option(name, value));
                return usize::from(separate);
            }
            Some(b'~') if conninfo::is_recognized(rest) => {
                items.push(Item::option(name, attached));
                return 0;
            }
            _ => items.push(Item::option(name, None)),
        }
    }
    0
}

/// What follows a letter in the program's table.
fn marker(program: &Program, letter: u8) -> Option<u8> {
    let short = program.short.as_bytes();
    let at = short.iter().position(|&known| known == letter && !matches!(known, b':' | b'~'))?;
    short.get(at + 1).copied()
}
