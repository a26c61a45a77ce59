//! Which statement comes next.

use pgshrink_testkit::Rng;

use super::link::Link;

/// Sessions, and so many owners of tables where they run at the same time.
pub const SESSIONS: usize = 3;

const ALGORITHMS: [&str; 9] =
    ["zstd:1", "zstd:9", "lz4", "pglz", "none", "zlib:1", "snappy", "default", "zstd:3"];

/// The relations that a session may use, as the twin knows them now.
#[derive(Debug, Default)]
pub struct Relations {
    pub tables: Vec<String>,
    partitioned: Vec<String>,
    views: Vec<String>,
    indexes: Vec<String>,
    /// Only relations of this session, where others run beside it.
    owner: Option<usize>,
}

impl Relations {
    pub fn of(twin: &mut Link, owner: Option<usize>) -> Relations {
        let said = twin
            .ask(
                "select relname, relkind from pg_class where relnamespace = 'public'::regnamespace
                and relname ~ '^[tupm][0-9]' order by 1",
            )
            .expect("the twin server has gone");
        let mut found = Relations { owner, ..Relations::default() };
        for line in said.rows.lines() {
            let Some((name, kind)) = line.split_once('|') else { continue };
            let number = usize::from(name.as_bytes()[1] - b'0');
            if owner.is_some_and(|owner| number % SESSIONS != owner) {
                continue;
            }
            match kind {
                "r" => found.tables.push(name.to_owned()),
                "p" => found.partitioned.push(name.to_owned()),
                "m" => found.views.push(name.to_owned()),
                _ => found.indexes.push(name.to_owned()),
            }
        }
        found
    }

    /// What can be converted.
    pub fn convertible(self) -> Vec<String> {
        [self.tables, self.partitioned, self.views].concat()
    }

    /// A table, rarely one that is not there.
    fn table(&self, rng: &mut Rng) -> String {
        let all = self.tables.len() + self.partitioned.len();
        if all == 0 || rng.chance(1) {
            return self.name(rng, "t", 6);
        }
        let chosen = rng.below(all);
        self.tables.get(chosen).unwrap_or_else(|| &self.partitioned[chosen - self.tables.len()]).clone()
    }

    fn index(&self, rng: &mut Rng) -> String {
        if self.indexes.is_empty() { "t0_0".to_owned() } else { rng.pick(&self.indexes).clone() }
    }

    fn view(&self, rng: &mut Rng) -> String {
        if self.views.is_empty() { self.name(rng, "m", 3) } else { rng.pick(&self.views).clone() }
    }

    fn name(&self, rng: &mut Rng, kind: &str, among: usize) -> String {
        let number = rng.below(among);
        let number = self.owner.map_or(number, |owner| number / SESSIONS * SESSIONS + owner);
        format!("{kind}{number}")
    }
}

/// A statement for the middle of a transaction.
pub fn within(rng: &mut Rng, relations: &Relations) -> String {
    if relations.tables.len() < 3 && rng.chance(60) {
        return create_table(rng, relations);
    }
    let table = relations.table(rng);
    match rng.below(100) {
        0..26 => insert(rng, &table),
        26..38 => update(rng, &table),
        38..45 => delete(rng, &table),
        45..58 => read(rng, &table),
        58..64 => create_table(rng, relations),
        64..74 => index(rng, relations),
        74..78 => view(rng, relations),
        78..82 => remove(rng, relations),
        _ => alter(rng, relations),
    }
}

fn space(rng: &mut Rng) -> &'static str {
    if rng.chance(80) { "fast" } else { "pg_default" }
}

fn create_table(rng: &mut Rng, relations: &Relations) -> String {
    let columns = "id bigint, k int, w text, d text";
    let with = ["", " with (fillfactor = 70)", " with (toast_tuple_target = 256)"];
    let with = *rng.pick(&with);
    match rng.below(10) {
        0..5 => {
            let key = if rng.chance(50) { " primary key using index tablespace fast" } else { "" };
            let name = relations.name(rng, "t", 6);
            format!(
                "create table {name} (id bigint{key}, k int, w text, d text){with} tablespace {}",
                space(rng)
            )
        }
        5 => {
            let (name, from) = (relations.name(rng, "t", 6), relations.table(rng));
            format!("create table {name}{with} tablespace fast as select id, k, w, d from {from}")
        }
        6 | 7 => {
            let name = relations.name(rng, "u", 3);
            format!("create unlogged table {name} ({columns}){with} tablespace fast")
        }
        8 => {
            let name = relations.name(rng, "p", 3);
            format!("create table {name} ({columns}) partition by hash (id) tablespace fast")
        }
        _ => {
            let (name, part) = (relations.name(rng, "p", 3), rng.below(2));
            format!(
                "create table {name}_9{part} partition of {name} for values with (modulus 2, remainder {part}) tablespace {}",
                space(rng)
            )
        }
    }
}

