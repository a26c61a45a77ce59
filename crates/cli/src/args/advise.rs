//! `pgshrink advise`.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use pgshrink_advisor::advise::Accepted;
use pgshrink_advisor::finding::Rule;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};
use std::path::PathBuf;

/// Say what a database's layout wastes, in measured bytes, and the SQL that gets them back.
///
/// Connects read-only, reads catalogs, sizes, and a bounded sample of each table's blocks, and changes nothing. No transaction
/// of it is longer than a minute, and it waits for nobody's lock: a table that is locked is left out and listed. It works with
/// SELECT on some tables only, on standbys, and on managed services; what it could not see, and what it would take, is
/// in the report.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// How to connect: "host=db dbname=shop" or postgresql://…, as for psql; without it, as PGHOST and its relatives say
    #[arg(value_name = "CONNINFO", env = "PGSHRINK_ADVISE_CONNINFO", hide_env_values = true)]
    pub conninfo: Option<String>,
    /// Keep what was seen of the database in this file, as JSON; compressed if its name ends in .zst
    ///
    /// The same file gives the same advice. It has the sampled rows in it, so only its owner may read it: see --no-values.
    #[arg(long, value_name = "FILE", env = "PGSHRINK_ADVISE_SAVE", help_heading = "Snapshot")]
    pub save: Option<PathBuf>,
    /// Take what was seen from a file of --save, and connect to nothing
    #[arg(long, value_name = "FILE", env = "PGSHRINK_ADVISE_SNAPSHOT", help_heading = "Snapshot")]
    pub snapshot: Option<PathBuf>,
    /// Read sizes alone: no values, no pages; literals in expressions are replaced by $1, $2 and so on
    ///
    /// Rules that need values (types, documents, codecs) find nothing then, and rewrites come without a script.
    #[arg(long, env = "PGSHRINK_ADVISE_NO_VALUES", help_heading = "Snapshot")]
    pub no_values: bool,
    /// Print one JSON document instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print the SQL of all proposals, in the order in which it is to be run, instead of a table
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub sql: bool,
    /// With --sql: write tables anew while they are in use, in steps that can be run again; only the exchange locks, for moments
    ///
    /// It takes a primary key, and room for a second table. Where a table cannot be written anew in this way, the script says why.
    #[arg(long, requires = "sql", help_heading = "Output")]
    pub online: bool,
    /// Write the report as one HTML file, too
    #[arg(long, value_name = "FILE", env = "PGSHRINK_ADVISE_HTML", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Draw every part of pgshrink in the report of --html: a file of bytes before and after, as make demo writes it
    #[arg(long, value_name = "FILE", hide = true)]
    pub figures: Option<PathBuf>,
    /// Write the picture of --figures alone, as SVG, and do nothing else
    #[arg(long, value_name = "FILE", hide = true, requires = "figures")]
    pub svg: Option<PathBuf>,
    /// Show every finding, also those that save little
    #[arg(long, help_heading = "Output")]
    pub all: bool,
    /// Exit with 1 if more than this can be saved on disk: 100MB, 5GB
    #[arg(long, value_name = "SIZE", value_parser = size, env = "PGSHRINK_ADVISE_FAIL_ABOVE")]
    #[arg(allow_hyphen_values = true, help_heading = "Output")]
    pub fail_above: Option<u64>,
    /// Say it in money: what a GB of storage costs each month, of egress, of backups
    #[arg(long, value_name = "PRICES", env = "PGSHRINK_ADVISE_PRICE", help_heading = "Output")]
    pub price: Option<String>,
    /// Take what crossed a gateway from this file, the observe_file of pgshrink gateway --observe
    #[arg(long, value_name = "FILE", env = "PGSHRINK_ADVISE_EGRESS", help_heading = "Output")]
    pub egress: Option<PathBuf>,
    /// No progress bar; without it there is one on a terminal
    #[arg(long, env = "PGSHRINK_ADVISE_NO_PROGRESS", help_heading = "Output")]
    pub no_progress: bool,
    /// Only these tables: orders, sales.order_*. May be repeated
    ///
    /// * stands for any characters, ? for one. A pattern with a dot is for schema and name, one without for the name alone.
    #[arg(long, value_name = "PATTERN", help_heading = "Sample")]
    pub table: Vec<String>,
    /// Only tables of these schemas. May be repeated
    #[arg(long, value_name = "NAME", help_heading = "Sample")]
    pub schema: Vec<String>,
    /// Tables with fewer bytes, with indexes and TOAST, are counted and not looked at [default: 1MB]
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1MB", hide_default_value = true)]
    #[arg(env = "PGSHRINK_ADVISE_MIN_SIZE", help_heading = "Sample")]
    pub min_size: u64,
    /// Most bytes that are sampled of a table [default: 32MB]
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "32MB", hide_default_value = true)]
    #[arg(env = "PGSHRINK_ADVISE_SAMPLE_SIZE", help_heading = "Sample")]
    pub sample_size: u64,
    /// Most bytes that are sampled in all; many tables share them [default: 1GB]
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1GB", hide_default_value = true)]
    #[arg(env = "PGSHRINK_ADVISE_SAMPLE_TOTAL", help_heading = "Sample")]
    pub sample_total: u64,
    /// Only findings of these rules: column_order,toast
    #[arg(long, value_name = "RULES", value_parser = rule, value_delimiter = ',', help_heading = "Rules")]
    #[arg(env = "PGSHRINK_ADVISE_RULES")]
    pub rules: Vec<Rule>,
    /// No findings of these rules
    #[arg(long, value_name = "RULES", value_parser = rule, value_delimiter = ',', help_heading = "Rules")]
    #[arg(env = "PGSHRINK_ADVISE_SKIP")]
    pub skip: Vec<Rule>,
    /// Put what applications would notice into the proposals too: a rule, or the id of a finding. May be repeated
    ///
    /// Proposals hold only what changes no query's result. Other findings, such as bytea in place of hexadecimal text or zson in place of jsonb, are for
    /// you to decide. Those named here are simulated, and put into the script, with the rest of their table. --json and --sql show the ids.
    #[arg(long, value_name = "FINDING", value_parser = accepted, help_heading = "Rules")]
    pub accept: Vec<Accepted>,
}

