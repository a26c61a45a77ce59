//! Plans of removals against the rules as they are told, on random repositories.

use std::collections::{BTreeMap, BTreeSet};

use pgshrink_backup::manifest::SystemIdentifier;
use pgshrink_backup::retention::{Backup, BackupName, Lease, Plan, Reason, Rules, State, plan};
use pgshrink_backup::{Error, Lsn, ServerTime, Timeline};
use pgshrink_testkit::{Rng, Seed};

const DAY: i64 = 86_400;

fn name(text: &str) -> BackupName {
    text.parse().unwrap()
}

fn time(seconds: i64) -> ServerTime {
    ServerTime::from_unix_seconds(seconds).unwrap()
}

fn complete(text: &str, day: i64, parent: Option<&str>) -> Backup {
    let state = State::Complete {
        timeline: Timeline::FIRST,
        stop: Lsn(day as u64 * 100),
        stop_time: time(day * DAY),
    };
    Backup { name: name(text), system: SystemIdentifier(1), parent: parent.map(name), state }
}

fn begun(text: &str, parent: Option<&str>, lease: Lease) -> Backup {
    Backup { state: State::Incomplete(lease), ..complete(text, 0, parent) }
}

fn keep(last: Option<u32>, days: Option<u32>) -> Rules {
    Rules { keep_last: last, keep_days: days, ..Rules::default() }
}

fn removed(backups: &[Backup], rules: &Rules) -> Vec<String> {
    plan(backups, rules).unwrap().removals().iter().map(BackupName::to_string).collect()
}

fn reason(plan: &Plan, text: &str) -> Reason {
    plan.decisions().iter().find(|decision| decision.name.as_str() == text).unwrap().reason.clone()
}

#[test]
fn either_rule_keeps_a_backup_and_the_rest_goes() {
    let backups = ["a", "b", "c", "d"].map(|text| complete(text, i64::from(text.as_bytes()[0]), None));
    assert_eq!(removed(&backups, &keep(Some(2), None)), ["a", "b"]);
    assert_eq!(removed(&backups, &keep(None, Some(2))), ["a"]);
    assert_eq!(removed(&backups, &keep(Some(1), Some(1))), ["a", "b"]);
    assert_eq!(removed(&backups, &keep(Some(0), None)), ["a", "b", "c"]);
    let plan = plan(&backups, &keep(Some(2), Some(1))).unwrap();
    assert_eq!(reason(&plan, "d"), Reason::KeepLast { rank: 1, rule: 2 });
    let words = reason(&plan, "a").to_string();
    assert_eq!(words, "no rule keeps it: number 4 from the newest, 3 days before it");
}

#[test]
fn without_a_rule_nothing_is_planned() {
    let refused = plan(&[complete("a", 1, None)], &Rules::default());
    assert!(matches!(refused, Err(Error::Retention { .. })));
    assert!(removed(&[], &keep(Some(1), None)).is_empty());
}

#[test]
fn incomplete_backups_go_without_a_rule_for_complete_ones() {
    let backups = [
        complete("a", 1, None),
        complete("b", 9, None),
        begun("c", None, Lease::Silent),
        begun("d", None, Lease::Unobserved),
    ];
    let abandoned = Rules { remove_abandoned: true, ..Rules::default() };
    assert_eq!(removed(&backups, &abandoned), ["c"]);
    assert_eq!(reason(&plan(&backups, &abandoned).unwrap(), "a"), Reason::NotAsked);
    assert_eq!(removed(&backups, &Rules { named: vec![name("d")], ..Rules::default() }), ["d"]);
    let complete = Rules { named: vec![name("a")], ..Rules::default() };
    assert!(plan(&backups, &complete).is_err(), "a complete one goes by the rules alone");
}

#[test]
fn chains_are_kept_whole_and_removed_from_their_end() {
    let backups = [
        complete("full", 1, None),
        complete("first", 2, Some("full")),
        complete("second", 3, Some("first")),
        complete("new", 50, None),
        complete("newer", 51, Some("new")),
    ];
    assert_eq!(removed(&backups, &keep(Some(2), None)), ["second", "first", "full"]);
    assert_eq!(removed(&backups, &keep(Some(3), None)), [""; 0]);
    let plan = plan(&backups, &keep(Some(1), None)).unwrap();
    assert_eq!(reason(&plan, "new"), Reason::NeededBy(name("newer")));
}

