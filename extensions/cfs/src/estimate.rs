//! `cfs_estimate`: what every algorithm would make of a relation's pages, measured on a sample of them.
//!
//! Pages are read through shared buffers, as a sequential scan reads them (a small ring of buffers), and copied, so
//! that nothing is held while they are encoded. It says something about rows, so it asks for what reading them does:
//! SELECT on the whole table, and no policy of row security in the way. An index is its owner's, the superuser's and
//! `pg_read_all_data`'s.
#![allow(unsafe_code)]

use std::time::Instant;

use pgrx::iter::TableIterator;
use pgrx::pg_sys::{self, ForkNumber, Oid};
use pgrx::{PgSqlErrorCode as Code, name, pg_extern};
use pgshrink_cfs::PAGES_MAX;
use pgshrink_cfs::dictionary_policy::{DictionaryPolicy, Thresholds};
use pgshrink_cfs::estimate::{Allocation, Estimate, Method, extrapolated, packed_bytes};
use pgshrink_cfs::page::{PAGE_SIZE, PageCodec, PageDictionary};

use crate::report;

/// Pages that are measured at least and at most.
const SAMPLE_MIN: i32 = 1;
const SAMPLE_MAX: i32 = 100_000;
/// Pages between two looks at interrupts: more than fit into the near caches, less than a tenth of a second.
const BATCH_PAGES: usize = 512;

type Page = [u8; PAGE_SIZE];

/// An open relation with files of its own.
struct Relation(pg_sys::Relation);

impl Drop for Relation {
    fn drop(&mut self) {
        // After an ERROR the transaction's end closes it.
        if !std::thread::panicking() {
            // SAFETY: opened by `open`, closed once.
            unsafe { pg_sys::relation_close(self.0, pg_sys::AccessShareLock as i32) };
        }
    }
}

impl Relation {
    /// Opens it; an ERROR where it has no files, or the user must not read it.
    fn open(oid: Oid) -> Relation {
        // SAFETY: in a transaction; the server's own check of the number.
        unsafe {
            let relation = pg_sys::try_relation_open(oid, pg_sys::AccessShareLock as i32);
            if relation.is_null() {
                report::error(
                    Code::ERRCODE_UNDEFINED_TABLE,
                    format!("no relation has the OID {}", oid.to_u32()),
                    "Name a table, an index, a materialized view, or a partition.",
                );
            }
            let relation = Relation(relation);
            let class = *(*relation.0).rd_rel;
            let name = std::ffi::CStr::from_ptr(class.relname.data.as_ptr()).to_string_lossy().into_owned();
            if !matches!(class.relkind as u8, b'r' | b'i' | b't' | b'm' | b'S') {
                report::error(
                    Code::ERRCODE_WRONG_OBJECT_TYPE,
                    format!("\"{name}\" has no files that can be compressed"),
                    "Name a table, an index, a materialized view, or a partition.",
                );
            }
            let user = pg_sys::GetUserId();
            let rights = pg_sys::pg_class_aclcheck(oid, user, pg_sys::ACL_SELECT as pg_sys::AclMode);
            if rights != pg_sys::AclResult::ACLCHECK_OK {
                let kind = pg_sys::get_relkind_objtype(class.relkind);
                pg_sys::aclcheck_error(rights, kind, class.relname.data.as_ptr());
            }
            let rows = pg_sys::check_enable_rls(oid, Oid::INVALID, true);
            if rows == pg_sys::CheckEnableRlsResult::RLS_ENABLED as i32 {
                report::error(
                    Code::ERRCODE_INSUFFICIENT_PRIVILEGE,
                    format!("row-level security hides rows of \"{name}\" from you"),
                    "The table's owner can estimate it.",
                );
            }
            if pg_sys::isOtherTempNamespace(class.relnamespace) {
                report::error(
                    Code::ERRCODE_FEATURE_NOT_SUPPORTED,
                    "cannot access temporary tables of other sessions",
                    "Only the session that created it can estimate it.",
                );
            }
            relation
        }
    }

    fn pages(&self) -> u64 {
        // SAFETY: an open relation.
        unsafe { u64::from(pg_sys::RelationGetNumberOfBlocksInFork(self.0, ForkNumber::MAIN_FORKNUM)) }
    }

    /// Copies of pages, with their numbers.
    fn read(&self, blocks: impl Iterator<Item = u64>) -> Vec<(u32, Page)> {
        let mut pages = Vec::new();
        // SAFETY: an open relation and blocks that it has; a page is copied while it is pinned and locked.
        unsafe {
            let ring = pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD);
            for block in blocks {
                pgrx::check_for_interrupts!();
                let block = block as u32;
                let buffer = pg_sys::ReadBufferExtended(
                    self.0,
                    ForkNumber::MAIN_FORKNUM,
                    block,
                    pg_sys::ReadBufferMode::RBM_NORMAL,
                    ring,
                );
                pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as i32);
                pages.push((block, pg_sys::BufferGetBlock(buffer).cast::<Page>().read_unaligned()));
                pg_sys::UnlockReleaseBuffer(buffer);
            }
            pg_sys::FreeAccessStrategy(ring);
        }
        pages
    }
}

