//! Configuration files from outside of the data directory, with real servers.

use crate::backup::{damaged, done, ended, give, pgshrink, refused, repository};
use crate::backup_boot::{Space, said};
use crate::backup_sealed::{files, files_with, key_file};
use pgshrink_testkit::{Cluster, Seed, Server, ServerBinaries, TempDir};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A server whose configuration lies outside of its data directory, as Debian's does.
struct Debian {
    cluster: Cluster,
    /// As /etc/postgresql/15/main.
    etc: PathBuf,
    keep: TempDir,
}

impl Debian {
    fn start(server: &ServerBinaries) -> Debian {
        let cluster = Cluster::builder().server(server).initdb_arg("--data-checksums").create().unwrap();
        let data = cluster.data_dir();
        let home = data.parent().unwrap().to_owned();
        let etc = home.join("etc/main");
        for name in ["postgresql.conf", "pg_hba.conf", "pg_ident.conf"] {
            fs::remove_file(data.join(name)).unwrap();
        }
        for folder in ["conf.d", "empty.d", "deep"] {
            fs::create_dir_all(etc.join(folder)).unwrap();
        }
        // Bytes that do not compress.
        let marker = Seed(7).rng().bytes(3000);
        let marker: Vec<u8> = marker.into_iter().filter(|byte| !matches!(byte, 0 | b'\n')).collect();
        let text = |name: &str, text: &str| fs::write(etc.join(name), text).unwrap();
        text(
            "postgresql.conf",
            &format!(
                "data_directory = '{}'\nhba_file = '{etc}/pg_hba.conf'\nident_file = '{etc}/pg_ident.conf'\n\
                 include '{}/testkit.conf'\ninclude_dir 'conf.d'\nINCLUDE_DIR = 'empty.d' # nothing\n\
                 include_if_exists 'absent.conf'\n",
                data.display(),
                data.display(),
                etc = etc.display()
            ),
        );
        text("conf.d/10 first.conf", "include '../deep/deep.conf'\r\nmax_wal_senders = 5");
        text("conf.d/20-none.conf", "");
        text("conf.d/30.conf.dpkg-old", "work_mem = '1 parsec'\n");
        text("deep/deep.conf", "max_prepared_transactions = 7\n");
        text(
            "pg_hba.conf",
            "local all all trust\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n\
              host @databases \"@ann\",@../names 10.0.0.0/8 trust\n",
        );
        text("databases", "one, two # @three\n@more\n");
        text("more", "three\n");
        fs::write(etc.join("../names"), [b"# ", &marker[..], b"\nann\n"].concat()).unwrap();
        text("pg_ident.conf", "# nobody\n");
        if server.major >= 16 {
            text(
                "pg_hba.conf",
                &(fs::read_to_string(etc.join("pg_hba.conf")).unwrap() + "include_dir hba.d\n"),
            );
            fs::create_dir(etc.join("hba.d")).unwrap();
            text("hba.d/one.conf", "local all all reject\n");
        }
        give(&home.join("etc"), cluster.owner().uid, cluster.owner().gid);
        cluster.set_arguments(&["-c".to_owned(), format!("config_file={}/postgresql.conf", etc.display())]);
        cluster.start().unwrap_or_else(|error| panic!("{error}\n{}", cluster.log().unwrap_or_default()));
        cluster.sql("create table t as select n from generate_series(1, 1000) n").unwrap();
        Debian { cluster, etc, keep: TempDir::new().unwrap() }
    }

    fn of_15() -> Debian {
        Debian::start(&Server::find(15).unwrap())
    }

    fn conninfo(&self, role: &str) -> String {
        self.cluster.conninfo("postgres").replace("user='postgres'", &format!("user='{role}'"))
    }

    fn repository(&self) -> String {
        repository(&self.keep)
    }

    fn backup(&self, words: &[&str]) -> Value {
        let conninfo = self.conninfo("postgres");
        done(&[&["backup", &conninfo, "--to", &self.repository(), "--checkpoint", "fast"], words].concat())
    }

