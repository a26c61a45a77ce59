//! What becomes of a command.

use crate::world::{Case, command, text};
use pgshrink_pgclient::ssl::SslMode;

const SERVICE: &str = "/home/ann/.pg_service.conf";

fn check(case: &Case, expected: &str) {
    assert_eq!(case.planned(), expected);
}

#[test]
fn without_any_compression_the_command_is_unchanged() {
    for case in [
        command(&["psql"]),
        command(&["psql", "host=db port=6432 dbname=d"]),
        command(&["psql", "-h", "db", "postgres://x/y"]).env("PGHOST", "z"),
        command(&["node", "app.js", "postgres://u:p@h/d"]).env("DATABASE_URL", "postgres://h/d"),
        command(&["psql", "host=db", "-c", "select 'compression=zstd:1'"]),
        command(&["psql"]).env("PGSERVICE", "nope"),
        command(&["psql", "host=a b"]),
        command(&["psql", "postgres://[::1"]),
    ] {
        let plan = case.plan().unwrap();
        assert!(plan.stand_ins.is_empty() && plan.env.is_empty() && plan.files.is_empty());
        assert_eq!(case.planned(), plan.argv.iter().map(|word| text(word)).collect::<Vec<_>>().join(" "));
    }
}

#[test]
fn the_option_may_be_written_as_the_part_3_patch_takes_it() {
    for (given, asked) in [
        ("zstd:level=3;lz4:level=0", "zstd:3,lz4"),
        ("gzip", "zlib"),
        ("gzip:level=-1;zstd:compress=on,level=2", "zlib,zstd:2"),
        ("zstd:level=1,decompress=on", "zstd:1"),
    ] {
        let case = command(&["psql", &format!("host=db compression={given}")]);
        check(&case, &format!("psql host=/P/0 | /P/0->db:5432,{asked}"));
    }
    for (given, reason) in [
        ("zstd:compress=off", "both directions"),
        ("zstd:level=high", "is not a level"),
        ("zstd:speed=1", "unknown option"),
        ("brotli;zstd", "brotli"),
    ] {
        let said = command(&["psql", &format!("host=db compression={given}")]).planned();
        assert!(said.starts_with("error: compression ") && said.contains(reason), "{said}");
    }
}

#[test]
fn a_program_that_speaks_a_dialect_itself_keeps_its_arguments() {
    let case = command(&["psql", "host=db compression=zstd"]).env("PGCOMPRESSION", "lz4").speaks();
    check(&case, "psql host=db compression=zstd");
}

#[test]
fn connection_strings_are_pointed_at_the_stand_in() {
    check(
        &command(&["psql", "host=db.example port=6432 dbname=postgres compression=zstd:1,lz4:2,zlib"]),
        "psql port=6432 dbname=postgres host=/P/0 | /P/0->db.example:6432,zstd:1,lz4:2,zlib",
    );
    check(
        &command(&["psql", "postgres://u:p@db:6432/d?compression=lz4&application_name=x"]),
        "psql postgres://u:p@/d?application_name=x&port=6432&host=/P/0 | /P/0->db:6432,lz4",
    );
    check(
        &command(&["pg_dump", "-Fc", "-dhost=db compression=lz4", "-f", "host=x"]),
        "pg_dump -Fc -dhost=/P/0 -f host=x | /P/0->db:5432,lz4",
    );
    check(
        &command(&["pg_dump", "--dbname=host=db compression=lz4"]),
        "pg_dump --dbname=host=/P/0 | /P/0->db:5432,lz4",
    );
    check(
        &command(&["pg_dump", "--dbn", "host=db compression=lz4", "-t", "t"]),
        "pg_dump --dbn host=/P/0 -t t | /P/0->db:5432,lz4",
    );
    check(
        &command(&["pgbench", "-c", "4", "-S", "host=db compression=zstd"]),
        "pgbench -c 4 -S host=/P/0 | /P/0->db:5432,zstd",
    );
    check(
        &command(&[
            "/usr/lib/postgresql/15/bin/pg_receivewal",
            "-D",
            "w",
            "-d",
            "host=db compression=lz4 user=r",
        ]),
        "/usr/lib/postgresql/15/bin/pg_receivewal -D w -d user=r host=/P/0 | /P/0->db:5432,lz4",
    );
    check(
        &command(&["pg_rewind", "-D", "x", "--source-server=host=db compression=lz4"]),
        "pg_rewind -D x --source-server=host=/P/0 | /P/0->db:5432,lz4",
    );
}

