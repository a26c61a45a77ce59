//! Settings of backups in a file and in the environment, and metrics.

use crate::backup::{Kept, done, refused, repository};
use pgshrink_testkit::TempDir;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

fn file(keep: &TempDir, text: &str) -> PathBuf {
    let path = keep.path().join("backup.toml");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_table_in_a_file_gives_what_no_flag_and_no_variable_gives() {
    let kept = Kept::new(&[]);
    let (conninfo, place) = (kept.cluster.conninfo("postgres"), kept.repository());
    let text = format!(
        "[backup]\nconninfo = {conninfo:?}\nrepository = {place:?}\ncheckpoint = \"fast\"\n\
         label = \"from a file\"\nlevel = 1\npack_size_mib = 2\nresume = true\nkeep_last = 1\n"
    );
    let path = file(&kept.keep, &text);
    let path = path.to_str().unwrap();
    let report = done(&["backup", "--config", path]);
    assert_eq!(report["label"], "from a file");
    assert_eq!(done(&["list", "--config", path]).as_array().unwrap().len(), 2);
    let named = done(&["backup", &format!("--config={path}"), "--label", "from a flag"]);
    assert_eq!(named["label"], "from a flag");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.args(["backup", "--json", "-q"]).env("PGSHRINK_BACKUP_CONFIG", path);
    let output = command.env("PGSHRINK_BACKUP_LABEL", "from a variable").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("from a variable"));
    done(&["verify", "latest", "--config", path]);
    assert_eq!(done(&["expire", "--config", path])["removed"], 3);
    assert_eq!(done(&["list", "--config", path]).as_array().unwrap().len(), 1);
}

#[test]
fn what_is_wrong_in_a_file_is_named_with_its_line() {
    let keep = TempDir::new().unwrap();
    let says = |text: &str, expected: &[&str]| {
        let path = file(&keep, text);
        let said = refused(&["list", "--config", path.to_str().unwrap()]);
        assert!(expected.iter().all(|part| said.contains(part)), "{text:?}: {said}");
    };
    says("[backup]\nrepository = \"/x\"\nspeed = 1\n", &["backup.toml:3", "backup.speed", "keep_last"]);
    says("[backup]\nrepository = \"/x\"\nlevel = [[1]]\n", &["backup.toml:3", "backup.level"]);
    says("[backup]\nrepository = \n", &["backup.toml:2"]);
    says("# none\n", &["backup.toml: ", "add the line [backup]"]);
    says("repository = \"/x\"\n", &["backup.toml:1: repository: ", "put it below a line [backup]"]);
    says("[backup]\nrepository = \"/x\"\n[bakcup]\n", &["backup.toml:3: bakcup: ", "remove this table"]);
    says("[log]\nlevel = \"info\"\n[backup]\n", &["backup.toml:1: log: ", "only the table [backup] is read"]);
    for key in ["repository", "level", "label", "quiet", "keep_last"] {
        says(
            &format!("[backup]\n{key} = [1, 2]\n"),
            &["backup.toml:2", key, "expected one value, found a list"],
        );
    }
    says("backup = 1\n", &["backup.toml:1", "expected a table"]);
    says("[backup]\nlevel = 1\n", &["--from"]);
    let said = refused(&["list", "--config", "/nonexistent.toml"]);
    assert!(said.contains("/nonexistent.toml"), "{said}");
    says("[backup]\ncheckpoint=fast\n", &["backup.toml:2: strings must be quoted: checkpoint = \"fast\""]);
    for (command, setting, reason) in [
        ("expire", "keep_last = 0", "invalid value '0': must be at least 1"),
        ("verify", "boot = \"yes\"", "invalid value 'yes': allowed are true, false"),
        ("backup", "max_rate = \"1MB\"", "invalid value '1MB': "),
        ("backup", "level = 30", "invalid value '30': must be between 1 and 19"),
    ] {
        let path = file(&keep, &format!("[backup]\nrepository = \"/x\"\n{setting}\nconninfo = \"host=x\"\n"));
        let said = refused(&[command, "--config", path.to_str().unwrap()]);
        let key = setting.split(' ').next().unwrap();
        assert!(said.contains(&format!("backup.toml:3: backup.{key}: {reason}")), "{said}");
        assert!(!said.contains("--"), "{said}");
    }
}