#[test]
fn a_backup_in_progress_keeps_itself_and_its_parent() {
    let silent = begun("silent", Some("old"), Lease::Silent);
    let backups =
        [complete("old", 1, None), complete("new", 90, None), silent, begun("live", None, Lease::Renewed)];
    let rules = keep(Some(1), None);
    assert_eq!(removed(&backups, &rules), [""; 0]);
    let abandoned = Rules { remove_abandoned: true, ..rules.clone() };
    assert_eq!(removed(&backups, &abandoned), ["silent", "old"]);
    let named = Rules { named: vec![name("live")], ..rules.clone() };
    assert_eq!(removed(&backups, &named), ["live"]);
    for (text, why) in [("new", "can be restored"), ("none", "no backup none")] {
        let refused =
            plan(&backups, &Rules { named: vec![name(text)], ..rules.clone() }).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_broken_chain_takes_no_good_backups_place() {
    let other = Backup { system: SystemIdentifier(2), ..complete("other", 1, None) };
    let backups = [
        complete("good", 1, None),
        complete("orphan", 5, Some("gone")),
        complete("child", 6, Some("orphan")),
        complete("unfinished", 7, Some("begun")),
        begun("begun", None, Lease::Unobserved),
        complete("foreign", 8, Some("other")),
        other,
    ];
    let planned = plan(&backups, &keep(Some(1), None)).unwrap();
    assert_eq!(planned.removals(), []);
    assert_eq!(reason(&planned, "good"), Reason::KeepLast { rank: 1, rule: 1 });
    for (text, missing) in
        [("orphan", "gone"), ("child", "gone"), ("unfinished", "begun"), ("foreign", "other")]
    {
        assert_eq!(reason(&planned, text), Reason::Broken(name(missing)), "{text}");
    }
    let named = Rules { named: vec![name("orphan"), name("child")], ..keep(Some(1), None) };
    assert_eq!(removed(&backups, &named), ["child", "orphan"]);
}

#[test]
fn a_list_that_contradicts_itself_is_an_error() {
    let twice = [complete("a", 1, None), complete("a", 2, None)];
    let circle = [complete("a", 1, Some("c")), complete("b", 2, Some("a")), complete("c", 3, Some("b"))];
    let own = [complete("x", 9, None), complete("a", 1, Some("a"))];
    for backups in [&twice[..], &circle, &own] {
        assert!(matches!(plan(backups, &keep(Some(1), None)), Err(Error::Retention { .. })));
    }
}

#[test]
fn clocks_that_were_ahead_remove_nothing() {
    // The second backup was made with a clock ten years ahead, which was put right afterwards.
    let mut backups = [1, 2, 3, 4].map(|day| complete(&format!("day{day}"), day, None));
    let State::Complete { stop_time, .. } = &mut backups[1].state else { unreachable!() };
    *stop_time = time(3650 * DAY);
    assert_eq!(removed(&backups, &keep(None, Some(7))), [""; 0]);
    assert_eq!(removed(&backups, &keep(Some(2), None)), ["day1", "day2"]);
    // As long as it is the newest, only the local clock can tell.
    let ahead = &backups[..2];
    assert_eq!(removed(ahead, &keep(None, Some(7))), ["day1"]);
    assert_eq!(removed(ahead, &Rules { now: Some(time(2 * DAY)), ..keep(None, Some(7)) }), [""; 0]);
}

struct Model<'a> {
    by_name: BTreeMap<&'a BackupName, &'a Backup>,
    rules: &'a Rules,
    /// What [`Model::put_right`] gives.
    seconds: BTreeMap<&'a BackupName, i64>,
}

impl<'a> Model<'a> {
    fn parent(&self, backup: &Backup) -> Option<&'a Backup> {
        backup.parent.as_ref().and_then(|parent| self.by_name.get(parent).copied())
    }

    fn restorable(&self, backup: &Backup) -> bool {
        let chain = match &backup.parent {
            None => true,
            Some(_) => self
                .parent(backup)
                .is_some_and(|parent| parent.system == backup.system && self.restorable(parent)),
        };
        chain && matches!(backup.state, State::Complete { .. })
    }

    /// Time, put right; timeline; LSN; name: what backups of a system are ordered by.
    fn key(&self, backup: &'a Backup) -> (i64, Timeline, Lsn, &'a BackupName) {
        let State::Complete { timeline, stop, .. } = backup.state else { unreachable!() };
        (self.seconds[&backup.name], timeline, stop, &backup.name)
    }

    /// Times of all restorable backups, lowered until none contradicts another.
    fn put_right(&mut self) {
        let all: Vec<&Backup> =
            self.by_name.values().copied().filter(|backup| self.restorable(backup)).collect();
        let place = |backup: &Backup| match backup.state {
            State::Complete { timeline, stop, stop_time } => (timeline, stop, stop_time.unix_seconds()),
            State::Incomplete(_) => unreachable!(),
        };
        self.seconds = all.iter().map(|backup| (&backup.name, place(backup).2)).collect();
        for _ in 0..all.len() {
            for (earlier, later) in
                all.iter().flat_map(|earlier| all.iter().map(move |later| (earlier, later)))
            {
                let (own, other) = (place(earlier), place(later));
                let on_timeline = earlier.system == later.system && own.0 == other.0 && own.1 <= other.1;
                if on_timeline || later.parent.as_ref() == Some(&earlier.name) {
                    let least = self.seconds[&earlier.name].min(self.seconds[&later.name]);
                    self.seconds.insert(&earlier.name, least);
                }
            }
        }
    }

    fn siblings(&self, backup: &Backup) -> impl Iterator<Item = &'a Backup> {
        let system = backup.system;
        self.by_name.values().copied().filter(move |other| other.system == system && self.restorable(other))
    }

    fn kept_by_rule(&self, backup: &'a Backup) -> bool {
        if self.rules.named.contains(&backup.name) {
            return false;
        }
        if let State::Incomplete(lease) = backup.state {
            return !(self.rules.remove_abandoned && lease == Lease::Silent);
        }
        if !self.restorable(backup) {
            return true;
        }
        let key = self.key(backup);
        let newer = self.siblings(backup).filter(|other| self.key(other) > key).count() as u32;
        let newest = self.siblings(backup).map(|other| self.key(other).0).max().unwrap();
        let reference = self.rules.now.map_or(newest, |now| newest.min(now.unix_seconds()));
        newer == 0
            || self.rules.keep_last.is_some_and(|last| newer < last)
            || self.rules.keep_days.is_some_and(|days| reference - key.0 <= i64::from(days) * DAY)
    }

    fn removed(&self) -> BTreeSet<BackupName> {
        let mut kept: BTreeSet<&BackupName> = self
            .by_name
            .values()
            .filter(|backup| self.kept_by_rule(backup))
            .map(|backup| &backup.name)
            .collect();
        loop {
            let parents = kept.iter().filter_map(|name| self.parent(self.by_name[name]));
            let parents = parents.filter(|parent| !self.rules.named.contains(&parent.name));
            let grown: BTreeSet<&BackupName> =
                kept.iter().copied().chain(parents.map(|parent| &parent.name)).collect();
            if grown.len() == kept.len() {
                return self
                    .by_name
                    .keys()
                    .filter(|name| !kept.contains(*name))
                    .map(|name| (*name).clone())
                    .collect();
            }
            kept = grown;
        }
    }
}

