//! `pgshrink cfs info`.

use super::container::{Means, NoMeans, head_of, is_sealed};
use super::keys::{self, Kernel};
use super::output::{self, Progress, size};
use super::{Failure, Problem, Verdict, walk};
use crate::args::InfoArgs;
use pgshrink_cfs::page::{Mode, PAGE_SIZE};
use pgshrink_cfs::seal::{HexId, Keyring};
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// One container.
#[derive(Serialize)]
struct Info {
    path: String,
    container: String,
    tablespace: u32,
    database: u32,
    relation: u32,
    fork: u8,
    segment: u32,
    pages: u32,
    sequence: u64,
    epoch: u32,
    /// Closed after its last write.
    closed: bool,
    /// None: not sealed.
    key_id: Option<String>,
    file_bytes: u64,
    /// What the filesystem has allocated.
    disk_bytes: u64,
    ratio: f64,
    /// None: it did not open, for want of its key or by damage.
    inside: Option<Inside>,
    problem: Option<Problem>,
}

/// What takes opening it.
#[derive(Serialize)]
struct Inside {
    /// Records, map and dictionaries that the last commit refers to.
    live_bytes: u64,
    /// Of the file, what nothing refers to and is no hole.
    garbage_bytes: u64,
    /// Roots, map and dictionaries.
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
    Ok(Verdict::of_problems(all.iter().filter_map(|info| info.problem.as_ref())))
}

fn info(path: &Path, file: &Path, keyring: &mut Keyring, random: Kernel) -> Result<Info, Failure> {
    let metadata = file.metadata().map_err(Failure::reading(file))?;
    let head = match head_of(file) {
        Ok(head) => head,
        Err(failure) => {
            return Ok(unreadable(path, metadata.len(), metadata.blocks() * 512, failure.to_string()));
        }
    };
    let (inside, problem) = match Means::of(&head, keyring, random) {
        // To be without the key is no fault of the container.
        Err(NoMeans::Key(_)) if head.is_whole && keyring.is_empty() => (None, None),
        Err(reason) if head.is_whole => (None, Some(reason.into())),
        // The head may not be what it was: whatever key it wants, the container is at fault.
        Err(reason) => (None, Some(reason.to_string().into())),
        Ok(means) => match inside(&means, file) {
            Ok(inside) => {
                let damaged = inside.modes.get("damaged").map(|count| format!("{count} pages are damaged"));
                (Some(inside), damaged.map(Problem::from))
            }
            Err(reason) => (None, Some(reason.into())),
        },
    };
    let disk_bytes = metadata.blocks() * 512;
    Ok(Info {
        path: path.display().to_string(),
        container: HexId(head.id).to_string(),
        tablespace: head.identity.tablespace,
        database: head.identity.database,
        relation: head.identity.relation,
        fork: head.identity.fork,
        segment: head.identity.segment,
        pages: head.pages,
        sequence: head.sequence,
        epoch: head.epoch,
        closed: head.is_closed,
        key_id: is_sealed(&head).then(|| HexId(head.key_id).to_string()),
        file_bytes: metadata.len(),
        disk_bytes,
        ratio: if disk_bytes == 0 {
            1.0
        } else {
            f64::from(head.pages) * PAGE_SIZE as f64 / disk_bytes as f64
        },
        inside,
        problem: problem.or_else(|| (!head.is_whole).then(|| "no intact root".to_owned().into())),
    })
}

fn unreadable(path: &Path, file_bytes: u64, disk_bytes: u64, problem: String) -> Info {
    Info {
        path: path.display().to_string(),
        container: String::new(),
        tablespace: 0,
        database: 0,
        relation: 0,
        fork: 0,
        segment: 0,
        pages: 0,
        sequence: 0,
        epoch: 0,
        closed: false,
        key_id: None,
        file_bytes,
        disk_bytes,
        ratio: 1.0,
        inside: None,
        problem: Some(problem.into()),
    }
}

fn inside(means: &Means, file: &Path) -> Result<Inside, String> {
    let (mut reader, _) = means.open(file).map_err(|failure| failure.to_string())?;
    reader.container().complete().map_err(|error| error.to_string())?;
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
            Err(_) => "damaged".to_owned(),
        };
        *modes.entry(name).or_default() += 1;
    }
    let stats = reader.container().stats();
    let dictionaries = reader.container().dictionary_ids().map_or(0, |ids| ids.len() as u32);
    Ok(Inside {
        live_bytes: stats.live_bytes,
        garbage_bytes: stats.allocated_bytes.saturating_sub(stats.live_bytes),
        map_bytes: stats.live_bytes.saturating_sub(record_bytes),
        dictionaries,
        modes,
    })
}

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

fn text(info: &Info) -> String {
    let mut lines = vec![
        info.path.clone(),
        format!("  container   {}", info.container),
        match info.relation {
            _ if info.container.is_empty() => "  segment     cannot be read".to_owned(),
            0 => "  segment     none: a file of another kind (formats/cfs-tree.md)".to_owned(),
            relation => format!(
                "  segment     tablespace {} database {} relation {relation} fork {} segment {}",
                info.tablespace, info.database, info.fork, info.segment
            ),
        },
        format!("  pages       {} ({})", info.pages, size(u64::from(info.pages) * PAGE_SIZE as u64)),
        format!(
            "  on disk     {} ({:.2}x), file {}",
            size(info.disk_bytes),
            info.ratio,
            size(info.file_bytes)
        ),
        format!(
            "  root        sequence {}, epoch {}{}",
            info.sequence,
            info.epoch,
            if info.closed { ", closed" } else { "" }
        ),
        format!("  key         {}", info.key_id.as_deref().unwrap_or("none, not sealed")),
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
            lines.extend(inside.modes.iter().map(|(name, count)| format!("  {count:>9}   pages {name}")));
        }
        None if info.problem.is_none() => lines.push("  inside      needs the key (--key-file)".to_owned()),
        None => {}
    }
    lines.extend(info.problem.iter().map(|problem| format!("  PROBLEM     {problem}")));
    lines.join("\n") + "\n"
}