#[test]
fn the_sample_file_is_accepted() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/backup.toml");
    let keep = TempDir::new().unwrap();
    let place = repository(&keep);
    fs::create_dir(&place).unwrap();
    // With every setting that is commented out, too.
    let text = fs::read_to_string(sample).unwrap();
    let all: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let key = keep.path().join("backup.key");
    fs::write(&key, "5".repeat(64)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let key = key.to_str().unwrap();
    let all = all
        .replace("/etc/pgshrink/backup.key", key)
        .replace("vault read -field=key pg/backup", &format!("cat {key}"));
    // The message about an unknown name lists the others. repository stands for these two.
    let said = refused(&["list", "--config", file(&keep, "[backup]\nzzz = 1\n").to_str().unwrap()]);
    let known = said.trim().split_once("known are ").unwrap().1.split(", ");
    for name in known.filter(|name| !["from", "to"].contains(name)) {
        assert!(all.contains(&format!("\n{name} = ")), "packaging/backup.toml lacks {name}");
    }
    for text in [text, all] {
        let path = file(&keep, &text);
        let found = done(&["expire", "--config", path.to_str().unwrap(), "--from", &place, "--dry-run"]);
        assert_eq!(found["removed"], 0);
    }
}

/// The sample with every setting that is commented out, and paths of this test instead of its own.
fn sample_with_everything(keep: &TempDir, conninfo: &str, place: &str) -> String {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/backup.toml");
    let key = keep.path().join("backup.key");
    fs::write(&key, "5".repeat(64)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let here = |name: &str| keep.path().join(name).to_str().unwrap().to_owned();
    let text = fs::read_to_string(sample).unwrap();
    let all = text.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
        _ => format!("{line}\n"),
    });
    let replaced = [
        ("/etc/pgshrink/backup.key", key.to_str().unwrap().to_owned()),
        ("vault read -field=key pg/backup", format!("cat {}", key.display())),
        ("host=localhost user=replicator", conninfo.replace('\\', "\\\\").replace('"', "\\\"")),
        ("/var/backups/pgshrink", place.to_owned()),
        ("/var/lib/prometheus/node-exporter/pgshrink.prom", here("pgshrink.prom")),
        ("/var/log/pgshrink/verify.json", here("verify.json")),
        ("/srv/scratch", here("scratch")),
        ("max_rate = 50000", "max_rate = 1048576".to_owned()),
    ];
    replaced.iter().fold(all.collect(), |text: String, (from, to)| {
        assert!(text.contains(from), "the sample has no {from}");
        text.replace(from, to)
    })
}

#[test]
fn every_setting_of_the_sample_at_once_works_for_every_command() {
    let kept = Kept::new(&[]);
    let keep = TempDir::new().unwrap();
    let place = repository(&keep);
    let fast = kept.cluster.data_dir().parent().unwrap().join("fast");
    fs::create_dir(&fast).unwrap();
    let owner = fs::metadata(kept.cluster.data_dir()).unwrap();
    std::os::unix::fs::chown(&fast, Some(owner.uid()), Some(owner.gid())).unwrap();
    kept.cluster.sql(&format!("create tablespace fast location '{}'", fast.display())).unwrap();
    let text = sample_with_everything(&keep, &kept.cluster.conninfo("postgres"), &place);
    let text = text
        .replace("/ssd/fast", fast.to_str().unwrap())
        .replace("/srv/restored", keep.path().to_str().unwrap());
    let path = file(&keep, &text);
    let path = path.to_str().unwrap();
    let report = done(&["backup", "--config", path]);
    assert_eq!(report["label"], "nightly");
    assert_eq!(done(&["list", "--config", path]).as_array().unwrap().len(), 1);
    done(&["verify", "latest", "--config", path, "--boot=false"]);
    let into = keep.path().join("restored");
    done(&["restore", "latest", "--config", path, "--into", into.to_str().unwrap()]);
    assert!(into.join("PG_VERSION").exists() && keep.path().join("fast").is_dir());
    assert_eq!(done(&["expire", "--config", path])["removed"], 0);
}

#[test]
fn what_a_file_says_about_other_kinds_of_backups_is_no_error() {
    let kept = Kept::new(&[]);
    let keep = TempDir::new().unwrap();
    let conninfo = kept.cluster.conninfo("postgres");
    let text = format!(
        "[backup]\nconninfo = {conninfo:?}\ncheckpoint = \"fast\"\nconnections = 2\nlevel = 1\n\
         tablespace_mapping = [\"/a=/b\"]\n"
    );
    let path = file(&keep, &text);
    let path = path.to_str().unwrap();
    let place = |name: &str| keep.path().join(name).to_str().unwrap().to_owned();
    done(&["backup", "--config", path, "--to", &place("archive")]);
    done(&["backup", "--config", path, "--to", &place("tar"), "--format", "tar"]);
    // Whoever says so in a flag is told.
    for words in [["--connections", "2"], ["--tablespace-mapping", "/a=/b"]] {
        let said = refused(&[&["backup", &conninfo, "--to", &place("other")], &words[..]].concat());
        assert!(said.contains(words[0]), "{said}");
    }
}