/// What each algorithm would make of a relation.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn cfs_estimate(
    relation: Oid,
    pages: i32,
) -> TableIterator<
    'static,
    (
        name!(compression, String),
        name!(dictionary, bool),
        name!(measured_pages, i64),
        name!(virtual_bytes, i64),
        name!(disk_bytes, i64),
        name!(ratio, f64),
        name!(compress_mb_s, f64),
        name!(decompress_mb_s, f64),
    ),
> {
    if !(SAMPLE_MIN..=SAMPLE_MAX).contains(&pages) {
        report::error(
            Code::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("cannot measure {pages} pages"),
            format!("Valid numbers are {SAMPLE_MIN} to {SAMPLE_MAX}."),
        );
    }
    let relation = Relation::open(relation);
    let all = relation.pages();
    let measured = measure(&relation, all, all.min(pages as u64));
    drop(relation);
    let rows: Vec<_> = measured
        .iter()
        .map(|(estimate, dictionary)| {
            let disk = disk_bytes(estimate, *dictionary, all);
            let plain = all * PAGE_SIZE as u64;
            let bytes = (estimate.page_count * PAGE_SIZE) as f64;
            let speed = |time: f64| if time > 0.0 { (bytes / time / 1e6).round() } else { 0.0 };
            let ratio = if disk == 0 { 1.0 } else { plain as f64 / disk as f64 };
            (
                estimate.method.policy.choice.to_string(),
                *dictionary > 0,
                estimate.page_count as i64,
                plain as i64,
                disk as i64,
                (ratio * 100.0).round() / 100.0,
                speed(estimate.encode.as_secs_f64()),
                speed(estimate.decode.as_secs_f64()),
            )
        })
        .collect();
    TableIterator::new(rows)
}

/// Encodes and decodes a sample by every method; each with the bytes of its dictionary, 0 for none.
fn measure(relation: &Relation, all: u64, sampled: u64) -> Vec<(Estimate, u64)> {
    let methods = Method::all();
    let dictionaries = trained(relation, all, &methods);
    let mut found: Vec<_> = methods.into_iter().map(Estimate::new).collect();
    let (mut codec, begun) = (PageCodec::new(), Instant::now());
    let blocks: Vec<_> =
        (0..sampled).map(|at| (u128::from(at) * u128::from(all) / u128::from(sampled)) as u64).collect();
    for batch in blocks.chunks(BATCH_PAGES) {
        let pages = relation.read(batch.iter().copied());
        let pages: Vec<_> = pages.iter().map(|(block, page)| (*block, page)).collect();
        for (estimate, dictionary) in found.iter_mut().zip(&dictionaries) {
            pgrx::check_for_interrupts!();
            let clock = &mut || begun.elapsed();
            estimate
                .add(&mut codec, &pages, dictionary.as_ref(), Allocation::RECORD, clock)
                .unwrap_or_else(|error| raise(&error));
        }
    }
    let bytes =
        |dictionary: &Option<PageDictionary>| dictionary.as_ref().map_or(0, |found| found.bytes().len());
    found.into_iter().zip(dictionaries.iter().map(|dictionary| bytes(dictionary) as u64)).collect()
}

/// For each method the dictionary that the relation would get, if one pays.
fn trained(relation: &Relation, all: u64, methods: &[Method]) -> Vec<Option<PageDictionary>> {
    let thresholds = Thresholds::default();
    let samples = u64::from(thresholds.first_pages);
    if all < samples {
        return methods.iter().map(|_| None).collect();
    }
    // Three of four are the first pages, one is from anywhere and judges.
    let blocks = (0..samples).map(|at| if at % 4 == 3 { at * all / samples } else { at - at / 4 });
    let pages = relation.read(blocks);
    let one = |method: &Method| {
        pgrx::check_for_interrupts!();
        let mut policy = DictionaryPolicy::new(thresholds);
        for (block, page) in &pages {
            policy.note(*block, page, PAGE_SIZE);
        }
        let to_come = all.min(PAGES_MAX.into()) as u32;
        let tried = policy.trial(&mut PageCodec::new(), &method.policy, None, to_come);
        tried.unwrap_or_else(|error| raise(&error))
    };
    methods.iter().map(one).collect()
}

/// What the whole relation's containers take, from what its measured pages took.
fn disk_bytes(estimate: &Estimate, dictionary: u64, all: u64) -> u64 {
    let records = extrapolated(estimate.allocated_bytes, estimate.page_count as u64, all);
    packed_bytes(all, records, dictionary)
}

fn raise(error: &pgshrink_cfs::page::Error) -> ! {
    report::error(
        Code::ERRCODE_DATA_CORRUPTED,
        format!("a page does not survive compression and decompression: {error}"),
        "Check the relation with amcheck.",
    )
}