    /// What a backup says that succeeds.
    #[track_caller]
    fn backup_says(&self, role: &str, words: &[&str]) -> String {
        let conninfo = self.conninfo(role);
        let start =
            ["backup", &conninfo, "--to", &self.repository(), "--checkpoint", "fast", "--threads", "1"];
        ended(&[&start, words].concat(), 0)
    }

    /// Files that belong to the configuration, by their path.
    fn expected(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let all = files(self.etc.parent().unwrap()).into_iter();
        all.filter(|path| !path.ends_with("30.conf.dpkg-old"))
            .map(|path| (path.clone(), fs::read(&path).unwrap()))
            .collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }

    fn restore(&self, words: &[&str]) -> (PathBuf, String) {
        let into = self.path("restored");
        let _ = fs::remove_dir_all(&into);
        let start = ["restore", "latest", "--from", &self.repository(), "--into", into.to_str().unwrap()];
        (into.clone(), ended(&[&start, words].concat(), 0))
    }
}

/// Files below a directory, by the path that they have without it.
fn below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let place = |path: &Path| Path::new("/").join(path.strip_prefix(folder).unwrap());
    files(folder).iter().map(|path| (place(path), fs::read(path).unwrap())).collect()
}

/// The path of a file in the directory that configuration was restored into.
fn moved(folder: &Path, path: &Path) -> PathBuf {
    folder.join(path.strip_prefix("/").unwrap())
}

#[test]
fn configuration_is_restored_as_it_was_and_starts_the_server() {
    Server::each("configuration outside of the data directory", &[15, 16, 18], |server| {
        let debian = Debian::start(server);
        let route: &[&str] = if server.major == 16 { &["--route", "parallel"] } else { &[] };
        let said = debian.backup_says("postgres", &[route, &["--configuration", "require"]].concat());
        assert!(!said.contains("not in this backup"), "{said}");
        let expected = debian.expected();
        assert_eq!(expected.len(), if server.major == 15 { 9 } else { 10 });
        let listed = done(&["list", "--from", &debian.repository()]);
        assert_eq!(listed[0]["details"]["configuration_files"], expected.len());
        done(&["verify", "latest", "--from", &debian.repository()]);

        let (_, said) = debian.restore(&[]);
        assert!(said.contains("--configuration-into") && said.contains("server needs"), "{said}");
        assert!(said.contains(&format!("{}/postgresql.conf", debian.etc.display())), "{said}");
        let copy = Cluster::builder().server(server).create().unwrap();
        fs::remove_dir_all(copy.data_dir()).unwrap();
        let (into, home) = (copy.data_dir(), copy.data_dir().parent().unwrap().to_owned());
        let folder = home.join("configuration");
        let words = ["restore", "latest", "--from", &debian.repository(), "--into", into.to_str().unwrap()];
        let said = ended(&[&words[..], &["--configuration-into", folder.to_str().unwrap()]].concat(), 0);
        assert_eq!(below(&folder), expected);
        assert!(
            moved(&folder, &debian.etc).join("empty.d").is_dir(),
            "the server would not start without it"
        );
        for path in files(&folder) {
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o600,
                "{}",
                path.display()
            );
        }

        // The options of the hint start it. What is of the test's kit has the port of the other one.
        let (_, options) = said.lines().find_map(|line| line.split_once("start it with: postgres ")).unwrap();
        let mut words: Vec<String> = options.split(' ').map(|word| word.replace('\'', "")).collect();
        let sockets = copy.socket_dir().display().to_string();
        for setting in [format!("port={}", copy.port()), format!("unix_socket_directories={sockets}")] {
            words.extend(["-c".to_owned(), setting]);
        }
        copy.set_arguments(&words);
        [&into, &folder].iter().for_each(|place| give(place, copy.owner().uid, copy.owner().gid));
        copy.start().unwrap_or_else(|error| panic!("{error}\n{}", copy.log().unwrap_or_default()));
        assert_eq!(copy.sql("show max_prepared_transactions").unwrap(), "7");
        assert_eq!(
            copy.sql("show config_file").unwrap(),
            moved(&folder, &debian.etc).join("postgresql.conf").display().to_string()
        );
        assert_eq!(copy.sql("select sum(n) from t").unwrap(), "500500");
    });
}

