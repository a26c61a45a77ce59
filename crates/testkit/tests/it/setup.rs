//! `tools/setup` on machines that are made up: stand-ins for apt, sudo and rustup's installer note how they were called.

use pgshrink_testkit::TempDir;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What scripts may use of the real machine: nothing that installs, and no cargo.
const PROGRAMS: &[&str] = &[
    "awk", "bash", "cat", "chmod", "cp", "dirname", "env", "grep", "head", "install", "ln", "mkdir",
    "mktemp", "mv", "rm", "sed", "sh", "sort", "tail", "touch", "tr",
];

/// Simulates from files of the package's name, as `apt-get -s` prints; what it installs or downloads is noted.
const APT_GET: &str = r#"
echo "apt-get $*" >>"$NOTES"
simulated="" verb="" packages=()
for word in "$@"; do
  case $word in
    -s) simulated=1 ;;
    install | update | download) verb=$word ;;
    -* | *::*) ;;
    *) packages+=("$word") ;;
  esac
done
case "$verb$simulated" in
  install1)
    for package in "${packages[@]}"; do
      if [ -e "$ARCHIVE/$package" ]; then cat "$ARCHIVE/$package"; else echo "Inst $package (1 here)"; fi
    done
    ;;
  install) echo "INSTALLED ${packages[*]}" >>"$NOTES" ;;
  download) for package in "${packages[@]}"; do echo "$package" >"${package}_1_amd64.deb"; done ;;
esac
"#;

const APT_CACHE: &str = r#"
case "$1" in
  dumpavail) echo "Package: some" ;;
  policy) if [ -e "$ARCHIVE/rustup" ]; then echo "  Candidate: 1.27"; else echo "  Candidate: (none)"; fi ;;
esac
"#;

/// Unpacks what its name says: `dpkg -x FILE DIRECTORY`.
const DPKG: &str = r#"
case "$(cat "$2")" in
  postgresql-15) files="lib/postgresql/15/bin/postgres" ;;
  postgresql-client-15) files="lib/postgresql/15/bin/psql lib/postgresql/15/bin/pg_config" ;;
  postgresql-server-dev-15) files="include/postgresql/15/server/postgres.h" ;;
  *) files="include/postgresql/pg_config.h" ;;
esac
for file in $files; do
  mkdir -p "$3/usr/$(dirname "$file")"
  printf '#!/bin/sh\necho "${0##*/} (PostgreSQL) 15.99"\n' >"$3/usr/$file"
  chmod 755 "$3/usr/$file"
done
"#;

const SUDO: &str = r#"
echo "SUDO $*" >>"$NOTES"
if [ "$1" = -- ]; then shift; fi
exec "$@"
"#;

const ID: &str = r#"if [ "$1" = -u ]; then echo "$UID_HERE"; else echo somebody; fi"#;

