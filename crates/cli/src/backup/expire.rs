//! `pgshrink expire`: removes old backups.

use super::claim;
use super::clock;
use super::keys;
use super::lease;
use super::whole::{Names, Whole, names};
use super::{Failure, State as Look, print};
use crate::args::ExpireArgs;
use crate::cfs::output;
use pgshrink_backup::manifest::SystemIdentifier;
use pgshrink_backup::retention::{Backup, BackupName, Decision, Lease, Plan, Rules, State, plan};
use pgshrink_repository::Repository;
use serde::Serialize;

/// What happens to a backup.
#[derive(Serialize)]
struct Line {
    backup: String,
    /// Whether it stays.
    keep: bool,
    reason: String,
}

/// What happens to all of them.
#[derive(Serialize)]
struct Outcome {
    dry_run: bool,
    backups: Vec<Line>,
    removed: usize,
}

pub(super) fn run(args: &ExpireArgs) -> Result<(), Failure> {
    let is_ruled = args.keep_last.is_some() || args.keep_days.is_some();
    if !is_ruled && !args.abandoned && args.remove.is_empty() {
        let what =
            "give --keep-last, --keep-days or both; or --abandoned or --remove, for incomplete backups alone";
        return Err(Failure::new("expire", what));
    }
    let repository = keys::open(&args.from)?;
    let names = names(&*repository)?;
    let named: Result<Vec<BackupName>, _> = args.remove.iter().map(|name| name.parse()).collect();
    let rules = Rules {
        keep_last: args.keep_last,
        keep_days: args.keep_days,
        now: Some(clock::now()?),
        remove_abandoned: args.abandoned,
        named: named?,
    };
    let found = Found::read(&*repository, &names, &rules)?;
    if let Some((name, error)) = found.unreadable.iter().find(|(name, _)| args.remove.contains(name)) {
        let what = format!(
            "not removed: it cannot be read and may be complete ({error}). If you are sure that it is not \
             needed, remove it by hand, with everything below {name}/"
        );
        return Err(Failure::new("--remove", what));
    }
    let plan = plan(&found.backups, &rules)?;
    let mut lines: Vec<Line> = plan.decisions().iter().map(Line::of).collect();
    lines.extend(found.unreadable.iter().map(|(backup, error)| Line {
        backup: backup.clone(),
        keep: true,
        reason: format!("it cannot be read, and is kept so that you can examine it: {error}"),
    }));
    lines.extend(names.removing.iter().map(|backup| Line {
        backup: backup.clone(),
        keep: false,
        reason: "another run of expire was interrupted".to_owned(),
    }));
    let removed = match args.dry_run {
        true => 0,
        false => remove(&*repository, &names, &plan, &mut lines)?,
    };
    lines.sort_by(|one, other| one.backup.cmp(&other.backup));
    print(&args.output, &Outcome { dry_run: args.dry_run, backups: lines, removed }, show)
}

/// What a repository has.
struct Found {
    backups: Vec<Backup>,
    unreadable: Vec<(String, Failure)>,
}

impl Found {
    fn read(repository: &dyn Repository, names: &Names, rules: &Rules) -> Result<Found, Failure> {
        let mut found = Found { backups: Vec::new(), unreadable: Vec::new() };
        for (name, attempt) in &names.whole {
            match Whole::read(repository, name, *attempt) {
                Ok(whole) => found.backups.push(whole.for_retention()?),
                Err(error) if Look::of(&error).is_some() => found.unreadable.push((name.clone(), error)),
                Err(error) => return Err(error),
            }
        }
        let leases = match rules.remove_abandoned {
            true => lease::observe(repository, &names.begun)?,
            false => vec![Lease::Unobserved; names.begun.len()],
        };
        for (name, lease) in names.begun.iter().zip(leases) {
            let system = claim::Begun::last(repository, name);
            let system = system.ok().and_then(|begun| begun.system_identifier.parse().ok());
            found.backups.push(Backup {
                name: name.parse()?,
                // Nothing follows from it for one that is incomplete.
                system: system.unwrap_or(SystemIdentifier(0)),
                parent: None,
                state: State::Incomplete(lease),
            });
        }
        Ok(found)
    }
}

/// Carries the plan out, and says how many backups are gone.
fn remove(
    repository: &dyn Repository,
    names: &Names,
    plan: &Plan,
    lines: &mut [Line],
) -> Result<usize, Failure> {
    let mut removed = 0;
    for name in plan.removals().iter().map(BackupName::as_str) {
        let is_complete = names.whole.iter().any(|(whole, _)| whole == name);
        if claim::mark_for_removal(repository, name, is_complete)? {
            claim::remove(repository, name)?;
            removed += 1;
        } else if let Some(line) = lines.iter_mut().find(|line| line.backup == name) {
            (line.keep, line.reason) = (true, "it was completed in the meantime".to_owned());
        }
    }
    for name in &names.removing {
        claim::remove(repository, name)?;
        removed += 1;
    }
    Ok(removed)
}

impl Line {
    fn of(decision: &Decision) -> Line {
        Line {
            backup: decision.name.as_str().to_owned(),
            keep: decision.reason.keeps(),
            reason: decision.reason.to_string(),
        }
    }
}

fn show(outcome: &Outcome) -> String {
    let mut rows = vec![["BACKUP", "", "WHY"].map(str::to_owned).to_vec()];
    rows.extend(outcome.backups.iter().map(|line| {
        let what = match (line.keep, outcome.dry_run) {
            (true, _) => "kept",
            (false, true) => "would be removed",
            (false, false) => "removed",
        };
        vec![line.backup.clone(), what.to_owned(), line.reason.clone()]
    }));
    output::words(&rows)
}
