//! Making the plan.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::{BACKUPS_MAX, Backup, BackupName, Lease, Reason, Rules, State};
use crate::error::Error;
use crate::manifest::SystemIdentifier;
use crate::wal::{Lsn, Timeline};

/// What happens to one backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The backup.
    pub name: BackupName,
    /// Whether it is kept ([`Reason::keeps`]), and why or why not.
    pub reason: Reason,
}

/// What happens to every backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    decisions: Vec<Decision>,
    removals: Vec<BackupName>,
}

impl Plan {
    /// A decision for each backup, in the order they were given in.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// What is to be removed, in this order: a backup before what it depends on. When a removal is
    /// interrupted, no backup is left without its parent.
    pub fn removals(&self) -> &[BackupName] {
        &self.removals
    }
}

/// Decides about every backup of a repository.
///
/// # Errors
/// [`Error::Retention`] when there is neither a rule nor a backup in progress to be removed, when a named backup is none that may be named, when a name
/// comes twice or when backups depend on each other in a circle; [`Error::Limit`] over [`BACKUPS_MAX`]. Then
/// nothing may be removed.
pub fn plan(backups: &[Backup], rules: &Rules) -> Result<Plan, Error> {
    let is_ruled = rules.keep_last.is_some() || rules.keep_days.is_some();
    if !is_ruled && !rules.remove_abandoned && rules.named.is_empty() {
        return Err(refused("neither a number of backups nor a number of days to keep is given"));
    }
    if backups.len() > BACKUPS_MAX {
        return Err(Error::Limit {
            what: "backups",
            found: backups.len() as u64,
            allowed: BACKUPS_MAX as u64,
        });
    }
    let list = List::new(backups)?;
    let broken = list.broken();
    let named = list.named(rules, &broken)?;
    let mut reasons: Vec<Option<Reason>> = vec![None; backups.len()];
    for (index, backup) in backups.iter().enumerate() {
        reasons[index] = match backup.state {
            _ if named.contains(&index) => Some(Reason::Named),
            State::Incomplete(Lease::Silent) if rules.remove_abandoned => Some(Reason::Abandoned),
            State::Incomplete(_) => Some(Reason::InProgress),
            State::Complete { .. } => broken[index].map(|parent| Reason::Broken(parent.clone())),
        };
    }
    for newest_first in list.systems(&broken) {
        apply(&newest_first, rules, &mut reasons);
    }
    list.keep_parents(&mut reasons);
    let decide = |(backup, reason): (&Backup, Option<Reason>)| {
        // Every backup is in progress, broken or in the list of its system.
        let reason = reason.unwrap_or(Reason::InProgress);
        Decision { name: backup.name.clone(), reason }
    };
    let decisions: Vec<Decision> = backups.iter().zip(reasons).map(decide).collect();
    let mut removed: Vec<usize> =
        (0..backups.len()).filter(|index| !decisions[*index].reason.keeps()).collect();
    let depths = list.depths();
    removed.sort_by_key(|index| (Reverse(depths[*index]), *index));
    let removals = removed.into_iter().map(|index| backups[index].name.clone()).collect();
    Ok(Plan { decisions, removals })
}

/// Index of the complete backup with a whole chain that ended last, in a list of one system's backups.
///
/// # Errors
/// [`Error::Retention`] for names that come twice and dependencies in a circle.
pub fn newest(backups: &[Backup]) -> Result<Option<usize>, Error> {
    let list = List::new(backups)?;
    let systems = list.systems(&list.broken());
    Ok(systems.first().and_then(|newest_first| newest_first.first()).map(|newest| newest.index))
}

/// A complete backup with a whole chain.
struct Restorable {
    index: usize,
    timeline: Timeline,
    stop: Lsn,
    /// When it ended, put right where a clock was ahead.
    seconds: i64,
}

/// Decides about the restorable backups of one system.
fn apply(newest_first: &[Restorable], rules: &Rules, reasons: &mut [Option<Reason>]) {
    let Some(newest) = newest_first.first() else { return };
    let reference = rules.now.map_or(newest.seconds, |now| newest.seconds.min(now.unix_seconds()));
    for (rank, backup) in (1..).zip(newest_first) {
        // One from the future has no age.
        let age = u64::try_from(reference - backup.seconds).unwrap_or(0);
        let days = age / DAY_SECONDS;
        let reason = match (rules.keep_last, rules.keep_days) {
            (Some(rule), _) if rank <= rule => Reason::KeepLast { rank, rule },
            (_, Some(rule)) if age <= u64::from(rule) * DAY_SECONDS => Reason::KeepDays { age: days, rule },
            (None, None) => Reason::NotAsked,
            _ if rank == 1 => Reason::Newest,
            _ => Reason::Expired { rank, age: days },
        };
        reasons[backup.index] = Some(reason);
    }
}

const DAY_SECONDS: u64 = 86_400;

struct List<'a> {
    backups: &'a [Backup],
    /// The parent's index, where it is there.
    parents: Vec<Option<usize>>,
    by_name: HashMap<&'a BackupName, usize>,
}