/// Hands out an installer that puts a cargo where rustup's does.
const CURL: &str = r##"
echo "curl $*" >>"$NOTES"
while [ $# -gt 0 ]; do if [ "$1" = --output ]; then into=$2; fi; shift; done
cat >"$into" <<'INSTALLER'
echo "INSTALLER $*" >>"$NOTES"
mkdir -p "$HOME/.cargo/bin"
printf '#!/bin/sh\necho cargo 1.95.0\n' >"$HOME/.cargo/bin/cargo"
chmod 755 "$HOME/.cargo/bin/cargo"
INSTALLER
"##;

/// A machine with a checkout on it.
struct Machine {
    dir: TempDir,
    uid: u32,
}

impl Machine {
    /// With a compiler, libclang, cargo, a PostgreSQL server without headers, and nothing missing but those.
    fn new(uid: u32) -> Machine {
        let machine = Machine { dir: TempDir::new().unwrap(), uid };
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        fs::create_dir_all(machine.path("checkout/tools")).unwrap();
        for entry in fs::read_dir(checkout.join("tools")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), machine.path("checkout/tools").join(entry.file_name())).unwrap();
        }
        fs::copy(checkout.join("rust-toolchain.toml"), machine.path("checkout/rust-toolchain.toml")).unwrap();
        for folder in ["bin", "home", "archive", "root/usr/sbin"] {
            fs::create_dir_all(machine.path(folder)).unwrap();
        }
        for program in PROGRAMS {
            let real = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(program));
            let real = real.iter().find(|path| path.exists()).unwrap();
            symlink(real, machine.path("bin").join(program)).unwrap();
        }
        let scripts = [
            ("apt-get", APT_GET),
            ("apt-cache", APT_CACHE),
            ("dpkg", DPKG),
            ("dpkg-query", "echo installed"),
            ("sudo", SUDO),
            ("id", ID),
            ("curl", CURL),
        ];
        scripts.iter().for_each(|(name, text)| machine.script(name, text));
        ["cargo", "cc", "make"].iter().for_each(|name| machine.script(name, "exit 0"));
        for file in [
            "usr/include/stdio.h",
            "usr/lib/llvm-14/lib/libclang-14.so.1",
            "usr/lib/llvm-14/lib/clang/14/include/stddef.h",
            "usr/lib/postgresql/15/bin/postgres",
            "usr/lib/postgresql/15/bin/pg_config",
        ] {
            let file = machine.path("root").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        machine
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.dir.path().join(inside)
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn lacks(&self, program: &str) {
        fs::remove_file(self.path("bin").join(program)).unwrap();
    }

    /// What apt-get says that installing this package would do.
    fn simulates(&self, package: &str, lines: &str) {
        fs::write(self.path("archive").join(package), lines).unwrap();
    }

    fn setup(&self, what: &str) -> Output {
        Command::new("/bin/bash")
            .arg(self.path("checkout/tools/setup"))
            .arg(what)
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("HOME", self.path("home"))
            .env("NOTES", self.path("notes"))
            .env("ARCHIVE", self.path("archive"))
            .env("UID_HERE", self.uid.to_string())
            .env("PGSHRINK_SETUP_ROOT", self.path("root"))
            .output()
            .unwrap()
    }

    fn notes(&self) -> String {
        fs::read_to_string(self.path("notes")).unwrap_or_default()
    }
}

fn ended(output: &Output, code: i32) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

const HEADERS: &str = "Inst libpq5 [15.18-0+deb12u1] (15.20-0+deb12u1 Debian [amd64]) []
Inst libpq-dev (15.20-0+deb12u1 Debian [amd64])
Inst postgresql-server-dev-15 (15.20-0+deb12u1 Debian [amd64])
";

#[test]
fn what_would_upgrade_an_installed_package_is_unpacked_and_nothing_is_installed() {
    for uid in [0, 1000] {
        let machine = Machine::new(uid);
        machine.simulates("postgresql-server-dev-15", HEADERS);
        let said = ended(&machine.setup("demo"), 0);
        assert!(said.contains("postgresql-server-dev-15 would upgrade or remove: libpq5"), "{said}");
        assert!(said.contains("is in target/servers/pg15"), "{said}");
        let notes = machine.notes();
        assert!(!notes.contains("INSTALLED") && !notes.contains("SUDO"), "{notes}");
        let server = machine.path("checkout/target/servers/pg15");
        assert!(server.join("bin/postgres").exists() && server.join("bin/pg_config").exists());
        let unpacked = fs::canonicalize(&server).unwrap();
        let headers = unpacked.ancestors().nth(3).unwrap().join("include/postgresql/15/server/postgres.h");
        assert!(headers.exists(), "{}", headers.display());

        // It is there now: nothing is simulated or downloaded again.
        ended(&machine.setup("demo"), 0);
        assert_eq!(machine.notes(), notes);
    }
}

#[test]
fn what_changes_nothing_is_installed_beside_what_is_unpacked() {
    let machine = Machine::new(1000);
    machine.simulates("postgresql-server-dev-15", HEADERS);
    machine.lacks("make");
    ended(&machine.setup("demo"), 0);
    let installed: Vec<String> =
        machine.notes().lines().filter(|line| line.starts_with("INSTALLED")).map(str::to_owned).collect();
    assert_eq!(installed, ["INSTALLED make"]);
    assert!(machine.notes().contains("SUDO -- env DEBIAN_FRONTEND=noninteractive apt-get install"));
    assert!(!machine.path("root/usr/sbin/policy-rc.d").exists(), "the policy is put back");
}

