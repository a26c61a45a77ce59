//! Samples of all tables: who gets one, what is read for it, and how it is put together.

use super::super::Failure;
use super::blocks::spread;
use super::choice::{Wanted, shares};
use super::pages;
use super::places::Layout;
use super::relations::{Locked, Relation, shown};
use super::rows::{Expression, Known, Question, Seen, quoted};
use super::sampler::{self, Taken};
use super::server::{PageAccess, Rights};
use super::session::{Refusal, RefusalKind, Session};
use super::tuple;
use super::unseen::Unseens;
use super::{Found, has_rows};
use crate::cfs::output::Progress;
use pgshrink_advisor::heap_page::Shape;
use pgshrink_advisor::snapshot::sample::{Page, Place, RelationPages, RowPlace, SampledColumn};
use pgshrink_advisor::snapshot::{Sample, Server, Table};
use pgshrink_cfs::dictionary_policy::{SAMPLES_MAX, first_blocks};
use std::collections::{BTreeMap, BTreeSet};

/// Pages of one index or TOAST table.
const OTHER_PAGES_MAX: u32 = 200;
/// Blocks whose pages are read for places and not kept, at a time.
const TRANSIENT_PAGES: usize = 1024;
/// What all of a table may come to in a file, in bytes for each byte of it, and at least.
const NEED_FACTOR: u64 = 16;
const NEED_MIN: u64 = 256 << 10;
/// `segment_size` of a server that does not say.
const SEGMENT_BLOCKS: u32 = 131_072;
/// Why pages that are there cannot be seen, and what shows them.
const UNWRITTEN: &str = "its pages are not on disk yet";
const WRITE: &str = "CHECKPOINT, then run this again";
const PAGE_BYTES: u64 = tuple::PAGE_BYTES as u64;

/// What samples are made with.
pub(super) struct Sampler<'s> {
    pub(super) session: &'s mut Session,
    pub(super) server: &'s Server,
    pub(super) rights: &'s Rights,
    pub(super) wanted: &'s Wanted,
    /// Indexes whose expressions may be evaluated.
    pub(super) builtin: BTreeSet<u32>,
}

/// Where pages of a table come from, and how many of them may be kept.
#[derive(Clone)]
struct PageBudget {
    access: PageAccess,
    segment_blocks: u32,
    /// Of the table.
    own: u32,
    /// Of its indexes and its TOAST table together.
    others: u32,
}

impl PageBudget {
    /// Whether most of the pages that must have something on them are empty in the file: so far they are in the server's buffers alone.
    fn is_unwritten(&self, wanted: usize, came: usize) -> bool {
        self.access == PageAccess::Files && came < wanted.div_ceil(2)
    }
}

