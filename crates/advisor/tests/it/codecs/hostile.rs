//! Pages that are no pages, and snapshots that contradict themselves: never a panic, never an endless loop.

use pgshrink_advisor::codecs::{self, Budget, Compressed, Means};
use pgshrink_advisor::heap_page::{Attribute, Damage, HeapPage, Shape, Tuple, varlena, write};
use pgshrink_advisor::layout::{self, Alignment};
use pgshrink_advisor::rules;
use pgshrink_advisor::snapshot::sample::{Page, Place, RowPlace, SampledColumn};
use pgshrink_advisor::snapshot::{Column, ForkBytes, Sample, Server, Table};
use pgshrink_testkit::{Rng, Seed};

fn column(name: &str, length: i16, alignment: char, base: &str) -> Column {
    Column {
        name: name.to_owned(),
        type_name: base.to_owned(),
        base_type_id: base.to_owned(),
        type_kind: 'b',
        length,
        alignment,
        storage: if length == -1 { 'x' } else { 'p' },
        ..Column::default()
    }
}

fn columns() -> Vec<Column> {
    vec![
        column("a", 4, 'i', "int4"),
        column("b", -1, 'i', "text"),
        column("c", 8, 'd', "int8"),
        column("d", -1, 'i', "jsonb"),
    ]
}

fn layouts(columns: &[Column]) -> Vec<layout::Column> {
    columns.iter().map(|column| codecs::rows::layout_of(column).unwrap()).collect()
}

/// Values of a row as they are stored. None: NULL.
type Values = Vec<Option<Vec<u8>>>;

/// A page with rows whose values are known.
pub fn page(rng: &mut Rng) -> (Vec<u8>, Vec<Values>) {
    let columns = columns();
    let layouts = layouts(&columns);
    let references: Vec<&layout::Column> = layouts.iter().collect();
    let (mut pages, mut rows, mut tuple) = (write::Pages::new(100), Vec::new(), Vec::new());
    while pages.count() <= 1 && rows.len() < 40 {
        let length = rng.below(300);
        let values: Values = vec![
            Some(rng.bytes(4)),
            rng.chance(70).then(|| varlena::plain(&rng.text(length), true)),
            rng.chance(80).then(|| rng.bytes(8)),
            rng.chance(50).then(|| {
                if rng.chance(50) { varlena::pointer(5000, 3000, 7) } else { varlena::plain(b"{}", true) }
            }),
        ];
        let images: Vec<write::Image<'_>> = values.iter().map(Option::as_deref).collect();
        write::tuple(&references, &images, &mut tuple);
        pages.add(&mut tuple);
        if pages.count() == 1 {
            rows.push(values);
        }
    }
    (pages.into_pages()[0].to_vec(), rows)
}

#[test]
fn what_is_written_into_a_page_is_read_out_of_it() {
    let seed = Seed::from_env_or_time();
    let mut rng = seed.rng();
    let shapes = Shape::of(&columns()).unwrap();
    for _ in 0..200 {
        let (image, rows) = page(&mut rng);
        let heap = HeapPage::parse(&image).unwrap();
        assert_eq!(usize::from(heap.item_count()), rows.len());
        for (item, row) in (1..).zip(&rows) {
            let found = heap.tuple(item).unwrap().unwrap().attributes(&shapes).unwrap();
            let found: Values = found
                .iter()
                .map(|attribute| match attribute {
                    Attribute::Stored(value) => Some(value.to_vec()),
                    Attribute::Null | Attribute::Absent => None,
                })
                .collect();
            assert_eq!(found, *row, "{seed:?}");
        }
    }
}

#[test]
fn damage_of_a_page_is_told_by_its_kind() {
    let (good, _) = page(&mut Seed(5).rng());
    let broken = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = good.clone();
        change(&mut image);
        let heap = HeapPage::parse(&image).err();
        heap.or_else(|| HeapPage::parse(&image).unwrap().tuple(1).err())
    };
    assert!(matches!(HeapPage::parse(&[]), Err(Damage::Size { found: 0 })));
    assert!(matches!(broken(&|page| page.truncate(8191)), Some(Damage::Size { found: 8191 })));
    assert!(matches!(broken(&|page| page[12..14].fill(0xff)), Some(Damage::Header { .. })));
    assert!(matches!(broken(&|page| page[14..16].fill(0)), Some(Damage::Header { .. })));
    assert!(matches!(
        broken(&|page| page[16..18].copy_from_slice(&8176u16.to_le_bytes())),
        Some(Damage::Header { .. })
    ));
    let item = |offset: u32, length: u32| (offset | 1 << 15 | length << 17).to_le_bytes();
    assert!(matches!(
        broken(&|page| page[24..28].copy_from_slice(&item(8190, 30))),
        Some(Damage::Item { .. })
    ));
    assert!(matches!(broken(&|page| page[24..28].copy_from_slice(&item(4, 30))), Some(Damage::Item { .. })));
    assert!(matches!(
        broken(&|page| page[24..28].copy_from_slice(&item(8000, 20))),
        Some(Damage::Tuple { .. })
    ));
    let heap = HeapPage::parse(&good).unwrap();
    assert!(
        matches!(heap.tuple(0), Err(Damage::Item { .. }))
            && matches!(heap.tuple(9999), Err(Damage::Item { .. }))
    );
    assert_eq!(HeapPage::parse(&[0; 8192]).unwrap().item_count(), 0);
    let odd = [column("x", 0, 'i', "x"), column("x", -3, 'i', "x"), column("x", 4, 'é', "x")];
    for column in odd {
        assert!(matches!(Shape::of(&[column]), Err(Damage::Column { .. })));
    }
}

