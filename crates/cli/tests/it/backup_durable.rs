//! What a power loss may do: a name is given only when its bytes are durable, and the name that makes a backup or a data
//! directory of it comes last. The kernel's calls are watched, as no test can pull the plug.

use crate::backup::{Kept, done};
use pgshrink_testkit::{Kind, Missing, TempDir, skipped};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A call of the kernel that succeeded: lines of the trace where it began and where it ended.
struct Call {
    text: String,
    began: usize,
    ended: usize,
}

struct Trace(Vec<Call>);

/// Calls that make something durable, give a name or take one away.
const CALLS: &str = "trace=fsync,fdatasync,syncfs,rename,renameat,renameat2,link,linkat,unlink,unlinkat";

/// `None`: no program can be watched here, which was reported.
fn strace() -> Option<()> {
    let words = ["-f", "-qq", "-e", "trace=fsync", "-o", "/dev/null", "true"];
    let missing = match Command::new("strace").args(words).output() {
        Ok(output) if output.status.success() => return Some(()),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            Missing::new("strace", why, "allowing ptrace").of(Kind::Privilege)
        }
        Err(error) => Missing::new("strace", error.to_string(), "tools/setup"),
    };
    skipped("what is durable, and when", &missing);
    None
}

impl Trace {
    /// Runs pgshrink, and gives what it asked the kernel for.
    fn of(words: &[&str]) -> Trace {
        let keep = TempDir::new().unwrap();
        let log = keep.path().join("calls");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-y", "-s", "4096", "-e", CALLS, "-o", log.to_str().unwrap()]);
        let output = command.arg(env!("CARGO_BIN_EXE_pgshrink")).args(words).arg("-q").output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        let mut waiting: HashMap<&str, (String, usize)> = HashMap::new();
        let mut calls = Vec::new();
        let text = fs::read_to_string(log).unwrap();
        for (number, line) in text.lines().enumerate() {
            let (process, said) = line.split_once(' ').unwrap();
            let said = said.trim_start();
            if let Some(first) = said.strip_suffix("<unfinished ...>") {
                waiting.insert(process, (first.trim_end().to_owned(), number));
                continue;
            }
            // `<... fsync resumed>) = 0` goes on with `fsync(5</a/file>`.
            let resumed = said.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>"));
            let (text, began) = match resumed {
                Some((_, rest)) => {
                    let (first, began) = waiting.remove(process).unwrap();
                    (first + rest, began)
                }
                None => (said.to_owned(), number),
            };
            if text.ends_with("= 0") {
                calls.push(Call { text, began, ended: number });
            }
        }
        Trace(calls)
    }

    fn find(&self, names: &[&str], argument: &str) -> Vec<&Call> {
        let is = |call: &&Call| {
            let name = call.text.split_once('(').map_or("", |(name, _)| name);
            names.contains(&name) && call.text.contains(argument)
        };
        self.0.iter().filter(is).collect()
    }

    /// The call that gave a path its name, and the name that it had.
    fn named(&self, path: &Path) -> (&Call, PathBuf) {
        let quoted = format!("\"{}\"", path.display());
        let names = ["rename", "renameat", "renameat2", "link", "linkat"];
        let found = self.find(&names, &quoted);
        let call = found.last().unwrap_or_else(|| panic!("nothing was named {quoted}"));
        (call, PathBuf::from(call.text.split('"').nth(1).unwrap()))
    }

    fn synced(&self, names: &[&str], path: &Path) -> Vec<&Call> {
        self.find(names, &format!("<{}>)", path.display()))
    }