#[test]
fn a_switch_that_a_file_turns_on_can_be_turned_off() {
    let keep = TempDir::new().unwrap();
    let place = repository(&keep);
    fs::create_dir(&place).unwrap();
    let text = format!("[backup]\nrepository = {place:?}\nboot = true\nresume = true\nquiet = true\n");
    let path = file(&keep, &text);
    let path = path.to_str().unwrap();
    for words in [
        &["list", "--quiet=false"][..],
        &["list", "--quiet"],
        &["list", "-q"],
        &["expire", "--abandoned=false", "--keep-last", "1"],
        &["expire", "--abandoned", "--keep-last", "1"],
    ] {
        done(&[words, &["--config", path]].concat());
    }
    // As far as looking for the backup.
    for words in [
        &["restore", "latest", "--resume=false", "--into", "/nonexistent/x"][..],
        &["restore", "latest", "--resume=true", "--into", "/nonexistent/x"],
        &["verify", "latest", "--boot=false"],
        &["verify", "latest", "--boot", "--keep-scratch=false"],
    ] {
        let said = refused(&[words, &["--config", path]].concat());
        assert!(said.contains("backup") && !said.contains("unexpected value"), "{words:?}: {said}");
    }
    let said = refused(&["list", "--config", path, "--quiet=perhaps"]);
    assert!(said.contains("--quiet") && said.contains("perhaps"), "{said}");
}

#[test]
fn flags_of_a_boot_need_one_that_a_flag_or_the_file_asks_for() {
    let keep = TempDir::new().unwrap();
    let nothing = keep.path().join("nothing").to_str().unwrap().to_owned();
    for (flag, value) in [
        ("scratch", "/x"),
        ("keep-scratch", "true"),
        ("set", "a=b"),
        ("boot-timeout-s", "9"),
        ("report", "/x"),
    ] {
        let flag = format!("--{flag}={value}");
        let said = refused(&["verify", "latest", "--from", &nothing, &flag]);
        assert!(said.contains(flag.split('=').next().unwrap()) && said.contains("add --boot"), "{said}");
        assert!(said.contains("Usage: pgshrink verify"), "{said}");
        // With a boot, the next thing that is wrong is the repository.
        let said = refused(&["verify", "latest", "--from", &nothing, &flag, "--boot"]);
        assert!(said.contains("cannot open"), "{said}");
        let path = file(&keep, &format!("[backup]\nrepository = {nothing:?}\nboot = true\n"));
        let said = refused(&["verify", "latest", "--config", path.to_str().unwrap(), &flag]);
        assert!(said.contains("cannot open"), "{said}");
    }
}

fn metrics(path: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn metrics_say_when_the_last_backup_ended_and_whether_the_last_attempt_succeeded() {
    let kept = Kept::new(&[]);
    let path = kept.keep.path().join("pgshrink.prom");
    let (conninfo, place) = (kept.cluster.conninfo("postgres"), kept.repository());
    let words = ["--to", &place, "--checkpoint", "fast", "--metrics-file", path.to_str().unwrap()];
    done(&[&["backup", &conninfo], &words[..]].concat());
    let value = |key: &str| {
        let found = metrics(&path).into_iter().find(|(found, _)| found.starts_with(key));
        found.unwrap_or_else(|| panic!("{key}")).1
    };
    let seconds =
        kept.cluster.sql("select extract(epoch from now())::bigint").unwrap().parse::<i64>().unwrap();
    let last =
        value("pgshrink_backup_last_stop_timestamp_seconds{system_identifier=").parse::<i64>().unwrap();
    assert!((seconds - 60..=seconds).contains(&last), "{last} {seconds}");
    assert_eq!(value("pgshrink_backup_complete{"), "2");
    assert_eq!(value("pgshrink_backup_attempt_success"), "1");
    assert_eq!(value("pgshrink_backup_incomplete"), "0");
    refused(&[&["backup", "host=/nonexistent"], &words[..]].concat());
    assert_eq!(value("pgshrink_backup_attempt_success"), "0");
    assert_eq!(value("pgshrink_backup_last_stop_timestamp_seconds{"), last.to_string());
    fs::remove_file(&path).unwrap();
    done(&["list", "--from", &place, "--metrics-file", path.to_str().unwrap()]);
    assert_eq!(value("pgshrink_backup_complete{"), "2");
}