#[test]
fn a_server_is_booted_with_the_settings_that_the_backup_has_from_elsewhere() {
    Server::each("verify --boot with configuration from elsewhere", &[15, 18], |server| {
        let debian = Debian::start(server);
        let space = Space::new();
        // The cluster cannot start without the setting that only a nested file has.
        debian.cluster.sql("begin; select pg_current_xact_id(); prepare transaction 'one'").unwrap();
        space.backup(&debian.conninfo("postgres"));
        // What this machine has there now is not what is read.
        fs::write(debian.etc.join("deep/deep.conf"), "max_prepared_transactions = 'broken'\n").unwrap();
        let (report, _) = space.verified(server, &[], 0);
        assert!(!report["notes"].to_string().contains("conf"), "{report:#}");
        let (_, output) = space.verified(server, &["--set", "max_prepared_transactions=0"], 2);
        assert!(said(&output).contains("max_prepared_transactions"), "{}", said(&output));
    });
}

const RIGHTS: [&str; 4] = [
    "pg_read_all_settings",
    "pg_read_server_files",
    "EXECUTE ON FUNCTION pg_catalog.pg_read_binary_file(text, bigint, bigint, boolean)",
    "EXECUTE ON FUNCTION pg_catalog.pg_ls_dir(text, boolean, boolean)",
];

#[test]
fn a_role_with_the_rights_of_the_manual_backs_configuration_up_and_without_each_that_is_said() {
    let debian = Debian::of_15();
    debian.cluster.sql("create role \"Back up\" login replication").unwrap();
    let config = debian.etc.join("postgresql.conf").display().to_string();
    let conninfo = debian.conninfo("Back up");
    let elsewhere = debian.path("elsewhere").display().to_string();
    let require = ["backup", &conninfo, "--to", &elsewhere, "--configuration", "require"];
    let orders = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect()
    };
    let auto = || debian.backup_says("Back up", &[]);
    let count = || {
        let listed = done(&["list", "--from", &debian.repository()]);
        // Names of backups of one second are in no order.
        let stop = |listed: &&Value| {
            let (high, low) = listed["details"]["stop_lsn"].as_str().unwrap().split_once('/').unwrap();
            u64::from_str_radix(&format!("{high}{low:0>8}"), 16).unwrap()
        };
        let last = listed.as_array().unwrap().iter().max_by_key(stop).unwrap();
        last["details"]["configuration_files"].as_u64().unwrap()
    };
    let says_order = |text: &str, right: &str| text.contains(&format!("GRANT {right} TO \"Back up\";"));

    // Nobody knows where files are, so no more is asked for than to see that.
    let text = auto();
    assert!(text.contains("not in this backup") && text.contains("is not known"), "{text}");
    assert!(says_order(&text, RIGHTS[0]) && !says_order(&text, RIGHTS[1]), "{text}");
    assert_eq!(count(), 0);
    let text = refused(&require);
    assert_eq!(orders(&text), [format!("GRANT {} TO \"Back up\";", RIGHTS[0])], "{text}");
    debian.cluster.sql(&orders(&text).concat()).unwrap();

    let text = auto();
    assert!(text.contains("not in this backup") && text.contains(&config), "{text}");
    assert!(RIGHTS[1..].iter().all(|right| says_order(&text, right)), "{text}");
    let text = refused(&require);
    assert!(text.contains(&config) && orders(&text).len() == 3, "{text}");
    debian.cluster.sql(&orders(&text).concat()).unwrap();
    let complete = debian.expected().len() as u64;
    assert!(!auto().contains("not in this backup"));
    assert_eq!(count(), complete);

    for right in RIGHTS {
        debian.cluster.sql(&format!("revoke {right} from \"Back up\"")).unwrap();
        let text = refused(&require);
        assert_eq!(orders(&text), [format!("GRANT {right} TO \"Back up\";")], "{text}");
        debian.cluster.sql(&orders(&text).concat()).unwrap();
    }
    assert_eq!(fs::read_dir(&elsewhere).map_or(0, Iterator::count), 0, "nothing was begun");
    done(&require);
    // Nothing is said of what nobody wants.
    debian.cluster.sql("revoke pg_read_server_files from \"Back up\"").unwrap();
    let text = debian.backup_says("Back up", &["--configuration", "off"]);
    assert!(!text.contains("not in this backup"), "{text}");
    assert_eq!(count(), 0);
}

