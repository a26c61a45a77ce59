//! The table of imports, and executables of other kinds than a test is.

use std::path::PathBuf;

use pgshrink_interpose::hooks::hook_of;
use pgshrink_interpose::table::{self, Class, HARMLESS, HOOKED, NEEDED, Problem, REFUSED, check, class_of};
use pgshrink_testkit::Server;

/// Imports of a server without fault.
const GOOD: &[&str] = &[
    "open",
    "close",
    "pread",
    "pwrite",
    "lseek",
    "ftruncate",
    "fsync",
    "__xstat",
    "unlink",
    "malloc",
    "fread",
];

#[test]
fn every_hooked_name_has_a_function_and_is_in_one_class_only() {
    for name in HOOKED {
        assert!(hook_of(name).is_some(), "{name} has no hook");
    }
    let others = HARMLESS.iter().chain(REFUSED).flat_map(|(_, names)| names.iter());
    let mut all: Vec<&str> = HOOKED.iter().chain(others).copied().collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a name is in the table twice");
}

#[test]
fn a_server_without_fault_passes_and_what_is_no_file_call_does_not_matter() {
    let more =
        ["SSL_read", "BIO_write", "pthread_create", "u_strToLower_72", "strtok", "clock_gettime", "readable"];
    assert_eq!(check(GOOD.iter().chain(&more).copied(), &[]), []);
    for name in more {
        assert_eq!(class_of(name), Class::NotFiles, "{name}");
    }
}

#[test]
fn an_unknown_file_import_is_refused_by_name_with_what_to_do() {
    for name in
        ["preadv3", "openat2", "__pwrite64_chk", "cachestat", "copy_file_range2", "fsync64", "aio_new"]
    {
        assert_eq!(class_of(name), Class::Unknown, "{name}");
        let problems = check(GOOD.iter().copied().chain([name]), &[]);
        assert_eq!(problems, [Problem::Unknown { name: name.to_owned() }]);
        let said = problems[0].to_string();
        assert!(said.contains(name) && said.contains("next step: run a server of"), "{said}");
    }
}

#[test]
fn an_import_that_goes_past_the_hooks_is_refused_unless_the_caller_answers_for_it() {
    let with = || GOOD.iter().copied().chain(["syscall", "splice", "syscall"]);
    let names: Vec<String> = check(with(), &[]).iter().map(Problem::found).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].contains("syscall is imported, and syscall makes system calls"), "{names:?}");
    assert_eq!(check(with(), &["syscall", "splice"]), []);
}

#[test]
fn a_tool_need_not_have_all_functions_and_may_have_a_few_more() {
    assert_eq!(table::check_tool(["open", "read", "glob", "fdopendir", "statx"].into_iter()), []);
    assert_eq!(table::check_tool(["open", "fts_open", "syscall"].into_iter()).len(), 2);
}

#[test]
fn an_executable_that_does_its_file_work_elsewhere_is_refused() {
    for group in NEEDED {
        let without = GOOD.iter().copied().filter(|name| !group.contains(name));
        assert_eq!(check(without, &[]), [Problem::Missing { names: group }]);
    }
    assert_eq!(check(["malloc"].into_iter(), &[]).len(), NEEDED.len());
    assert_eq!(table::class_of("malloc"), Class::NotFiles);
}

/// The library of the example `preloaded`, which cargo builds with the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("examples/libpreloaded.so");
    assert!(built.exists(), "{} is built by cargo test", built.display());
    built
}

/// Debian's is position independent and bound at start, the others are neither.
#[test]
fn servers_of_both_kinds_of_linking_take_the_hooks_and_run_with_them() {
    let test = "checks::servers_of_both_kinds_of_linking_take_the_hooks_and_run_with_them";
    Server::each(test, &[15, 16, 18], |server| {
        let program = server.program("postgres");
        let described = |preload: bool| {
            let mut command = server.command("postgres");
            if preload {
                command.env("LD_PRELOAD", library());
            }
            let output = command.arg("--describe-config").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{}: {said}", program.display());
            (output.stdout, said)
        };
        let (plain, _) = described(false);
        let (hooked, said) = described(true);
        assert!(plain == hooked && plain.len() > 10_000);
        assert!(said.lines().any(|line| line == "lost 0"), "{said}");
        let numbers: Vec<usize> = said
            .lines()
            .find_map(|line| line.strip_prefix("installed "))
            .unwrap_or_else(|| panic!("{}: {said}", program.display()))
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect();
        assert!(numbers[0] >= 30 && numbers[1] >= numbers[0] && numbers[2] == 0, "{said}");
    });
}
