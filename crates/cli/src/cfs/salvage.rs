//! `pgshrink cfs salvage`.

use super::container::{Means, Reader, head_of, is_sealed, refuse_plain};
use super::copy::refuse_existing;
use super::file::SegmentFolder;
use super::keys::{self, Kernel};
use super::making::Making;
use super::output::{self, Progress, counted};
use super::pack::{Packing, birth};
use super::{Failure, Verdict, running, tree, walk};
use crate::args::SalvageArgs;
use crate::ending::Damage;
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::page::{Mode, PAGE_SIZE};
use pgshrink_cfs::seal::Keyring;
use pgshrink_cfs::{DictionaryNumber, Identity, Scratch, Stored, segment};
use pgshrink_codec::grouped;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

const COMMIT_PAGES: u32 = 1 << 14;
/// Lost blocks that are listed in words; JSON has all.
const LISTED_MAX: usize = 50;

#[derive(Serialize)]
struct Report {
    source: String,
    pages: u32,
    /// Whether the map could be believed.
    map_is_whole: bool,
    /// Why not.
    damages: Vec<Damage>,
    /// Whole records found, old versions included.
    records: u64,
    /// Pages taken from a record that the map does not lead to.
    from_records: u32,
    lost: Vec<u32>,
    /// None: nothing was made.
    made: Option<String>,
}

pub(super) fn run(args: &SalvageArgs) -> Result<Verdict, Failure> {
    let source = fs::canonicalize(&args.source).map_err(Failure::reading(&args.source))?;
    let containers = walk::containers(&[walk::segment_of(&source).to_owned()])?;
    let [(_, file)] = containers.as_slice() else {
        return Err(Failure::new(&args.source, "name one container"));
    };
    running::refuse(&args.source, args.force)?;
    refuse_existing(&args.dest)?;
    let mut keyring = keys::keyring(&args.key)?;
    let random = Kernel::new()?;
    let head = head_of(file)?;
    refuse_plain(file, &head, &keyring)?;
    let means = Means::of(&head, &mut keyring, random).map_err(|reason| Failure::new(file, reason))?;
    let (mut reader, found) = means.salvage(file)?;
    let pages = reader.pages();
    let progress = Progress::new(2 * u64::from(pages) * PAGE_SIZE as u64, &args.output);
    progress.at(file);
    let mut lost = found.lost.clone();
    lost.extend(undecodable(&mut reader, &found.lost, &progress));
    lost.sort_unstable();
    let mut report = Report {
        source: args.source.display().to_string(),
        pages,
        map_is_whole: found.map_is_whole,
        damages: found.failure.iter().map(Damage::from).collect(),
        records: found.records,
        from_records: found.from_records,
        lost,
        made: None,
    };
    if report.lost.is_empty() || args.zero_lost {
        let making = Making::begin(&args.dest)?;
        let mut keyring = is_sealed(&head).then_some(keyring);
        let to = making.path();
        let remade = (&mut reader, report.lost.as_slice(), head.identity);
        rebuild(remade, &to, keyring.as_mut(), random, &progress)?;
        list(&to, keyring, random)?;
        making.finish()?;
        report.made = Some(args.dest.display().to_string());
    }
    drop(progress);
    output::print(&args.output, &report, text)?;
    Ok(Verdict::of(report.lost.is_empty()))
}

/// Blocks whose records are intact but whose pages cannot be recovered.
fn undecodable(reader: &mut Reader<'_>, lost: &[u32], progress: &Progress) -> Vec<u32> {
    let mut found = Vec::new();
    let all: Result<(), Infallible> = reader.each(|block, page| {
        if page.is_err() && lost.binary_search(&block).is_err() {
            found.push(block);
        }
        progress.add(PAGE_SIZE as u64);
        Ok(())
    });
    let Ok(()) = all;
    found
}