#[test]
fn a_package_that_cannot_be_had_without_an_upgrade_stops_setup_before_it_changes_anything() {
    let machine = Machine::new(0);
    machine.lacks("cc");
    machine.lacks("make");
    machine.simulates(
        "gcc",
        "Inst libc6 [2.36-9] (2.36-9+deb12u1 Debian [amd64])\nInst gcc (12 Debian [amd64])\n",
    );
    let said = ended(&machine.setup("build"), 2);
    assert!(said.contains("installing gcc would upgrade or remove: libc6"), "{said}");
    assert!(said.contains("apt-get install --no-install-recommends gcc"), "{said}");
    assert!(!machine.notes().contains("INSTALLED"), "{}", machine.notes());

    let removing = Machine::new(0);
    removing.lacks("cc");
    removing.simulates("gcc", "Remv tcc [0.9]\nInst gcc (12 Debian [amd64])\n");
    assert!(ended(&removing.setup("build"), 2).contains("upgrade or remove: tcc"));
}

#[test]
fn without_cargo_the_official_installer_puts_the_pinned_toolchain_into_the_users_home() {
    for uid in [0, 1000] {
        let machine = Machine::new(uid);
        machine.lacks("cargo");
        let said = ended(&machine.setup("build"), 0);
        let pinned = "--default-toolchain 1.95.0 --component rustfmt --component clippy";
        assert!(said.contains("Rust is missing: installing 1.95.0 for somebody"), "{said}");
        let notes = machine.notes();
        let installer = notes.lines().find(|line| line.starts_with("INSTALLER")).unwrap();
        assert!(
            installer.contains("-y --no-modify-path --profile minimal") && installer.contains(pinned),
            "{notes}"
        );
        assert!(notes.contains("--proto =https") && notes.contains("https://sh.rustup.rs"), "{notes}");
        assert!(!notes.contains("SUDO"), "as the user: {notes}");
        // Found from now on, though its folder is not in PATH.
        ended(&machine.setup("build"), 0);
        assert_eq!(machine.notes(), notes);
    }
}

#[test]
fn an_installer_that_fails_or_cannot_be_fetched_is_an_error() {
    let machine = Machine::new(1000);
    machine.lacks("cargo");
    machine.script("curl", "echo 'curl: (6) no such host' >&2; exit 6");
    let said = ended(&machine.setup("build"), 2);
    assert!(said.contains("no such host") && said.contains("cannot fetch https://sh.rustup.rs"), "{said}");
    machine.script(
        "curl",
        r#"while [ $# -gt 0 ]; do if [ "$1" = --output ]; then echo 'exit 0' >"$2"; fi; shift; done"#,
    );
    assert!(ended(&machine.setup("build"), 2).contains("left no working"));
}

#[test]
fn debians_rustup_is_taken_where_the_archive_has_it() {
    let machine = Machine::new(1000);
    machine.lacks("cargo");
    machine.simulates("rustup", "Inst rustup (1.27 Debian [amd64])\n");
    // What the package would bring.
    let apt = format!(
        "{APT_GET}\ncase \"$verb$simulated\" in install) cp \"$ARCHIVE/rustup-program\" \"$BIN/rustup\" ;; esac"
    );
    machine.script("apt-get", &apt.replace("$BIN", &machine.path("bin").display().to_string()));
    fs::write(machine.path("archive/rustup-program"), "#!/bin/bash\necho \"RUSTUP $*\" >>\"$NOTES\"\n")
        .unwrap();
    fs::set_permissions(machine.path("archive/rustup-program"), fs::Permissions::from_mode(0o755)).unwrap();
    ended(&machine.setup("build"), 0);
    let notes = machine.notes();
    assert!(notes.contains("INSTALLED rustup"), "{notes}");
    let asked = "RUSTUP toolchain install 1.95.0 --profile minimal --component rustfmt --component clippy";
    assert!(notes.contains(asked) && !notes.contains("INSTALLER"), "{notes}");
}

/// A checkout whose browser tests lack a browser.
fn without_browser(uid: u32) -> Machine {
    let machine = Machine::new(uid);
    let run = machine.path("checkout/tests/browser/run");
    fs::create_dir_all(run.parent().unwrap()).unwrap();
    let told = "missing: apt-get install --no-install-recommends chromium";
    fs::write(&run, format!("#!/bin/bash\necho '{told}'\nexit 3\n")).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
    for program in ["ip", "tc", "mkfs.ext4", "mkfs.xfs", "bzip2", "zstd", "lz4", "strace", "python3"] {
        machine.script(program, "exit 0");
    }
    for fetched in ["fetch-servers", "fetch-regression"] {
        let tool = machine.path("checkout/tools").join(fetched);
        fs::write(&tool, "#!/bin/bash\nexit 0\n").unwrap();
    }
    let tools = machine.path("checkout/target/tools/bin");
    fs::create_dir_all(&tools).unwrap();
    fs::write(tools.join("s3s-fs"), "#!/bin/bash\necho s3s-fs 0.14.1\n").unwrap();
    fs::set_permissions(tools.join("s3s-fs"), fs::Permissions::from_mode(0o755)).unwrap();
    let headers = machine.path("root/usr/include/postgresql/15/server/postgres.h");
    fs::create_dir_all(headers.parent().unwrap()).unwrap();
    fs::write(headers, "").unwrap();
    machine
}