#[test]
fn only_values_that_are_database_names_are_connection_strings() {
    check(&command(&["psql", "-v", "host=db", "-c", "select 1", "d"]).compression("lz4"), {
        "psql -v host=db -c select 1 d | /P/0->default:5432,lz4 | PGHOST=/P/0"
    });
    check(
        &command(&["psql", "-d", "d", "host=x"]).compression("lz4"),
        "psql -d d host=x | /P/0->default:5432,lz4 | PGHOST=/P/0",
    );
    check(
        &command(&["psql", "-XAtc", "host=x", "--", "host=db"]).compression("lz4"),
        "psql -XAtc host=x -- host=/P/0 | /P/0->db:5432,lz4",
    );
    check(
        &command(&["createdb", "a=b"]).compression("lz4"),
        "createdb a=b | /P/0->default:5432,lz4 | PGHOST=/P/0",
    );
    check(
        &command(&["createdb", "--maintenance-db=host=db", "a=b"]).compression("lz4"),
        "createdb --maintenance-db=host=/P/0 a=b | /P/0->db:5432,lz4",
    );
    check(
        &command(&["pgbench", "-d", "host=db compression=lz4"]),
        "pgbench -d host=/P/0 | /P/0->db:5432,lz4",
    );
    check(&command(&["pgbench", "-dhost=db compression=lz4"]), "pgbench -dhost=/P/0 | /P/0->db:5432,lz4");
    check(
        &command(&["pg_amcheck", "-d", "a=b", "--maintenance-db", "host=db"]).compression("lz4"),
        "pg_amcheck -d a=b --maintenance-db host=/P/0 | /P/0->db:5432,lz4",
    );
}

#[test]
fn several_hosts_become_as_many_stand_ins_in_the_same_order() {
    check(
        &command(&["psql", "host=a,b,a port=1,2,1 target_session_attrs=primary compression=lz4"]),
        "psql port=1,2,1 target_session_attrs=primary host=/P/0,/P/1,/P/0 | /P/0->a:1,lz4 /P/1->b:2,lz4",
    );
    check(
        &command(&["psql", "postgres://a:1,b:2/d?compression=lz4&load_balance_hosts=random"]),
        "psql postgres:///d?load_balance_hosts=random&port=1,2&host=/P/0,/P/1 | /P/0->a:1,lz4 /P/1->b:2,lz4",
    );
    check(
        &command(&["psql", "host=a,b hostaddr=10.0.0.1,10.0.0.2 compression=lz4"]),
        "psql host=/P/0,/P/1 | /P/0->a@10.0.0.1:5432,lz4 /P/1->b@10.0.0.2:5432,lz4",
    );
}

#[test]
fn host_and_port_options_count_where_the_string_is_silent() {
    check(
        &command(&["psql", "-h", "db", "-p", "6432", "d"]).compression("lz4"),
        "psql -h /P/0 -p 6432 d | /P/0->db:6432,lz4",
    );
    check(
        &command(&["psql", "--host=db", "d"]).env("PGCOMPRESSION", "lz4"),
        "psql --host=/P/0 d | /P/0->db:5432,lz4 | -PGCOMPRESSION",
    );
    check(
        &command(&["psql", "-p6432", "d"]).env("PGHOST", "db").compression("lz4"),
        "psql -h /P/0 -p6432 d | /P/0->db:6432,lz4",
    );
    check(
        &command(&["psql", "-h", "db", "dbname=d compression=lz4"]),
        "psql -h db dbname=d host=/P/0 | /P/0->db:5432,lz4",
    );
    check(
        &command(&["psql", "-h", "db", "-d", "host=other compression=lz4"]),
        "psql -h db -d host=/P/0 | /P/0->other:5432,lz4",
    );
    check(
        &command(&["pg_basebackup", "-hdb", "-D", "x", "-d", "host=other compression=lz4"]),
        "pg_basebackup -h/P/0 -D x -d host=/P/0 | /P/0->db:5432,lz4",
    );
    check(
        &command(&["psql", "-h", "", "-p", ""]).env("PGHOST", "db").compression("lz4"),
        "psql -h  -p  | /P/0->db:5432,lz4 | PGHOST=/P/0",
    );
}

