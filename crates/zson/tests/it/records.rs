//! Documents of the kinds that applications store, and of no kind at all, as trees.

use pgshrink_testkit::seed::Rng;

use crate::jsonb::{Tree, number, object, text};

/// An order: nested objects, an array of objects, moments, uuids, amounts with two decimals, and keys that may be absent.
pub fn order(rng: &mut Rng) -> Tree {
    let mut pairs = vec![
        ("id", number(rng.below(10_000_000))),
        ("created_at", text(moment(rng))),
        ("customer", customer(rng)),
        ("status", text(rng.pick(&["open", "paid", "shipped", "cancelled"]))),
        ("total", number(format!("{}.{:02}", rng.below(2000), rng.below(100)))),
        ("reference", text(uuid(rng))),
        ("is_gift", Tree::Bool(rng.chance(10))),
    ];
    let count = rng.below(5);
    pairs.push(("items", Tree::Array((0..count).map(|_| item(rng)).collect())));
    if rng.chance(30) {
        pairs.push((
            "coupon",
            if rng.chance(50) { Tree::Null } else { text(format!("C{:05}", rng.below(99_999))) },
        ));
    }
    if rng.chance(5) {
        let words = rng.between(20, 200);
        pairs.push(("note", text(prose(rng, words))));
    }
    object(pairs)
}

fn customer(rng: &mut Rng) -> Tree {
    let name = format!("{} {}", rng.pick(&NAMES), rng.pick(&NAMES));
    let mut pairs = vec![
        ("name", text(&name)),
        ("email", text(format!("{}@example.com", name.to_lowercase().replace(' ', ".")))),
        (
            "address",
            object([
                ("city", text(rng.pick(&["Berlin", "Tōkyō", "Andorra la Vella", "Łódź", "São Paulo"]))),
                ("zip", text(format!("{:05}", rng.below(99_999)))),
            ]),
        ),
    ];
    if rng.chance(20) {
        pairs.push(("phone", text(format!("+49 {}", rng.below(1_000_000_000)))));
    }
    object(pairs)
}

fn item(rng: &mut Rng) -> Tree {
    let tags = rng.below(3);
    object([
        ("sku", text(format!("SKU-{:06}", rng.below(5000)))),
        ("quantity", number(rng.between(1, 9))),
        ("price", number(format!("{}.{:02}", rng.below(300), rng.below(100)))),
        ("tags", Tree::Array((0..tags).map(|_| text(rng.pick(&["new", "sale", "fragile"]))).collect())),
    ])
}

/// What a sensor says: another kind of documents.
pub fn measurement(rng: &mut Rng) -> Tree {
    object([
        ("sensor", text(format!("s{}", rng.below(40)))),
        ("at", text(moment(rng))),
        (
            "celsius",
            number(format!(
                "{}{}.{}",
                if rng.chance(30) { "-" } else { "" },
                rng.between(1, 40),
                rng.below(10)
            )),
        ),
        ("history", Tree::Array((0..rng.below(70)).map(|_| number(rng.below(1000))).collect())),
        ("hash", text(format!("{:016x}", rng.bits()))),
    ])
}

/// A text of so many words, with a title.
pub fn article(rng: &mut Rng, words: usize) -> Tree {
    object([("title", text(prose(rng, 6))), ("body", text(prose(rng, words)))])
}

/// An order with long texts, in the place of values of other kinds as well.
pub fn letter(rng: &mut Rng) -> Tree {
    let Tree::Object(mut pairs) = order(rng) else { unreachable!() };
    pairs.push((b"body".to_vec(), long_text(rng)));
    for key in [&b"note"[..], b"reference", b"items", b"status"] {
        if rng.chance(30) {
            pairs.retain(|(known, _)| known != key);
            pairs.push((key.to_vec(), long_text(rng)));
        }
    }
    object(pairs)
}

/// One that zstd makes shorter, mostly.
fn long_text(rng: &mut Rng) -> Tree {
    let words = rng.between(250, 1500);
    match rng.below(8) {
        0 => text(rng.bytes(2 * words)),
        1 => text("x".repeat(10 * words)),
        2 => text(prose(rng, 50).repeat(1 + words / 50)),
        _ => text(prose(rng, words)),
    }
}

/// Texts of which none is long: zstd makes less of all together than shapes that were learned from records.
pub fn paragraphs(rng: &mut Rng, count: usize) -> Tree {
    let paragraphs = (0..count).map(|_| text(prose(rng, 60))).collect();
    object([("title", text(prose(rng, 6))), ("body", Tree::Array(paragraphs))])
}

