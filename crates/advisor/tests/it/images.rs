//! Images of values, beside the bytes that a server stores.

use pgshrink_advisor::datum::{self, datetime, json, jsonb, network, number, numeric, varlena};
use pgshrink_advisor::sql::{quote_ident, quote_literal};
use pgshrink_testkit::{Cluster, Rng, Seed, Server};

/// A type, how its values are printed, and images of them.
struct Kind {
    name: &'static str,
    print: &'static str,
    image: fn(&str) -> Option<Vec<u8>>,
    /// Text of a value.
    make: fn(&mut Rng) -> String,
}

fn digits(rng: &mut Rng, count: usize) -> String {
    (0..count).map(|_| char::from(b'0' + rng.below(10) as u8)).collect()
}

fn hex_digits(rng: &mut Rng, count: usize) -> String {
    (0..count).map(|_| char::from_digit(rng.below(16) as u32, 16).unwrap()).collect()
}

/// Numbers of all lengths, with zeros in all places.
fn decimal(rng: &mut Rng) -> String {
    let sign = if rng.chance(30) { "-" } else { "" };
    let zeros = |rng: &mut Rng| if rng.chance(30) { "0".repeat(rng.below(12)) } else { String::new() };
    let (whole, fraction) = (rng.below(25), rng.below(25));
    let whole = format!("{}{}{}", rng.below(10), digits(rng, whole), zeros(rng));
    match rng.chance(60) {
        true => format!("{sign}{whole}.{}{}{}", zeros(rng), digits(rng, fraction), rng.below(10)),
        false => format!("{sign}{whole}"),
    }
}

fn day(rng: &mut Rng) -> String {
    format!("{:04}-{:02}-{:02}", rng.between(1, 9999), rng.between(1, 12), rng.between(1, 28))
}

fn clock(rng: &mut Rng) -> String {
    let fraction = if rng.chance(50) { format!(".{}", rng.between(1, 999_999)) } else { String::new() };
    format!("{:02}:{:02}:{:02}{fraction}", rng.below(24), rng.below(60), rng.below(60))
}

fn address(rng: &mut Rng) -> String {
    let group =
        |rng: &mut Rng| if rng.chance(50) { "0".to_owned() } else { format!("{:x}", rng.below(65_536)) };
    let mask = |rng: &mut Rng, max: usize| {
        if rng.chance(30) { format!("/{}", rng.below(max + 1)) } else { String::new() }
    };
    match rng.chance(40) {
        true => {
            let bytes: Vec<_> = (0..4).map(|_| rng.below(256).to_string()).collect();
            format!("{}{}", bytes.join("."), mask(rng, 32))
        }
        false => {
            let groups: Vec<_> = (0..8).map(|_| group(rng)).collect();
            format!("{}{}", groups.join(":"), mask(rng, 128))
        }
    }
}