fn random_repository(rng: &mut Rng) -> Vec<Backup> {
    let count = rng.below(14);
    let mut backups = Vec::new();
    for number in 0..count {
        let parent = match rng.below(10) {
            0..4 if number > 0 => Some(name(&format!("b{}", rng.below(number)))),
            4 if rng.chance(30) => Some(name("gone")),
            _ => None,
        };
        let state = if rng.chance(20) {
            State::Incomplete(*rng.pick(&[Lease::Unobserved, Lease::Renewed, Lease::Silent]))
        } else {
            // Mostly in order, with clocks that are wrong now and then.
            let wrong = if rng.chance(10) { rng.below(4000) as i64 * DAY } else { 0 };
            let seconds = number as i64 * DAY + rng.below(DAY as usize) as i64 + wrong;
            let timeline = Timeline::new(rng.between(1, 2) as u32).unwrap();
            State::Complete { timeline, stop: Lsn(rng.below(20) as u64), stop_time: time(seconds) }
        };
        let system = SystemIdentifier(rng.between(1, 2) as u64);
        backups.push(Backup { name: name(&format!("b{number}")), system, parent, state });
    }
    for at in (1..backups.len()).rev() {
        backups.swap(at, rng.below(at + 1));
    }
    backups
}

#[test]
fn plans_are_what_the_rules_say() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut removals = 0;
    for _ in 0..5000 {
        let backups = random_repository(&mut rng);
        let mut rules = Rules { remove_abandoned: rng.chance(50), ..Rules::default() };
        rules.keep_last = rng.chance(60).then(|| rng.below(5) as u32);
        rules.keep_days = (rules.keep_last.is_none() || rng.chance(50)).then(|| rng.below(8) as u32);
        rules.now = rng.chance(50).then(|| time(rng.below(5000) as i64 * DAY));
        let by_name = backups.iter().map(|backup| (&backup.name, backup)).collect();
        let model = Model { by_name, rules: &rules, seconds: BTreeMap::new() };
        let may_be_named = |backup: &&Backup| !model.restorable(backup);
        let named: Vec<BackupName> =
            backups.iter().filter(may_be_named).map(|backup| backup.name.clone()).collect();
        let named: Vec<BackupName> = named.into_iter().filter(|_| rng.chance(20)).collect();
        let rules = Rules { named, ..rules.clone() };
        let mut model = Model { rules: &rules, ..model };
        model.put_right();

        let planned = plan(&backups, &rules).unwrap();
        let removed: BTreeSet<BackupName> = planned.removals().iter().cloned().collect();
        assert_eq!(removed, model.removed(), "{rules:?}\n{backups:#?}");
        removals += removed.len();
        check_promises(&backups, &rules, &planned, &removed);
    }
    assert!(removals > 1000, "{removals}");
}