/// Anything.
pub fn anything(rng: &mut Rng, depth: usize) -> Tree {
    match rng.below(if depth == 0 { 6 } else { 9 }) {
        0 => [Tree::Null, Tree::Bool(true), Tree::Bool(false)][rng.below(3)].clone(),
        1 | 2 => text(any_text(rng)),
        3..=5 => number(any_number(rng)),
        6 => {
            let count = rng.below(80) / (1 + rng.below(20));
            Tree::Array((0..count).map(|_| anything(rng, depth - 1)).collect())
        }
        _ => any_object(rng, depth - 1),
    }
}

pub fn any_object(rng: &mut Rng, depth: usize) -> Tree {
    const KEYS: [&str; 12] = [
        "",
        "a",
        "id",
        "items",
        "customer",
        "größe",
        "total",
        "x1",
        "x2",
        "status",
        "address",
        "a key with spaces",
    ];
    let mut pairs: Vec<(String, Tree)> = Vec::new();
    for key in KEYS {
        if rng.chance(40) {
            pairs.push((key.to_owned(), anything(rng, depth)));
        }
    }
    if rng.chance(15) {
        let more = rng.below(70);
        pairs.extend((0..more).map(|at| (format!("more{}", at * rng.below(1000)), anything(rng, 0))));
    }
    object(pairs)
}

fn any_text(rng: &mut Rng) -> Vec<u8> {
    match rng.below(8) {
        0 => Vec::new(),
        1 => moment(rng).into_bytes(),
        2 => uuid(rng).into_bytes(),
        3 => "\u{1}\u{7f}ÿ\u{1f600}".repeat(rng.below(9)).into_bytes(),
        4 => rng.pick(&["open", "paid", "Berlin", "new"]).as_bytes().to_vec(),
        5 => {
            let length = rng.below(300);
            rng.bytes(length)
        }
        6 => format!("SKU-{:06}", rng.bits() % 10_000_000).into_bytes(),
        _ => {
            let words = rng.below(60);
            prose(rng, words).into_bytes()
        }
    }
}

fn any_number(rng: &mut Rng) -> String {
    let sign = if rng.chance(30) { "-" } else { "" };
    let digits = |rng: &mut Rng, count: usize| -> String {
        (0..count).map(|_| char::from(b'0' + rng.below(10) as u8)).collect()
    };
    let nines = rng.between(1, 45);
    let decimals = rng.between(1, 70);
    match rng.below(9) {
        0 => "0".to_owned(),
        1 => format!("{}{}", rng.pick(&["-", ""]), rng.between(1, 300)),
        2 => format!("{sign}{}.{:02}", rng.between(1, 3000), rng.below(100)),
        3 => format!("{sign}{}", rng.bits().max(1)),
        4 => format!("{sign}1{}", "0".repeat(nines)),
        5 => format!("{sign}0.{}1", "0".repeat(decimals)),
        6 => format!("{sign}9{}", digits(rng, nines)),
        7 => format!("0.{}", "0".repeat(decimals)),
        _ => format!("{sign}7{}.{}", digits(rng, nines), digits(rng, decimals)),
    }
}

fn moment(rng: &mut Rng) -> String {
    let (month, day) = (rng.between(1, 12), rng.between(1, 28));
    format!("2026-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rng.below(24), rng.below(60), rng.below(60))
}

fn uuid(rng: &mut Rng) -> String {
    let hex = format!("{:016x}{:016x}", rng.bits(), rng.bits());
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Words of a language that nobody speaks; frequent ones are more frequent.
pub fn prose(rng: &mut Rng, words: usize) -> String {
    const SYLLABLES: [&str; 16] = [
        "ba", "cor", "den", "el", "fi", "gu", "hal", "in", "jo", "kem", "lu", "mor", "na", "os", "per", "qui",
    ];
    let mut prose = String::new();
    for _ in 0..words {
        let mut word = rng.below(rng.clone().below(3000) + 1);
        prose.push_str(SYLLABLES[word % 16]);
        while word >= 16 {
            word /= 16;
            prose.push_str(SYLLABLES[word % 16]);
        }
        prose.push(' ');
    }
    prose
}

const NAMES: [&str; 12] =
    ["Ada", "Bela", "Chen", "Dana", "Emil", "Fatima", "Gita", "Hugo", "Ines", "Jakub", "Kofi", "Lena"];