impl<'a> List<'a> {
    fn new(backups: &'a [Backup]) -> Result<List<'a>, Error> {
        let mut by_name = HashMap::with_capacity(backups.len());
        for (index, backup) in backups.iter().enumerate() {
            if by_name.insert(&backup.name, index).is_some() {
                return Err(refused(format!("two backups have the name {}", backup.name)));
            }
        }
        let parent = |backup: &Backup| backup.parent.as_ref().and_then(|parent| by_name.get(parent).copied());
        let list = List { backups, parents: backups.iter().map(parent).collect(), by_name };
        list.check_circles()?;
        Ok(list)
    }

    /// When this has passed, every chain of parents has an end.
    fn check_circles(&self) -> Result<(), Error> {
        // 0: not seen, else the walk that saw it first.
        let mut seen = vec![0; self.backups.len()];
        for start in 0..self.backups.len() {
            let mut at = Some(start);
            while let Some(index) = at.filter(|index| seen[*index] == 0) {
                seen[index] = start + 1;
                at = self.parents[index];
            }
            if let Some(index) = at.filter(|index| seen[*index] == start + 1) {
                return Err(refused(format!("backup {} depends on itself", self.backups[index].name)));
            }
        }
        Ok(())
    }

    /// All backups, each one after what it depends on.
    fn parents_first(&self) -> Vec<usize> {
        let mut done = vec![false; self.backups.len()];
        let mut order = Vec::with_capacity(self.backups.len());
        let mut chain = Vec::new();
        for start in 0..self.backups.len() {
            let mut at = Some(start);
            while let Some(index) = at.filter(|index| !done[*index]) {
                done[index] = true;
                chain.push(index);
                at = self.parents[index];
            }
            order.extend(chain.drain(..).rev());
        }
        order
    }

    /// For each backup that has no whole chain, the name of the parent that is missing in it.
    fn broken(&self) -> Vec<Option<&'a BackupName>> {
        let mut broken: Vec<Option<&BackupName>> = vec![None; self.backups.len()];
        for index in self.parents_first() {
            let Some(name) = &self.backups[index].parent else { continue };
            broken[index] = match self.parents[index] {
                None => Some(name),
                Some(parent) => {
                    let whole = matches!(self.backups[parent].state, State::Complete { .. })
                        && self.backups[parent].system == self.backups[index].system;
                    if whole { broken[parent] } else { Some(name) }
                }
            };
        }
        broken
    }

    /// How many backups each one depends on.
    fn depths(&self) -> Vec<usize> {
        let mut depths = vec![0; self.backups.len()];
        for index in self.parents_first() {
            depths[index] = self.parents[index].map_or(0, |parent| depths[parent] + 1);
        }
        depths
    }

    fn named(&self, rules: &Rules, broken: &[Option<&BackupName>]) -> Result<HashSet<usize>, Error> {
        let find = |name| {
            let Some(&index) = self.by_name.get(name) else {
                return Err(refused(format!("there is no backup {name}")));
            };
            match self.backups[index].state {
                State::Complete { .. } if broken[index].is_none() => {
                    let what = "is complete and can be restored: only the rules remove it";
                    Err(refused(format!("backup {name} {what}")))
                }
                _ => Ok(index),
            }
        };
        rules.named.iter().map(find).collect()
    }

    /// The restorable backups of each system, the newest first.
    fn systems(&self, broken: &[Option<&BackupName>]) -> Vec<Vec<Restorable>> {
        let mut systems: HashMap<SystemIdentifier, Vec<Restorable>> = HashMap::new();
        for (index, backup) in self.backups.iter().enumerate() {
            if let State::Complete { timeline, stop, stop_time } = backup.state
                && broken[index].is_none()
            {
                let restorable = Restorable { index, timeline, stop, seconds: stop_time.unix_seconds() };
                systems.entry(backup.system).or_default().push(restorable);
            }
        }
        let mut systems: Vec<Vec<Restorable>> = systems.into_values().collect();
        for system in &mut systems {
            correct_clocks(system, &self.parents);
            let name = |restorable: &Restorable| &self.backups[restorable.index].name;
            system.sort_by(|a, b| {
                let key = |r: &Restorable| (r.seconds, r.timeline, r.stop);
                key(b).cmp(&key(a)).then_with(|| name(b).cmp(name(a)))
            });
        }
        systems
    }

    /// Keeps what kept backups depend on.
    fn keep_parents(&self, reasons: &mut [Option<Reason>]) {
        // Children first, so that one pass reaches the ends of all chains.
        for index in self.parents_first().into_iter().rev() {
            let kept = reasons[index].as_ref().is_some_and(Reason::keeps);
            if let Some(parent) = self.parents[index].filter(|_| kept) {
                // What the user named goes: it is not complete or broken, so its child is of no use either.
                if let Some(Reason::Expired { .. } | Reason::Abandoned) = reasons[parent] {
                    reasons[parent] = Some(Reason::NeededBy(self.backups[index].name.clone()));
                }
            }
        }
    }
}

/// No backup ended after one further on its timeline, nor after one that depends on it.
///
/// Times are taken in ascending order, and each is handed on to the earlier backups that have none yet: so
/// every backup gets the least of all that bound it, and is visited once.
fn correct_clocks(system: &mut [Restorable], parents: &[Option<usize>]) {
    system.sort_by_key(|restorable| (restorable.timeline, restorable.stop));
    let places: HashMap<usize, usize> =
        system.iter().enumerate().map(|(place, own)| (own.index, place)).collect();
    let mut by_time: Vec<usize> = (0..system.len()).collect();
    by_time.sort_by_key(|place| system[*place].seconds);
    let mut done = vec![false; system.len()];
    let mut reached = Vec::new();
    for start in by_time {
        let seconds = system[start].seconds;
        reached.push(start);
        while let Some(place) = reached.pop() {
            if std::mem::replace(&mut done[place], true) {
                continue;
            }
            system[place].seconds = seconds;
            let own = (system[place].timeline, system[place].stop);
            let not_after = |other: &usize| {
                let other = &system[*other];
                other.timeline == own.0 && other.stop <= own.1
            };
            reached.extend(place.checked_sub(1).filter(not_after));
            reached.extend(Some(place + 1).filter(|next| *next < system.len()).filter(not_after));
            reached.extend(parents[system[place].index].and_then(|parent| places.get(&parent).copied()));
        }
    }
}

fn refused(why: impl Into<String>) -> Error {
    Error::Retention { why: why.into() }
}
