//! PostgreSQL's own checking functions, where the server on scratch space has them.

use super::super::Failure;
use super::session::{Answer, Session};
use super::verdict::Doing;
use std::collections::HashMap;

/// An extension that can be called in one database.
pub(super) struct Tool {
    /// Quoted.
    pub(super) schema: String,
    /// Its functions, with the largest number of arguments of each.
    functions: HashMap<String, u32>,
}

/// Each, or why it cannot be called.
pub(super) struct Tools {
    pub(super) amcheck: Result<Tool, String>,
    pub(super) visibility: Result<Tool, String>,
    pub(super) prewarm: Result<Tool, String>,
}

impl Tool {
    /// How many arguments a function takes, if there is one of that name.
    pub(super) fn arguments(&self, function: &str) -> Option<u32> {
        self.functions.get(function).copied()
    }
}

impl Tools {
    /// Creates the extensions in the session's database, in the schema `schema`, unless they are there.
    pub(super) fn install(session: &mut Session<'_>, schema: &str) -> Result<Tools, Failure> {
        // Before 17 they cannot be turned off for a session. They run for a CREATE EXTENSION.
        let quiet = "UPDATE pg_event_trigger SET evtenabled = 'D' WHERE evtenabled <> 'D'";
        session.ask(quiet, Doing::Read)?;
        Ok(Tools {
            amcheck: tool(session, "amcheck", schema)?,
            visibility: tool(session, "pg_visibility", schema)?,
            prewarm: tool(session, "pg_prewarm", schema)?,
        })
    }
}

fn tool(session: &mut Session<'_>, name: &str, schema: &str) -> Result<Result<Tool, String>, Failure> {
    let installed = format!("SELECT 1 FROM pg_extension WHERE extname = '{name}'");
    let available = format!("SELECT 1 FROM pg_available_extensions WHERE name = '{name}'");
    let make = match count(session, &installed)? {
        Err(why) => return Ok(Err(why)),
        // An older version may lack functions.
        Ok(1..) => format!("ALTER EXTENSION {name} UPDATE"),
        Ok(0) => match count(session, &available)? {
            Ok(0) => {
                return Ok(Err(format!("the server does not have the extension {name}")));
            }
            Ok(_) => format!("CREATE SCHEMA IF NOT EXISTS {schema}; CREATE EXTENSION {name} SCHEMA {schema}"),
            Err(why) => return Ok(Err(why)),
        },
    };
    if let Answer::Damage(why) | Answer::Unable(why) = session.ask(&make, Doing::Check)? {
        return Ok(Err(format!("the extension {name} could not be set up: {why}")));
    }
    let functions = format!(
        "SELECT quote_ident(n.nspname), p.proname, max(p.pronargs) FROM pg_extension e \
           JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e' \
            AND d.classid = 'pg_proc'::regclass \
           JOIN pg_proc p ON p.oid = d.objid JOIN pg_namespace n ON n.oid = p.pronamespace \
          WHERE e.extname = '{name}' GROUP BY 1, 2"
    );
    let table = match session.ask(&functions, Doing::Read)? {
        Answer::Done(mut tables) => tables.pop().unwrap_or_default(),
        Answer::Damage(why) | Answer::Unable(why) => return Ok(Err(why)),
    };
    let row = |row| Some((table.text(row, 1)?.to_owned(), table.text(row, 2)?.parse().ok()?));
    let functions: HashMap<_, _> = (0..table.row_count()).filter_map(row).collect();
    Ok(match table.text(0, 0) {
        Some(schema) => Ok(Tool { schema: schema.to_owned(), functions }),
        None => Err(format!("the extension {name} has no functions")),
    })
}

/// How many rows a query has.
fn count(session: &mut Session<'_>, sql: &str) -> Result<Result<usize, String>, Failure> {
    Ok(match session.ask(sql, Doing::Read)? {
        Answer::Done(tables) => Ok(tables.first().map_or(0, |table| table.row_count())),
        Answer::Damage(why) | Answer::Unable(why) => Err(why),
    })
}
