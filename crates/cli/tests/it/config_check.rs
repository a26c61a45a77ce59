//! `--check`: every problem of a file in one go, and what only a start used to find.

use crate::config::{file, pgshrink};

fn check(command: &str, text: &str) -> (Option<i32>, String) {
    let file = file(text);
    let output = pgshrink(&[command, "--check", &file.flag()], &[]);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn every_problem_of_a_file_is_reported_with_its_line() {
    let gateway = "listen = [\"127.0.0.1:6432\", \"x\", \"127.0.0.1:6432\"]\n\
                   metrics_listen = \"127.0.0.1:6432\"\n\
                   libpq_compression = \"zstd:99\"\n\
                   threads = 0\n\
                   [unix_socket]\ndirectory = \"/nonexistent/dir\"\nport = 1\nmode = \"rw\"\n\
                   [[server]]\nhost = \"\"\nport = 0\n\
                   policy = { window_log = 9, frame_size = 1 }\n\
                   [policy]\ncontext = \"x\"\nmin_group_size = 2000000\nframe_size = 2\nwindow_log = 99\n\
                   message_types = \"\\u00e9\"\n\
                   [limits]\nmax_clients = 0\n\
                   [tcp]\nbacklog = 0\n";
    let expected = [
        "p.toml:1: listen: 'x': expected host:port",
        "p.toml:1: listen: '127.0.0.1:6432' is listed twice",
        "p.toml:2: metrics_listen: '127.0.0.1:6432' is an address of listen too",
        "p.toml:3: libpq_compression: zstd level 99",
        "p.toml:4: threads: 0",
        "p.toml:6: unix_socket.directory: /nonexistent/dir: No such file",
        "p.toml:8: unix_socket.mode: 'rw'",
        "p.toml:10: server.host: must not be empty",
        "p.toml:11: server.port: 0",
        "p.toml:12: server.policy.window_log: 9",
        "p.toml:12: server.policy.frame_size: 1",
        "p.toml:14: policy.context: 'x'",
        "p.toml:15: policy.min_group_size: 2000000",
        "p.toml:16: policy.frame_size: 2",
        "p.toml:17: policy.window_log: 99",
        "p.toml:18: policy.message_types: ",
        "p.toml:20: limits.max_clients: 0",
        "p.toml:22: tcp.backlog: 0",
    ];
    let (code, said) = check("gateway", gateway);
    for part in expected {
        assert!(said.contains(part), "no {part} in\n{said}");
    }
    assert_eq!((code, said.lines().count()), (Some(1), expected.len()), "{said}");
}

#[test]
fn a_connectors_file_is_checked_alike() {
    let text = "listen = [\"*:5433\"]\nmetrics_listen = \"127.0.0.1:5433\"\n\
                [[target]]\nhost = \"a\"\nport = 0\nsslcert = \"c\"\n[[target]]\nhost = \"b\"\nsslmode = \"verify-ca\"\n\
                [tls]\ncert = \"/nonexistent/c\"\nkey = \"/nonexistent/k\"\nrequire_client_cert = true\n";
    let expected = [
        "p.toml:2: metrics_listen: '127.0.0.1:5433' overlaps with '*:5433'",
        "p.toml:5: target[1].port: 0",
        "p.toml:6: target[1].sslcert: sslcert and sslkey must be given together",
        "target[2].sslrootcert: sslmode=verify-ca needs root certificates",
        "/nonexistent/c",
        "/nonexistent/k",
        "p.toml:13: tls.require_client_cert: needs tls.client_ca",
    ];
    let (code, said) = check("connect", text);
    for part in expected {
        assert!(said.contains(part), "no {part} in\n{said}");
    }
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn an_address_that_is_listed_twice_does_not_start() {
    let output = pgshrink(
        &["gateway", "--listen=127.0.0.1:1,127.0.0.1:1", "--unix-socket-directory=", "--server=host=db"],
        &[],
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("listen: '127.0.0.1:1' is listed twice"), "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
}

#[test]
fn a_refused_value_of_a_variable_is_reported_with_the_variable() {
    let cases = [
        ("gateway", "--server", "PGSHRINK_SERVER", "host=a,prot=1", "unknown keyword"),
        ("connect", "--target", "PGSHRINK_TARGET", "host=a prot=1", "prot"),
    ];
    for (command, flag, variable, value, reason) in cases {
        let ended = |words: &[&str], env: &[(&str, &str)]| {
            let words =
                [&[command, "--check", "--listen=127.0.0.1:1", "--unix-socket-directory="], words].concat();
            let output = pgshrink(&words, env);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        let said = ended(&[], &[(variable, value)]);
        assert!(said.starts_with(&format!("pgshrink: {variable}: ")) && said.contains(reason), "{said}");
        // The flag is stronger.
        let said = ended(&[flag, value], &[(variable, "host=b")]);
        assert!(said.starts_with(&format!("pgshrink: {flag}: ")) && said.contains(reason), "{said}");
    }
}

#[test]
fn every_refused_server_is_reported() {
    let words = ["gateway", "--check", "--listen=127.0.0.1:1", "--server=host=a,prot=1", "--server=port=2"];
    let output = pgshrink(&words, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("prot=1") && said.contains("no host"), "{said}");
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 2), "{said}");
}

#[test]
fn an_empty_list_of_algorithms_is_refused_and_off_is_none() {
    for (command, other, key) in
        [("gateway", "--server=host=db", "libpq_compression"), ("connect", "--target=db", "compression")]
    {
        let flag = format!("--{}=", key.replace('_', "-"));
        let variable = format!("PGSHRINK_{}", key.to_uppercase());
        let base = [command, "--listen=127.0.0.1:1", "--unix-socket-directory=", other];
        let ended = |words: &[&str], env: &[(&str, &str)]| {
            let output = pgshrink(&[&base[..], words].concat(), env);
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        for (words, env, code) in [
            (&["--check", flag.as_str()][..], &[][..], 1),
            (&["--check"], &[(variable.as_str(), "")], 1),
            (&[flag.as_str()], &[], 2),
        ] {
            let (found, said) = ended(words, env);
            assert!(said.contains(&format!("{key}: is empty: name algorithms")), "{words:?} {said}");
            assert_eq!(found, Some(code), "{words:?}");
        }
        assert_eq!(ended(&["--check", &format!("{flag}off")], &[]), (Some(0), String::new()));
    }
}
