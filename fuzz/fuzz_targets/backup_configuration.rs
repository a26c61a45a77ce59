//! Any bytes as a configuration file: includes are whole lines of it, in its order, and what they name resolves to a path
//! without detours. A name that is written as a setting is read back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgshrink_backup::configuration::{IncludeKind, Syntax, absolute, below, include_setting, includes};

const FROM: &[u8] = b"/etc/postgresql/15/main/postgresql.conf";

fuzz_target!(|data: &[u8]| {
    let [pick, text @ ..] = data else { return };
    let syntax = [Syntax::Settings, Syntax::Rules, Syntax::Names][usize::from(pick % 3)];
    if let Ok(found) = includes(syntax, text) {
        let mut before = 0..0;
        for include in found {
            let line = include.line;
            assert!(line == before || line.start >= before.end, "{line:?} follows {before:?}");
            assert!(line.start < line.end && line.end <= text.len());
            assert!(line.start == 0 || text[line.start - 1] == b'\n');
            assert!(line.end == text.len() || text[line.end - 1] == b'\n');
            resolves(&include.target);
            before = line;
        }
    }
    resolves(text);
    let kind =
        [IncludeKind::File, IncludeKind::FileIfExists, IncludeKind::Directory][usize::from(pick / 3 % 3)];
    // The server's settings have no newline in quotes, and its strings end at a NUL.
    if !text.is_empty() && !text.iter().any(|byte| matches!(byte, 0 | b'\n')) {
        let found = includes(Syntax::Settings, &include_setting(kind, text)).unwrap();
        assert!(found.len() == 1 && found[0].kind == kind && found[0].target == text);
    }
});

fn resolves(target: &[u8]) {
    let Some(path) = absolute(target, FROM) else { return };
    assert!(path.starts_with(b"/") && below(&path, b"").is_some());
    assert!(path[1..].split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b"..")));
    assert_eq!(absolute(&path, FROM), Some(path));
}
