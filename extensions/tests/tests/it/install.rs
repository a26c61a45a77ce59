//! The extension can be made, used and dropped, on every major.

use pgshrink_testkit::{Cluster, Server};

#[test]
fn a_new_extension_stores_a_document_at_once() {
    Server::each_with_extensions("zson is made", &[15, 16, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster.sql("create extension zson").unwrap();
        cluster.sql("create table t (doc zson); insert into t values ('{\"a\": [1, null]}')").unwrap();
        assert_eq!(cluster.sql("select doc->'a'->>0, doc from t").unwrap(), "1|{\"a\": [1, null]}");
        assert_eq!(cluster.sql("select extversion from pg_extension where extname = 'zson'").unwrap(), "2.0");
    });
}
