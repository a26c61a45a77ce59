//! `pgshrink cfs info`.

use super::container::{Means, NoMeans, head_of, is_sealed};
use super::keys::{self, Kernel};
use super::output::{self, Progress, counted, size};
use super::{Failure, Verdict, damage, walk};
use crate::args::InfoArgs;
use crate::ending::{Damage, Fault};
use pgshrink_cfs::page::{Mode, PAGE_SIZE};
use pgshrink_cfs::seal::{HexId, Keyring};
use pgshrink_cfs::segment::Clear;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Damages of one container that are listed; `modes` counts all pages.
const LISTED_MAX: usize = 100;

/// One container. What its root says is null where no root is intact, or the one that is may not be the last.
#[derive(Serialize)]
struct Info {
    path: String,
    container: Option<String>,
    tablespace: Option<u32>,
    database: Option<u32>,
    /// 0: a file of another kind.
    relation: Option<u32>,
    fork: Option<u8>,
    segment: Option<u32>,
    pages: Option<u32>,
    sequence: Option<u64>,
    epoch: Option<u32>,
    /// Closed after its last write.
    closed: Option<bool>,
    /// None: not sealed, or unreadable.
    key_id: Option<String>,
    file_bytes: u64,
    /// What the filesystem has allocated.
    disk_bytes: u64,
    /// Plain bytes to those on disk; none where the container is damaged, so that one of them says nothing.
    ratio: Option<f64>,
    /// None: it did not open, for want of its key or by damage.
    inside: Option<Inside>,
    /// What is wrong with it, by page where it is one.
    damages: Vec<Damage>,
    /// Why it could not be opened, where the container is not at fault: another key may open it.
    failed: Vec<Fault>,
    #[serde(skip)]
    was_opened: bool,
}

/// What takes opening it.
#[derive(Serialize)]
struct Inside {
    /// Records, map and dictionaries that the last commit refers to.
    live_bytes: u64,
    /// Of the file, what nothing refers to and is no hole.
    garbage_bytes: u64,
    /// Roots, map and dictionaries; damaged pages are not among them.
    map_bytes: u64,
    dictionaries: u32,
    /// Pages by how they are stored; `damaged` among them.
    modes: BTreeMap<String, u32>,
}

pub(super) fn run(args: &InfoArgs) -> Result<Verdict, Failure> {
    let containers = walk::containers(&args.paths)?;
    let mut keyring = keys::keyring(&args.key)?;
    let random = Kernel::new()?;
    let bytes = containers.iter().filter_map(|(_, file)| file.metadata().ok()).map(|found| found.len()).sum();
    let progress = Progress::new(bytes, &args.output);
    let mut all = Vec::new();
    for (path, file) in &containers {
        progress.at(path);
        all.push(info(path, file, &mut keyring, random)?);
        progress.add(file.metadata().map_or(0, |found| found.len()));
    }
    drop(progress);
    output::print(&args.output, &all, |all| all.iter().map(text).collect::<Vec<_>>().join("\n"))?;
    let is_damaged = all.iter().any(|info| !info.damages.is_empty());
    Ok(Verdict::of_faults(is_damaged, all.iter().any(|info| !info.failed.is_empty())))
}

fn info(path: &Path, file: &Path, keyring: &mut Keyring, random: Kernel) -> Result<Info, Failure> {
    let mut info = Info::unreadable(path, &file.metadata().map_err(Failure::reading(file))?);
    let head = match head_of(file) {
        Ok(head) => head,
        Err(failure) => return Ok(Info { damages: vec![failure.into()], ..info }),
    };
    // Not before the root: a server may have made the file longer in between.
    let metadata = file.metadata().map_err(Failure::reading(file))?;
    (info.file_bytes, info.disk_bytes) = (metadata.len(), metadata.blocks() * 512);
    match Means::of(&head, keyring, random) {
        // The head may not be what it was: whatever key it wants, the container is at fault.
        Err(_) if !head.is_whole => {}
        Err(reason @ NoMeans::Key(_)) if keyring.is_empty() || reason.is_for_want_of_key() => {
            info.damages = damage::of_head(&head, info.file_bytes);
            // To be without any key is no fault of anybody's.
            if !keyring.is_empty() {
                info.failed.push(Fault::new(&info.path, reason));
            }
        }
        Err(reason) => info.damages.push(Damage::from(reason.to_string())),
        Ok(means) => info.look_inside(&means, file),
    }
    if !head.is_whole {
        if info.damages.is_empty() {
            let part = Some(pgshrink_cfs::Part::Root.name());
            info.damages.push(Damage { part, ..Damage::from("no intact root".to_owned()) });
        }
    } else {
        info.read_head(&head);
    }
    Ok(info)
}