#[test]
fn a_browser_is_installed_where_that_changes_nothing_and_is_otherwise_done_without() {
    let machine = without_browser(0);
    ended(&machine.setup("test"), 0);
    assert!(machine.notes().contains("INSTALLED chromium\n"), "{}", machine.notes());

    let upgrading = without_browser(0);
    upgrading.simulates(
        "chromium",
        "Inst libnss3 [3.87] (3.110 Debian [amd64])\nInst chromium (156 Debian [amd64])\n",
    );
    let said = ended(&upgrading.setup("test"), 0);
    assert!(said.contains("no browser: installing chromium would upgrade or remove: libnss3"), "{said}");
    assert!(!upgrading.notes().contains("INSTALLED"), "{}", upgrading.notes());

    let unprivileged = without_browser(1000);
    unprivileged.lacks("sudo");
    assert!(ended(&unprivileged.setup("test"), 0).contains("have somebody install chromium"));
}

/// A pg_config of a server of this major version, with headers in this folder.
fn pg_config(major: u32, headers: &str) -> String {
    format!("case $1 in --version) echo 'PostgreSQL {major}.1 (Debian)' ;; *) echo {headers} ;; esac")
}

#[test]
fn what_the_extensions_are_built_with_is_installed_for_the_server_of_pg_config() {
    let installed = |machine: &Machine| -> Vec<String> {
        ended(&machine.setup("extensions"), 0);
        let notes = machine.notes();
        notes.lines().filter(|line| line.starts_with("INSTALLED")).map(str::to_owned).collect()
    };
    let machine = Machine::new(0);
    assert_eq!(installed(&machine), ["INSTALLED postgresql-server-dev-15"], "there is no pg_config");
    // Debian's needs a package that tells it.
    let machine = Machine::new(0);
    machine.script("pg_config", "echo 'You need to install postgresql-server-dev-NN' >&2; exit 1");
    assert_eq!(installed(&machine), ["INSTALLED postgresql-server-dev-15"]);
    let machine = Machine::new(0);
    machine.script("pg_config", &pg_config(16, "/usr/include/postgresql/16/server"));
    fs::remove_dir_all(machine.path("root/usr/lib/llvm-14")).unwrap();
    assert_eq!(installed(&machine), ["INSTALLED libclang-dev postgresql-server-dev-16"]);
    for (headers, is_there) in [
        ("/usr/include/postgresql/15/server", true),
        // No package has them; tools/extensions says what is missing.
        ("/opt/pgsql/include/server", false),
    ] {
        let machine = Machine::new(0);
        machine.script("pg_config", &pg_config(15, headers));
        if is_there {
            let folder = machine.path("root").join(&headers[1..]);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("postgres.h"), "").unwrap();
        }
        assert!(installed(&machine).is_empty(), "{headers}: {}", machine.notes());
    }
}

#[test]
fn nothing_is_installed_for_extensions_that_cannot_be_built() {
    let refused = |machine: &Machine, expected: &str| {
        let said = ended(&machine.setup("extensions"), 2);
        assert!(said.contains(expected), "{said}");
        assert!(!machine.notes().contains("INSTALLED"), "{}", machine.notes());
    };
    let machine = Machine::new(0);
    fs::remove_file(machine.path("root/usr/lib/postgresql/15/bin/postgres")).unwrap();
    refused(&machine, "name its pg_config with PG_CONFIG=/path/to/pg_config");
    for major in [14, 19] {
        let machine = Machine::new(0);
        machine.script("pg_config", &pg_config(major, "/usr/include/postgresql/14/server"));
        refused(&machine, &format!("is of PostgreSQL {major}; the extensions are for 15 to 18"));
    }
    // A server of the user's is not built for with headers that are unpacked below target.
    let machine = Machine::new(0);
    machine.simulates("postgresql-server-dev-15", HEADERS);
    refused(&machine, "installing postgresql-server-dev-15 would upgrade or remove: libpq5");
}
