//! Reports that are made up, with every field in use.

use pgshrink_advisor::finding::*;
use pgshrink_advisor::report::{Picture, SystemBytes};
use pgshrink_advisor::snapshot::Unseen;

/// Names that break what does not escape them.
pub const ODD: [&str; 9] = [
    "<script>alert('x')</script>",
    "\"quoted\" & 'single'",
    "line\nbreak\r--; DROP TABLE victim;",
    "right\u{202e}left עברית العربية",
    "emoji 😀👩‍👩‍👧 ünï 表テーブル",
    "sixty_three_bytes_long_name_that_nobody_should_have_but_some_do_",
    "esc\u{1b}[31mred\u{7}",
    "</pre></details><img src=x onerror=alert(1)>",
    "*/ $$ \\q :name ${x} {{y}}",
];

pub fn change(now: u64, after: u64) -> Change {
    Change { now, after }
}

pub fn object(kind: &str, name: &str, part: Option<&str>) -> Object {
    let schema = if kind == "setting" { "" } else { "public" };
    Object { kind: kind.into(), schema: schema.into(), name: name.into(), part: part.map(str::to_owned) }
}

pub fn finding(rule: Rule, object: Object, title: &str, disk: Change, in_proposal: bool) -> Finding {
    let rule_name = serde_json::to_value(rule).unwrap().as_str().unwrap().to_owned();
    let part = object.part.as_ref().map_or_else(String::new, |part| format!(".{part}"));
    let memory_after = disk.after.saturating_sub(disk.after / 50);
    Finding {
        id: format!("{rule_name}:{}.{}{part}", object.schema, object.name),
        rule,
        title: title.into(),
        reason: "Rows have 44 bytes of values and 12 of padding; 8 of them would go if columns of eight bytes came first. 30,000 \
                 sampled rows were laid out both ways, and put into pages one by one."
            .into(),
        bytes: Bytes {
            disk,
            compressed: Some(change(disk.now / 4, disk.after / 4)),
            memory: change(disk.now, memory_after),
        },
        confidence: Confidence::Measured,
        cost: "Writes the table and its indexes anew: 1.1 GB of WAL, and as much free space; ACCESS EXCLUSIVE for the swap.".into(),
        risks: vec!["INSERT and COPY without a list of columns put values into other columns.".into()],
        sql: vec![format!("ALTER TABLE public.{} CLUSTER ON orders_pkey;", "orders")],
        proof: None,
        in_proposal,
        object,
    }
}

fn part(kind: &str, column: &str, type_name: &str, offset: u32, bytes: u32) -> RowPart {
    RowPart { kind: kind.into(), column: column.into(), type_name: type_name.into(), offset, bytes }
}

/// A row of these parts, one behind the other.
fn row(parts: &[(&str, &str, &str, u32)]) -> Vec<RowPart> {
    let mut offset = 0;
    let place = |(kind, column, type_name, bytes): &(&str, &str, &str, u32)| {
        let part = part(kind, column, type_name, offset, *bytes);
        offset += bytes;
        part
    };
    parts.iter().map(place).collect()
}

fn orders_rows() -> (Vec<RowPart>, Vec<RowPart>) {
    let now = row(&[
        ("header", "", "", 23),
        ("bitmap", "", "", 2),
        ("padding", "", "", 7),
        ("dropped", "old_total", "", 0),
        ("value", "is_paid", "boolean", 1),
        ("padding", "", "", 7),
        ("value", "id", "bigint", 8),
        ("value", "status", "smallint", 2),
        ("padding", "", "", 6),
        ("value", "created_at", "timestamp with time zone", 8),
        ("value", "channel", "integer", 4),
        ("null", "deleted_at", "timestamp with time zone", 0),
        ("value", "external_id", "text", 37),
        ("value", "note", "text", 21),
        ("pointer", "document", "jsonb", 18),
        ("padding", "", "", 4),
    ]);
    let after = row(&[
        ("header", "", "", 23),
        ("bitmap", "", "", 1),
        ("value", "id", "bigint", 8),
        ("value", "created_at", "timestamp with time zone", 8),
        ("value", "external_id", "uuid", 16),
        ("value", "channel", "integer", 4),
        ("value", "status", "smallint", 2),
        ("value", "is_paid", "boolean", 1),
        ("null", "deleted_at", "timestamp with time zone", 0),
        ("value", "note", "text", 21),
        ("pointer", "document", "jsonb", 18),
        ("padding", "", "", 2),
    ]);
    (now, after)
}

