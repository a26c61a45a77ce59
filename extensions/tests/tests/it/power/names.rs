//! Names of files: those that are on the disk for certain, and what was changed since.

use std::collections::{BTreeMap, HashMap};

use pgshrink_testkit::Rng;

/// A file, a directory or a link, whatever its names.
pub type Node = usize;

/// What is in directories.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Tree(HashMap<Node, BTreeMap<String, Node>>);

/// A change of names.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It was made, with this name.
    Add {
        directory: Node,
        name: String,
        node: Node,
    },
    /// It got another name.
    Link {
        directory: Node,
        name: String,
        node: Node,
    },
    Remove {
        directory: Node,
        name: String,
        node: Node,
    },
    Move {
        from: (Node, String),
        to: (Node, String),
        node: Node,
    },
    /// What had the one name has the other; both or neither.
    Exchange {
        places: [(Node, String); 2],
        nodes: [Node; 2],
    },
}

/// What an fsync promises of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// As ext4: changes of names are in one journal. An fsync writes the journal up to the file's or directory's
    /// own last change, and what survives is a first part of it.
    Journal,
    /// Each change survives by itself. An fsync of a directory makes durable what was changed in it; one of a file or
    /// a directory its own making and that of what is above it, as all of Linux's file systems do. The library does
    /// not count on the latter: names of a container's files need the fsyncs of its directories, and so does a
    /// second name of a file, or an exchange.
    Loose,
}

/// The names under one rule.
pub struct Names {
    rule: Rule,
    durable: Tree,
    pending: Vec<(u64, Change)>,
}

impl Tree {
    pub fn entries(&self, directory: Node) -> impl Iterator<Item = (&String, Node)> {
        self.0.get(&directory).into_iter().flatten().map(|(name, node)| (name, *node))
    }

    pub fn find(&self, directory: Node, name: &str) -> Option<Node> {
        self.0.get(&directory)?.get(name).copied()
    }

    /// Makes a change, if it still can be made.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Add { directory, name, node } | Change::Link { directory, name, node } => {
                self.0.entry(*directory).or_default().entry(name.clone()).or_insert(*node);
            }
            Change::Remove { directory, name, node } => {
                if self.find(*directory, name) == Some(*node) {
                    self.0.entry(*directory).or_default().remove(name);
                }
            }
            Change::Move { from, to, node } => {
                if self.find(from.0, &from.1) == Some(*node) {
                    self.0.entry(from.0).or_default().remove(&from.1);
                    self.0.entry(to.0).or_default().insert(to.1.clone(), *node);
                }
            }
            Change::Exchange { places, nodes } => {
                let found = [0, 1].map(|at: usize| self.find(places[at].0, &places[at].1));
                if found == nodes.map(Some) {
                    for ((directory, name), node) in places.iter().zip([nodes[1], nodes[0]]) {
                        self.0.entry(*directory).or_default().insert(name.clone(), node);
                    }
                }
            }
        }
    }

    /// Whether it is a container's directory.
    fn is_of_container(&self, directory: Node) -> bool {
        self.entries(directory).any(|(name, _)| name.starts_with("segment.pgshrink"))
    }
}

impl Change {
    /// What has another name by it.
    fn nodes(&self) -> [Option<Node>; 2] {
        match self {
            Change::Add { node, .. }
            | Change::Link { node, .. }
            | Change::Remove { node, .. }
            | Change::Move { node, .. } => [Some(*node), None],
            Change::Exchange { nodes, .. } => nodes.map(Some),
        }
    }

    fn is_of(&self, node: Node) -> bool {
        self.nodes().contains(&Some(node))
    }

    fn places(&self) -> [Option<(Node, &str)>; 2] {
        match self {
            Change::Add { directory, name, .. }
            | Change::Link { directory, name, .. }
            | Change::Remove { directory, name, .. } => [Some((*directory, name)), None],
            Change::Move { from, to, .. } => [Some((from.0, &from.1)), Some((to.0, &to.1))],
            Change::Exchange { places: [one, other], .. } => {
                [Some((one.0, &one.1)), Some((other.0, &other.1))]
            }
        }
    }

    fn is_in(&self, wanted: Node) -> bool {
        self.places().into_iter().flatten().any(|(directory, _)| directory == wanted)
    }

    fn is_tied_to(&self, other: &Change) -> bool {
        let (nodes, places) = (other.nodes(), other.places());
        self.nodes().iter().any(|node| node.is_some() && nodes.contains(node))
            || self.places().iter().any(|place| place.is_some() && places.contains(place))
    }
}

