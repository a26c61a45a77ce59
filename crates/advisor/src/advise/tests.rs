//! Reports on tables made by hand.

use super::alone::{Trial, restrict};
use super::combine::{Weighed, choose, edits_of};
use super::*;
use crate::edit::{Edit, Removal};
use crate::finding::{Anatomy, Confidence, Rule};
use crate::made::{all, column, dropped, retype, snapshot, table};
use crate::rules::{Candidate, table_object};
use crate::simulate::Simulation;
use crate::snapshot::sample::Place;
use crate::snapshot::{Activity, Column, Sampling, Table};
use pgshrink_testkit::{Rng, Seed};

/// 16 bytes of padding in a row of 24 + 32.
fn padded() -> Vec<Column> {
    vec![
        column("a", "bool", true),
        column("b", "int8", true),
        column("c", "bool", true),
        column("d", "int8", true),
    ]
}

fn report(tables: Vec<Table>) -> Report {
    let report = advise(&snapshot(tables), &Options::default(), None);
    for finding in &report.findings {
        assert!(finding.bytes.disk.saved() >= 0 && finding.bytes.memory.saved() >= 0, "{finding:?}");
    }
    for proposal in &report.proposals {
        assert!(proposal.bytes.disk.saved() > 0 && proposal.bytes.memory.saved() >= 0, "{proposal:?}");
        let known =
            |id: &String| report.findings.iter().any(|finding| finding.id == *id && finding.in_proposal);
        assert!(proposal.findings.iter().all(known), "{proposal:?}");
    }
    report
}

fn rules(report: &Report) -> Vec<Rule> {
    report.findings.iter().map(|finding| finding.rule).collect()
}

fn sum(anatomy: &Anatomy) -> u64 {
    let Anatomy { data, row_headers, padding, page_slack, bloat, toast, indexes, maps } = anatomy;
    data + row_headers + padding + page_slack + bloat + toast + indexes + maps
}

#[test]
fn an_order_without_padding_is_found_and_its_saving_is_that_of_the_pages() {
    let report = report(vec![table(padded(), 10_000, 0, all(0))]);
    assert_eq!(rules(&report), [Rule::ColumnOrder]);
    let finding = &report.findings[0];
    // 24 + 32 + 4 bytes, 136 rows a page, become 24 + 24 + 4, 157 rows a page.
    assert_eq!(finding.bytes.disk.saved(), (74 - 64) * 8192);
    assert_eq!(finding.confidence, Confidence::Exact);
    assert!(finding.title.starts_with("14 bytes of padding in each row, 6 in"), "{}", finding.title);
    assert!(finding.reason.contains("in the order b, d, a, c, it has 6"), "{}", finding.reason);
    assert_eq!(report.proposals[0].bytes.disk, finding.bytes.disk);
    assert_eq!((report.proposals[0].bloat_bytes, report.total.bytes.disk), (0, finding.bytes.disk));
    let table = &report.tables[0];
    let [now, after] = [&table.row_now, &table.row_after].map(|row| {
        let kinds: Vec<_> =
            row.iter().map(|part| (&*part.kind, &*part.column, part.offset, part.bytes)).collect();
        kinds
    });
    let head = [("header", "", 0, 23), ("padding", "", 23, 1)];
    let rest = [("value", "a", 24, 1), ("padding", "", 25, 7), ("value", "b", 32, 8)];
    let end = [("value", "c", 40, 1), ("padding", "", 41, 7), ("value", "d", 48, 8)];
    assert_eq!(now, [&head[..], &rest, &end].concat());
    let rest = [("value", "b", 24, 8), ("value", "d", 32, 8), ("value", "a", 40, 1), ("value", "c", 41, 1)];
    assert_eq!(after, [&head[..], &rest, &[("padding", "", 42, 6)]].concat());
    let anatomy = table.anatomy;
    assert_eq!((anatomy.data, anatomy.row_headers, anatomy.padding), (180_000, 280_000, 140_000));
    assert_eq!(sum(&anatomy), table.bytes.disk.now);
}

