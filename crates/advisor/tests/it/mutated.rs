//! Texts that are nearly right: what a proof lets through must come back as it is.

use crate::collected::snapshot;
use crate::values::found;
use pgshrink_advisor::datum::{self, datetime, network, number, numeric};
use pgshrink_advisor::sql::quote_literal;
use pgshrink_testkit::{Cluster, Rng, Seed, Server};
use std::collections::BTreeSet;

/// A type, right values in SQL, whether a text has an image, and whether the proof refuses all others and no more.
struct Kind {
    type_name: &'static str,
    value: &'static str,
    fits: fn(&str) -> bool,
    is_exact: bool,
}

const KINDS: [Kind; 9] = [
    Kind { type_name: "uuid", value: "gen_random_uuid()::text", fits: |t| datum::uuid(t).is_some(), is_exact: true },
    Kind {
        type_name: "inet",
        value: "format('%s', case when n % 2 = 0 then host('10.0.0.0'::inet + n * 65791)
                  when n % 3 = 0 then regexp_replace(md5(n::text), '(....)(?!$)', '\\1:', 'g')
                  when n % 5 = 0 then '1:' || to_hex(n) || '::123:4567:1' when n % 7 = 0 then '::ffff:1.2.3.' || n % 256
                  else regexp_replace(overlay(md5(n::text) placing '00000000' from 9), '(....)(?!$)', '\\1:', 'g') || '/64' end::inet)",
        fits: |t| network::inet(t).is_some(),
        is_exact: true,
    },
    Kind {
        type_name: "macaddr",
        value: "substr(md5(n::text), 1, 12)::macaddr::text",
        fits: |t| network::macaddr(t).is_some(),
        is_exact: true,
    },
    Kind {
        type_name: "date",
        value: "(date '1890-01-01' + n * 17)::text",
        fits: |t| datetime::date(t).is_some(),
        is_exact: true,
    },
    Kind {
        type_name: "timestamp without time zone",
        value: "(timestamp '1899-01-01' + n * interval '1000000.25 s')::text",
        fits: |t| datetime::timestamp(t).is_some(),
        is_exact: true,
    },
    Kind {
        type_name: "timestamp with time zone",
        value: "(timestamptz '1899-01-01' + n * interval '1000001.5 s')::text",
        fits: |t| datetime::timestamp_utc(t).is_some(),
        is_exact: true,
    },
    Kind {
        type_name: "bigint",
        value: "(n * 1000000007::bigint - 90000000000)::text",
        fits: |t| number::integer(t).is_some(),
        is_exact: false,
    },
    Kind {
        type_name: "numeric",
        value: "(n * 1000003 % 1000000007 - 90000000.50)::text || '000000'",
        fits: numeric::is_canonical,
        is_exact: false,
    },
    Kind {
        type_name: "double precision",
        value: "(n::float8 / 7919 - 70000.1)::text",
        fits: |t| number::double(t).is_some(),
        is_exact: false,
    },
];

/// One to three characters changed, doubled, taken out, or swapped.
fn mutated(rng: &mut Rng, text: &str) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..rng.between(1, 3) {
        if characters.is_empty() {
            break;
        }
        let at = rng.below(characters.len());
        let odd = ['0', '1', '2', '9', 'a', 'F', ':', '.', '-', '/', ' ', '+', 'e', '\n', 'é', 'T', '3'];
        match rng.below(5) {
            0 => characters[at] = *rng.pick(&odd),
            1 => characters.insert(at, *rng.pick(&odd)),
            2 => characters.insert(at, characters[at]),
            3 => drop(characters.remove(at)),
            _ => {
                let other = rng.below(characters.len());
                characters.swap(at, other);
            }
        }
    }
    characters.into_iter().collect()
}

fn lines(cluster: &Cluster, sql: &str) -> Vec<String> {
    cluster.sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).lines().map(str::to_owned).collect()
}

#[test]
fn texts_that_a_proof_lets_through_come_back_from_a_server_as_they_are() {
    let mut rng = Seed::from_env_or_time().rng();
    Server::each("mutated texts", &[16, 18], |server| {
        let cluster = Cluster::builder().server(server).conf("timezone", "UTC").start().unwrap();
        for kind in KINDS {
            let make = format!(
                "drop table if exists t; create table t (n int, c text); insert into t select n, {} from generate_series(1, 1500) n",
                kind.value
            );
            cluster.sql(&make).unwrap();
            let right = lines(&cluster, "select c from t order by n");
            let seen = snapshot(&cluster, None);
            let candidate = found(&seen, "t", "c").unwrap_or_else(|| panic!("{}", kind.type_name));
            let proof = candidate.finding.proof.unwrap();
            assert!(
                candidate.finding.sql[0].contains(&format!("TYPE {} USING", kind.type_name)),
                "{:?}",
                candidate.finding.sql
            );
            let texts: Vec<String> = right.iter().map(|text| mutated(&mut rng, text)).collect();
            let rows: Vec<_> =
                texts.iter().enumerate().map(|(n, text)| format!("({n}, {})", quote_literal(text))).collect();
            cluster
                .psql()
                .input(format!("truncate t; insert into t values {}", rows.join(", ")))
                .run()
                .unwrap();
            let misfits = lines(&cluster, &proof.replace("SELECT count(*)", "SELECT n"));
            let misfits: BTreeSet<usize> = misfits.iter().map(|line| line.parse().unwrap()).collect();
            // What the server says, without failing.
            let same = format!(
                "select n from t where case when pg_input_is_valid(c, '{0}') then format('%s', c::{0}) = c else false end",
                kind.type_name
            );
            let same: BTreeSet<usize> =
                lines(&cluster, &same).iter().map(|line| line.parse().unwrap()).collect();
            for (n, text) in texts.iter().enumerate() {
                let (is_let_through, fits, is_same) =
                    (!misfits.contains(&n), (kind.fits)(text), same.contains(&n));
                let what = format!("{} {text:?}", kind.type_name);
                assert!(is_same || !fits, "{what} has an image, but does not come back");
                assert!(fits || !is_let_through, "{what} is let through, but has no image");
                assert!(
                    is_let_through || !fits || !kind.is_exact,
                    "{what} has an image, but is not let through"
                );
            }
            let through = texts.len() - misfits.len();
            assert!(through > 20 && misfits.len() > 200, "{}: {through} of {}", kind.type_name, texts.len());
        }
    });
}