/// What holds whatever the rules are.
fn check_promises(backups: &[Backup], rules: &Rules, planned: &Plan, removed: &BTreeSet<BackupName>) {
    for decision in planned.decisions() {
        assert_eq!(decision.reason.keeps(), !removed.contains(&decision.name));
    }
    // A backup goes before what it depends on.
    let position = |name: &BackupName| planned.removals().iter().position(|removed| removed == name);
    for backup in backups {
        if let (Some(own), Some(parent)) = (position(&backup.name), backup.parent.as_ref().and_then(position))
        {
            assert!(own < parent);
        }
    }
    // The order of the list does not matter.
    let mut reversed = backups.to_vec();
    reversed.reverse();
    let again: BTreeSet<BackupName> = plan(&reversed, rules).unwrap().removals().iter().cloned().collect();
    assert_eq!(&again, removed);
    // The local clock only keeps.
    let timeless: BTreeSet<BackupName> =
        plan(backups, &Rules { now: None, ..rules.clone() }).unwrap().removals().iter().cloned().collect();
    assert!(removed.is_subset(&timeless));
}

#[test]
fn a_plan_that_was_carried_out_leaves_nothing_to_remove() {
    let mut rng = Seed::from_env_or_time().rng();
    for _ in 0..2000 {
        let mut backups = random_repository(&mut rng);
        // Clocks that are right: LSNs and times are in the same order.
        for backup in &mut backups {
            let number: u64 = backup.name.as_str()[1..].parse().unwrap();
            if let State::Complete { stop, stop_time, .. } = &mut backup.state {
                (*stop, *stop_time) = (Lsn(number), time(number as i64 * DAY));
            }
        }
        let rules = keep(Some(rng.below(4) as u32), rng.chance(50).then(|| rng.below(4) as u32));
        let rules = Rules { remove_abandoned: rng.chance(50), ..rules };
        let gone = removed(&backups, &rules);
        backups.retain(|backup| !gone.contains(&backup.name.to_string()));
        assert_eq!(removed(&backups, &rules), [""; 0], "{rules:?}\n{backups:#?}");
    }
}

#[test]
fn long_chains_are_planned_in_a_moment() {
    let mut backups = vec![complete("b0", 0, None)];
    for number in 1..100_000 {
        let parent = format!("b{}", number - 1);
        backups.push(complete(&format!("b{number}"), number, Some(&parent)));
    }
    backups.reverse();
    assert_eq!(removed(&backups, &keep(Some(1), None)), [""; 0]);
    backups.push(complete("b100000", 100_000, None));
    assert!(matches!(plan(&backups, &keep(Some(1), None)), Err(Error::Limit { .. })));
    backups.remove(0);
    assert_eq!(removed(&backups, &keep(Some(1), None)).len(), 99_999);
}
