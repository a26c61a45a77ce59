//! Settings of backups in a file and in the environment, and metrics.

use crate::backup::{Kept, done, refused, repository};
use pgshrink_testkit::TempDir;
use std::fs;
use std::os::unix::fs::PermissionsExt;
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
        "[log]\nlevel = \"info\"\n[backup]\nconninfo = {conninfo:?}\nrepository = {place:?}\ncheckpoint = \"fast\"\n\
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
    says("repository = \"/x\"\n", &["backup.toml: ", "[backup]"]);
    says("backup = 1\n", &["backup.toml:1", "expected a table"]);
    says("[backup]\nlevel = 1\n", &["--from"]);
    let said = refused(&["list", "--config", "/nonexistent.toml"]);
    assert!(said.contains("/nonexistent.toml"), "{said}");
    let path = file(&keep, "[backup]\nrepository = \"/x\"\nkeep_last = 0\n");
    let said = refused(&["expire", "--config", path.to_str().unwrap()]);
    assert!(said.contains("keep-last") && said.contains('0'), "{said}");
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