#[test]
fn padding_that_the_alignment_of_rows_takes_back_is_no_finding() {
    // 9 bytes of data are 16, in any order.
    let columns = vec![column("a", "bool", true), column("b", "int8", true)];
    assert_eq!(rules(&report(vec![table(columns, 100_000, 0, all(0))])), []);
}

#[test]
fn bloat_is_a_finding_of_its_own_and_both_make_the_proposal() {
    let report = report(vec![table(padded(), 100_000, 1_000, all(0))]);
    let by = |rule| report.findings.iter().find(|finding| finding.rule == rule).unwrap();
    let (order, bloat) = (by(Rule::ColumnOrder), by(Rule::Bloat));
    assert_eq!(bloat.bytes.disk.saved(), 1_000 * 8192);
    assert!(order.bytes.disk.saved() < 200 * 8192 && order.bytes.disk.saved() > 50 * 8192);
    let proposal = &report.proposals[0];
    assert_eq!(proposal.bloat_bytes, bloat.bytes.disk.saved());
    assert_eq!(proposal.bytes.disk.saved(), order.bytes.disk.saved() + bloat.bytes.disk.saved());
    assert_eq!((proposal.findings.len(), proposal.bytes.disk), (2, report.total.bytes.disk));
    assert_eq!(report.tables[0].anatomy.bloat, 1_000 * 8192);
}

#[test]
fn dropped_columns_cost_a_bitmap_and_leave_with_a_new_table() {
    let mut columns = vec![column("a", "int8", true); 2];
    columns.extend(vec![dropped(); 7]);
    let report = report(vec![table(columns, 50_000, 0, all(0))]);
    assert_eq!(rules(&report), [Rule::DroppedColumns]);
    let finding = &report.findings[0];
    assert!(finding.title.starts_with("7 dropped columns"));
    assert!(
        finding.reason.contains("A row's header is 32 bytes on average now, and 24 then"),
        "{}",
        finding.reason
    );
    assert!(finding.in_proposal && finding.bytes.disk.saved() > 0);
}

#[test]
fn room_for_updates_that_never_come_is_given_back_if_asked_for() {
    let mut full = table(vec![column("a", "int8", true)], 50_000, 0, all(0));
    full.options = vec!["fillfactor=50".to_owned()];
    full.bytes.main *= 2;
    full.activity.inserted = 50_000;
    full.activity.live_rows = 50_000;
    let found = report(vec![full.clone()]);
    assert_eq!(rules(&found), [Rule::Fillfactor]);
    // A table that was built anew a moment ago has such counters too.
    assert!(found.proposals.is_empty(), "{:#?}", found.proposals);
    let finding = &found.findings[0];
    assert_eq!(finding.title, "fillfactor 50, and no updates since the counters began");
    assert_eq!((finding.confidence, finding.bytes.disk.saved() > 0), (Confidence::Estimated, true));
    let accepted = vec![Accepted::Rule(Rule::Fillfactor)];
    let options = Options { accepted, ..Options::default() };
    let found = advise(&snapshot(vec![full.clone()]), &options, None);
    assert_eq!(found.proposals[0].findings, ["fillfactor:public.t"]);
    full.activity.updated = 10_000;
    assert_eq!(rules(&report(vec![full.clone()])), [], "a fifth of the rows was updated");
    full.options.clear();
    full.bytes.main /= 2;
    let mut with_small = snapshot(vec![full]);
    with_small.sampling =
        Sampling { small_tables: 1, small_bytes: 49_152, table_bytes_min: 1 << 20, ..Sampling::default() };
    let notes = advise(&with_small, &Options::default(), None).notes;
    assert!(
        notes.contains(&"Not sampled: 1 table of less than 1.0 MB, 48.0 kB in all.".to_owned()),
        "{notes:?}"
    );
    assert!(notes[0].contains("10,000 updates, of which 0 % were HOT"), "{notes:?}");
}

