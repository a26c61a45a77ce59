//! `pgshrink advise`.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use pgshrink_advisor::advise::Accepted;
use pgshrink_advisor::finding::Rule;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};
use std::path::PathBuf;

/// Measure how many bytes a database's layout wastes, and print the SQL to reclaim them.
///
/// Connects read-only, reads catalogs, sizes and a bounded sample of each table's blocks, and changes nothing. No
/// transaction lasts longer than a minute. It does not wait for a lock for more than a second; a locked table is
/// skipped and listed. It also works with SELECT on only some tables, on standbys and on managed services. The report
/// lists what it could not read and the privileges it would need.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// How to connect: "host=db dbname=shop" or postgresql://…, as for psql; default: PGHOST and the other libpq
    /// variables
    #[arg(value_name = "CONNINFO", env = "PGSHRINK_ADVISE_CONNINFO", hide_env_values = true)]
    pub conninfo: Option<String>,
    /// Save the collected data to this file, as JSON; compressed if its name ends in .zst
    ///
    /// The same file gives the same advice. It contains sampled rows, so only its owner may read it: see --no-values.
    #[arg(long, value_name = "FILE", env = "PGSHRINK_ADVISE_SAVE", help_heading = "Snapshot")]
    pub save: Option<PathBuf>,
    /// Use a file written by --save instead of connecting
    #[arg(long, value_name = "FILE", env = "PGSHRINK_ADVISE_SNAPSHOT", help_heading = "Snapshot")]
    pub snapshot: Option<PathBuf>,
    /// Read only sizes, no values or pages; literals in expressions are replaced by $1, $2 and so on
    ///
    /// Rules that need values (types, documents, codecs) find nothing then, and there are no scripts for rewrites.
    #[arg(long, env = "PGSHRINK_ADVISE_NO_VALUES", help_heading = "Snapshot")]
    pub no_values: bool,
    /// Print one JSON document instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print the SQL of all proposals, in the order in which to run it, instead of a table
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub sql: bool,
    /// With --sql: rewrite tables while they are in use, in repeatable steps; only the final swap takes an exclusive
    /// lock, briefly
    ///
    /// This needs a primary key, and space for a second table. If a table cannot be rewritten in this way, the script
    /// says why.
    #[arg(long, requires = "sql", help_heading = "Output")]
    pub online: bool,
    /// Also write the report as one HTML file
    #[arg(long, value_name = "FILE", env = "PGSHRINK_ADVISE_HTML", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Show every part of pgshrink in the --html report, from a file of bytes before and after, as make demo writes it
    #[arg(long, value_name = "FILE", hide = true)]
    pub figures: Option<PathBuf>,
    /// Write only the picture of --figures, as SVG, and do nothing else
    #[arg(long, value_name = "FILE", hide = true, requires = "figures")]
    pub svg: Option<PathBuf>,
    /// Also show findings that save little
    #[arg(long, help_heading = "Output")]
    pub all: bool,
    /// Exit with code 1 if more than this can be saved on disk, for example 100MB or 5GB
    #[arg(long, value_name = "SIZE", value_parser = size, env = "PGSHRINK_ADVISE_FAIL_ABOVE")]
    #[arg(allow_hyphen_values = true, help_heading = "Output")]
    pub fail_above: Option<u64>,
    /// Show costs, from the prices of a GB of storage per month, of egress and of backups
    #[arg(long, value_name = "PRICES", env = "PGSHRINK_ADVISE_PRICE", help_heading = "Output")]
    pub price: Option<String>,
    /// Include traffic measured by pgshrink gateway --observe, from its observe_file
    #[arg(long, value_name = "FILE", env = "PGSHRINK_ADVISE_EGRESS", help_heading = "Output")]
    pub egress: Option<PathBuf>,
    /// Do not show a progress bar (shown on a terminal by default)
    #[arg(long, short = 'q', env = "PGSHRINK_ADVISE_NO_PROGRESS", help_heading = "Output")]
    pub no_progress: bool,
    /// Examine only these tables, for example orders or sales.order_*. May be repeated
    ///
    /// In a pattern, * stands for any characters and ? for one. With a dot it matches schema and name, otherwise only
    /// the name.
    #[arg(long, value_name = "PATTERN", help_heading = "Sample")]
    pub table: Vec<String>,
    /// Examine only tables in these schemas. May be repeated
    #[arg(long, value_name = "NAME", help_heading = "Sample")]
    pub schema: Vec<String>,
    /// Do not examine tables smaller than this, including indexes and TOAST; only count them [default: 1MB]
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1MB", hide_default_value = true)]
    #[arg(env = "PGSHRINK_ADVISE_MIN_SIZE", help_heading = "Sample")]
    pub min_size: u64,
    /// Maximum bytes to sample per table [default: 32MB]
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "32MB", hide_default_value = true)]
    #[arg(env = "PGSHRINK_ADVISE_SAMPLE_SIZE", help_heading = "Sample")]
    pub sample_size: u64,
    /// Maximum bytes to sample in total, shared by all tables [default: 1GB]
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1GB", hide_default_value = true)]
    #[arg(env = "PGSHRINK_ADVISE_SAMPLE_TOTAL", help_heading = "Sample")]
    pub sample_total: u64,
    /// Report only findings of these rules, for example column_order,toast
    #[arg(long, value_name = "RULES", value_parser = rule, value_delimiter = ',', help_heading = "Rules")]
    #[arg(env = "PGSHRINK_ADVISE_RULES")]
    pub rules: Vec<Rule>,
    /// Report no findings of these rules
    #[arg(long, value_name = "RULES", value_parser = rule, value_delimiter = ',', help_heading = "Rules")]
    #[arg(env = "PGSHRINK_ADVISE_SKIP")]
    pub skip: Vec<Rule>,
    /// Add a finding that applications would notice to the proposals: its id, or a rule for all of its findings. May be
    /// repeated
    ///
    /// Proposals contain only changes that do not change the result of any query. Other findings, such as bytea instead
    /// of hexadecimal text or zson instead of jsonb, are for you to decide. Those named here are simulated and added to
    /// the script with the rest of their table. --json and --sql show the ids.
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

Privileges for everything except raw pages:
  GRANT pg_read_all_data, pg_monitor TO advisor;
For raw pages, which make compression figures exact:
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
            "{name} applies to a server, but --snapshot reads a file: leave one of them out, or take the snapshot again \
             with --save"
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
        _ => return Err("expected a size such as 8MB (units: B, kB, MB, GB, TB)".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "expected a whole number, as in 8MB".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too many bytes".to_owned())
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