impl Names {
    pub fn new(rule: Rule, tree: &Tree) -> Names {
        Names { rule, durable: tree.clone(), pending: Vec::new() }
    }

    pub fn change(&mut self, sequence: u64, change: Change) {
        self.pending.push((sequence, change));
    }

    /// Everything that was changed before is durable.
    pub fn sync_all(&mut self, before: u64) {
        let durable = self.pending.iter().map(|(sequence, _)| *sequence < before).collect();
        self.take(durable);
    }

    /// An fsync of a file or directory that began at `before`. `made_as` is the name that it was made under; `now` is what
    /// the running system sees.
    pub fn sync(&mut self, node: Node, made_as: &str, before: u64, now: &Tree) {
        let is_due = |(sequence, change): &(u64, Change)| {
            *sequence < before && (change.is_of(node) || change.is_in(node))
        };
        if !self.pending.iter().any(is_due) {
            return;
        }
        let mut durable = vec![false; self.pending.len()];
        match self.rule {
            Rule::Journal => {
                let last = self.pending.iter().rposition(is_due).unwrap_or(0);
                durable[..=last].fill(true);
            }
            Rule::Loose => {
                for (durable, (sequence, change)) in durable.iter_mut().zip(&self.pending) {
                    *durable = *sequence < before && change.is_in(node);
                }
                if !is_of_library(made_as) && !now.is_of_container(node) {
                    self.mark_makings(node, before, &mut durable);
                }
                for at in (0..durable.len()).rev().filter(|at| *at > 0) {
                    for earlier in 0..at {
                        durable[earlier] |=
                            durable[at] && self.pending[earlier].1.is_tied_to(&self.pending[at].1);
                    }
                }
            }
        }
        self.take(durable);
    }

    /// Marks where a node was made, and what is above it.
    fn mark_makings(&self, mut node: Node, before: u64, durable: &mut [bool]) {
        while let Some(at) = self.pending.iter().position(
            |(sequence, change)| matches!(change, Change::Add { node: made, .. } if *made == node && *sequence < before),
        ) {
            durable[at] = true;
            let Change::Add { directory, .. } = self.pending[at].1 else { return };
            node = directory;
        }
    }

    fn take(&mut self, durable: Vec<bool>) {
        let mut durable = durable.into_iter();
        let tree = &mut self.durable;
        self.pending.retain(|(_, change)| {
            let is_durable = durable.next().unwrap_or(false);
            if is_durable {
                tree.apply(change);
            }
            !is_durable
        });
    }

    /// What may be found after a power failure, with so many percent of what was not synced.
    pub fn after_failure(&self, percent: usize, rng: &mut Rng) -> Tree {
        let mut tree = self.durable.clone();
        let first = match percent {
            0 => 0,
            100 => self.pending.len(),
            _ => rng.between(0, self.pending.len()),
        };
        for (at, (_, change)) in self.pending.iter().enumerate() {
            let survives = match self.rule {
                Rule::Journal => at < first,
                Rule::Loose => rng.chance(percent),
            };
            if survives {
                tree.apply(change);
            }
        }
        tree
    }
}