fn wide_rows() -> (Vec<RowPart>, Vec<RowPart>) {
    let wide = row(&[
        ("header", "", "", 23),
        ("padding", "", "", 1),
        ("value", "seq", "bigint", 8),
        ("value", "payload", "bytea", 1700),
        ("value", "checksum", "bytea", 65),
        ("padding", "", "", 3),
    ]);
    let after = row(&[
        ("header", "", "", 23),
        ("padding", "", "", 1),
        ("value", "seq", "bigint", 8),
        ("value", "checksum", "bytea", 33),
        ("padding", "", "", 3),
        ("value", "payload", "bytea", 1700),
    ]);
    (wide, after)
}

pub fn table(name: &str, bytes: Change, rows: (Vec<RowPart>, Vec<RowPart>)) -> TableReport {
    let now = bytes.now;
    TableReport {
        object: object("table", name, None),
        bytes: Bytes { disk: bytes, compressed: Some(change(now / 4, bytes.after / 4)), memory: bytes },
        rows: now / 96,
        row_now: rows.0,
        row_after: rows.1,
        anatomy: Anatomy {
            data: now / 100 * 41,
            row_headers: now / 100 * 14,
            padding: now / 100 * 11,
            page_slack: now / 100,
            bloat: now / 100 * 7,
            toast: now / 100 * 12,
            indexes: now / 100 * 13,
            maps: now / 1000,
        },
    }
}

fn codecs(name: &str, bytes: u64, has_speeds: bool) -> RelationCodecs {
    // Per thousand of the bytes, MB/s in, MB/s out.
    let measured = [
        ("lz4:1", 412, 480.0, 1450.0),
        ("lz4:9", 371, 38.0, 1490.0),
        ("pglz", 448, 41.0, 310.0),
        ("snappy", 430, 350.0, 820.0),
        ("zlib:6", 290, 31.0, 260.0),
        ("lzfse", 301, 55.0, 400.0),
        ("zstd:1", 268, 260.0, 720.0),
        ("zstd:3", 251, 170.0, 690.0),
        ("zstd:9", 233, 42.0, 700.0),
        ("zstd:1, columns off", 341, 290.0, 760.0),
        ("zstd:3, columns off", 322, 180.0, 730.0),
    ];
    let figures = |scale: u64| -> Vec<CodecFigure> {
        let figure = |(codec, share, compress, decompress): &(&str, u64, f64, f64)| CodecFigure {
            codec: (*codec).into(),
            bytes: bytes / 1000 * share * scale / 100,
            compress_mb_s: has_speeds.then_some(*compress),
            decompress_mb_s: has_speeds.then_some(*decompress),
        };
        measured.iter().map(figure).collect()
    };
    RelationCodecs {
        object: object("table", name, None),
        bytes,
        pages: figures(100),
        is_estimate: name == "sessions",
        wire: figures(61)[..4].to_vec(),
        wire_bytes: bytes / 3,
        documents: vec![],
    }
}

fn egress() -> EgressSummary {
    let line = |day: &str, client: &str, bytes: u64| EgressLine {
        day: day.into(),
        client: client.into(),
        database: "shop".into(),
        bytes,
        compressed_bytes: bytes / 5,
        cpu_s: bytes as f64 / 4e8,
        ..EgressLine::default()
    };
    let lines = vec![
        line("2026-11-26", "10.0.3.17", 81_400_000_000),
        line("2026-11-25", "2001:db8:85a3::8a2e:370:7334", 40_100_000_000),
        line("2026-11-26", "10.0.3.22", 9_100_000_000),
    ];
    EgressSummary {
        days: 2,
        bytes: 130_600_000_000,
        compressed_bytes: 26_120_000_000,
        cpu_s: 326.5,
        lines,
        ..EgressSummary::default()
    }
}

fn setting() -> Finding {
    let mut setting = finding(
        Rule::Setting,
        object("setting", "wal_compression", None),
        "full pages are written to WAL uncompressed",
        change(0, 0),
        false,
    );
    setting.bytes = Bytes::default();
    setting.sql = vec!["ALTER SYSTEM SET wal_compression = 'lz4';".into(), "SELECT pg_reload_conf();".into()];
    setting.risks.clear();
    setting.confidence = Confidence::Exact;
    setting
}