/// A table of a session's own, in the order of its rows.
pub fn ordered_copy(rng: &mut Rng, relations: &Relations, session: usize) -> (String, String) {
    let (name, from) = (format!("s{session}"), relations.table(rng));
    let sql = format!(
        "create table {name} tablespace fast as select id, k, w, d from {from} order by id, k::text, w, d"
    );
    (name, sql)
}

/// Nothing, what compresses, what does not, and what does not even after a change of its own.
fn document(rng: &mut Rng) -> String {
    match rng.below(6) {
        0 | 1 => "null".to_owned(),
        2 => format!("repeat(md5(i::text), {})", rng.between(1, 300)),
        3 => format!(
            "(select string_agg(md5((i * 31 + j)::text), '') from generate_series(1, {}) j)",
            rng.between(1, 120)
        ),
        4 => format!("repeat(' ', {}) || md5(i::text)", rng.between(1, 500)),
        _ => format!("repeat('{} ' || i % 10, {})", rng.below(1000), rng.between(1, 40)),
    }
}

fn insert(rng: &mut Rng, table: &str) -> String {
    let first = rng.below(60_000);
    let rows = *rng.pick(&[1, 5, 50, 300, 1000, 3000, 9000]);
    let last = first + rng.between(1, rows) - 1;
    if rng.chance(15) {
        return format!("copy {table} (id, k, w, d) from '@@' where id between {first} and {last}");
    }
    let document = document(rng);
    // With long documents, fewer.
    let last = if document == "null" { last } else { last.min(first + 400) };
    let conflict = if rng.chance(80) { " on conflict do nothing" } else { "" };
    let returning = if rng.chance(10) { " returning id, w, md5(d)" } else { "" };
    let word = *rng.pick(&["'word ' || i % 1000", "md5(i::text)", "'w'"]);
    format!(
        "insert into {table} (id, k, w, d) select i, i % 97, {word}, {document} from generate_series({first}, {last}) i{conflict}{returning}"
    )
}

/// A condition that chooses the same rows wherever they lie.
fn some(rng: &mut Rng) -> String {
    let divisor = *rng.pick(&[2, 7, 50, 1000]);
    match rng.below(4) {
        0 => format!("id % {divisor} = {}", rng.below(divisor)),
        1 => format!("w = 'word {}'", rng.below(1000)),
        _ => {
            let first = rng.below(60_000);
            format!("id between {first} and {}", first + rng.below(3000))
        }
    }
}

fn update(rng: &mut Rng, table: &str) -> String {
    let which = some(rng);
    let change = match rng.below(6) {
        0 => "k = k + 1".to_owned(),
        1 => "w = w || 'x'".to_owned(),
        2 => format!(
            "d = {}",
            document(rng).replace("i::", "id::").replace("i *", "id *").replace("i %", "id %")
        ),
        3 => "id = -id".to_owned(),
        4 => "w = w".to_owned(),
        _ => "d = left(md5(d) || d, 5000)".to_owned(),
    };
    format!("update {table} set {change} where {which}")
}

fn delete(rng: &mut Rng, table: &str) -> String {
    format!("delete from {table} where {}", some(rng))
}

fn read(rng: &mut Rng, table: &str) -> String {
    let which = some(rng);
    match rng.below(6) {
        0 => format!("select k, count(*), sum(length(d)), min(w) from {table} group by k order by k::text"),
        1 => format!("copy (select t from {table} t where {which} order by t::text limit 50) to stdout"),
        2 => format!("select count(*), sum(hashtextextended(t::text, 0)) from {table} t where {which}"),
        3 => format!("select id, w, md5(d) from {table} where {which} order by id, w, d limit 20 for update"),
        4 => "set local enable_seqscan = off".to_owned(),
        _ => format!("select id, k, w, md5(d) from {table} where {which} order by 1, 2, 3, 4 limit 20"),
    }
}

pub fn index_on(rng: &mut Rng, table: &str, concurrently: &str) -> String {
    let number = rng.below(4);
    let what = *rng.pick(&[
        "(id)",
        "(w, id)",
        "(k)",
        "(md5(d))",
        "using hash (w)",
        "using brin (id)",
        "using spgist (w)",
        "using gin (to_tsvector('simple', w))",
    ]);
    let unique = if what == "(id)" && rng.chance(40) { "unique " } else { "" };
    let name = format!("{table}_{number}");
    format!("create {unique}index {concurrently}{name} on {table} {what} tablespace {}", space(rng))
}