/// Copies records as they are stored; lost ones become zeroed pages.
fn rebuild(
    (reader, lost, identity): (&mut Reader<'_>, &[u32], Identity),
    dest: &Path,
    keyring: Option<&mut Keyring>,
    random: Kernel,
    progress: &Progress,
) -> Result<(), Failure> {
    let failed = |error: pgshrink_cfs::Error| Failure::new(dest, error);
    let (means, birth) = birth(identity, keyring, random).map_err(|reason| Failure::new(dest, reason))?;
    DirBuilder::new().mode(0o700).create(dest).map_err(Failure::reading(dest))?;
    let folder = SegmentFolder(dest.to_owned());
    let made =
        segment::create(&folder, Alone, means.words(), &birth, means.options(false)).map_err(failed)?;
    let mut numbers: BTreeMap<DictionaryNumber, DictionaryNumber> = BTreeMap::from([(0, 0)]);
    for id in reader.container().dictionary_ids().map_err(failed)? {
        // One that is damaged has made its pages lost.
        if let Ok((name, content)) = reader.container().dictionary(id) {
            numbers.insert(id, made.add_dictionary(name, &content).map_err(failed)?);
        }
    }
    let mut scratch = Scratch::new();
    for block in 0..reader.pages() {
        let stored = if lost.binary_search(&block).is_ok() {
            Stored::Zeros
        } else {
            reader.stored(block).map_err(failed)?
        };
        match stored {
            Stored::Zeros => made.write_zeros(block).map_err(failed)?,
            Stored::Base(page) => {
                made.write(block, Mode::RAW.byte(), 0, page, &mut scratch).map_err(failed)?;
            }
            Stored::Record { mode, dictionary, payload } => {
                let number = numbers.get(&dictionary).copied().unwrap_or(0);
                made.write(block, mode, number, payload, &mut scratch).map_err(failed)?;
            }
        }
        if block % COMMIT_PAGES == COMMIT_PAGES - 1 {
            made.commit().map_err(failed)?;
        }
        progress.add(PAGE_SIZE as u64);
    }
    made.close().map_err(failed)?;
    Ok(())
}

/// A manifest of the one container that was made.
fn list(made: &Path, mut keyring: Option<Keyring>, random: Kernel) -> Result<(), Failure> {
    let file = made.join(segment::FILE_NAME);
    let failed = |reason: String| Failure::new(made, reason);
    let head = head_of(&file)?;
    let none = || Keyring::new(Vec::new());
    let means = Means::of(&head, keyring.get_or_insert_with(none), random);
    let means = means.map_err(|reason| failed(reason.to_string()))?;
    let (mut reader, _) = means.open(&file)?;
    let entry = reader.plain(|bytes| bytes.map(drop)).map_err(|damage: Damage| failed(damage.message))?;
    drop(reader);
    let mut packing = Packing::of_manifest(keyring.filter(|_| is_sealed(&head)), random)?;
    tree::write(made, BTreeMap::from([(".".to_owned(), entry)]), &mut packing)
}

fn text(report: &Report) -> String {
    let mut text = match report.damages.first() {
        Some(failure) => format!("the page map is damaged: {failure}\n"),
        None => "the page map is intact\n".to_owned(),
    };
    text.push_str(&format!(
        "{}: {} recovered without the page map, {} lost ({} in the file)\n",
        counted(report.pages.into(), "page", "pages"),
        grouped(report.from_records.into()),
        grouped(report.lost.len() as u64),
        counted(report.records, "intact record", "intact records")
    ));
    if !report.lost.is_empty() {
        let listed = report.lost.iter().take(LISTED_MAX).map(u32::to_string).collect::<Vec<_>>().join(" ");
        let more = if report.lost.len() > LISTED_MAX { " ..." } else { "" };
        text.push_str(&format!("lost blocks: {listed}{more}\n"));
    }
    match &report.made {
        Some(made) => text.push_str(&format!("made {made}; check it with pgshrink cfs verify\n")),
        None => text.push_str("nothing was written; --zero-lost replaces lost pages with zeroed pages\n"),
    }
    text
}