#[test]
fn the_old_table_of_a_rewrite_is_to_be_dropped_and_nothing_else() {
    let long = "n".repeat(63);
    let of = |name: &str, oid: u32| {
        let made = table(padded(), 10_000, 1_000, all(0));
        let activity = Activity { inserted: 10_000, updated: 20_000, live_rows: 10_000, ..made.activity };
        Table { oid, name: name.to_owned(), activity, ..made }
    };
    let left = |old: Table, new: Table| {
        let (name, whole) = (old.name.clone(), old.bytes.total() + new.bytes.total());
        let report = report(vec![old, new]);
        assert_eq!(report.total.bytes.disk.now, whole);
        let is_about = |finding: &Finding| finding.object.name == name;
        let is_said =
            |note: &&String| note.starts_with(&format!("public.{name}: left by a rewrite: DROP TABLE"));
        let notes = report.notes.iter().filter(is_said).count();
        match (report.findings.iter().any(is_about), report.proposals.len(), notes) {
            (false, 1, 1) => {
                assert_eq!(report.total.bytes.disk.saved(), report.proposals[0].bytes.disk.saved());
                true
            }
            (true, 2, 0) => false,
            found => panic!("{name}: {found:?}"),
        }
    };
    assert!(left(of("t_old", 1), of("t", 2)));
    assert!(left(of("t_old12", 1), of("t", 2)));
    assert!(left(of(&format!("{}_old", &long[4..]), 1), of(&long, 2)));
    assert!(!left(of(&format!("{}_old", &long[9..]), 1), of(&long, 2)), "not cut off where it had to be");
    assert!(!left(of("t_old", 1), of("to", 2)) && !left(of("t_old1", 1), of("t", 2)));
    assert!(!left(of("t_old", 3), of("t", 2)), "an archive that was made later");
    let mut other = of("t", 2);
    other.columns[0].name = "e".to_owned();
    assert!(!left(of("t_old", 1), other));
    assert!(!left(of("t_old", 1), Table { schema: "other".to_owned(), ..of("t", 2) }));
}

#[test]
fn what_cannot_be_rewritten_freely_is_reported_and_not_proposed() {
    let made = table(padded(), 10_000, 0, all(0));
    let of = |change: fn(&mut Table)| {
        let mut table = made.clone();
        change(&mut table);
        let report = report(vec![table]);
        assert!(report.proposals.is_empty());
        report.findings.first().map(|finding| (finding.sql.len(), finding.risks[0].clone()))
    };
    let (sql, risk) = of(|table| table.extension = Some("postgis".to_owned())).unwrap();
    assert!(sql == 0 && risk.contains("the extension postgis"), "{risk}");
    let (sql, risk) = of(|table| table.kind = TableKind::MaterializedView).unwrap();
    assert!(sql == 0 && risk.contains("come from its query"), "{risk}");
    let (_, risk) = of(|table| table.parent = 1).unwrap();
    assert!(risk.contains("inheritance"), "{risk}");
    assert_eq!(of(|table| table.kind = TableKind::Foreign), None);
}

#[test]
fn partitions_with_one_layout_are_summed_up_on_their_parent() {
    let partition = |oid: u32| {
        let mut table = table(padded(), 10_000, 0, all(0));
        (table.oid, table.name, table.parent, table.is_partition) = (oid, format!("p{oid}"), 1, true);
        table
    };
    let mut parent = partition(1);
    (parent.kind, parent.is_partition, parent.parent, parent.sample) =
        (TableKind::Partitioned, false, 0, None);
    parent.bytes = Default::default();
    let tables = vec![parent, partition(2), partition(3)];
    let all = report(tables.clone());
    let of = |name: &str| all.findings.iter().find(|finding| finding.object.name == name);
    let (own, sum) = (of("p2").unwrap(), of("p1").unwrap());
    assert_eq!(sum.bytes.disk.saved(), 2 * own.bytes.disk.saved());
    assert_eq!(all.total.bytes.disk.saved(), sum.bytes.disk.saved(), "counted once");
    let mut other = tables;
    other[2].columns.swap(0, 1);
    assert!(report(other).findings.iter().all(|finding| finding.object.name != "p1"));
}

fn candidate(table: &Table, name: &str, edits: Vec<Edit>) -> Candidate {
    let finding = Finding { id: name.to_owned(), ..Finding::of(Rule::ColumnType, table_object(table)) };
    Candidate { finding, edits, is_recommended: true }
}