#[test]
fn the_environment_is_rewritten_for_any_program() {
    check(
        &command(&["sh", "-c", "psql"])
            .env("PGHOST", "a,b")
            .env("PGPORT", "1,2")
            .env("PGCOMPRESSION", "zstd"),
        "sh -c psql | /P/0->a:1,zstd /P/1->b:2,zstd | -PGCOMPRESSION PGHOST=/P/0,/P/1",
    );
    check(
        &command(&["app"]).env("PGHOST", "db").env("PGHOSTADDR", "10.0.0.1").compression("lz4"),
        "app | /P/0->db@10.0.0.1:5432,lz4 | PGHOST=/P/0 -PGHOSTADDR",
    );
    check(
        &command(&["app"]).env("PGREQUIREPEER", "postgres").env("PGHOST", "db").compression("lz4"),
        "app | /P/0->db:5432,lz4 | PGHOST=/P/0 -PGREQUIREPEER",
    );
    check(&command(&["app"]).compression("lz4"), "app | /P/0->default:5432,lz4 | PGHOST=/P/0");
    check(
        &command(&["psql", "host=x compression=lz4"]).env("PGHOST", "db"),
        "psql host=/P/0 | /P/0->x:5432,lz4",
    );
}

#[test]
fn an_address_in_the_environment_does_not_lead_past_the_stand_in() {
    check(
        &command(&["psql", "host=db compression=lz4"]).env("PGHOSTADDR", "10.0.0.1"),
        "psql host=/P/0 hostaddr='' | /P/0->db@10.0.0.1:5432,lz4",
    );
    check(
        &command(&["psql", "-h", "db"]).env("PGHOSTADDR", "10.0.0.1").compression("lz4"),
        "psql -h /P/0 | /P/0->db@10.0.0.1:5432,lz4 | -PGHOSTADDR",
    );
    // These programs drop empty values, so only an unset variable hides the address.
    check(
        &command(&["pg_basebackup", "-D", "x", "-d", "host=db compression=lz4"])
            .env("PGHOSTADDR", "10.0.0.1"),
        "pg_basebackup -D x -d host=/P/0 | /P/0->db@10.0.0.1:5432,lz4 | -PGHOSTADDR",
    );
}

#[test]
fn programs_that_are_not_postgresqls_are_searched_for_uris_and_compression() {
    check(
        &command(&["node", "app.js", "postgres://u:p@h:1/d?compression=lz4&sslmode=require"]),
        "node app.js postgres://u:p@/d?port=1&host=/P/0 | /P/0->h:1,lz4",
    );
    check(
        &command(&["env", "DATABASE_URL=postgresql://h/d?compression=lz4", "app"]),
        "env DATABASE_URL=postgresql:///d?host=/P/0 app | /P/0->h:5432,lz4",
    );
    check(
        &command(&["python3", "x.py", "--dsn=host=h compression=lz4"]),
        "python3 x.py --dsn=host=/P/0 | /P/0->h:5432,lz4",
    );
    check(
        &command(&["app", "host=h", "a=b"])
            .env("DATABASE_URL", "postgres://h:7/d")
            .env("PGCOMPRESSION", "lz4"),
        "app host=h a=b | /P/0->default:5432,lz4 /P/1->h:7,lz4 \
         | DATABASE_URL=postgres:///d?port=7&host=/P/1 -PGCOMPRESSION PGHOST=/P/0",
    );
    check(
        &command(&["app"]).env("DATABASE_URL", "postgres://h/d?compression=off"),
        "app | DATABASE_URL=postgres://h/d",
    );
}

#[test]
fn services_are_read_and_copied_only_where_they_must_change() {
    let services = "[other]\nhost=o\n\n[s]\nhost=db\nport=7\ncompression=zstd\nuser=u\n";
    let base = |argv: &[&str]| command(argv).file(SERVICE, services);
    check(
        &base(&["psql", "service=s"]),
        "psql service=s host=/P/0 | /P/0->db:7,zstd | PGSERVICEFILE=/P/pg_service.conf \
         | /P/pg_service.conf:\"[other]\\nhost=o\\n\\n[s]\\nhost=db\\nport=7\\nuser=u\\n\"",
    );
    check(
        &base(&["psql"]).env("PGSERVICE", "s"),
        "psql | /P/0->db:7,zstd | PGSERVICEFILE=/P/pg_service.conf \
         | /P/pg_service.conf:\"[other]\\nhost=o\\n\\n[s]\\nhost=/P/0\\nport=7\\nuser=u\\n\"",
    );
    check(
        &base(&["psql", "service=other"]).compression("lz4"),
        "psql service=other host=/P/0 | /P/0->o:5432,lz4",
    );
    check(
        &base(&["psql", "service=s compression=off"]),
        "psql service=s | PGSERVICEFILE=/P/pg_service.conf \
         | /P/pg_service.conf:\"[other]\\nhost=o\\n\\n[s]\\nhost=db\\nport=7\\nuser=u\\n\"",
    );
    check(
        &command(&["psql"])
            .env("PGSERVICE", "sys")
            .env("PGHOST", "unused")
            .file(SERVICE, "[mine]\nhost=m\n")
            .file(
                "/etc/postgresql-common/pg_service.conf",
                "[a]\nhost=a\n[sys]\nhostaddr=10.0.0.1\ncompression=lz4\n",
            ),
        "psql | /P/0->unused@10.0.0.1:5432,lz4 | PGSERVICEFILE=/P/pg_service.conf \
         | /P/pg_service.conf:\"[sys]\\nhost=/P/0\\n[mine]\\nhost=m\\n\"",
    );
}

