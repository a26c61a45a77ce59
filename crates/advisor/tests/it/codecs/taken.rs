//! A table of a snapshot, taken from a server by the tests themselves.

use std::fs;

use pgshrink_advisor::heap_page::{Attribute, HeapPage, PageBytes, Shape};
use pgshrink_advisor::snapshot::sample::{
    Page, Place, RelationPages, RowPlace, SampledColumn, VALUE_BYTES_MAX,
};
use pgshrink_advisor::snapshot::{Column, ForkBytes, Index, Sample, Table, Toast};
use pgshrink_testkit::{Cluster, Rng};

/// All pages of a relation, from its file. The server must have written them: CHECKPOINT.
pub fn file(cluster: &Cluster, relation: &str) -> Vec<Box<PageBytes>> {
    let path = cluster.sql(&format!("select pg_relation_filepath({relation})")).unwrap();
    let bytes = fs::read(cluster.data_dir().join(path.trim())).unwrap();
    bytes.as_chunks().0.iter().map(|page| Box::new(*page)).collect()
}

/// About so many per cent of the numbers below `count`, but at least `least`: one at random of each stretch.
pub fn blocks(rng: &mut Rng, count: usize, percent: usize, least: usize) -> Vec<u32> {
    let wanted = (count * percent / 100).max(least).min(count);
    let one = |index: usize| {
        let (from, to) = (index * count / wanted, (index + 1) * count / wanted);
        (from + rng.below(to - from)) as u32
    };
    (0..wanted).map(one).collect()
}

fn images(pages: &[Box<PageBytes>], blocks: &[u32]) -> Vec<Page> {
    let page = |block: &u32| Page { block: *block, image: pages[*block as usize].to_vec() };
    blocks.iter().map(page).collect()
}

/// How a table is to be taken.
pub struct Taking<'t> {
    pub table: &'t str,
    pub percent: usize,
    pub least: usize,
    pub has_pages: bool,
}

/// A table with a sample of its blocks.
pub fn table(cluster: &Cluster, rng: &mut Rng, how: &Taking<'_>) -> Table {
    cluster.sql("checkpoint").unwrap();
    let name = how.table;
    let number = |sql: &str| cluster.sql(sql).unwrap().trim().parse::<u64>().unwrap();
    let oid = number(&format!("select '{name}'::regclass::oid"));
    let pages = file(cluster, &format!("'{name}'"));
    let chosen = blocks(rng, pages.len(), how.percent, how.least);
    let columns = columns(cluster, name);
    let (rows, sampled) = rows(cluster, name, &columns, &chosen, &pages);
    let mut other_pages = Vec::new();
    let mut other = |oid: u64| {
        let pages = file(cluster, &oid.to_string());
        let chosen = blocks(rng, pages.len(), how.percent, how.least);
        let (oid, page_count) = (oid as u32, pages.len() as u32);
        if how.has_pages {
            other_pages.push(RelationPages { oid, page_count, pages: images(&pages, &chosen) });
        }
        pages.len() as u64 * 8192
    };
    let toast = number(&format!("select reltoastrelid from pg_class where oid = {oid}"));
    let toast = (toast != 0).then(|| Toast {
        oid: toast as u32,
        bytes: ForkBytes { main: other(toast), ..ForkBytes::default() },
        index_bytes: number(&format!("select pg_indexes_size({toast})")),
    });
    let list =
        cluster.sql(&format!("select indexrelid, indexrelid::regclass from pg_index where indrelid = {oid}"));
    let index = |line: &str| {
        let (oid, name) = line.split_once('|').unwrap();
        let oid: u64 = oid.parse().unwrap();
        Index { oid: oid as u32, name: name.to_owned(), bytes: other(oid), ..Index::default() }
    };
    let indexes: Vec<Index> = list.unwrap().lines().map(index).collect();
    Table {
        oid: oid as u32,
        schema: "public".to_owned(),
        name: name.to_owned(),
        access_method: "heap".to_owned(),
        bytes: ForkBytes { main: pages.len() as u64 * 8192, ..ForkBytes::default() },
        toast,
        columns,
        indexes,
        sample: Some(Sample {
            is_whole: chosen.len() == pages.len(),
            pages: if how.has_pages { images(&pages, &chosen) } else { Vec::new() },
            blocks: chosen,
            rows,
            columns: sampled,
            training_pages: Vec::new(),
            other_pages,
        }),
        ..Table::default()
    }
}