fn weighed(trial: &Trial<'_>, candidates: Vec<Candidate>) -> Vec<Weighed> {
    let weigh = |candidate: Candidate| {
        let saved = trial.saved(&candidate.edits.iter().collect::<Vec<_>>());
        Weighed { saved, is_enough: trial.is_enough(saved), candidate }
    };
    candidates.into_iter().map(weigh).collect()
}

#[test]
fn two_changes_that_save_nothing_alone_are_taken_together() {
    // Eight bytes and four are sixteen, as rows are aligned to eight; two of four are eight.
    let table = table(vec![column("a", "int8", true), column("b", "int8", true)], 50_000, 0, all(0));
    let snapshot = snapshot(vec![table.clone()]);
    let trial = Trial::of(&table, Simulation::of(&snapshot.server, &table).unwrap());
    let candidates = vec![
        candidate(&table, "a", vec![retype(&table, 0, "int4")]),
        candidate(&table, "b", vec![retype(&table, 1, "int4")]),
    ];
    let weighed = weighed(&trial, candidates);
    assert_eq!([0, 1].map(|index| weighed[index].saved), [0, 0]);
    assert_eq!(choose(&trial, &weighed), [0, 1]);
    // One of them alone is not chosen.
    assert_eq!(choose(&trial, &weighed[..1]), [0usize; 0]);
}

#[test]
fn of_two_changes_to_one_column_the_one_that_saves_more_is_taken() {
    let table = table(vec![column("a", "int8", true), column("b", "bool", true)], 50_000, 0, all(0));
    let snapshot = snapshot(vec![table.clone()]);
    let trial = Trial::of(&table, Simulation::of(&snapshot.server, &table).unwrap());
    let candidates = vec![
        candidate(&table, "a", vec![retype(&table, 0, "uuid")]),
        candidate(&table, "b", vec![retype(&table, 0, "int4")]),
    ];
    assert_eq!(choose(&trial, &weighed(&trial, candidates)), [1]);
}

/// A table of random columns, some of which may be NULL or outside.
fn random_table(rng: &mut Rng) -> Table {
    let kinds = ["bool", "int2", "int4", "int8", "uuid", "text", "numeric"];
    let columns = (0..rng.between(1, 9)).map(|n| match rng.below(8) {
        0 => dropped(),
        _ => column(&format!("c{n}"), kinds[rng.below(kinds.len())], rng.chance(60)),
    });
    let columns: Vec<Column> = columns.collect();
    let seed = rng.bits();
    let (rows, bloat) = (rng.between(0, 1_500) as u32, rng.below(300) as u64);
    let of = columns.clone();
    table(columns, rows, bloat, move |row, index| {
        let mut rng = Seed(seed ^ (u64::from(row) << 8) ^ index as u64).rng();
        match rng.below(10) {
            0 | 1 if !of[index].is_not_null => (0, Place::Null),
            2 if of[index].storage == 'x' => (rng.between(2_100, 9_000) as u32, Place::External),
            3 if of[index].storage == 'x' => (rng.between(100, 1_500) as u32, Place::Pglz),
            _ => (rng.between(2, 300) as u32, Place::Inline),
        }
    })
}

#[test]
fn a_proposal_saves_at_least_what_each_of_its_parts_does() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut proposed = 0;
    for _ in 0..1000 {
        if proposed == 25 {
            return;
        }
        let table = random_table(&mut rng);
        let snapshot = snapshot(vec![table.clone()]);
        let trial = Trial::of(&table, Simulation::of(&snapshot.server, &table).unwrap());
        let mut candidates = vec![
            candidate(&table, "order", vec![Edit::Reorder]),
            candidate(&table, "dead", vec![Edit::DropDead]),
            candidate(&table, "target", vec![Edit::ToastTarget(rng.between(128, 8_000) as u16)]),
        ];
        for (index, column) in table.columns.iter().enumerate().filter(|(_, column)| !column.is_dropped) {
            if column.length == 8 {
                candidates.push(candidate(
                    &table,
                    &format!("4 {index}"),
                    vec![retype(&table, index, "int4")],
                ));
                candidates.push(candidate(
                    &table,
                    &format!("2 {index}"),
                    vec![retype(&table, index, "int2")],
                ));
            }
        }
        let weighed = weighed(&trial, candidates);
        let chosen = choose(&trial, &weighed);
        let total = trial.rebuilt(&edits_of(&weighed, &chosen)).total();
        for index in &chosen {
            let own = &weighed[*index];
            if own.is_enough {
                assert!(
                    total <= trial.rebuilt(&edits_of(&weighed, &[*index])).total(),
                    "{}",
                    own.candidate.finding.id
                );
            }
        }
        proposed += usize::from(!chosen.is_empty());
    }
    panic!("only {proposed} proposals for 1,000 random tables");
}