    /// Whether names in a directory were made durable behind one line and before another one.
    fn is_synced_between(&self, folder: &Path, from: usize, to: usize) -> bool {
        let synced = self.synced(&["fsync"], folder);
        synced.iter().any(|call| call.began >= from && call.ended < to)
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// A data directory: everything is durable, then the manifest has its name, and then the control file.
fn check_data_directory(trace: &Trace, into: &Path) {
    let (manifest, _) = trace.named(&into.join("backup_manifest"));
    let (control, _) = trace.named(&into.join("global/pg_control"));
    let all = trace.synced(&["syncfs"], into);
    assert!(all.iter().any(|call| call.ended < manifest.began), "all is durable before it has a name");
    assert!(trace.is_synced_between(into, manifest.ended, control.began), "the manifest comes first");
    assert!(trace.is_synced_between(&into.join("global"), control.ended, usize::MAX));
}

#[test]
fn names_come_when_bytes_are_durable_and_what_makes_it_whole_comes_last() {
    let Some(()) = strace() else { return };
    let kept = Kept::new(&[]);
    let keep = kept.keep.path().canonicalize().unwrap();
    let conninfo = kept.cluster.conninfo("postgres");
    let repository = keep.join("new/repository");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let backup = |to: &Path, words: &[&str]| {
        Trace::of(&[&["backup", &conninfo, "--to", &text(to), "--checkpoint", "fast"], words].concat())
    };

    let trace = backup(&repository, &["--pack-size-mib", "1"]);
    let place = fs::read_dir(&repository).unwrap().next().unwrap().unwrap().path();
    let manifest = place.join("backup_manifest");
    let (committed, _) = trace.named(&manifest);
    for file in files(&repository) {
        let (named, before) = trace.named(&file);
        let bytes = trace.synced(&["fsync"], &before);
        assert!(bytes.iter().any(|call| call.ended < named.began), "bytes of {}", file.display());
        let end = if file == manifest { usize::MAX } else { committed.began };
        assert!(trace.is_synced_between(file.parent().unwrap(), named.ended, end), "{}", file.display());
    }
    for (above, made) in
        [(&*keep, "new"), (&keep.join("new"), "repository"), (&repository, "NAME"), (&place, "packs")]
    {
        assert!(trace.is_synced_between(above, 0, committed.began), "{made} itself is durable");
    }

    let into = keep.join("into");
    let words = ["restore", "latest", "--from", &text(&repository), "--into", &text(&into)];
    let trace = Trace::of(&words);
    check_data_directory(&trace, &into);
    let marker = trace.synced(&["fsync"], &into.join("pgshrink_restore.json"));
    let durable = marker.first().unwrap().ended;
    let first = trace.synced(&["syncfs"], &into)[0].began;
    assert!(trace.is_synced_between(&into, durable, first), "what a restore that goes on relies on");
    let removed = trace.find(&["unlink", "unlinkat"], "pgshrink_restore.json");
    let (control, _) = trace.named(&into.join("global/pg_control"));
    assert!(removed[0].began > control.ended, "it is unfinished until then");

    let plain = keep.join("plain");
    check_data_directory(&backup(&plain, &["--format", "plain"]), &plain);

    let tar = keep.join("tar");
    let trace = backup(&tar, &["--format", "tar"]);
    let (committed, _) = trace.named(&tar.join("backup_manifest"));
    let all = trace.synced(&["syncfs"], &tar)[0].ended;
    for file in files(&tar).iter().filter(|file| !file.ends_with("backup_manifest")) {
        let (named, _) = trace.named(file);
        assert!(
            named.began > all && trace.is_synced_between(&tar, named.ended, committed.began),
            "{}",
            file.display()
        );
    }
    assert!(committed.began > all && trace.is_synced_between(&tar, committed.ended, usize::MAX));
    check_removal(&kept, &repository, &place);
}

/// Without its manifest it is no backup, and that is durable before anything else of it goes.
fn check_removal(kept: &Kept, repository: &Path, place: &Path) {
    let from = repository.to_str().unwrap();
    let other = crate::backup::backup(&kept.cluster, from, &[]);
    let trace = Trace::of(&["expire", "--from", from, "--keep-last", "1"]);
    let removed = |name: &str| trace.find(&["unlink", "unlinkat"], &format!("\"{}/{name}", place.display()));
    let (manifest, mark) = (removed("backup_manifest")[0], removed("removing.json")[0]);
    let (marked, _) = trace.named(&place.join("removing.json"));
    assert!(trace.is_synced_between(place, marked.ended, manifest.began), "the mark comes first");
    let packs = removed("packs/");
    assert!(!packs.is_empty());
    for pack in packs {
        assert!(trace.is_synced_between(place, manifest.ended, pack.began) && pack.ended < mark.began);
    }
    done(&["verify", &other, "--from", from]);
}
