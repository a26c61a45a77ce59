//! The rights that configuration files are read with.

use crate::backup::Failure;
use crate::backup::source::place;
use pgshrink_pgclient::connection::Connection;
use std::collections::BTreeSet;

/// A right, in the order in which they are given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Right {
    /// To see where configuration files are.
    Settings,
    /// To read outside of the data directory.
    Outside,
    /// To read files.
    Read,
    /// To list directories.
    List,
}

/// PostgreSQL's name of a right, and the order that gives it to a role.
const RIGHTS: [(Right, &str, bool); 4] = [
    (Right::Settings, "pg_read_all_settings", true),
    (Right::Outside, "pg_read_server_files", true),
    (Right::Read, "pg_catalog.pg_read_binary_file(text, bigint, bigint, boolean)", false),
    (Right::List, "pg_catalog.pg_ls_dir(text, boolean, boolean)", false),
];

/// The rights of the session's role.
pub(super) struct Rights {
    has: BTreeSet<Right>,
    role: String,
    database: String,
}

/// Rights that were needed and are missing.
#[derive(Default)]
pub(super) struct Lacks {
    rights: BTreeSet<Right>,
    role: String,
    database: String,
}

impl Rights {
    pub(super) fn of(connection: &mut Connection) -> Result<Rights, Failure> {
        let asked = RIGHTS.map(|(_, name, is_role)| match is_role {
            true => format!("pg_catalog.pg_has_role('{name}', 'USAGE')"),
            false => format!("pg_catalog.has_function_privilege('{name}', 'EXECUTE')"),
        });
        let sql = format!(
            "SELECT pg_catalog.quote_ident(current_user), pg_catalog.current_database(), {}",
            asked.join(", ")
        );
        let found = connection.query_params(&sql, &[])?;
        let text = |column| found.text(0, column).map(str::to_owned);
        let unknown = || Failure::new(place(connection), "it did not return the role's privileges");
        let (role, database) = text(0).zip(text(1)).ok_or_else(unknown)?;
        let has = RIGHTS.into_iter().zip(2..).filter(|(_, column)| found.text(0, *column) == Some("t"));
        Ok(Rights { has: has.map(|((right, ..), _)| right).collect(), role, database })
    }

    pub(super) fn has(&self, right: Right) -> bool {
        self.has.contains(&right)
    }
}

impl Lacks {
    /// Takes note of rights that something needs, where the role does not have them. True: one is missing.
    pub(super) fn note(&mut self, rights: &Rights, needed: &[Right]) -> bool {
        let before = self.rights.len();
        let missing: Vec<Right> = needed.iter().copied().filter(|right| !rights.has(*right)).collect();
        let is_missing = !missing.is_empty();
        self.rights.extend(missing);
        if self.rights.len() > before {
            self.role.clone_from(&rights.role);
            self.database.clone_from(&rights.database);
        }
        is_missing
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rights.is_empty()
    }

    /// Who lacks them, and who gives them.
    pub(super) fn who(&self) -> String {
        format!("in the database {}, a superuser can grant {} the privileges with", self.database, self.role)
    }

    /// What gives them.
    pub(super) fn orders(&self) -> Vec<String> {
        let missing = RIGHTS.into_iter().filter(|(right, ..)| self.rights.contains(right));
        let order = |name: &str, is_role: bool| match is_role {
            true => format!("GRANT {name} TO {};", self.role),
            false => format!("GRANT EXECUTE ON FUNCTION {name} TO {};", self.role),
        };
        missing.map(|(_, name, is_role)| order(name, is_role)).collect()
    }
}