impl Sampler<'_> {
    /// Tables that can be sampled: their places in the list, and the bytes that each may give.
    pub(super) fn candidates(
        &self,
        found: &Found,
        locked: &Locked,
        unseen: &mut Unseens,
    ) -> Vec<(usize, u64)> {
        let mut candidates = Vec::new();
        for (at, relation) in found.relations.iter().enumerate() {
            let table = &relation.table;
            let is_free = has_rows(table) && !locked.has(table.oid);
            if is_free && found.is_large(table, self.wanted) && self.may_sample(relation, unseen) {
                candidates.push(at);
            }
        }
        let need = |at: &usize| {
            let table = &found.relations[*at].table;
            let toast = table.toast.map_or(0, |toast| toast.bytes.main);
            // Texts and lists of sizes are longer than what is stored, and pages come on top.
            let need = table.bytes.main.saturating_add(toast).saturating_mul(NEED_FACTOR).max(NEED_MIN);
            need.min(self.wanted.table_bytes_max)
        };
        let needs: Vec<u64> = candidates.iter().map(need).collect();
        candidates.into_iter().zip(shares(&needs, self.wanted.total_bytes_max)).collect()
    }

    fn may_sample(&self, relation: &Relation, unseen: &mut Unseens) -> bool {
        let table = &relation.table;
        let (what, role) = (shown(table), unseen.role().to_owned());
        let name = &relation.sql_name;
        let (why, remedy) = if table.access_method != "heap" {
            (format!("its access method is {}; only heap is supported", table.access_method), String::new())
        } else if self.server.is_standby && table.is_unlogged {
            ("unlogged tables have no rows on a standby".to_owned(), "run it on the primary".to_owned())
        } else if relation.can_use_schema != Some(true) {
            let schema = quoted(&table.schema);
            (
                "the role has no USAGE on its schema".to_owned(),
                format!("GRANT USAGE ON SCHEMA {schema} TO {role};"),
            )
        } else if relation.can_select != Some(true) {
            (
                "the role does not have SELECT on the whole table".to_owned(),
                format!("GRANT SELECT ON {name} TO {role};"),
            )
        } else if relation.hides_rows != Some(false) {
            let why = "row-level security policies hide rows from the role";
            (why.to_owned(), format!("ALTER ROLE {role} BYPASSRLS;"))
        } else {
            return relation.is_populated;
        };
        unseen.add(what, why, remedy);
        false
    }

    /// Reads all samples.
    pub(super) fn sample(
        &mut self,
        relations: &mut [Relation],
        candidates: &[(usize, u64)],
        progress: &Progress,
        unseen: &mut Unseens,
    ) -> Result<(), Failure> {
        progress.set_total(candidates.iter().map(|(_, budget)| budget).sum());
        // The estimate for a short range of an unanalyzed table may be that all of it costs less.
        self.session.set("enable_seqscan", "off")?;
        let mut left = 0u64;
        for (done, (at, budget)) in candidates.iter().enumerate() {
            let Some(relation) = relations.get_mut(*at) else { continue };
            let what = shown(&relation.table);
            progress.note(|| format!("{what} ({} of {} tables)", done + 1, candidates.len()));
            // What one table leaves is for those after it.
            let more = left.min(self.wanted.table_bytes_max.saturating_sub(*budget));
            left -= more;
            if let Err(refusal) = self.sample_one(relation, budget + more, &mut left, unseen)? {
                let remedy = match refusal.kind {
                    RefusalKind::Denied => format!("GRANT pg_read_all_data TO {};", unseen.role()),
                    RefusalKind::Locked => "run it again after that transaction has ended".to_owned(),
                    _ => String::new(),
                };
                unseen.add(what, refusal.to_string(), remedy);
            }
            progress.add(*budget);
        }
        self.session.set("enable_seqscan", "on")
    }

    fn sample_one(
        &mut self,
        relation: &mut Relation,
        budget: u64,
        left: &mut u64,
        unseen: &mut Unseens,
    ) -> Result<Result<(), Refusal>, Failure> {
        let mut pages = self.page_budget(budget);
        let for_rows = if pages.access == PageAccess::None { budget } else { budget / 2 };
        let table = &relation.table;
        let major = self.session.major();
        let mut question = Question::new(table, &relation.sql_name, self.wanted.has_values, major);
        self.expressions(table).into_iter().for_each(|expression| question.add(expression));
        let taken = match sampler::sample(self.session, table, &mut question, for_rows)? {
            Ok(taken) => taken,
            Err(refusal) => return Ok(Err(refusal)),
        };
        *left = left.saturating_add(taken.left);
        for problem in &taken.problems {
            unseen.add(shown(table), problem.clone(), "");
        }
        let mut blocks: Vec<u32> = taken.runs.iter().cloned().flatten().collect();
        blocks.sort_unstable();
        let mut sample = Sample { blocks, is_whole: taken.is_whole, ..Sample::default() };
        let places = self.places(table, &question, &taken, &mut sample, (&mut pages, unseen))?;
        sample.other_pages = self.other_pages(table, &pages, unseen)?;
        for (number, expression) in question.expressions.iter().enumerate() {
            let sizes = taken.rows.iter().map(|row| row.expressions.get(number).copied().flatten()).collect();
            let texts = taken.rows.iter().map(|row| row.expression_values.get(number).cloned().flatten());
            let texts = self.wanted.has_values.then(|| texts.collect());
            let index = relation.table.indexes.get_mut(expression.index);
            if let Some(column) = index.and_then(|index| index.columns.get_mut(expression.column)) {
                column.expression_sizes = Some(sizes);
                column.expression_values = texts;
            }
        }
        fill(&relation.table, &question, taken.rows, &places, &mut sample, self.wanted.has_values);
        relation.table.sample = Some(sample);
        Ok(Ok(()))
    }

    /// With values, half of the budget is for rows, a quarter each for pages of the table and of what belongs to it.
    fn page_budget(&self, budget: u64) -> PageBudget {
        let access = match self.wanted.has_values {
            true => self.rights.page_access(),
            false => PageAccess::None,
        };
        let setting = self.server.settings.get("segment_size").and_then(|text| text.parse().ok());
        let quarter = u32::try_from(budget / 4 / PAGE_BYTES).unwrap_or(u32::MAX);
        let segment_blocks = setting.filter(|blocks| *blocks > 0).unwrap_or(SEGMENT_BLOCKS);
        PageBudget { access, segment_blocks, own: quarter, others: quarter }
    }

    /// Expressions of indexes whose rows have them as they are: a GIN index has pieces of them.
    fn expressions(&self, table: &Table) -> Vec<Expression> {
        let mut found = Vec::new();
        for (index_at, index) in table.indexes.iter().enumerate() {
            let is_plain = ["btree", "hash"].contains(&index.access_method.as_str());
            if !is_plain || !self.builtin.contains(&index.oid) {
                continue;
            }
            for (at, column) in
                index.columns.iter().enumerate().filter(|(_, column)| column.table_column == 0)
            {
                let sql = match &index.predicate {
                    // For other rows the expression may be an error.
                    Some(predicate) => format!("CASE WHEN {predicate} THEN {} END", column.definition),
                    None => column.definition.clone(),
                };
                found.push(Expression { index: index_at, column: at, sql });
            }
        }
        found
    }

    /// Where the values of each row are, by column. Keeps images of pages as far as the budget goes.
    fn places(
        &mut self,
        table: &Table,
        question: &Question,
        taken: &Taken,
        sample: &mut Sample,
        (pages, unseen): (&mut PageBudget, &mut Unseens),
    ) -> Result<Vec<Vec<Place>>, Failure> {
        let layout = Layout::of(table);
        let shapes = Shape::of(&table.columns).ok();
        let has_missing = table.columns.iter().any(|column| column.has_missing && !column.is_dropped);
        let needs_all = !question.knows_chunks || has_missing;
        let count = u32::try_from(sample.blocks.len()).unwrap_or(u32::MAX);
        let training = training_blocks(table, pages.own);
        let own = pages.own - u32::try_from(training.len()).unwrap_or(u32::MAX);
        let kept = spread(count, own).into_iter().filter_map(|at| sample.blocks.get(at as usize));
        let kept: BTreeSet<u32> = kept.copied().collect();
        let training: Vec<u32> = training.into_iter().filter(|block| !kept.contains(block)).collect();
        let mut places = Vec::with_capacity(taken.rows.len());
        let mut rows = taken.rows.iter().peekable();
        for chunk in sample.blocks.chunks(TRANSIENT_PAGES) {
            let wanted: Vec<u32> =
                chunk.iter().copied().filter(|block| needs_all || kept.contains(block)).collect();
            let images = self.images(table.oid, &shown(table), &wanted, pages, unseen)?;
            let by_block: BTreeMap<u32, &Page> = images.iter().map(|page| (page.block, page)).collect();
            let last = chunk.last().copied().unwrap_or(u32::MAX);
            while let Some(row) = rows.next_if(|row| row.place.0 <= last) {
                let RowPlace(block, item) = row.place;
                let page = by_block.get(&block).map(|page| page.image.as_slice());
                let stored = page.and_then(|page| tuple::values(page, item, row.xmin, shapes.as_ref()?));
                let known = by_column(table, question, row);
                places.push(layout.places(table, &known, stored.as_deref(), question.knows_chunks));
            }
            sample.pages.extend(images.into_iter().filter(|page| kept.contains(&page.block)));
        }
        let has_rows: BTreeSet<u32> =
            taken.rows.iter().map(|row| row.place.0).filter(|block| kept.contains(block)).collect();
        let came = sample.pages.iter().filter(|page| has_rows.contains(&page.block)).count();
        if pages.is_unwritten(has_rows.len(), came) {
            unseen.add(format!("raw pages of {}", shown(table)), UNWRITTEN, WRITE);
        }
        // That one of them is gone says nothing of other pages.
        let budget = &mut pages.clone();
        sample.training_pages = self.images(table.oid, &shown(table), &training, budget, unseen)?;
        Ok(places)
    }

    /// Pages of indexes and of the TOAST table.
    fn other_pages(
        &mut self,
        table: &Table,
        pages: &PageBudget,
        unseen: &mut Unseens,
    ) -> Result<Vec<RelationPages>, Failure> {
        let indexes = table.indexes.iter().map(|index| (index.oid, index.bytes, index.name.as_str()));
        let toast = table.toast.map(|toast| (toast.oid, toast.bytes.main, "TOAST"));
        let all: Vec<_> = indexes.chain(toast).filter(|(_, bytes, _)| *bytes > 0).collect();
        let each = (pages.others / u32::try_from(all.len().max(1)).unwrap_or(u32::MAX)).min(OTHER_PAGES_MAX);
        if all.is_empty() || pages.access == PageAccess::None {
            return Ok(Vec::new());
        }
        let page_count = |bytes: u64| u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        let blocks: Vec<Vec<u32>> =
            all.iter().map(|(_, bytes, _)| spread(page_count(*bytes), each)).collect();
        let wanted = all.iter().zip(&blocks);
        let wanted: Vec<_> =
            wanted.map(|((oid, ..), blocks)| pages::Wanted { relation: *oid, blocks }).collect();
        let read = match pages::read(self.session, &pages.access, pages.segment_blocks, &wanted)? {
            Ok(read) => read,
            Err(refusal) => {
                unseen.add(format!("raw pages of what belongs to {}", shown(table)), refusal.to_string(), "");
                return Ok(Vec::new());
            }
        };
        let mut found = Vec::new();
        for (((oid, bytes, name), blocks), read) in all.into_iter().zip(&blocks).zip(read) {
            let what = || format!("raw pages of {} ({name})", shown(table));
            match read {
                Ok(read) => {
                    if pages.is_unwritten(blocks.len(), read.len()) && !leaves_holes(table, oid) {
                        unseen.add(what(), UNWRITTEN, WRITE);
                    }
                    if !read.is_empty() {
                        found.push(RelationPages { oid, page_count: page_count(bytes), pages: read });
                    }
                }
                Err(refusal) => unseen.add(what(), refusal.to_string(), ""),
            }
        }
        Ok(found)
    }

    /// Images of these pages. Once they are refused, nothing more is asked for.
    fn images(
        &mut self,
        relation: u32,
        what: &str,
        blocks: &[u32],
        pages: &mut PageBudget,
        unseen: &mut Unseens,
    ) -> Result<Vec<Page>, Failure> {
        if blocks.is_empty() || pages.access == PageAccess::None {
            return Ok(Vec::new());
        }
        let wanted = [pages::Wanted { relation, blocks }];
        let read = pages::read(self.session, &pages.access, pages.segment_blocks, &wanted)?;
        match read.and_then(|mut read| read.pop().unwrap_or(Ok(Vec::new()))) {
            Ok(images) => Ok(images),
            Err(refusal) => {
                unseen.add(format!("raw pages of {what}"), refusal.to_string(), "");
                pages.access = PageAccess::None;
                Ok(Vec::new())
            }
        }
    }
}

