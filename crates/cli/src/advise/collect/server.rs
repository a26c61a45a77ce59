//! The server itself: version, settings, rights of the role.

use super::super::Failure;
use super::session::Session;
use pgshrink_advisor::snapshot::{Server, Unseen};
use serde::Deserialize;

/// Pages of a server that was built with another size are laid out in another way.
const BLOCK_SIZE: &str = "8192";

/// `pg_settings.setting` of those that sizes depend on.
const SETTINGS: &str = "'wal_compression', 'default_toast_compression', 'block_size', 'segment_size', \
    'shared_buffers', 'data_checksums', 'full_page_writes', 'max_wal_size', 'server_version', 'wal_level', \
    'autovacuum_freeze_max_age', 'io_method', 'vacuum_cost_limit', 'track_counts', 'wal_segment_size', \
    'effective_io_concurrency', 'maintenance_work_mem', 'random_page_cost', 'hot_standby_feedback'";

/// What the role may do, beyond tables.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Rights {
    /// Quoted.
    pub(super) role: String,
    is_superuser: bool,
    /// `pg_read_all_stats`.
    pub(super) sees_statistics: bool,
    /// EXECUTE on `pg_read_binary_file`.
    reads_files: bool,
    /// The quoted schema of `pageinspect`, where that is installed.
    pageinspect: Option<String>,
}

/// How images of pages are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PageAccess {
    /// `get_raw_page` in this schema: as they are in the server's buffers.
    Pageinspect(String),
    /// `pg_read_binary_file`: as they were last written.
    Files,
    /// Not at all.
    None,
}

impl Rights {
    pub(super) fn page_access(&self) -> PageAccess {
        match &self.pageinspect {
            // It refuses everybody else.
            Some(schema) if self.is_superuser => PageAccess::Pageinspect(schema.clone()),
            _ if self.reads_files => PageAccess::Files,
            _ => PageAccess::None,
        }
    }

    /// What is hidden from this role, and what would show it.
    pub(super) fn unseen(&self, has_values: bool) -> Vec<Unseen> {
        let mut unseen = Vec::new();
        if !self.sees_statistics {
            unseen.push(Unseen {
                what: "transactions of other roles, and databases without CONNECT".to_owned(),
                why: "only members of pg_read_all_stats can see them".to_owned(),
                remedy: format!("GRANT pg_monitor TO {};", self.role),
            });
        }
        if has_values && self.page_access() == PageAccess::None {
            unseen.push(Unseen {
                what: "raw pages".to_owned(),
                why: "the role may not execute pg_read_binary_file; codec results are estimated from rows".to_owned(),
                remedy: format!(
                    "GRANT EXECUTE ON FUNCTION pg_catalog.pg_read_binary_file(text, bigint, bigint, boolean) TO {};",
                    self.role
                ),
            });
        }
        unseen
    }
}

/// What the server says of itself and of this role.
pub(super) fn server(session: &mut Session) -> Result<(Server, Rights), Failure> {
    #[derive(Deserialize)]
    struct Answer {
        server: Server,
        rights: Rights,
    }
    let found = session.documents::<Answer>(&query())?;
    let answer = session.must(found)?.pop();
    let unknown = || Failure::new(session.place(), "it returned no information about itself");
    let Answer { mut server, mut rights } = answer.ok_or_else(unknown)?;
    server.version = session.version();
    rights.is_superuser = server.is_superuser;
    let block_size = server.settings.get("block_size").map_or("unknown", String::as_str);
    if block_size != BLOCK_SIZE {
        let reason = format!("its block size is {block_size}, expected {BLOCK_SIZE}: it is not supported");
        return Err(Failure::new(session.place(), reason));
    }
    // These read directories, which may be large or hidden: without them the rest is as good.
    server.database_bytes = sizes(session, "datname = current_database()")?;
    server.databases_bytes = sizes(session, "true")?;
    Ok((server, rights))
}

fn query() -> String {
    format!(
        "SELECT json_build_object('server', json_build_object(
            'version', 0,
            'database', current_database(),
            'database_bytes', NULL,
            'databases_bytes', NULL,
            'is_standby', pg_is_in_recovery(),
            'encoding', current_setting('server_encoding'),
            'settings', (SELECT json_object_agg(name, setting) FROM pg_settings
                WHERE (name IN ({SETTINGS}) OR name LIKE 'autovacuum%') AND setting IS NOT NULL),
            'extensions', (SELECT coalesce(json_object_agg(extname, extversion), '{{}}') FROM pg_extension),
            'extension_schemas', (SELECT coalesce(json_object_agg(extname, nspname), '{{}}')
                FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace),
            'counting_since_s', (SELECT extract(epoch FROM stats_reset)::int8 FROM pg_stat_database
                WHERE datname = current_database()),
            'is_superuser', current_setting('is_superuser') = 'on',
            'oldest_xmin_age', (SELECT greatest(max(age(held.xmin)), 0) FROM (
                SELECT backend_xmin FROM pg_stat_activity WHERE pid <> pg_backend_pid()
                UNION ALL SELECT xmin FROM pg_replication_slots
                UNION ALL SELECT catalog_xmin FROM pg_replication_slots
                UNION ALL SELECT transaction FROM pg_prepared_xacts) AS held(xmin) WHERE held.xmin IS NOT NULL)),
         'rights', json_build_object(
            'role', quote_ident(current_user),
            'is_superuser', false,
            'sees_statistics', pg_has_role('pg_read_all_stats', 'USAGE'),
            'reads_files',
                has_function_privilege('pg_read_binary_file(text, bigint, bigint, boolean)', 'EXECUTE'),
            'pageinspect', (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace n
                ON n.oid = extnamespace WHERE extname = 'pageinspect')))::text"
    )
}

/// Bytes of the databases that this is true of, as far as they may be asked for. None: of none of them.
fn sizes(session: &mut Session, of: &str) -> Result<Option<u64>, Failure> {
    let sql = format!(
        "SELECT sum(pg_database_size(oid))::int8 FROM pg_database
         WHERE {of} AND (has_database_privilege(oid, 'CONNECT') OR pg_has_role('pg_read_all_stats', 'USAGE'))"
    );
    let found = session.select(&sql, |row| std::str::from_utf8(row.get(0)?).ok()?.parse::<u64>().ok())?;
    Ok(found.ok().and_then(|mut found| found.pop()))
}