#[test]
fn the_same_snapshot_gives_the_same_report_and_all_its_bytes_are_told() {
    let mut rng = Seed::from_env_or_time().rng();
    for _ in 0..30 {
        let tables: Vec<Table> = (0..3)
            .map(|n| {
                let table = random_table(&mut rng);
                Table { oid: n, name: format!("t{n}"), ..table }
            })
            .collect();
        let first = report(tables.clone());
        let file = snapshot(tables.clone()).to_json().unwrap();
        assert_eq!(advise(&Snapshot::parse(&file).unwrap(), &Options::default(), None), first);
        for (table, found) in tables.iter().flat_map(|table| {
            let of = first.tables.iter().filter(|found| found.object == table_object(table));
            of.map(move |found| (table, found))
        }) {
            assert_eq!(sum(&found.anatomy), table.total_bytes());
            for row in [&found.row_now, &found.row_after] {
                let mut at = 0;
                for part in row {
                    assert_eq!(part.offset, at, "{row:?}");
                    at += part.bytes;
                }
                assert_eq!(at % 8, 0);
            }
        }
        let now: u64 = tables.iter().map(Table::total_bytes).sum();
        assert_eq!(first.total.bytes.disk.now, now);
    }
}

#[test]
fn odd_figures_are_no_trouble() {
    let mut rng = Seed::from_env_or_time().rng();
    for _ in 0..100 {
        let mut table = random_table(&mut rng);
        let number =
            |rng: &mut Rng| *rng.pick(&[0, 1, 8191, 8192, u64::from(u32::MAX), u64::MAX / 2, u64::MAX]);
        table.bytes.main = number(&mut rng);
        table.bytes.fsm = number(&mut rng);
        table.row_estimate = *rng.pick(&[-1.0, 0.0, 1e300, f64::INFINITY, f64::NAN]);
        table.activity.last_vacuum_s = Some(i64::MIN);
        table.activity.updated = number(&mut rng);
        table.activity.live_rows = number(&mut rng);
        table.activity.inserted = 1;
        table.options = vec![format!("fillfactor={}", rng.below(300)), "toast_tuple_target=x".to_owned()];
        for column in &mut table.columns {
            if rng.chance(20) {
                column.length = *rng.pick(&[-2, -1, 0, i16::MIN, i16::MAX]);
                column.alignment = *rng.pick(&['c', 'd', '?', '\u{1f600}']);
                column.storage = *rng.pick(&['p', '?', 'x']);
            }
        }
        let sample = table.sample.as_mut().unwrap();
        sample.is_whole = rng.chance(50);
        if rng.chance(30) {
            sample.blocks = vec![u32::MAX; rng.below(3)];
        }
        for sampled in &mut sample.columns {
            for size in &mut sampled.sizes {
                if rng.chance(1) {
                    *size = *rng.pick(&[0, 1, 127, u32::MAX - 4, u32::MAX]);
                }
            }
        }
        report(vec![table]);
    }
}

#[test]
fn no_column_is_taken_out_whatever_a_rule_recommends() {
    let table = table(padded(), 100, 0, all(0));
    let removal = Removal { column: 0, exception_row_bytes: 0, exceptions: 0 };
    let mut candidate = Candidate {
        finding: Finding::of(Rule::ConstantColumn, table_object(&table)),
        edits: vec![Edit::Remove(removal)],
        is_recommended: true,
    };
    restrict(&table, &mut candidate);
    assert!(!candidate.is_recommended, "there is no plan for it");
}