#[test]
fn an_address_in_a_service_does_not_lead_past_the_stand_in() {
    let services = "[s]\nhostaddr=10.0.0.1\ncompression=lz4\n";
    check(
        &command(&["psql", "service=s host=db"]).file(SERVICE, services),
        "psql service=s host=/P/0 hostaddr='' | /P/0->db@10.0.0.1:5432,lz4 | PGSERVICEFILE=/P/pg_service.conf \
         | /P/pg_service.conf:\"[s]\\nhostaddr=10.0.0.1\\n\"",
    );
    check(
        &command(&["psql", "-p", "7"]).env("PGSERVICE", "s").file(SERVICE, services),
        "psql -h /P/0 -p 7 | /P/0->@10.0.0.1:7,lz4 | PGSERVICEFILE=/P/pg_service.conf \
         | /P/pg_service.conf:\"[s]\\n\"",
    );
}

#[test]
fn passwords_are_found_under_the_new_name() {
    let pgpass = "other:*:*:*:no\ndb:7:d:u:secret\n";
    check(
        &command(&["psql", "host=db port=7 compression=lz4"]).file("/home/ann/.pgpass", pgpass),
        "psql port=7 host=/P/0 | /P/0->db:7,lz4 | PGPASSFILE=/P/pgpass.0 \
         | /P/pgpass.0:\"other:*:*:*:no\\ndb:7:d:u:secret\\n/P/0:7:d:u:secret\\n\"",
    );
    check(
        &command(&["psql", "host=db passfile=/f compression=lz4"])
            .file("/f", "db:*:*:*:x\n")
            .env("PGPASSFILE", "/g"),
        "psql passfile=/P/pgpass.0 host=/P/0 | /P/0->db:5432,lz4 | /P/pgpass.0:\"db:*:*:*:x\\n/P/0:*:*:*:x\\n\"",
    );
    check(
        &command(&["psql", "dbname=d compression=lz4"])
            .file("/f", "localhost:*:*:*:x\n")
            .env("PGPASSFILE", "/f"),
        "psql dbname=d host=/P/0 | /P/0->default:5432,lz4 | PGPASSFILE=/P/pgpass.0 \
         | /P/pgpass.0:\"localhost:*:*:*:x\\n/P/0:*:*:*:x\\n\"",
    );
    let unchanged = "psql host=/P/0 | /P/0->db:5432,lz4";
    let psql = command(&["psql", "host=db compression=lz4"]);
    check(&psql.clone().file("/home/ann/.pgpass", "*:*:*:*:x\n"), unchanged);
    check(&psql.exposed_file("/home/ann/.pgpass", "db:*:*:*:x\n"), unchanged);
}

#[test]
fn string_beats_service_beats_flag_beats_environment() {
    let case = |string: &str| {
        command(&["psql", string])
            .env("PGCOMPRESSION", "zlib")
            .file(SERVICE, "[s]\ncompression=zstd\n[t]\nport=1\n")
    };
    let list = |case: Case| {
        case.plan().unwrap().stand_ins.first().map(|s| s.compression.clone()).unwrap_or_default()
    };
    assert_eq!(list(case("service=s compression=lz4:3").compression("lz4:2")), "lz4:3");
    assert_eq!(list(case("service=s").compression("lz4:2")), "zstd");
    assert_eq!(list(case("service=t").compression("lz4:2")), "lz4:2");
    assert_eq!(list(case("service=t")), "zlib");
    assert_eq!(list(case("compression=off").compression("lz4")), "");
    assert_eq!(list(case("compression=on")), "zstd:1,lz4:1");
}

#[test]
fn the_stand_in_verifies_what_the_client_would_have_verified() {
    let case =
        command(&["psql", "host=db sslmode=verify-full sslrootcert=/ca compression=lz4"]).file("/ca", "");
    let plan = case.plan().unwrap();
    assert_eq!(plan.stand_ins[0].ssl.mode, SslMode::VerifyFull);
    // On a socket libpq ignores them, and taking one of them out could contradict another.
    assert_eq!(text(&plan.argv[1]), "sslmode=verify-full sslrootcert=/ca host=/P/0");
    let case = command(&["psql", "host=db requirepeer=x compression=lz4"]);
    check(&case, "psql host=/P/0 | /P/0->db:5432,lz4");
}

