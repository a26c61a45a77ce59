//! Which functions of libc touch files, and what is done about each of them.
//!
//! One table for the process that is about to be hooked and for an executable on disk. A program may import
//! what it likes from elsewhere; from libc it may import what is [`Class::Hooked`] or [`Class::Harmless`]
//! here, and what does not touch files.

mod lists;

pub use lists::{HARMLESS, HOOKED, NEEDED, REFUSED};

use lists::{STEMS, SUFFIXES};

/// What an import means for managed files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Replaced by a function of ours.
    Hooked,
    /// Touches files, but cannot reach what is in a managed one, for this reason.
    Harmless(&'static str),
    /// Would reach past the hooks, in this way.
    Refused(&'static str),
    /// Named like a file function of the table, but not in it: made after this was written.
    Unknown,
    /// Does not touch files.
    NotFiles,
}

/// What the import of `name` means.
pub fn class_of(name: &str) -> Class {
    if HOOKED.contains(&name) {
        return Class::Hooked;
    }
    let among = |table: &[(&'static str, &[&str])]| {
        table.iter().find(|(_, names)| names.contains(&name)).map(|(reason, _)| *reason)
    };
    if let Some(reason) = among(HARMLESS) {
        return Class::Harmless(reason);
    }
    if let Some(reason) = among(REFUSED) {
        return Class::Refused(reason);
    }
    if name.starts_with("aio_") || is_variant_of_file_function(name) {
        Class::Unknown
    } else {
        Class::NotFiles
    }
}

fn is_variant_of_file_function(name: &str) -> bool {
    let mut stem = name.trim_start_matches('_');
    loop {
        if STEMS.contains(&stem) {
            return true;
        }
        let Some(shorter) = SUFFIXES.iter().find_map(|suffix| stem.strip_suffix(suffix)) else {
            return false;
        };
        stem = shorter;
    }
}

/// Why a program cannot be hooked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// It imports a function that would reach past the hooks.
    Refused {
        /// The import.
        name: String,
        /// How.
        reason: &'static str,
    },
    /// It imports a file function that this table does not know.
    Unknown {
        /// The import.
        name: String,
    },
    /// It imports none of these.
    Missing {
        /// Names of one function.
        names: &'static [&'static str],
    },
}

impl Problem {
    /// What was found.
    pub fn found(&self) -> String {
        match self {
            Problem::Refused { name, reason } => format!("{name} is imported, and {name} {reason}"),
            Problem::Unknown { name } => {
                format!("{name} is imported, which is named like a file function and is not in the table")
            }
            Problem::Missing { names } => format!("none of {} is imported", names.join(", ")),
        }
    }

    /// What should have been.
    pub fn expected(&self) -> &'static str {
        match self {
            Problem::Refused { .. } | Problem::Unknown { .. } => {
                "only imports that are hooked, harmless, or do not touch files"
            }
            Problem::Missing { .. } => "file functions imported from libc by the executable itself",
        }
    }

    /// What to do.
    pub fn next_step(&self) -> &'static str {
        match self {
            Problem::Refused { .. } | Problem::Unknown { .. } => {
                "run a server of a supported build (PostgreSQL 15 to 18 of Debian or apt.postgresql.org), \
                 or a newer pgshrink that knows this import; do not use compressed tables on this build \
                 until then"
            }
            Problem::Missing { .. } => {
                "run a server that is linked dynamically with glibc and has its code in the executable"
            }
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; expected: {}; next step: {}", self.found(), self.expected(), self.next_step())
    }
}

/// Imports that [`check`] refuses in a server and that tools have for other ends than a relation's pages: patterns of
/// file names, a removal by a name that is not a managed file's, messages.
const IN_TOOLS: &[&str] =
    &["glob", "glob64", "globfree", "remove", "dprintf", "vdprintf", "__dprintf_chk", "__vdprintf_chk"];

/// What is wrong with a program that is no server: it does not have all file functions, and may have a few more.
pub fn check_tool<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<Problem> {
    let mut problems = check(names, IN_TOOLS);
    problems.retain(|problem| !matches!(problem, Problem::Missing { .. }));
    problems
}

/// What is wrong with a program that imports `names`. `despite`: imports that the caller answers for.
pub fn check<'a>(names: impl Iterator<Item = &'a str> + Clone, despite: &[&str]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in names.clone().filter(|name| !despite.contains(name)) {
        let problem = match class_of(name) {
            Class::Refused(reason) => Problem::Refused { name: name.to_owned(), reason },
            Class::Unknown => Problem::Unknown { name: name.to_owned() },
            Class::Hooked | Class::Harmless(_) | Class::NotFiles => continue,
        };
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    for group in NEEDED {
        if !names.clone().any(|name| group.contains(&name)) {
            problems.push(Problem::Missing { names: group });
        }
    }
    problems
}