fn index(rng: &mut Rng, relations: &Relations) -> String {
    match rng.below(8) {
        0..4 => {
            let table = relations.table(rng);
            index_on(rng, &table, "")
        }
        4 => format!("drop index {}", relations.index(rng)),
        5 => format!("alter index {} set tablespace {}", relations.index(rng), space(rng)),
        6 => format!("reindex table {}", relations.table(rng)),
        _ => format!("reindex index {}", relations.index(rng)),
    }
}

fn view(rng: &mut Rng, relations: &Relations) -> String {
    let name = relations.view(rng);
    match rng.below(7) {
        0..3 => {
            let (name, table) = (relations.name(rng, "m", 3), relations.table(rng));
            format!(
                "create materialized view {name} tablespace fast as select id, w, max(d) as d from {table} group by 1, 2"
            )
        }
        3 | 4 => format!("refresh materialized view {name}"),
        5 => format!("alter materialized view {name} set tablespace {}", space(rng)),
        _ => format!("drop materialized view {name}"),
    }
}

fn remove(rng: &mut Rng, relations: &Relations) -> String {
    let table = relations.table(rng);
    match rng.below(4) {
        0 => format!("drop table {table}"),
        1 => format!("drop table {table} cascade"),
        _ => format!("truncate {table}"),
    }
}

fn alter(rng: &mut Rng, relations: &Relations) -> String {
    let table = relations.table(rng);
    let column = format!("x{}", rng.below(3));
    let change = match rng.below(15) {
        0..3 => return moved(rng, &table),
        3 => "set unlogged".to_owned(),
        4 => "set logged".to_owned(),
        5 => format!("add column {column} int default 7"),
        6 => format!("add column {column} text generated always as (left(w, 3) || 'g') stored"),
        7 => format!("drop column {column}"),
        8 => format!("alter column k type {} using k::numeric::int", rng.pick(&["bigint", "numeric", "int"])),
        9 => "alter column w type varchar(200)".to_owned(),
        10 => format!("alter column d set storage {}", rng.pick(&["external", "extended", "main", "plain"])),
        11 => format!("set (fillfactor = {})", rng.between(3, 10) * 10),
        12 => format!("alter column id type {}", rng.pick(&["numeric", "bigint"])),
        13 => return format!("cluster {table} using {}", relations.index(rng)),
        _ => return temporary(rng, &table),
    };
    format!("alter table {table} {change}")
}

/// With its indexes made anew. PostgreSQL 15.20 and 18.4, without any library: rows that are inserted after the move leave
/// entries in the indexes if the transaction is rolled back, for rows of a file that is gone. They lead to other rows later, or
/// to pages that there are not.
fn moved(rng: &mut Rng, table: &str) -> String {
    format!("alter table {table} set tablespace {}; reindex table {table}", space(rng))
}

fn temporary(rng: &mut Rng, table: &str) -> String {
    format!(
        "create temporary table w{} on commit drop as select w, count(*) from {table} group by w",
        rng.below(9)
    )
}

/// A setting of the tablespace, and what the twin does in its place.
pub fn compression(rng: &mut Rng) -> (String, &'static str) {
    let ours = if rng.chance(15) {
        "alter tablespace fast reset (compression, encryption)".to_owned()
    } else {
        let algorithm = *rng.pick(&ALGORITHMS);
        let rest = if algorithm == "none" { ", encryption = off" } else { "" };
        format!("alter tablespace fast set (compression = '{algorithm}'{rest})")
    };
    (ours, "alter tablespace fast set (random_page_cost = 4)")
}

/// A statement that cannot be in a transaction, or is about files more than about rows.
pub fn upkeep(rng: &mut Rng, relations: &Relations) -> String {
    let table = relations.table(rng);
    match rng.below(12) {
        0..3 => format!("vacuum {table}"),
        3 => format!("vacuum (freeze, index_cleanup on) {table}"),
        4 | 5 => format!("vacuum full {table}"),
        6 => format!("cluster {table} using {}", relations.index(rng)),
        7..10 => "checkpoint".to_owned(),
        10 => format!("reindex table {table}"),
        _ => format!("analyze {table}"),
    }
}

/// As [`upkeep`], what waits for all other transactions.
pub fn concurrently(rng: &mut Rng, relations: &Relations) -> String {
    let table = relations.table(rng);
    match rng.below(6) {
        0..2 => index_on(rng, &table, "concurrently "),
        2 => format!("reindex table concurrently {table}"),
        3 => format!("drop index concurrently {}", relations.index(rng)),
        4 => format!("reindex (concurrently, tablespace {}) index {}", space(rng), relations.index(rng)),
        _ => format!("reindex index concurrently {}", relations.index(rng)),
    }
}