const EXAMPLES: &str = "\
Examples:
  pgshrink advise \"host=db dbname=shop\"
  pgshrink advise \"host=db dbname=shop\" --html report.html --price storage=0.115/GB-month
  pgshrink advise \"host=db dbname=shop\" --save shop.json.zst
  pgshrink advise --snapshot shop.json.zst --sql
  pgshrink advise \"host=db dbname=shop\" --sql --online > shop.sql
  pgshrink advise \"host=db dbname=shop\" --table 'sales.order_*' --fail-above 1GB

Rights that are enough to see everything but raw pages:
  GRANT pg_read_all_data, pg_monitor TO advisor;
Raw pages make figures of codecs exact:
  GRANT EXECUTE ON FUNCTION pg_catalog.pg_read_binary_file(text, bigint, bigint, boolean) TO advisor;

Exit codes:
  0  done
  1  more can be saved than --fail-above
  2  could not run";

/// What says how to read a server, by its place in [`AdviseArgs`] and as it is written.
const OF_SERVERS: [(&str, &str); 6] = [
    ("conninfo", "CONNINFO"),
    ("table", "--table"),
    ("schema", "--schema"),
    ("min_size", "--min-size"),
    ("sample_size", "--sample-size"),
    ("sample_total", "--sample-total"),
];

/// Refuses what would have no effect. What the environment says is for all runs, and may be left over in one.
pub(super) fn check(matches: &ArgMatches) -> Result<(), String> {
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let idle = OF_SERVERS.iter().find(|(id, _)| is_given(id)).filter(|_| matches.contains_id("snapshot"));
    match idle {
        Some((_, name)) => Err(format!(
            "{name} is about a server, and --snapshot reads a file instead: leave one of them out, or take the snapshot again with \
             --save"
        )),
        None => Ok(()),
    }
}

/// Bytes, in the units of PostgreSQL's settings: `8MB` are 8 times 1024 times 1024 bytes.
fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "kb" => 10,
        "mb" => 20,
        "gb" => 30,
        "tb" => 40,
        _ => return Err("expected bytes, with B, kB, MB, GB or TB: 8MB".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "expected a whole number, as in 8MB".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "more bytes than there can be".to_owned())
}

/// A rule by its name in reports: `column_order`.
fn rule(text: &str) -> Result<Rule, String> {
    let name = text.trim().replace('-', "_");
    let found: StrDeserializer<'_, ValueError> = name.as_str().into_deserializer();
    Rule::deserialize(found).map_err(|error| error.to_string())
}

/// A rule, or a finding's id: `zson:public.event.doc`.
fn accepted(text: &str) -> Result<Accepted, String> {
    let text = text.trim();
    match text.split_once(':') {
        Some((name, _)) => rule(name).map(|_| Accepted::Finding(text.to_owned())),
        None => rule(text).map(Accepted::Rule),
    }
}

#[test]
fn sizes_are_those_of_settings_and_rules_have_the_names_of_reports() {
    assert_eq!(
        [size("8MB"), size("1 kB"), size("17"), size("2GB")],
        [Ok(8 << 20), Ok(1024), Ok(17), Ok(2 << 30)]
    );
    assert!(size("MB").is_err() && size("1.5GB").is_err() && size("-1").is_err());
    assert!(size("99999999999999999999").is_err() && size("99999999TB").is_err());
    assert_eq!(rule("column-order"), Ok(Rule::ColumnOrder));
    assert_eq!(accepted("zson"), Ok(Accepted::Rule(Rule::Zson)));
    assert_eq!(accepted("zson:a.b.c"), Ok(Accepted::Finding("zson:a.b.c".to_owned())));
    assert!(accepted("zsn:a.b.c").is_err());
    assert!(rule("colour").is_err_and(|error| error.contains("column_order")), "the names are listed");
}