#[test]
fn a_role_that_may_connect_to_no_database_gets_its_backup() {
    let debian = Debian::of_15();
    debian.cluster.sql("create role nobody login replication").unwrap();
    let hba = debian.etc.join("pg_hba.conf");
    let text = fs::read_to_string(&hba).unwrap();
    fs::write(&hba, format!("host all nobody 127.0.0.1/32 reject\n{text}")).unwrap();
    debian.cluster.reload().unwrap();
    let text = debian.backup_says("nobody", &[]);
    assert!(text.contains("are not in this backup") && text.contains("pg_hba.conf"), "{text}");
    let conninfo = debian.conninfo("nobody");
    let elsewhere = debian.path("elsewhere").display().to_string();
    let text = refused(&["backup", &conninfo, "--to", &elsewhere, "--configuration", "require"]);
    assert!(text.contains("--configuration require") && text.contains("pg_hba.conf"), "{text}");
    assert_eq!(fs::read_dir(&elsewhere).map_or(0, Iterator::count), 0, "nothing was begun");
    let (_, said) = debian.restore(&["--configuration-into", debian.path("none").to_str().unwrap()]);
    assert!(said.contains("no configuration files") && !debian.path("none").exists(), "{said}");
    assert!(said.contains("no postgresql.conf"), "the server does not start: {said}");
}

#[test]
fn what_lies_in_the_data_directory_is_no_matter_of_this() {
    let cluster = Cluster::builder().start().unwrap();
    let keep = TempDir::new().unwrap();
    cluster.sql("create role sees login replication; grant pg_read_all_settings to sees").unwrap();
    let conninfo =
        |role: &str| cluster.conninfo("postgres").replace("user='postgres'", &format!("user='{role}'"));
    let backup = |role: &str, words: &[&str], code| {
        let start = ["backup", &conninfo(role), "--to", &repository(&keep), "--checkpoint", "fast"];
        ended(&[&start, words].concat(), code)
    };
    let text = backup("postgres", &["--configuration", "require"], 0);
    assert!(!text.contains("configuration"), "{text}");
    let text = backup("sees", &[], 0);
    assert!(!text.contains("configuration"), "the server knows where its settings come from: {text}");
    let text = backup("sees", &["--configuration", "require"], 2);
    assert!(text.contains("pg_read_binary_file"), "{text}");
    assert_eq!(done(&["list", "--from", &repository(&keep)])[0]["details"]["configuration_files"], 0);

    // A file of the data directory includes one from elsewhere.
    let outside = cluster.data_dir().parent().unwrap().join("outside.conf");
    fs::write(&outside, "work_mem = '5MB'\n").unwrap();
    give(&outside, cluster.owner().uid, cluster.owner().gid);
    let config = cluster.data_dir().join("postgresql.conf");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}\ninclude '../outside.conf'\n")).unwrap();
    cluster.reload().unwrap();
    assert!(backup("sees", &[], 0).contains(outside.to_str().unwrap()));
    backup("postgres", &["--configuration", "require"], 0);
    let into = keep.path().join("configuration");
    let words = [
        "restore",
        "latest",
        "--from",
        &repository(&keep),
        "--into",
        keep.path().join("into").to_str().unwrap(),
    ]
    .map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    done(&[&words[..], &["--configuration-into", into.to_str().unwrap()]].concat());
    assert_eq!(below(&into).into_keys().collect::<Vec<_>>(), [outside]);
}