/// Whether an index has pages that were never used: hash indexes get pages for many buckets at once.
fn leaves_holes(table: &Table, index: u32) -> bool {
    table.indexes.iter().any(|own| own.oid == index && own.access_method == "hash")
}

/// Blocks on which a server trains a dictionary for the table, if these are less than half of as many pages as may be read. In the
/// sample's runs are the neighbours of what would be trained on instead: it would serve them better than the rest of the table.
fn training_blocks(table: &Table, pages: u32) -> Vec<u32> {
    let blocks = first_blocks(table.bytes.main / PAGE_BYTES).map_while(|block| u32::try_from(block).ok());
    if pages / 2 < SAMPLES_MAX as u32 { Vec::new() } else { blocks.collect() }
}

/// What is known of a row's values, with NULL for columns that have none.
fn by_column(table: &Table, question: &Question, row: &Seen) -> Vec<Option<Known>> {
    let mut known = vec![None; table.columns.len()];
    for (at, value) in question.stored.iter().zip(&row.stored) {
        if let Some(slot) = known.get_mut(*at) {
            *slot = *value;
        }
    }
    known
}

/// Rows become columns.
fn fill(
    table: &Table,
    question: &Question,
    rows: Vec<Seen>,
    places: &[Vec<Place>],
    sample: &mut Sample,
    has_values: bool,
) {
    let count = rows.len();
    let column = |(at, column): (usize, &pgshrink_advisor::snapshot::Column)| {
        if column.is_dropped {
            return SampledColumn { values: has_values.then(Vec::new), ..SampledColumn::default() };
        }
        let places: Vec<Place> = places.iter().map(|row| row.get(at).copied().unwrap_or_default()).collect();
        // Of a virtual column there are no values, and of one that cannot be read none are known.
        let is_read = has_values && question.values.contains(&at);
        let values = is_read.then(|| Vec::with_capacity(count));
        SampledColumn { sizes: vec![0; count], places, values }
    };
    sample.columns = table.columns.iter().enumerate().map(column).collect();
    for (number, row) in rows.into_iter().enumerate() {
        sample.rows.push(row.place);
        for (at, known) in question.stored.iter().zip(row.stored) {
            let size = sample.columns.get_mut(*at).and_then(|column| column.sizes.get_mut(number));
            if let (Some(size), Some(known)) = (size, known) {
                *size = known.size;
            }
        }
        for (at, value) in question.values.iter().zip(row.values) {
            if let Some(values) = sample.columns.get_mut(*at).and_then(|column| column.values.as_mut()) {
                values.push(value);
            }
        }
    }
}