/// A document with objects, arrays of more than 32 elements, and all kinds of scalars.
pub fn document(rng: &mut Rng, depth: usize) -> String {
    match rng.below(if depth == 0 { 5 } else { 8 }) {
        0 => "null".to_owned(),
        1 => ["true", "false"][rng.below(2)].to_owned(),
        2 => number_in_json(rng),
        3 | 4 => word(rng),
        5 => {
            let count = if rng.chance(20) { rng.between(30, 70) } else { rng.below(6) };
            let elements: Vec<_> = (0..count).map(|_| document(rng, depth.min(2) - 1)).collect();
            format!("[{}]", elements.join(", "))
        }
        _ => {
            let count = if rng.chance(10) { rng.between(30, 70) } else { rng.below(7) };
            let members: Vec<_> =
                (0..count).map(|_| format!("{}: {}", word(rng), document(rng, depth.min(2) - 1))).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

fn number_in_json(rng: &mut Rng) -> String {
    let number = decimal(rng);
    let (sign, rest) = match number.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", number.as_str()),
    };
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
    let exponent = if rng.chance(15) { format!("e{}", rng.below(80) as i64 - 40) } else { String::new() };
    format!("{sign}{whole}{fraction}{exponent}")
}

fn word(rng: &mut Rng) -> String {
    let parts = ["a", "bc", "é", "\\n", "\\u0041", "\\\"", "😀", "\\ud83d\\ude00", "long word", " ", "z"];
    let count = rng.below(5);
    format!("\"{}\"", (0..count).map(|_| *rng.pick(&parts)).collect::<String>())
}

// tidy: long, a table of types
fn kinds() -> Vec<Kind> {
    let kind = |name, print, image, make| Kind { name, print, image, make };
    vec![
        kind("uuid", "c::text", |t| Some(datum::uuid(t)?.to_vec()), |rng| hex_digits(rng, 32)),
        kind(
            "bytea",
            "encode(c, 'hex')",
            |t| Some(varlena(&datum::hex(t)?)),
            |rng| {
                let count = rng.below(200);
                format!("\\x{}", hex_digits(rng, 2 * count))
            },
        ),
        kind(
            "smallint",
            "c::text",
            |t| Some(number::integer(t)?.to_le_bytes()[..2].to_vec()),
            |rng| format!("{}", rng.below(65_536) as i64 - 32_768),
        ),
        kind(
            "integer",
            "c::text",
            |t| Some(number::integer(t)?.to_le_bytes()[..4].to_vec()),
            |rng| format!("{}", rng.bits() as i32),
        ),
        kind(
            "bigint",
            "c::text",
            |t| Some(number::integer(t)?.to_le_bytes().to_vec()),
            |rng| format!("{}", rng.bits() as i64 >> rng.below(64)),
        ),
        kind(
            "double precision",
            "c::text",
            |t| Some(number::double(t)?.to_le_bytes().to_vec()),
            |rng| match rng.chance(50) {
                true => format!("{}e{}", decimal(rng), rng.below(80) as i64 - 40),
                false => format!("{}.{}", rng.below(100_000), rng.below(1000)),
            },
        ),
        kind("numeric", "c::text", |t| Some(varlena(&numeric::data(t)?)), decimal),
        kind("date", "c::text", |t| Some(datetime::date(t)?.to_le_bytes().to_vec()), day),
        kind(
            "timestamp",
            "c::text",
            |t| Some(datetime::timestamp(t)?.to_le_bytes().to_vec()),
            |rng| format!("{} {}", day(rng), clock(rng)),
        ),
        kind(
            "timestamptz",
            "c::text",
            |t| Some(datetime::timestamp_utc(t)?.to_le_bytes().to_vec()),
            |rng| format!("{} {}+00", day(rng), clock(rng)),
        ),
        kind("time", "c::text", |t| Some(datetime::time(t)?.to_le_bytes().to_vec()), clock),
        kind(
            "timetz",
            "c::text",
            |t| {
                let (time, zone) = datetime::time_with_zone(t)?;
                Some([&time.to_le_bytes()[..], &zone.to_le_bytes()].concat())
            },
            |rng| {
                let zones = ["+00", "+02", "-03:30", "+05:45", "-00:00:30", "+12:34:56"];
                format!("{}{}", clock(rng), rng.pick(&zones))
            },
        ),
        kind("inet", "format('%s', c)", |t| Some(varlena(&network::inet(t)?)), address),
        kind("macaddr", "c::text", |t| Some(network::macaddr(t)?.to_vec()), |rng| hex_digits(rng, 12)),
        kind("text", "c", |t| Some(varlena(t.as_bytes())), |rng| "é".repeat(rng.below(200))),
        kind("jsonb", "c::text", |t| Some(varlena(&jsonb::data(&json::parse(t)?)?)), |rng| document(rng, 2)),
    ]
}

/// What follows the header of each row of a table of one column: the value as it is stored, nothing for NULL.
pub fn stored(cluster: &Cluster, table: &str) -> Vec<Vec<u8>> {
    let sql = format!("select encode(pg_read_binary_file(pg_relation_filepath('{table}')), 'hex')");
    let file = datum::hex(cluster.sql(&sql).unwrap().trim()).unwrap();
    let word = |bytes: &[u8], at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let rows = |page: &[u8]| -> Vec<Vec<u8>> {
        let items = page[24..word(page, 12)].chunks_exact(4);
        let row = |item: &[u8]| {
            let item = u32::from_le_bytes(item.try_into().unwrap());
            let (at, length) = ((item & 0x7fff) as usize, (item >> 17) as usize);
            let row = &page[at..at + length];
            row[usize::from(row[22])..].to_vec()
        };
        items.map(row).collect()
    };
    // Servers from 16 on extend files by some empty pages in advance.
    file.chunks_exact(8192).filter(|page| word(page, 12) > 0).flat_map(rows).collect()
}

#[test]
fn images_are_the_bytes_that_a_server_stores() {
    let mut rng = Seed::from_env_or_time().rng();
    Server::each("images of values", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).conf("timezone", "UTC").start().unwrap();
        for kind in kinds() {
            // Larger values are compressed or stored elsewhere.
            let texts = (0..1500).map(|_| (kind.make)(&mut rng)).filter(|text| text.len() < 1500);
            let rows = texts.map(|text| format!("({})", quote_literal(&text))).collect::<Vec<_>>();
            cluster
                .psql()
                .input(format!(
                    "drop table if exists t; create table t (c {}); insert into t values {}; checkpoint;",
                    kind.name,
                    rows.join(", ")
                ))
                .run()
                .unwrap();
            let sql =
                format!("select encode(convert_to({}, 'UTF8'), 'hex') from t order by ctid", kind.print);
            let printed = cluster.sql(&sql).unwrap();
            let stored = stored(&cluster, "t");
            let (mut found, mut compared) = (0, 0);
            for (line, stored) in printed.split('\n').zip(&stored) {
                let text = String::from_utf8(datum::hex(line).unwrap()).unwrap();
                // A compressed value.
                if stored.len() > 4 && stored[0] & 3 == 2 && kind.name == "jsonb" {
                    continue;
                }
                compared += 1;
                if let Some(image) = (kind.image)(&text) {
                    assert_eq!(image, *stored, "{} {text}", kind.name);
                    found += 1;
                }
            }
            assert!(found >= 500 && found * 100 >= compared * 99, "{}: {found} of {compared}", kind.name);
        }
    });
}

#[test]
fn names_and_texts_are_quoted_as_a_server_does() {
    Server::each("quoting", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let words = cluster.sql("select word || ' ' || quote_ident(word) from pg_get_keywords()").unwrap();
        for line in words.lines() {
            let (word, quoted) = line.split_once(' ').unwrap();
            // Keywords of a newer server are quoted for an older one too.
            let ours = quote_ident(word);
            assert!(ours == quoted || ours == format!("\"{word}\""), "{word}");
        }
        for text in ["a", "it's", "a\\b", "\\'", "ä\"", "", "$1", "a\nb"] {
            let sql = format!("select {} = $q${text}$q$, quote_literal($q${text}$q$)", quote_literal(text));
            let found = cluster.sql(&sql).unwrap();
            assert_eq!(found.trim_end_matches('\n'), format!("t|{}", quote_literal(text)));
            let found = cluster.sql(&format!("select quote_ident($q${text}$q$)")).unwrap();
            assert_eq!(found.trim_end_matches('\n'), quote_ident(text));
        }
    });
}