impl Info {
    fn unreadable(path: &Path, metadata: &Metadata) -> Info {
        Info {
            path: path.display().to_string(),
            container: None,
            tablespace: None,
            database: None,
            relation: None,
            fork: None,
            segment: None,
            pages: None,
            sequence: None,
            epoch: None,
            closed: None,
            key_id: None,
            file_bytes: metadata.len(),
            disk_bytes: metadata.blocks() * 512,
            ratio: None,
            inside: None,
            damages: Vec::new(),
            failed: Vec::new(),
            was_opened: false,
        }
    }

    /// What opening shows, and what is wrong inside.
    fn look_inside(&mut self, means: &Means, file: &Path) {
        self.was_opened = true;
        match inside(means, file, self.file_bytes) {
            Ok((inside, damages)) => (self.inside, self.damages) = (inside, damages),
            Err(failure) => self.damages.push(failure.into()),
        }
    }

    /// What an intact root says.
    fn read_head(&mut self, head: &Clear) {
        self.container = Some(HexId(head.id).to_string());
        self.tablespace = Some(head.identity.tablespace);
        self.database = Some(head.identity.database);
        self.relation = Some(head.identity.relation);
        self.fork = Some(head.identity.fork);
        self.segment = Some(head.identity.segment);
        self.key_id = is_sealed(head).then(|| HexId(head.key_id).to_string());
        if head.may_be_older(self.file_bytes) {
            // Of the empty container that it once was, perhaps.
            return;
        }
        self.pages = Some(head.pages);
        self.sequence = Some(head.sequence);
        self.epoch = Some(head.epoch);
        self.closed = Some(head.is_closed);
        let plain = f64::from(head.pages) * PAGE_SIZE as f64;
        let ratio = if self.disk_bytes == 0 { 1.0 } else { plain / self.disk_bytes as f64 };
        self.ratio = self.damages.is_empty().then_some(ratio);
    }
}

/// None: not all of the map can be read.
fn inside(means: &Means, file: &Path, file_bytes: u64) -> Result<(Option<Inside>, Vec<Damage>), Failure> {
    let (mut reader, report) = means.open(file)?;
    let mut damages = report.map_or(Vec::new(), |report| damage::of_report(&report, file_bytes));
    if let Err(error) = reader.container().complete() {
        damages.push(Damage::from(&error));
        return Ok((None, damages));
    }
    let mut modes: BTreeMap<String, u32> = BTreeMap::new();
    let mut record_bytes = 0;
    for block in 0..reader.pages() {
        let name = match reader.stored(block) {
            Ok(pgshrink_cfs::Stored::Zeros) => "zeros".to_owned(),
            Ok(pgshrink_cfs::Stored::Base(_)) => "in the plain file beside it".to_owned(),
            Ok(pgshrink_cfs::Stored::Record { mode, payload, .. }) => {
                record_bytes += (payload.len() as u64 + 16).next_multiple_of(16);
                mode_name(mode)
            }
            Err(error) => {
                let damage = Damage::from(&error);
                // What its entry says it takes, or would.
                let is_record = damage.part == Some(pgshrink_cfs::Part::Page.name());
                record_bytes += damage.bytes.filter(|_| is_record).unwrap_or(0).next_multiple_of(16);
                if damages.len() < LISTED_MAX {
                    damages.push(damage);
                }
                DAMAGED.to_owned()
            }
        };
        *modes.entry(name).or_default() += 1;
    }
    let stats = reader.container().stats();
    let dictionaries = reader.container().dictionary_ids().map_or(0, |ids| ids.len() as u32);
    let inside = Inside {
        live_bytes: stats.live_bytes,
        garbage_bytes: stats.allocated_bytes.saturating_sub(stats.live_bytes),
        map_bytes: stats.live_bytes.saturating_sub(record_bytes),
        dictionaries,
        modes,
    };
    Ok((Some(inside), damages))
}