fn columns(cluster: &Cluster, table: &str) -> Vec<Column> {
    let sql = format!(
        "select attname, format_type(atttypid, atttypmod), coalesce(typname, ''), coalesce(typtype, 'b'), attlen, attalign, attstorage,
            attcompression, attnotnull, attisdropped, attgenerated, atthasmissing, atttypmod
         from pg_attribute left join pg_type t on t.oid = atttypid where attrelid = '{table}'::regclass and attnum > 0 order by attnum"
    );
    let letter = |text: &str| text.chars().next().unwrap_or(' ');
    let column = |line: &str| {
        let fields: Vec<&str> = line.split('|').collect();
        Column {
            name: fields[0].to_owned(),
            type_name: fields[1].to_owned(),
            type_id: fields[2].to_owned(),
            base_type_id: fields[2].to_owned(),
            type_kind: letter(fields[3]),
            length: fields[4].parse().unwrap(),
            alignment: letter(fields[5]),
            storage: letter(fields[6]),
            compression: letter(fields[7]),
            is_not_null: fields[8] == "t",
            is_dropped: fields[9] == "t",
            generated: letter(fields[10]),
            identity: ' ',
            has_missing: fields[11] == "t",
            type_modifier: fields[12].parse().unwrap(),
            ..Column::default()
        }
    };
    cluster.sql(&sql).unwrap().lines().map(column).collect()
}

/// Live rows of these blocks, with their values.
fn rows(
    cluster: &Cluster,
    table: &str,
    columns: &[Column],
    blocks: &[u32],
    pages: &[Box<PageBytes>],
) -> (Vec<RowPlace>, Vec<SampledColumn>) {
    let list = blocks.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let live: Vec<&Column> = columns.iter().filter(|column| !column.is_dropped).collect();
    let value = |column: &&Column| {
        let name = format!("\"{}\"", column.name);
        let compression =
            if column.length == -1 { format!("pg_column_compression({name})") } else { "null".to_owned() };
        format!(
            "case when pg_column_size({name}) <= {VALUE_BYTES_MAX} then {name}::text end, pg_column_size({name}), {compression}"
        )
    };
    let values = live.iter().map(value).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "set datestyle = iso; set extra_float_digits = 1; copy (select ctid, {values} from \"{table}\" where ctid = any(array(
            select format('(%s,%s)', b, i)::tid from unnest('{{{list}}}'::int[]) b, generate_series(1, 291) i)) order by ctid) to stdout"
    );
    let text = cluster.psql().arg("-q").arg("-c").arg(sql).run().unwrap();
    let shapes = Shape::of(columns).unwrap();
    let mut places = Vec::new();
    let mut sampled: Vec<SampledColumn> = columns
        .iter()
        .map(|column| SampledColumn {
            values: if column.is_dropped { None } else { Some(Vec::new()) },
            ..SampledColumn::default()
        })
        .collect();
    for line in text.lines() {
        let fields: Vec<Option<String>> = line.split('\t').map(unescaped).collect();
        let ctid = fields[0].clone().unwrap();
        let (block, item) = ctid.trim_matches(['(', ')']).split_once(',').unwrap();
        let place = RowPlace(block.parse().unwrap(), item.parse().unwrap());
        let page = HeapPage::parse(&pages[place.0 as usize][..]).unwrap();
        let tuple = page.tuple(place.1).unwrap().unwrap();
        let attributes = tuple.attributes(&shapes).unwrap();
        let mut fields = fields[1..].chunks(3);
        for (index, column) in columns.iter().enumerate() {
            if column.is_dropped {
                continue;
            }
            let [text, size, compression] = fields.next().unwrap() else { panic!("three fields") };
            let of = &mut sampled[index];
            of.sizes.push(size.as_ref().map_or(0, |size| size.parse().unwrap()));
            of.places.push(stored_at(attributes[index], size.is_none(), compression.as_deref()));
            of.values.as_mut().unwrap().push(text.clone());
        }
        places.push(place);
    }
    (places, sampled)
}

fn stored_at(attribute: Attribute<'_>, is_null: bool, compression: Option<&str>) -> Place {
    match (attribute, compression) {
        _ if is_null => Place::Null,
        (Attribute::Absent, _) => Place::Missing,
        (Attribute::Stored([1, ..]), Some("pglz")) => Place::ExternalPglz,
        (Attribute::Stored([1, ..]), Some("lz4")) => Place::ExternalLz4,
        (Attribute::Stored([1, 18, ..]), None) => Place::External,
        (_, Some("pglz")) => Place::Pglz,
        (_, Some("lz4")) => Place::Lz4,
        _ => Place::Inline,
    }
}

/// A field of COPY text. None: NULL.
pub fn unescaped(field: &str) -> Option<String> {
    if field == "\\N" {
        return None;
    }
    let mut out = String::new();
    let mut letters = field.chars();
    while let Some(letter) = letters.next() {
        out.push(match letter {
            '\\' => match letters.next().unwrap() {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'v' => '\u{b}',
                other => other,
            },
            other => other,
        });
    }
    Some(out)
}
