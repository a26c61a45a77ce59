//! The option `compression` of CREATE and ALTER TABLESPACE.

use super::{files, labels, on_each_major, setting, sql};
use crate::databases::failure;

#[test]
fn every_algorithm_level_and_word_is_accepted_and_in_force() {
    on_each_major("options of tablespaces", |cluster| {
        sql(cluster, "create extension cfs");
        let given = [
            ("compression = true", "zstd:1"),
            ("compression", "zstd:1"),
            ("compression = 'on'", "zstd:1"),
            ("compression = default", "zstd:1"),
            ("compression = zstd", "zstd:1"),
            ("compression = 'ZSTD:9'", "zstd:9"),
            ("compression = 'zstd:-5'", "zstd:-5"),
            ("compression = 'lz4'", "lz4:1"),
            ("compression = 'zlib:9', seq_page_cost = 2", "zlib:9"),
            ("compression = pglz", "pglz"),
            ("compression = snappy", "snappy"),
            ("compression = lzfse", "lzfse"),
            ("compression = none", "none"),
            ("compression = off", "none"),
            ("compression = false", "none"),
        ];
        sql(cluster, "create tablespace altered location ''");
        for (index, (option, expected)) in given.iter().enumerate() {
            sql(cluster, &format!("create tablespace t{index} location '' with ({option})"));
            assert_eq!(setting(cluster, &format!("t{index}")), format!("compression={expected}"), "{option}");
            sql(cluster, &format!("alter tablespace altered set ({option})"));
            assert_eq!(setting(cluster, "altered"), format!("compression={expected}"), "{option}");
        }
        let unequal = "select count(*) from cfs_tablespaces where compression is distinct from in_force";
        assert_eq!(sql(cluster, unequal), "0");
        assert_eq!(sql(cluster, "select count(*) from cfs_tablespaces"), (given.len() + 1).to_string());
        // The rest of the list is the server's.
        let kept = "select spcoptions from pg_tablespace where spcname = 't8'";
        assert_eq!(sql(cluster, kept), "{seq_page_cost=2}");
        sql(
            cluster,
            "alter tablespace t8 set (compression = lz4); alter tablespace t8 reset (seq_page_cost, compression)",
        );
        assert_eq!(setting(cluster, "t8"), "compression=none");
        assert_eq!(sql(cluster, kept), "");
    });
}

#[test]
fn what_is_refused_names_what_is_allowed_and_leaves_nothing_behind() {
    on_each_major("refused options", |cluster| {
        sql(cluster, "create tablespace t location ''");
        let refused = [
            ("compression = gzip", "22023", "invalid value for \"compression\": \"gzip\"", "pglz, lz4, zlib"),
            ("compression = ''", "22023", "invalid value for \"compression\": \"\"", "true, default, none"),
            ("compression = 1", "22023", "invalid value for \"compression\": \"1\"", "zstd"),
            ("compression = 'zstd:99'", "22023", "invalid level", "Levels of zstd are"),
            ("compression = 'pglz:1'", "22023", "invalid level", "pglz has no levels"),
            ("encryption = on", "55000", "the server has no key", "openssl rand -hex 32"),
            ("compression = lz4, compression = zstd", "42601", "specified more than once", ""),
            ("compression = lz4, unknown = 1", "22023", "unrecognized parameter \"unknown\"", ""),
        ];
        for (option, sqlstate, message, hint) in refused {
            for statement in ["create tablespace no location '' with", "alter tablespace t set"] {
                let said = failure(cluster.psql(), sqlstate, &format!("{statement} ({option})"));
                assert!(said.contains(message), "{statement} ({option}): {said}");
                assert!(said.contains(hint), "{statement} ({option}): {said}");
            }
        }
        failure(cluster.psql(), "42601", "alter tablespace t reset (compression = lz4)");
        failure(cluster.psql(), "42704", "alter tablespace absent set (compression = lz4)");
        failure(cluster.psql(), "25001", "begin; create tablespace no location '' with (compression = lz4)");
        failure(cluster.psql(), "42710", "create tablespace t location '' with (compression = lz4)");
        assert!(labels(cluster).is_empty());
        assert!(files(cluster).is_empty());
    });
}

#[test]
fn only_the_owner_changes_a_setting() {
    on_each_major("permissions", |cluster| {
        sql(cluster, "create role mine login; create role other login");
        sql(cluster, "create tablespace t owner mine location '' with (compression = lz4)");
        sql(cluster, "grant create on tablespace t to other");
        for statement in [
            "alter tablespace t set (compression = zstd)",
            "security label for cfs on tablespace t is 'compression=none'",
            "drop tablespace t",
        ] {
            failure(cluster.psql().user("other"), "42501", statement);
        }
        assert_eq!(setting(cluster, "t"), "compression=lz4:1");
        cluster.psql().user("mine").sql("alter tablespace t set (compression = zstd)").unwrap();
        assert_eq!(setting(cluster, "t"), "compression=zstd:1");
    });
}

#[test]
fn a_label_has_the_effect_of_the_option_and_stands_on_nothing_else() {
    on_each_major("security labels", |cluster| {
        sql(cluster, "create tablespace t location ''; create table r ()");
        sql(cluster, "security label for cfs on tablespace t is 'compression=zstd:3'");
        assert_eq!(setting(cluster, "t"), "compression=zstd:3");
        for (sqlstate, statement) in [
            ("22023", "security label for cfs on tablespace t is 'secret'"),
            ("22023", "security label for cfs on tablespace t is 'compression=gzip'"),
            ("42809", "security label for cfs on schema public is 'compression=lz4'"),
            ("42809", "security label for cfs on role postgres is null"),
        ] {
            failure(cluster.psql(), sqlstate, statement);
        }
        assert_eq!(setting(cluster, "t"), "compression=zstd:3");
        sql(cluster, "security label for cfs on tablespace t is null");
        let said: Vec<_> = files(cluster).into_values().collect();
        assert_eq!((labels(cluster).len(), said), (0, vec!["compression=none".to_owned()]));
    });
}