/// Whether a file that was made under this name is a container's, or a base that it began with.
fn is_of_library(made_as: &str) -> bool {
    made_as.starts_with("segment.pgshrink") || made_as == "base.pgshrink"
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_testkit::Seed;

    const ROOT: Node = 0;
    const MAKING: Node = 1;
    const FILE: Node = 2;

    fn add(directory: Node, name: &str, node: Node) -> Change {
        Change::Add { directory, name: name.to_owned(), node }
    }

    /// A container as it is made: in a directory of another name, under another name.
    fn birth(rule: Rule) -> (Names, Tree) {
        let moved = |directory: Node, from: &str, to: &str, node| Change::Move {
            from: (directory, from.to_owned()),
            to: (directory, to.to_owned()),
            node,
        };
        let changes = [
            add(ROOT, "1.pgshrink-new.7", MAKING),
            add(MAKING, "segment.pgshrink-new", FILE),
            moved(MAKING, "segment.pgshrink-new", "segment.pgshrink", FILE),
            moved(ROOT, "1.pgshrink-new.7", "1", MAKING),
        ];
        let (mut names, mut now) = (Names::new(rule, &Tree::default()), Tree::default());
        for (at, change) in changes.into_iter().enumerate() {
            now.apply(&change);
            names.change(at as u64, change);
        }
        (names, now)
    }

    fn is_there(tree: &Tree) -> bool {
        tree.find(ROOT, "1").is_some_and(|node| tree.find(node, "segment.pgshrink").is_some())
    }

    #[test]
    fn a_containers_name_needs_the_fsyncs_of_both_directories_under_the_loose_rule() {
        let mut rng = Seed(1).rng();
        let (mut names, now) = birth(Rule::Loose);
        names.sync(FILE, "segment.pgshrink", 9, &now);
        assert_eq!(names.after_failure(0, &mut rng), Tree::default());
        names.sync(MAKING, "1", 9, &now);
        assert!(!is_there(&names.after_failure(0, &mut rng)));
        names.sync(ROOT, "5", 9, &now);
        assert!(is_there(&names.after_failure(0, &mut rng)));
    }

    #[test]
    fn one_fsync_writes_the_journal_and_what_came_after_its_begin_may_be_lost() {
        let mut rng = Seed(1).rng();
        let (mut names, now) = birth(Rule::Journal);
        names.sync(FILE, "segment.pgshrink", 2, &now);
        let tree = names.after_failure(0, &mut rng);
        assert_eq!(tree.find(MAKING, "segment.pgshrink-new"), Some(FILE));
        names.sync(MAKING, "1", 9, &now);
        assert!(is_there(&names.after_failure(0, &mut rng)));
    }

    #[test]
    fn renames_survive_in_any_order_under_the_loose_rule_alone() {
        let outer_alone = |rule| {
            let (names, _) = birth(rule);
            let trees = (0..200).map(|seed| names.after_failure(50, &mut Seed(seed).rng()));
            trees.filter(|tree| tree.find(ROOT, "1").is_some() && !is_there(tree)).count()
        };
        assert!(outer_alone(Rule::Loose) > 0);
        assert_eq!(outer_alone(Rule::Journal), 0);
    }

    /// A plain file that becomes a container: a link into a directory, and an exchange.
    fn exchanged(rule: Rule) -> (Names, Tree) {
        let link = Change::Link { directory: MAKING, name: "base.pgshrink".to_owned(), node: FILE };
        let exchange = Change::Exchange {
            places: [(ROOT, "1".to_owned()), (ROOT, "1.pgshrink-new.7".to_owned())],
            nodes: [FILE, MAKING],
        };
        let gone = Change::Remove { directory: ROOT, name: "1.pgshrink-new.7".to_owned(), node: FILE };
        let changes = [add(ROOT, "1", FILE), add(ROOT, "1.pgshrink-new.7", MAKING), link, exchange, gone];
        let (mut names, mut now) = (Names::new(rule, &Tree::default()), Tree::default());
        for (at, change) in changes.into_iter().enumerate() {
            now.apply(&change);
            names.change(at as u64, change);
        }
        assert!(now.find(ROOT, "1") == Some(MAKING) && now.find(ROOT, "1.pgshrink-new.7").is_none());
        assert_eq!(now.find(MAKING, "base.pgshrink"), Some(FILE));
        (names, now)
    }

    #[test]
    fn an_exchange_is_there_whole_or_not_at_all_and_needs_an_fsync_of_its_directory() {
        let (mut names, now) = exchanged(Rule::Loose);
        // Of the file: that it was made, and nothing of its second name.
        names.sync(FILE, "1", 9, &now);
        let tree = names.after_failure(0, &mut Seed(1).rng());
        assert!(tree.find(ROOT, "1") == Some(FILE) && tree.find(MAKING, "base.pgshrink").is_none());
        for seed in 0..200 {
            let tree = names.after_failure(50, &mut Seed(seed).rng());
            let (one, other) = (tree.find(ROOT, "1"), tree.find(ROOT, "1.pgshrink-new.7"));
            let is_exchanged = one == Some(MAKING) && matches!(other, None | Some(FILE));
            assert!(is_exchanged || one == Some(FILE) && matches!(other, None | Some(MAKING)));
        }
        names.sync(ROOT, "5", 9, &now);
        let tree = names.after_failure(0, &mut Seed(1).rng());
        assert!(tree.find(ROOT, "1") == Some(MAKING) && tree.find(MAKING, "base.pgshrink") == Some(FILE));
    }

    #[test]
    fn a_link_may_be_lost_while_the_exchange_survives_under_the_loose_rule_alone() {
        let without_base = |rule| {
            let (names, _) = exchanged(rule);
            let trees = (0..200).map(|seed| names.after_failure(50, &mut Seed(seed).rng()));
            let is_lost = |tree: &Tree| {
                tree.find(ROOT, "1") == Some(MAKING) && tree.find(MAKING, "base.pgshrink").is_none()
            };
            trees.filter(is_lost).count()
        };
        assert!(without_base(Rule::Loose) > 0);
        assert_eq!(without_base(Rule::Journal), 0);
    }
}