/// Instead of how a page is stored.
const DAMAGED: &str = "damaged";

/// `zstd, rearranged, dictionary`.
fn mode_name(byte: u8) -> String {
    match Mode::from_byte(byte) {
        Ok(mode) if mode == Mode::RAW => "raw".to_owned(),
        Ok(mode) => {
            let mut name = mode.algorithm().name().to_owned();
            for (is, word) in
                [(mode.is_transformed(), ", rearranged"), (mode.has_dictionary(), ", dictionary")]
            {
                if is {
                    name.push_str(word);
                }
            }
            name
        }
        Err(_) => format!("unknown mode {byte}"),
    }
}

/// Instead of what a container without an intact root does not say.
const UNREADABLE: &str = "unreadable";

fn text(info: &Info) -> String {
    let shown = |text: Option<String>| text.unwrap_or_else(|| UNREADABLE.to_owned());
    let mut lines = vec![
        info.path.clone(),
        format!("  container   {}", shown(info.container.clone())),
        format!("  segment     {}", shown(segment(info))),
        format!(
            "  pages       {}",
            shown(info.pages.map(|pages| format!("{pages} ({})", size(u64::from(pages) * PAGE_SIZE as u64))))
        ),
        format!(
            "  on disk     {} ({}), file {}",
            size(info.disk_bytes),
            info.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}x")),
            size(info.file_bytes)
        ),
        format!("  root        {}", shown(root(info))),
        format!(
            "  key         {}",
            match (&info.key_id, &info.container) {
                (Some(key), _) => key.as_str(),
                (None, Some(_)) => "none, not encrypted",
                (None, None) => UNREADABLE,
            }
        ),
    ];
    match &info.inside {
        Some(inside) => {
            lines.push(format!(
                "  inside      {} live, of that map and dictionaries {}; garbage {}",
                size(inside.live_bytes),
                size(inside.map_bytes),
                size(inside.garbage_bytes)
            ));
            lines.push(format!("  dictionaries {}", inside.dictionaries));
            let page = |count: u32| if count == 1 { "page" } else { "pages" };
            let modes = inside.modes.iter();
            lines.extend(modes.map(|(name, count)| format!("  {count:>9}   {} {name}", page(*count))));
        }
        None if info.key_id.is_some() && info.failed.is_empty() && !info.was_opened => {
            lines.push("  inside      needs the key (--key-file)".to_owned());
        }
        None => {}
    }
    lines.extend(problems(info).map(|problem| format!("  PROBLEM     {problem}")));
    lines.join("\n") + "\n"
}

/// Damaged pages in one line: `verify` lists them.
fn problems(info: &Info) -> impl Iterator<Item = String> {
    let pages = info.inside.as_ref().and_then(|inside| inside.modes.get(DAMAGED)).copied().unwrap_or(0);
    let is_listed = move |damage: &&Damage| pages == 0 || damage.block.is_none();
    let listed = info.damages.iter().filter(is_listed).map(|damage| damage.message.clone());
    let counted = counted(pages.into(), "page is", "pages are") + " damaged; pgshrink cfs verify lists them";
    let failed = info.failed.iter().map(|fault| fault.damage.message.clone());
    listed.chain((pages > 0).then_some(counted)).chain(failed)
}

fn segment(info: &Info) -> Option<String> {
    let (tablespace, database) = (info.tablespace?, info.database?);
    match info.relation? {
        0 => Some("none: a file of another kind (formats/cfs-tree.md)".to_owned()),
        relation => Some(format!(
            "tablespace {tablespace} database {database} relation {relation} fork {} segment {}",
            info.fork?, info.segment?
        )),
    }
}

fn root(info: &Info) -> Option<String> {
    let closed = if info.closed? { ", closed" } else { "" };
    Some(format!("sequence {}, epoch {}{closed}", info.sequence?, info.epoch?))
}
