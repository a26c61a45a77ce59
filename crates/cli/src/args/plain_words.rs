//! Errors about values, without the notation of the language that this is written in, and with the name of what gave them.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error as _;

/// The error as it is, or, where it quotes a range or a parser of numbers, the same in plain words. `source` is what gave
/// the value, if it was not the flag that the error names.
pub(super) fn of(error: clap::Error, source: Option<String>) -> clap::Error {
    let reason = error.source().map(ToString::to_string);
    let plain = reason.as_deref().and_then(reworded);
    let (Some(argument), Some(value)) =
        (text(&error, ContextKind::InvalidArg), text(&error, ContextKind::InvalidValue))
    else {
        return error;
    };
    let what = match (source, plain) {
        (Some(source), plain) => match plain.or(reason).or_else(|| allowed(&error)) {
            Some(reason) => format!("{source}: invalid value '{value}': {reason}\n"),
            None => format!("{source}: invalid value '{value}'\n"),
        },
        (None, Some(reason)) => format!(
            "invalid value '{value}' for '{argument}': {reason}\n\nFor more information, try '--help'.\n"
        ),
        (None, None) => return error,
    };
    clap::Error::raw(ErrorKind::ValueValidation, what)
}

/// The words that an enumeration has.
fn allowed(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::ValidValue)? {
        ContextValue::Strings(words) if !words.is_empty() => {
            Some(format!("allowed are {}", words.join(", ")))
        }
        _ => None,
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    }
}

/// `513 is not in 1..=512`, and what the standard library says of digits.
fn reworded(reason: &str) -> Option<String> {
    match reason {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            return Some("expected a number".to_owned());
        }
        "number too large to fit in target type" => return Some("the number is too large".to_owned()),
        "number too small to fit in target type" => return Some("the number is too small".to_owned()),
        _ => {}
    }
    let (found, range) = reason.split_once(" is not in ")?;
    let (least, most) = range.split_once("..")?;
    let (least, most) = (least.parse::<i128>().ok()?, most.strip_prefix('=')?.parse::<i128>().ok()?);
    let is_bounded = ![u16::MAX.into(), u32::MAX.into(), u64::MAX.into()].contains(&most);
    Some(match least {
        // What the type holds, which is nobody's limit.
        ..-1_000_000 if found.starts_with('-') => "the number is too small".to_owned(),
        ..-1_000_000 => "the number is too large".to_owned(),
        1.. if !is_bounded => format!("must be at least {least}"),
        _ => format!("must be between {least} and {most}"),
    })
}

#[test]
fn ranges_are_told_in_words() {
    let said = |reason| reworded(reason).unwrap_or_default();
    assert_eq!(said("513 is not in 1..=512"), "must be between 1 and 512");
    assert_eq!(said("0 is not in 1..=4294967295"), "must be at least 1");
    assert_eq!(said("99999999999 is not in 0..=4294967295"), "must be between 0 and 4294967295");
    assert_eq!(said("99999999999 is not in -2147483648..=2147483647"), "the number is too large");
    assert_eq!(said("invalid digit found in string"), "expected a number");
    assert_eq!(reworded("an algorithm is not in the list"), None);
}
