//! Documents of every kind, as text: what a client may send.

use pgshrink_testkit::Rng;

/// A document. Some are records of one shape, of which a field may be anything; the others are unlike all else.
pub fn document(rng: &mut Rng) -> String {
    match rng.below(16) {
        0..=6 => record(rng),
        7 | 8 => deep(rng),
        9 => wide(rng),
        10 => list(rng),
        11 => string(rng),
        12 => scalar(rng),
        _ => value(rng, 5),
    }
}

const KEYS: [&str; 18] = [
    "",
    "a",
    "A",
    "b",
    "id",
    "1",
    "-1",
    " 1",
    "01",
    "é",
    "k\\\"q",
    "\\u0065\\u0301",
    "host",
    "tags",
    "\\ud83d\\ude00",
    "\\\\",
    "null",
    "0",
];
const SPECIAL: [&str; 22] = [
    "",
    " ",
    "a",
    "\\u00e9\\u4e2d",
    "中文",
    "\\ud83d\\ude00",
    "\\\"\\\\\\/\\b\\f\\n\\r\\t",
    "\\u0001\\u001f\\u007f",
    "0",
    "-0",
    "007",
    "1e5",
    "18446744073709551616",
    "2026-11-27T12:00:00Z",
    "2026-02-30 25:61:61",
    "00000000-0000-4000-8000-000000000000",
    "DEADbeef",
    "true",
    "null",
    "a b c a b c a b c",
    "\\ufffd\\uffff",
    "x'); drop table t; --",
];
const NUMBERS: [&str; 34] = [
    "0",
    "-0",
    "0.0",
    "-0.00",
    "1",
    "-1",
    "9",
    "10000",
    "9999",
    "1e4",
    "1E+2",
    "1.0e2",
    "1.50",
    "0.1",
    "0.0001",
    "0.00010",
    "1e-7",
    "1e-40",
    "1.5e-20",
    "1e40",
    "1e300",
    "1e-300",
    "127",
    "128",
    "255",
    "65536",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "170141183460469231731687303715884105728",
    "123456789012345678901234567890123456789.123456789012345678901234567890",
    "1.000000000000000000000000000000000000000000",
];

fn scalar(rng: &mut Rng) -> String {
    match rng.below(8) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 => "false".to_owned(),
        3..=5 => number(rng),
        _ => string(rng),
    }
}

fn number(rng: &mut Rng) -> String {
    if rng.chance(40) {
        return (*rng.pick(&NUMBERS)).to_owned();
    }
    let sign = if rng.chance(30) { "-" } else { "" };
    let mut digits = |most: usize| -> String {
        let count = if rng.chance(20) { rng.between(1, most) } else { rng.between(1, 6) };
        (0..count).map(|_| char::from(b'0' + rng.below(10) as u8)).collect()
    };
    let (whole, fraction) = (digits(60), digits(60));
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    match rng.below(5) {
        0 => format!("{sign}{whole}.{fraction}"),
        1 => format!("{sign}{whole}e{}", rng.between(0, 60)),
        2 => format!("{sign}{whole}.{fraction}E-{}", rng.between(0, 60)),
        _ => format!("{sign}{whole}"),
    }
}

fn string(rng: &mut Rng) -> String {
    let text = match rng.below(100) {
        0..=39 => (*rng.pick(&SPECIAL)).to_owned(),
        40..=59 => format!("user-{}", rng.below(1000)),
        60..=69 => format!("{:016x}", rng.bits()),
        70..=94 => words(rng, 120),
        95..=97 => words(rng, 3000),
        98 => words(rng, 100_000),
        _ => {
            let most = if rng.chance(20) { 6000 } else { 40 };
            (0..rng.below(most)).map(|_| format!("{:016x}", rng.bits())).collect()
        }
    };
    format!("\"{text}\"")
}

fn words(rng: &mut Rng, most: usize) -> String {
    let length = rng.below(most);
    String::from_utf8(rng.text(length)).unwrap_or_default()
}

fn key(rng: &mut Rng) -> String {
    match rng.below(10) {
        0..=5 => format!("\"{}\"", rng.pick(&KEYS)),
        6 => format!("\"{}\"", "long ".repeat(rng.between(50, 90))),
        _ => format!("\"key {}\"", rng.below(300)),
    }
}

/// Keys may come twice: the last counts.
fn object(members: Vec<(String, String)>) -> String {
    let members: Vec<String> = members.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{{{}}}", members.join(", "))
}

fn value(rng: &mut Rng, depth: usize) -> String {
    if depth == 0 || rng.chance(35) {
        return scalar(rng);
    }
    let count = if rng.chance(15) { 0 } else { rng.between(1, 6) };
    if rng.chance(50) {
        let elements: Vec<String> = (0..count).map(|_| value(rng, depth - 1)).collect();
        return format!("[{}]", elements.join(","));
    }
    object((0..count).map(|_| (key(rng), value(rng, depth - 1))).collect())
}

/// Objects and arrays one in the other.
fn deep(rng: &mut Rng) -> String {
    let mut text = scalar(rng);
    for _ in 0..rng.between(1, 70) {
        text = match rng.below(4) {
            0 => format!("[{text}]"),
            1 => format!("[{}, {text}, {}]", scalar(rng), scalar(rng)),
            2 => format!("{{\"a\": {text}}}"),
            _ => object(vec![(key(rng), scalar(rng)), ("\"a\"".to_owned(), text), (key(rng), scalar(rng))]),
        };
    }
    text
}

fn wide(rng: &mut Rng) -> String {
    let count = rng.below(201);
    if rng.chance(50) {
        let elements: Vec<String> = (0..count).map(|_| scalar(rng)).collect();
        return format!("[{}]", elements.join(","));
    }
    object((0..count).map(|at| (format!("\"k{}\"", at * 7 % 211), scalar(rng))).collect())
}

/// Strings that `?` looks for.
fn list(rng: &mut Rng) -> String {
    let texts: Vec<String> = (0..rng.below(40)).map(|_| format!("\"{}\"", rng.pick(&KEYS))).collect();
    format!("[{}]", texts.join(","))
}

/// A record of one shape; a field in a hundred is missing, and one in thirty anything.
fn record(rng: &mut Rng) -> String {
    let n = rng.below(100_000);
    let members = [
        ("id", n.to_string()),
        ("host", format!("\"host-{}.example.org\"", n % 50)),
        ("price", format!("{}.{:02}", n % 1000, n % 100)),
        ("at", format!("\"2026-{:02}-{:02}T{:02}:00:00Z\"", n % 12 + 1, n % 28 + 1, n % 24)),
        ("status", (*rng.pick(&["\"open\"", "\"shut\"", "null"])).to_owned()),
        ("checked", (*rng.pick(&["true", "false"])).to_owned()),
        ("hash", format!("\"{:032x}\"", u128::from(rng.bits()) << 64 | u128::from(rng.bits()))),
        ("tags", format!("[\"tag {}\", {}, {{\"a\": {}}}]", n % 7, n % 9, n % 3)),
        ("a", format!("{{\"a\": {{\"a\": {n}, \"text\": {}}}, \"none\": []}}", string(rng))),
        ("note", string(rng)),
        ("empty", "{}".to_owned()),
    ];
    let mut present = Vec::new();
    for (key, usual) in members {
        if rng.chance(99) {
            let value = if rng.chance(3) { value(rng, 3) } else { usual };
            present.push((format!("\"{key}\""), value));
        }
    }
    if rng.chance(10) {
        present.push((key(rng), value(rng, 2)));
    }
    object(present)
}