#[test]
fn what_cannot_be_kept_is_an_error_that_says_what_to_do() {
    let error = command(&["psql", "host=db channel_binding=require compression=lz4"]).planned();
    assert!(error.starts_with("error: connection string: channel_binding=require does not work"), "{error}");
    assert!(error.contains("sslmode=verify-full"), "{error}");
    let error = command(&["psql"]).env("PGGSSENCMODE", "require").compression("lz4").planned();
    assert!(error.starts_with("error: environment: gssencmode=require does not work"), "{error}");
    let error = command(&["psql", "host=/run/pg requirepeer=postgres compression=lz4"]).planned();
    assert!(error.starts_with("error: connection string: requirepeer=postgres does not work"), "{error}");
    check(&command(&["psql", "host=db channel_binding=require"]), "psql host=db channel_binding=require");
}

#[test]
fn wrong_lists_and_parameters_are_errors_when_compression_is_asked_for() {
    let table = [
        (
            command(&["psql", "host=db compression=snappy9"]),
            "error: compression \"snappy9\" (connection string): ",
        ),
        (command(&["psql"]).compression("zstd:99"), "error: compression \"zstd:99\" (--compression): "),
        (command(&["psql"]).env("PGCOMPRESSION", "x"), "error: compression \"x\" (PGCOMPRESSION): "),
        (
            command(&["psql", "host=a,b port=1,2,3 compression=lz4"]),
            "error: connection string: could not match 3 port numbers to 2 hosts",
        ),
        (
            command(&["psql", "service=nope compression=lz4"]),
            "error: connection string: definition of service \"nope\" not found",
        ),
        (
            command(&["psql", "host=db compression=lz4 x"]),
            "error: connection string: missing \"=\" after \"x\" in connection info string",
        ),
    ];
    for (case, message) in table {
        let planned = case.planned();
        assert!(planned.starts_with(message), "{planned}");
    }
}

#[test]
fn a_server_that_debians_wrapper_would_choose_is_not_guessed() {
    let error = command(&["psql", "-l"]).env("PGCLUSTER", "15/db.example:5433").compression("lz4").planned();
    assert!(error.starts_with("error: environment: PGCLUSTER chooses the server"), "{error}");
    let error = command(&["psql", "--cluster", "15/main", "dbname=d compression=lz4"]).planned();
    assert!(error.starts_with("error: connection string: --cluster chooses the server"), "{error}");
    check(
        &command(&["psql", "--cluster", "15/main", "host=db compression=lz4"]).env("PGCLUSTER", "15/x"),
        "psql --cluster 15/main host=/P/0 | /P/0->db:5432,lz4",
    );
    check(&command(&["psql", "--cluster=15/main", "d"]), "psql --cluster=15/main d");
}

#[test]
fn required_compression_must_be_asked_for_somewhere() {
    let error = command(&["psql", "host=db"]).required().planned();
    assert!(error.starts_with("error: compression is required, but nothing requests it"), "{error}");
    assert!(command(&["psql", "host=db compression=lz4"]).required().plan().is_ok());
}

#[test]
fn a_probe_asks_the_server_itself() {
    check(
        &command(&["pg_isready", "-h", "db", "-d", "host=db compression=lz4"]).env("PGCOMPRESSION", "lz4"),
        "pg_isready -h db -d host=db",
    );
}

#[test]
fn a_command_that_records_its_connection_is_warned_about() {
    let warned = |argv: &[&str]| !command(argv).compression("lz4").plan().unwrap().warnings.is_empty();
    assert!(warned(&["pg_basebackup", "-D", "x", "-R"]));
    assert!(warned(&["pg_basebackup", "-D", "x", "--write-rec"]));
    assert!(!warned(&["pg_basebackup", "-D", "x"]));
    assert!(!warned(&["pg_dump", "-R"]));
    assert!(command(&["pg_basebackup", "-D", "x", "-R"]).plan().unwrap().warnings.is_empty());
}

#[test]
fn plans_do_not_show_passwords() {
    let case = command(&["psql", "postgres://u:hunter2@h/d?compression=lz4"])
        .file("/home/ann/.pgpass", "h:*:*:*:hunter2\n");
    let plan = case.plan().unwrap();
    assert!(!format!("{plan:?}").contains("hunter2"));
    assert!(!plan.notes.join("\n").contains("hunter2"));
    assert_eq!(plan.notes, ["connection string: h port 5432 through /P/0"]);
}