#[test]
fn damage_of_configuration_is_found_and_named_and_a_hostile_record_writes_nowhere() {
    let debian = Debian::of_15();
    let name = debian.backup(&["--threads", "1"])["backup"].as_str().unwrap().to_owned();
    let root = Path::new(&debian.repository()).join(&name);
    let verify = ["verify", &name, "--from", &debian.repository()].map(str::to_owned);
    let verify: Vec<&str> = verify.iter().map(String::as_str).collect();
    let into = debian.path("into");
    let folder = debian.path("folder");
    let restore = || {
        let words = ["restore", &name, "--from", &debian.repository(), "--into", into.to_str().unwrap()];
        let output = pgshrink(&[&words[..], &["--configuration-into", folder.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(!folder.exists() && !into.join("global/pg_control").exists());
        let _ = fs::remove_dir_all(&into);
        said(&output)
    };

    // The first payload of the first pack, which one thread has written.
    let pack = root.join("packs/00000001.pack");
    let bytes = fs::read(&pack).unwrap();
    let mut flipped = bytes.clone();
    flipped[64 + 20] ^= 4;
    fs::write(&pack, &flipped).unwrap();
    for text in [damaged(&verify), restore()] {
        assert!(text.contains("main/postgresql.conf") && text.contains("00000001.pack"), "{text}");
    }
    fs::write(&pack, &bytes).unwrap();
    done(&verify);

    let object = root.join("backup.json");
    let whole = fs::read_to_string(&object).unwrap();
    let config = debian.etc.join("postgresql.conf").display().to_string();
    let (from, to) = (whole.find(r#"{"id""#).unwrap(), whole.rfind(r#","sha256""#).unwrap());
    let more = (0..257).map(|n| {
        format!(r#"{{"path":"/x/{n}","role":"included","bytes":0,"sha256":"{}"}},"#, "0".repeat(64))
    });
    let sha256 = sha256_of(&fs::read(&config).unwrap());
    let path = format!(r#""path":"{config}""#);
    for (old, new, expected) in [
        (&path[..], format!(r#""path":"/etc/../..{config}""#), "absolute paths"),
        (&path, format!(r#""path":"{}""#, &config[1..]), "absolute paths"),
        (&path, format!(r#""path":"/{}""#, "x".repeat(2000)), "absolute paths"),
        (&path, r#""path":"/elsewhere/postgresql.conf""#.to_owned(), "main/postgresql.conf"),
        (r#""files":[{"path""#, format!(r#""files":[{}{{"path""#, more.collect::<String>()), "256"),
        (&sha256, "0".repeat(64), "SHA-256"),
    ] {
        let record = &whole[from..to];
        assert!(record.contains(old), "{old}");
        let record = record.replacen(old, &new, 1);
        let text = format!(
            r#"{{"format":"pgshrink backup","version":1,"record":{record},"sha256":"{}"}}"#,
            sha256_of(record.as_bytes())
        );
        fs::write(&object, text).unwrap();
        for text in [damaged(&verify), restore()] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
    fs::write(&object, &whole).unwrap();

    refuses_places(&debian, &name, &folder, &into);
    done(&["expire", "--from", &debian.repository(), "--keep-last", "1"]);
    done(&verify);
}

fn refuses_places(debian: &Debian, name: &str, folder: &Path, into: &Path) {
    // A directory that is not empty, or is not outside of the data directory.
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("mine"), "").unwrap();
    let inside = into.join("configuration");
    for (folder, expected) in [(folder, "not empty"), (&inside, "outside of"), (into, "outside of")] {
        let words = ["restore", name, "--from", &debian.repository(), "--into", into.to_str().unwrap()];
        let text = refused(&[&words[..], &["--configuration-into", folder.to_str().unwrap()]].concat());
        assert!(text.contains(expected) && !into.exists(), "{text}");
    }
}

fn sha256_of(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_encrypted_backup_shows_nothing_of_its_configuration() {
    let debian = Debian::of_15();
    let (key, _) = key_file(&debian.keep, '1');
    debian.backup(&["--configuration", "require"]);
    let marker = fs::read(debian.etc.join("../names")).unwrap()[100..130].to_vec();
    let plain = debian.repository();
    assert!(files_with(Path::new(&plain), &marker) > 0, "the test looks for what is there");
    assert!(files_with(Path::new(&plain), b"main/pg_hba.conf") > 0);
    fs::remove_dir_all(&plain).unwrap();
    debian.backup(&["--configuration", "require", "--key-file", &key]);
    for text in [&marker[..], b"main/pg_hba.conf"] {
        assert_eq!(files_with(Path::new(&plain), text), 0);
    }
    let folder = debian.path("configuration");
    debian.restore(&["--key-file", &key, "--configuration-into", folder.to_str().unwrap()]);
    assert_eq!(below(&folder), debian.expected());
}

#[test]
fn files_that_are_too_large_or_gone_are_said_and_the_others_are_taken() {
    let debian = Debian::of_15();
    let before = debian.expected().len();
    fs::write(debian.etc.join("conf.d/40-large.conf"), vec![b'#'; (4 << 20) + 1]).unwrap();
    fs::create_dir(debian.etc.join("conf.d/50-a-directory.conf")).unwrap();
    fs::write(debian.etc.join("conf.d/60-gone.conf"), "include 'gone.conf'\n").unwrap();
    fs::write(debian.etc.join("conf.d/70-itself.conf"), "include '70-itself.conf'\ninclude '\\000'\n")
        .unwrap();
    give(&debian.etc, debian.cluster.owner().uid, debian.cluster.owner().gid);
    let text = debian.backup_says("postgres", &[]);
    for part in [
        "40-large.conf: it is larger than 4 MiB",
        "gone.conf: the configuration refers to it",
        "70-itself.conf: it includes",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("a-directory"), "{text}");
    let listed = done(&["list", "--from", &debian.repository()]);
    assert_eq!(listed[0]["details"]["configuration_files"], before + 2);
    let conninfo = debian.conninfo("postgres");
    let words = ["backup", &conninfo, "--to", &debian.repository(), "--configuration", "require"];
    assert!(refused(&words).contains("40-large.conf"));
    let (_, said) = debian.restore(&[]);
    assert!(said.contains("does not have: ") && said.contains("40-large.conf"), "{said}");
}

#[test]
fn plain_and_tar_backups_have_configuration_beside_them() {
    let debian = Debian::of_15();
    let conninfo = debian.conninfo("postgres");
    let expected = debian.expected();
    for format in ["plain", "tar"] {
        let to = debian.path(format);
        let folder = debian.path(&format!("configuration of {format}"));
        let start =
            ["backup", &conninfo, "--format", format, "--checkpoint", "fast", "--compression", "none"];
        let start = [&start[..], &["--to", to.to_str().unwrap()]].concat();
        let into = ["--configuration-into", folder.to_str().unwrap()];
        let text = ended(&start, 0);
        assert!(text.contains("not in this backup") && text.contains("main/postgresql.conf"), "{text}");
        fs::remove_dir_all(&to).unwrap();
        let text = refused(&[&start[..], &["--configuration", "require"]].concat());
        assert!(text.contains("--configuration-into") && !to.exists(), "{text}");
        for inside in [&to, &to.join("configuration")] {
            let text = refused(&[&start[..], &["--configuration-into", inside.to_str().unwrap()]].concat());
            assert!(text.contains("expected a directory outside of") && !to.exists(), "{text}");
        }
        // What a backup that fails has written is taken away.
        fs::create_dir(&to).unwrap();
        fs::write(to.join("mine"), "").unwrap();
        let text = refused(&[&start[..], &into].concat());
        assert!(text.contains("not empty") && !folder.exists(), "{text}");
        fs::remove_dir_all(&to).unwrap();
        let text = ended(&[&start[..], &into, &["--configuration", "require"]].concat(), 0);
        assert!(!text.contains("not in this backup"), "{text}");
        assert_eq!(below(&folder), expected);
    }
    let words = ["backup", &conninfo, "--to", &debian.repository(), "--configuration-into", "/nonexistent/x"];
    assert!(refused(&words).contains("restore --configuration-into"));
    let text = refused(&[&words[..], &["--format", "plain", "--configuration", "off"]].concat());
    assert!(text.contains("leave one out"), "{text}");
}
