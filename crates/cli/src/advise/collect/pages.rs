//! Images of pages, where the role may read them.

use super::server::PageAccess;
use super::session::{Refusal, RefusalKind, Session, Tried, rest};
use super::tuple;
use pgshrink_advisor::snapshot::sample::Page;
use pgshrink_pgclient::connection::{Pipeline, Reply, Statement};
use pgshrink_pgclient::{Error as ClientError, connection::REQUEST_BYTES_MAX};

/// Pages of one request: an answer of 1 MB.
const REQUEST_PAGES: usize = 128;
/// Requests on their way.
const PENDING_MAX: usize = 4;
const CONFLICT_ATTEMPTS: u32 = 4;
const _: () = assert!(PENDING_MAX * (REQUEST_PAGES * 11 + 128) < REQUEST_BYTES_MAX);

/// These blocks of a relation, but for those that are gone or empty.
pub(super) fn read(
    session: &mut Session,
    access: &PageAccess,
    segment_blocks: u32,
    relation: u32,
    blocks: &[u32],
) -> Tried<Vec<Page>> {
    let sql = match access {
        PageAccess::None => return Ok(Ok(Vec::new())),
        // The name is looked up at once; the OID is what was sampled.
        PageAccess::Pageinspect(schema) => format!(
            "SELECT b, {schema}.get_raw_page((SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1::oid), 'main', b) \
             FROM unnest($2::int8[]) AS b"
        ),
        PageAccess::Files => format!(
            "SELECT b, pg_read_binary_file(pg_relation_filepath($1::oid) \
             || CASE WHEN b < {segment_blocks} THEN '' ELSE '.' || b / {segment_blocks} END, \
             b % {segment_blocks} * 8192, 8192, true) FROM unnest($2::int8[]) AS b"
        ),
    };
    let statement = match session.prepare_once(&sql)? {
        Ok(statement) => statement,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut pages = Vec::with_capacity(blocks.len());
    let mut refused: Option<Refusal> = None;
    let mut left: Vec<&[u32]> = blocks.chunks(REQUEST_PAGES).collect();
    for attempt in 1..=CONFLICT_ATTEMPTS {
        let again = session.pipelined(|pipeline| ask(pipeline, &statement, relation, &left, &mut pages))?;
        let (conflicts, others): (Vec<_>, Vec<_>) =
            again.into_iter().partition(|(_, refusal)| refusal.kind == RefusalKind::Conflict);
        let mut all = others;
        if attempt == CONFLICT_ATTEMPTS {
            all.extend(conflicts);
            left.clear();
        } else {
            left = conflicts.into_iter().map(|(chunk, _)| chunk).collect();
        }
        refused = refused.or(all.into_iter().map(|(_, refusal)| refusal).next());
        if left.is_empty() {
            break;
        }
        rest(attempt);
    }
    pages.sort_by_key(|page: &Page| page.block);
    // Some pages are better than none.
    match refused {
        Some(refusal) if pages.is_empty() => Ok(Err(refusal)),
        _ => Ok(Ok(pages)),
    }
}

/// Sends all requests, and gives those that failed.
fn ask<'b>(
    pipeline: &mut Pipeline<'_>,
    statement: &Statement,
    relation: u32,
    chunks: &[&'b [u32]],
    pages: &mut Vec<Page>,
) -> Result<Vec<(&'b [u32], Refusal)>, ClientError> {
    let relation = relation.to_string();
    let mut failed = Vec::new();
    let (mut sent, mut answered) = (0, 0);
    while answered < chunks.len() {
        while sent < chunks.len() && pipeline.pending() < PENDING_MAX {
            let list: Vec<String> = chunks[sent].iter().map(u32::to_string).collect();
            let list = format!("{{{}}}", list.join(","));
            pipeline.request(statement, &[Some(relation.as_bytes()), Some(list.as_bytes())])?;
            sent += 1;
        }
        match pipeline.next()? {
            Some(Reply::Row(row)) => {
                let block = row.get(0).and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes);
                let block = block.and_then(|block| u32::try_from(block).ok());
                if let (Some(block), Some(image)) = (block, row.get(1).filter(|page| tuple::is_page(page))) {
                    pages.push(Page { block, image: image.to_vec() });
                }
            }
            Some(Reply::Complete(_)) => answered += 1,
            Some(Reply::Failed(report)) => {
                failed.push((chunks[answered], Refusal::of(report)));
                answered += 1;
            }
            None => break,
        }
    }
    Ok(failed)
}