fn findings() -> Vec<Finding> {
    let orders = || object("table", "orders", None);
    let column = |name: &str| object("column", "orders", Some(name));
    let mut retype = finding(
        Rule::ColumnType,
        column("external_id"),
        "text that is always a uuid",
        change(4_720_000_000, 4_010_000_000),
        true,
    );
    retype.proof = Some("SELECT count(*) FROM public.orders\nWHERE external_id !~ '^[0-9a-f]{8}-';".into());
    let mut index = finding(
        Rule::DuplicateIndex,
        object("index", "orders", Some("orders_customer_idx")),
        "orders_customer_created_idx begins with the same column",
        change(312_000_000, 0),
        false,
    );
    index.confidence = Confidence::Exact;
    index.sql = vec!["DROP INDEX CONCURRENTLY public.orders_customer_idx".into()];
    let mut costs = finding(
        Rule::Fillfactor,
        object("table", "sessions", None),
        "a fillfactor of 85 would keep updates in their page",
        change(96_000_000, 109_000_000),
        false,
    );
    costs.confidence = Confidence::Estimated;
    vec![
        finding(
            Rule::ColumnOrder,
            orders(),
            "20 bytes of padding in each row",
            change(4_720_000_000, 4_180_000_000),
            true,
        ),
        retype,
        finding(
            Rule::DroppedColumns,
            orders(),
            "a dropped column costs 8 bytes in each row",
            change(4_720_000_000, 4_330_000_000),
            true,
        ),
        index,
        costs,
        finding(
            Rule::Bloat,
            object("table", "events", None),
            "31 % of the table is free space",
            change(1_900_000_000, 1_320_000_000),
            true,
        ),
        finding(
            Rule::Zson,
            object("column", "events", Some("document")),
            "documents share their keys",
            change(1_900_000_000, 900_000_000),
            false,
        ),
        setting(),
    ]
}

fn tables() -> Vec<TableReport> {
    vec![
        table("orders", change(4_720_000_000, 3_370_000_000), orders_rows()),
        table("events", change(1_900_000_000, 1_320_000_000), wide_rows()),
        table("sessions", change(96_000_000, 96_000_000), orders_rows()),
        table("customers", change(41_000_000, 37_500_000), orders_rows()),
        table("currencies", change(73_728, 73_728), (vec![], vec![])),
    ]
}

fn measured() -> Vec<RelationCodecs> {
    let mut measured = vec![
        codecs("orders", 4_100_000_000, true),
        codecs("events", 1_700_000_000, true),
        codecs("sessions", 80_000_000, true),
    ];
    let documents = measured[1].pages.iter().take(3).map(|figure| CodecFigure {
        codec: format!("zson {}", figure.codec),
        bytes: figure.bytes / 2,
        ..figure.clone()
    });
    measured[1].documents = vec![DocumentFigure {
        column: "document".into(),
        documents: 12_400,
        bytes: 1_500_000_000,
        codecs: documents.collect(),
        table: Some(change(1_900_000_000, 900_000_000)),
    }];
    measured
}

/// Every field, in a database of five tables.
pub fn everything() -> Report {
    Report {
        format: REPORT_FORMAT,
        database: "shop".into(),
        server_version: 150_018,
        taken_s: 1_795_774_800,
        total: Total {
            bytes: Bytes {
                disk: change(6_757_073_728, 4_511_573_728),
                compressed: Some(change(1_811_000_000, 1_390_000_000)),
                memory: change(6_757_073_728, 4_511_573_728),
            },
        },
        findings: findings(),
        proposals: proposals(),
        codecs: measured(),
        backup: Some(BackupEstimate {
            bytes: 7_100_000_000,
            tar_bytes: 2_020_000_000,
            archive_bytes: 1_310_000_000,
        }),
        egress: Some(egress()),
        prices: Some(Prices {
            storage_gb_month: Some(0.115),
            egress_gb: Some(0.09),
            backup_gb_month: Some(0.023),
            storage_saved_month: Some(0.26),
            cfs_saved_month: Some(0.36),
            egress_saved_month: Some(141.05),
            backup_saved_month: Some(0.0163),
        }),
        tables: tables(),
        unseen: vec![
            Unseen {
                what: "public.secrets".into(),
                why: "permission denied for table secrets".into(),
                remedy: "GRANT SELECT ON public.secrets TO reader".into(),
            },
            Unseen {
                what: "raw pages".into(),
                why: "the extension pageinspect is not installed".into(),
                remedy: String::new(),
            },
        ],
        notes: vec!["14 tables below 1.0 MB were not looked at: 3.1 MB in all.".into()],
    }
}

