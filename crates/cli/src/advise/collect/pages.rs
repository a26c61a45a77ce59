//! Images of pages, where the role may read them.

use super::server::PageAccess;
use super::session::{Refusal, Session, Tried, rest};
use super::tuple;
use pgshrink_advisor::snapshot::sample::Page;
use pgshrink_pgclient::connection::{Pipeline, Reply, Statement};
use pgshrink_pgclient::{Error as ClientError, connection::REQUEST_BYTES_MAX};

/// Pages of one request: an answer of 1 MB.
const REQUEST_PAGES: usize = 128;
/// Requests on their way.
const PENDING_MAX: usize = 4;
const _: () = assert!(PENDING_MAX * (REQUEST_PAGES * 11 + 128) < REQUEST_BYTES_MAX);

/// Blocks of one relation that are wanted.
pub(super) struct Wanted<'b> {
    pub(super) relation: u32,
    pub(super) blocks: &'b [u32],
}

/// The pages of each of them, but for those that are gone or empty: all relations are asked about at once. A relation of which no page
/// could be read has the reason instead.
pub(super) fn read(
    session: &mut Session,
    access: &PageAccess,
    segment_blocks: u32,
    wanted: &[Wanted<'_>],
) -> Tried<Vec<Result<Vec<Page>, Refusal>>> {
    let sql = match access {
        PageAccess::None => return Ok(Ok(wanted.iter().map(|_| Ok(Vec::new())).collect())),
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
    let mut pages: Vec<Vec<Page>> = wanted.iter().map(|_| Vec::new()).collect();
    let mut refused: Vec<Option<Refusal>> = wanted.iter().map(|_| None).collect();
    let mut left: Vec<Chunk<'_>> = Vec::new();
    for (at, Wanted { relation, blocks }) in wanted.iter().enumerate() {
        let chunks = blocks.chunks(REQUEST_PAGES);
        left.extend(chunks.map(|blocks| Chunk { at, relation: *relation, blocks }));
    }
    for attempt in 1.. {
        let failed = session.pipelined(|pipeline| ask(pipeline, &statement, &left, &mut pages))?;
        left.clear();
        for (chunk, refusal) in failed {
            match refusal.is_worth_another(attempt) {
                true => left.push(chunk),
                false => drop(refused[chunk.at].get_or_insert(refusal)),
            }
        }
        if left.is_empty() {
            break;
        }
        rest(attempt);
    }
    pages.iter_mut().for_each(|pages| pages.sort_by_key(|page| page.block));
    // Some pages are better than none.
    let of = |(pages, refused): (Vec<Page>, Option<Refusal>)| match refused {
        Some(refusal) if pages.is_empty() => Err(refusal),
        _ => Ok(pages),
    };
    Ok(Ok(pages.into_iter().zip(refused).map(of).collect()))
}

/// Blocks of one request.
#[derive(Clone, Copy)]
struct Chunk<'b> {
    /// The place of its relation among those that are wanted.
    at: usize,
    relation: u32,
    blocks: &'b [u32],
}

/// Sends all requests, and gives those that failed.
fn ask<'b>(
    pipeline: &mut Pipeline<'_>,
    statement: &Statement,
    chunks: &[Chunk<'b>],
    pages: &mut [Vec<Page>],
) -> Result<Vec<(Chunk<'b>, Refusal)>, ClientError> {
    let mut failed = Vec::new();
    let (mut sent, mut answered) = (0, 0);
    while answered < chunks.len() {
        while sent < chunks.len() && pipeline.pending() < PENDING_MAX {
            let relation = chunks[sent].relation.to_string();
            let list: Vec<String> = chunks[sent].blocks.iter().map(u32::to_string).collect();
            let list = format!("{{{}}}", list.join(","));
            pipeline.request(statement, &[Some(relation.as_bytes()), Some(list.as_bytes())])?;
            sent += 1;
        }
        match pipeline.next()? {
            Some(Reply::Row(row)) => {
                let block = row.get(0).and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes);
                let block = block.and_then(|block| u32::try_from(block).ok());
                if let (Some(block), Some(image)) = (block, row.get(1).filter(|page| tuple::is_page(page))) {
                    pages[chunks[answered].at].push(Page { block, image: image.to_vec() });
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