#[test]
fn a_value_that_is_cut_off_is_no_value() {
    let columns = [layout::Column {
        name: String::new(),
        length: None,
        alignment: Alignment::Int,
        is_packable: true,
        is_not_null: false,
        is_dropped: false,
    }];
    let mut tuple = Vec::new();
    write::tuple(&[&columns[0]], &[Some(&varlena::plain(&[7; 500], true))], &mut tuple);
    let shapes = Shape::of(&[column("b", -1, 'i', "text")]).unwrap();
    for cut in 23..tuple.len() {
        let found = Tuple::parse(&tuple[..cut]).and_then(|tuple| tuple.attributes(&shapes));
        assert!(found.is_err(), "{cut} of {} bytes", tuple.len());
    }
    assert!(Tuple::parse(&tuple).unwrap().attributes(&shapes).is_ok());
    for value in [&[][..], &[1], &[1, 1], &[1, 18, 0], &[2, 0, 0, 0], &[0xff, 0xff, 0xff, 0xff, 0], &[0; 4]] {
        assert_eq!((varlena::parse(value), varlena::raw(value, 1 << 20)), (None, None), "{value:?}");
    }
    // Promises a gigabyte.
    let mut bomb = vec![0; 16];
    bomb[..4].copy_from_slice(&(16u32 << 2 | 2).to_le_bytes());
    bomb[4..8].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    assert_eq!(varlena::raw(&bomb, 1 << 20), None);
}

/// A table whose sample has such a page, and lists that may not fit it.
pub fn table(rng: &mut Rng, image: Vec<u8>, rows: usize) -> Table {
    let columns = columns();
    let places = [
        Place::Null,
        Place::Inline,
        Place::Pglz,
        Place::Lz4,
        Place::External,
        Place::ExternalPglz,
        Place::Missing,
    ];
    let mut sampled = |column: &Column| SampledColumn {
        sizes: (0..rows).map(|_| rng.below(70_000) as u32).collect(),
        places: (0..rows).map(|_| *rng.pick(&places)).collect(),
        values: Some((0..rows).map(|row| rng.chance(80).then(|| format!("{}{row}", column.name))).collect()),
    };
    let sampled = columns.iter().map(&mut sampled).collect();
    Table {
        schema: "s".to_owned(),
        name: "t".to_owned(),
        bytes: ForkBytes { main: 8192 * (1 + rng.below(1000)) as u64, ..ForkBytes::default() },
        sample: Some(Sample {
            blocks: vec![3],
            rows: (0..rows).map(|row| RowPlace(3, row as u16 + 1)).collect(),
            columns: sampled,
            pages: vec![Page { block: 3, image }],
            ..Sample::default()
        }),
        columns,
        ..Table::default()
    }
}

#[test]
fn pages_with_changed_bytes_never_end_the_advice() {
    let seed = Seed::from_env_or_time();
    let mut rng = seed.rng();
    let shapes = Shape::of(&columns()).unwrap();
    for round in 0..400 {
        let (mut image, rows) = page(&mut rng);
        match round % 4 {
            0 => image = rng.bytes(8192),
            1 => (0..rng.between(1, 40)).for_each(|_| image[rng.below(200)] = rng.bits() as u8),
            2 => (0..rng.between(1, 400)).for_each(|_| image[rng.below(8192)] = rng.bits() as u8),
            _ => image.truncate(rng.below(8192)),
        }
        if let Ok(heap) = HeapPage::parse(&image) {
            for item in 0..=heap.item_count().saturating_add(1) {
                let Ok(Some(tuple)) = heap.tuple(item) else { continue };
                for attribute in tuple.attributes(&shapes).unwrap_or_default() {
                    if let Attribute::Stored(value) = attribute {
                        varlena::parse(value);
                        varlena::raw(value, 1 << 20);
                    }
                }
            }
        }
        if round % 8 < 4 {
            let table = table(&mut rng, image, rows.len());
            Compressed::of(&table).map(|compressed| compressed.now());
            rules::toast::candidates(&Server { version: 180_000, ..Server::default() }, &table);
            let snapshot = super::pages::snapshot(vec![table]);
            codecs::measure(&snapshot, &mut Budget::default(), &Means::default());
            codecs::backup::estimate(&snapshot, &mut Budget::default());
        }
    }
}

#[test]
fn a_budget_that_is_spent_ends_measuring_and_the_notes_say_so() {
    let mut rng = Seed(1).rng();
    let tables = (0..50).map(|n| {
        let (image, rows) = page(&mut rng);
        Table { name: format!("t{n}"), ..table(&mut rng, image, rows.len()) }
    });
    let snapshot = super::pages::snapshot(tables.collect());
    let mut budget =
        Budget { encodings: 100, copy_bytes_total: 0, document_bytes_total: 0, ..Budget::default() };
    let found = codecs::measure(&snapshot, &mut budget, &Means::default());
    assert!((1..20).contains(&found.relations.len()), "{}", found.relations.len());
    let left = format!("Not measured with codecs: {} relations, ", 50 - found.relations.len());
    assert!(found.notes[0].starts_with(&left) && !found.notes[0].contains("bytes"), "{:?}", found.notes);
    let all = codecs::measure(&snapshot, &mut Budget::default(), &Means::default());
    assert_eq!((all.relations.len(), all.notes.len()), (50, 0));
}