fn proposals() -> Vec<Proposal> {
    let step = |title: &str, statement: &str, lock: &str| Step {
        title: title.into(),
        statements: vec![statement.into()],
        lock: lock.into(),
    };
    let bytes = |now, after| Bytes {
        disk: change(now, after),
        compressed: Some(change(now / 4, after / 4)),
        memory: change(now, after),
    };
    vec![
        Proposal {
            object: object("table", "orders", None),
            findings: vec![
                "column_order:public.orders".into(),
                "column_type:public.orders.external_id".into(),
                "dropped_columns:public.orders".into(),
            ],
            bytes: bytes(4_720_000_000, 3_370_000_000),
            bloat_bytes: 120_000_000,
            sql: vec![
                step(
                    "A table in the new order of columns",
                    "CREATE TABLE public.orders_new (\n    id bigint NOT NULL,\n    created_at timestamptz NOT NULL\n);",
                    "",
                ),
                step(
                    "Rows that change from now on",
                    "CREATE TRIGGER follow AFTER INSERT OR UPDATE OR DELETE ON public.orders\n    FOR EACH ROW EXECUTE FUNCTION public.orders_follow();",
                    "SHARE ROW EXCLUSIVE on public.orders, for an instant",
                ),
                step(
                    "The swap",
                    "BEGIN; LOCK public.orders; ALTER TABLE public.orders RENAME TO orders_old; COMMIT;",
                    "ACCESS EXCLUSIVE on public.orders, for an instant",
                ),
            ],
            warnings: vec![
                "The view public.order_totals is bound to the old table, and is made anew.".into(),
            ],
            online: None,
        },
        Proposal {
            object: object("table", "events", None),
            findings: vec!["bloat:public.events".into()],
            bytes: bytes(1_900_000_000, 1_320_000_000),
            bloat_bytes: 580_000_000,
            sql: vec![step(
                "Writes the table anew",
                "VACUUM (FULL, ANALYZE) public.events;",
                "ACCESS EXCLUSIVE on public.events, for its duration",
            )],
            warnings: vec![],
            online: None,
        },
    ]
}

/// A database with nothing in it.
pub fn empty() -> Report {
    Report {
        format: REPORT_FORMAT,
        database: "postgres".into(),
        server_version: 180_001,
        taken_s: 1_795_774_800,
        ..Report::default()
    }
}

/// One table, one finding, nothing measured.
pub fn small() -> Report {
    let bytes = change(12_345_344, 11_010_048);
    Report {
        total: Total { bytes: Bytes { disk: bytes, compressed: None, memory: bytes } },
        findings: vec![finding(
            Rule::ColumnOrder,
            object("table", "t", None),
            "8 bytes of padding in each row",
            bytes,
            true,
        )],
        tables: vec![table("t", bytes, orders_rows())],
        codecs: vec![codecs("t", 12_345_344, false)],
        ..empty()
    }
}

/// Hundreds of tables with names that nobody should have.
pub fn odd(tables: usize) -> Report {
    let mut report = everything();
    report.database = ODD[2].into();
    for number in 0..tables {
        let odd = ODD[number % ODD.len()];
        let name = if number < ODD.len() { odd.to_owned() } else { format!("{number} {odd}") };
        let size = 90_000_000_000 / (number as u64 + 1);
        let bytes = change(size, size / 100 * 83);
        let place =
            |kind: &str, part: Option<&str>| Object { schema: odd.into(), ..object(kind, &name, part) };
        report
            .tables
            .push(TableReport { object: place("table", None), ..table(&name, bytes, orders_rows()) });
        let mut found = finding(Rule::ColumnOrder, place("column", Some(odd)), odd, bytes, number % 2 == 0);
        found.reason = odd.into();
        found.cost = odd.into();
        found.risks = vec![odd.into()];
        found.sql = vec![format!("SELECT '{}';", odd.replace('\'', "''"))];
        found.proof = Some(format!("SELECT 0 AS \"{}\"", odd.replace('"', "\"\"")));
        if number % 2 == 0 {
            report.proposals.push(Proposal {
                object: place("table", None),
                findings: vec![found.id.clone()],
                bytes: found.bytes,
                bloat_bytes: 0,
                sql: vec![Step { title: odd.into(), statements: found.sql.clone(), lock: odd.into() }],
                warnings: vec![odd.into()],
                online: None,
            });
        }
        report.findings.push(found);
        report.codecs.push(RelationCodecs { object: place("table", None), ..codecs(&name, size, true) });
        report.unseen.push(Unseen { what: odd.into(), why: odd.into(), remedy: odd.into() });
        report.notes.push(odd.into());
    }
    report.tables.sort_by_key(|table| std::cmp::Reverse(table.bytes.disk.now));
    report
}

/// What a demo measured.
pub fn picture() -> Picture {
    let system = |name: &str, before, after, note: &str| SystemBytes {
        name: name.into(),
        before,
        after,
        note: note.into(),
    };
    Picture {
        systems: vec![
            system("wire", 571_500_000, 125_600_000, "COPY, JSON results, a base backup"),
            system("zson", 68_600_000, 11_200_000, "documents of a package index"),
            system("cfs", 135_900_000, 33_400_000, "tables and indexes, zstd:1"),
            system("backup", 164_500_000, 21_100_000, "the whole cluster"),
            system("advisor", 98_100_000, 71_300_000, "tables, laid out as advised"),
        ],
    }
}
