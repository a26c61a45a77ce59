//! The metrics page and health checks, scraped over HTTP; the dashboard against what is exposed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use pgshrink_gateway::{Control, GatewayConfig, Running, start_connector, start_gateway};
use pgshrink_testkit::{Auth, Cluster, checkout, wait_until};
use serde_json::Value;

use crate::harness::{Raw, cluster, connector, connector_config, gateway_config, port, tags};

fn scraped_gateway(cluster: &Cluster) -> Running {
    let metrics_listen = Some("127.0.0.1:0".into());
    start_gateway(GatewayConfig { metrics_listen, ..gateway_config(cluster) }).unwrap()
}

fn metrics_address(running: &Running) -> String {
    let mut address = None;
    wait_until(Duration::from_secs(30), "the metrics listener", || {
        let listeners = running.registry().process.listeners();
        address = listeners.iter().find(|l| l.kind == "metrics").map(|l| l.address.clone());
        address.is_some()
    })
    .unwrap();
    address.unwrap()
}

/// Status, media type, body.
fn get(running: &Running, path: &str) -> (u16, String, String) {
    // As Prometheus asks.
    get_as(
        running,
        path,
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
    )
}

fn get_as(running: &Running, path: &str, accept: &str) -> (u16, String, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = agent.get(format!("http://{}{path}", metrics_address(running)));
    let mut response = request.header("accept", accept).call().unwrap();
    let media_type = response.headers().get("content-type").unwrap().to_str().unwrap().to_string();
    (response.status().as_u16(), media_type, response.body_mut().read_to_string().unwrap())
}

fn scrape(running: &Running) -> BTreeMap<String, f64> {
    let (status, media_type, page) = get(running, "/metrics");
    assert_eq!(
        (status, media_type.as_str()),
        (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    samples(&page)
}

/// `name{labels}` and value of each sample; a page that breaks the format's rules fails.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let mut family = (String::new(), String::new());
    let mut found = BTreeMap::new();
    assert!(page.ends_with("\n# EOF\n"));
    for line in page.lines().filter(|l| *l != "# EOF") {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            family = (name.to_string(), kind.to_string());
        }
        if line.starts_with('#') {
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let suffix = match family.1.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let name = sample.split('{').next().unwrap();
        assert_eq!(name, format!("{}{suffix}", family.0), "{line}");
        let value = value.parse().unwrap();
        assert!(found.insert(sample.to_string(), value).is_none(), "twice: {line}");
    }
    found
}

fn sum(samples: &BTreeMap<String, f64>, name: &str, label: &str) -> f64 {
    let wanted = |s: &str| s.split('{').next() == Some(name) && s.contains(label);
    samples.iter().filter(|(s, _)| wanted(s)).map(|(_, v)| v).sum()
}

#[test]
fn a_scrape_shows_what_sessions_did_also_after_their_end() {
    let cluster = cluster(Auth::Trust);
    let gateway = scraped_gateway(&cluster);
    let near = connector(&gateway, "ack", "zstd:1,lz4:1");
    let to_client = r#"direction="to_client""#;
    let mut raw = Raw::login(port(&near));
    raw.query("select repeat('abc', 1000) from generate_series(1, 100)");
    raw.until(b'Z');
    wait_until(Duration::from_secs(30), "an idle session", || {
        sum(&scrape(&gateway), "pgshrink_sessions", r#"state="idle""#) == 1.0
    })
    .unwrap();
    let live = scrape(&gateway);
    let (raw_bytes, wire_bytes) = ("pgshrink_raw_bytes_total", "pgshrink_wire_bytes_total");
    assert!(sum(&live, raw_bytes, to_client) > 300_000.0);
    assert!(sum(&live, wire_bytes, to_client) < 10_000.0);
    assert!(sum(&live, "pgshrink_codec_seconds_total", to_client) > 0.0);
    assert_eq!(sum(&live, "pgshrink_sessions_sending", r#"algorithm="zstd""#), 1.0);
    assert_eq!(sum(&live, "pgshrink_sessions_began_total", r#"dialect="ack""#), 1.0);
    assert!(sum(&live, "pgshrink_codec_memory_bytes", "") > 100_000.0);
    assert_eq!(sum(&live, "pgshrink_queries_total", ""), 2.0, "the login's and the query's ReadyForQuery");
    let sent = sum(&live, "pgshrink_sent_wire_bytes_total", r#"algorithm="zstd""#);
    assert!(sent > 0.0 && sent <= sum(&live, wire_bytes, to_client));

    drop(raw);
    wait_until(Duration::from_secs(30), "the session's end", || gateway.registry().is_empty()).unwrap();
    let after = scrape(&gateway);
    assert_eq!(sum(&after, "pgshrink_sessions", ""), 0.0);
    assert_eq!(sum(&after, "pgshrink_codec_memory_bytes", ""), 0.0);
    for (sample, before) in &live {
        if sample.split('{').next().unwrap().ends_with("_total") {
            assert!(after[sample] >= *before, "{sample} went down from {before} to {}", after[sample]);
        }
    }
    assert_eq!(live.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "series stay");
}

#[test]
fn failures_are_counted_by_reason() {
    let cluster = Cluster::builder().hba("host all refused all reject").start().unwrap();
    let gateway = scraped_gateway(&cluster);
    let before = scrape(&gateway);
    // A login that the server refuses.
    let mut refused = Raw::connect(port(&gateway));
    refused.send(&Raw::startup(&[("user", "refused"), ("database", "postgres")]));
    assert_eq!(refused.message().unwrap().0, b'E');
    // Bytes that are no startup packet, and one that is too long.
    for bytes in [&[0, 0, 0, 1][..], &[0, 0, 0xff, 0xff, 0, 3, 0, 0]] {
        let mut hostile = Raw::connect(port(&gateway));
        hostile.send(bytes);
        assert_eq!(hostile.message().unwrap().0, b'E');
    }
    // Somebody who leaves before a word.
    drop(Raw::connect(port(&gateway)));
    cluster.stop(pgshrink_testkit::Stop::Immediate).unwrap();
    let mut late = Raw::connect(port(&gateway));
    late.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres")]));
    assert_eq!(late.message().unwrap().0, b'E');
    // A session is counted when it has ended, which may be after its last message.
    let _ = wait_until(Duration::from_secs(10), "the counters", || {
        let now = scrape(&gateway);
        let grown = |name: &str| sum(&now, name, "") - sum(&before, name, "");
        grown("pgshrink_server_connect_failures_total") >= 1.0
            && grown("pgshrink_hostile_inputs_total") >= 2.0
            && grown("pgshrink_connections_accepted_total") >= 5.0
            && grown("pgshrink_login_failures_total") >= 1.0
    });
    let after = scrape(&gateway);
    let grown = |name: &str, label: &str| sum(&after, name, label) - sum(&before, name, label);
    assert_eq!(grown("pgshrink_login_failures_total", r#"reason="rejected_by_server""#), 1.0);
    assert_eq!(grown("pgshrink_hostile_inputs_total", r#"kind="protocol""#), 1.0);
    assert_eq!(grown("pgshrink_hostile_inputs_total", r#"kind="limit""#), 1.0);
    assert_eq!(grown("pgshrink_server_connect_failures_total", ""), 1.0);
    assert_eq!(grown("pgshrink_connections_accepted_total", ""), 5.0);
}

#[test]
fn health_checks_see_a_drain() {
    let cluster = cluster(Auth::Trust);
    let gateway = scraped_gateway(&cluster);
    assert_eq!(get(&gateway, "/healthz"), (200, "text/plain; charset=utf-8".into(), "ok\n".into()));
    let mut busy = Raw::login(port(&gateway));
    busy.query("begin");
    busy.until(b'Z');
    gateway.order(Control::Drain);
    wait_until(Duration::from_secs(30), "the drain", || gateway.registry().is_draining()).unwrap();
    let (status, _, body) = get(&gateway, "/healthz");
    assert_eq!((status, body.as_str()), (503, "draining\n"));
    assert_eq!(sum(&scrape(&gateway), "pgshrink_draining", ""), 1.0);
    busy.query("commit");
    assert_eq!(tags(&busy.until(b'Z')), "CZ");
    gateway.end(Control::Drain).unwrap();
}

fn ask(running: &Running, request: &str) -> String {
    let mut stream = TcpStream::connect(metrics_address(running)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // A reset behind the answer is as good as an end.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn other_paths_methods_and_nonsense_get_short_answers() {
    let cluster = cluster(Auth::Trust);
    let gateway = scraped_gateway(&cluster);
    assert_eq!(get(&gateway, "/").0, 404);
    let posted = ask(&gateway, "POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc");
    assert!(posted.starts_with("HTTP/1.1 405 ") && posted.contains("allow: GET, HEAD"), "{posted}");
    let head = ask(&gateway, "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.0 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    let nonsense = ask(&gateway, "\x16\x03\x01 hello\r\n\r\n");
    assert!(nonsense.is_empty() || nonsense.starts_with("HTTP/1.1 400 "), "{nonsense}");
    let huge = ask(&gateway, &format!("GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100_000)));
    assert!(huge.is_empty() || huge.starts_with("HTTP/1.1 431 "), "{huge}");
    assert_eq!(get(&gateway, "/healthz").0, 200);
}

#[test]
fn clients_that_say_nothing_delay_a_scrape_by_seconds_and_no_session_at_all() {
    let cluster = cluster(Auth::Trust);
    let gateway = scraped_gateway(&cluster);
    let address = metrics_address(&gateway);
    let mut silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for stream in &mut silent[..20] {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nx:").unwrap();
    }
    let mut raw = Raw::login(port(&gateway));
    raw.query("select 1");
    raw.until(b'Z');
    let began = Instant::now();
    drop(silent.split_off(20));
    assert_eq!(get(&gateway, "/healthz").0, 200);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    drop(silent);
}

#[test]
fn scrapers_that_do_not_ask_for_open_metrics_get_the_older_format() {
    let cluster = cluster(Auth::Trust);
    let gateway = scraped_gateway(&cluster);
    let (status, media_type, page) = get_as(&gateway, "/metrics", "*/*");
    assert_eq!((status, media_type.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    assert!(page.contains(
        "\n# TYPE pgshrink_connections_accepted_total counter\npgshrink_connections_accepted_total 0\n"
    ));
    let names = |page: &str| -> Vec<String> {
        let samples = page.lines().filter(|l| !l.starts_with('#'));
        samples.map(|l| l.rsplit_once(' ').unwrap().0.to_string()).collect()
    };
    assert_eq!(names(&page), names(&get(&gateway, "/metrics").2));
    assert!(!page.contains("# UNIT") && !page.contains("# EOF"));
}

#[test]
fn a_successor_waits_for_the_page_of_the_process_it_replaces() {
    let cluster = cluster(Auth::Trust);
    // An address of its own: between the old listener and the new one, another test could be given the port.
    let metrics_listen = Some(format!("127.77.0.{}:0", 1 + std::process::id() % 250));
    let old = start_gateway(GatewayConfig { metrics_listen, ..gateway_config(&cluster) }).unwrap();
    let address = metrics_address(&old);
    let config = GatewayConfig { metrics_listen: Some(address.clone()), ..gateway_config(&cluster) };
    let new = start_gateway(config).unwrap();
    let _session = Raw::login(port(&new));
    assert!(new.registry().process.listeners().iter().all(|l| l.kind != "metrics"));
    old.end(Control::Stop).unwrap();
    assert_eq!(metrics_address(&new), address);
    assert_eq!(sum(&scrape(&new), "pgshrink_sessions", ""), 1.0);
}

#[test]
fn the_connector_is_scraped_too() {
    let cluster = cluster(Auth::Trust);
    let gateway = scraped_gateway(&cluster);
    let mut config = connector_config(&gateway, "restart", "zstd:1");
    config.metrics_listen = Some("127.0.0.1:0".into());
    let near = start_connector(config).unwrap();
    let _raw = Raw::login(port(&near));
    let idle = || sum(&scrape(&near), "pgshrink_sessions", r#"state="idle""#) == 1.0;
    wait_until(Duration::from_secs(30), "an idle session", idle).unwrap();
    let page = scrape(&near);
    assert_eq!(sum(&page, "pgshrink_build_info", r#"role="connector""#), 1.0);
    assert_eq!(sum(&page, "pgshrink_sessions_began_total", r#"dialect="restart""#), 1.0);
    let server = format!(r#"server="127.0.0.1:{}""#, port(&gateway));
    assert!(sum(&page, "pgshrink_raw_bytes_total", &server) > 0.0);
}

/// The dashboards of this repository.
fn dashboards() -> Vec<(String, Value)> {
    let files = std::fs::read_dir(checkout().join("dashboards")).unwrap().map(|f| f.unwrap().path());
    let json = files.filter(|f| f.extension().is_some_and(|e| e == "json"));
    json.map(|f| {
        let text = std::fs::read_to_string(&f).unwrap();
        (f.display().to_string(), serde_json::from_str(&text).unwrap())
    })
    .collect()
}

/// Every PromQL expression of a dashboard: panels' targets and variables' queries.
fn expressions(dashboard: &Value) -> Vec<String> {
    let targets =
        dashboard["panels"].as_array().unwrap().iter().filter_map(|p| p["targets"].as_array()).flatten();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let exprs = targets.map(|t| t["expr"].as_str().unwrap().to_string());
    exprs.chain(variables.iter().filter_map(|v| Some(v["definition"].as_str()?.to_string()))).collect()
}

/// Words of the expression that name metrics, and those that name labels.
fn names(expression: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    const FUNCTIONS: [&str; 11] =
        ["sum", "max", "min", "count", "by", "rate", "increase", "time", "label_values", "s", "m"];
    // Texts in quotes and ranges in brackets hold no names.
    let mut bare = String::new();
    let (mut quoted, mut ranged) = (false, false);
    for c in expression.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' if !quoted => ranged = true,
            ']' if !quoted => ranged = false,
            _ if quoted || ranged => continue,
            _ => bare.push(c),
        }
    }
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let words = bare.split(word).filter(|w| w.starts_with(|c: char| c.is_ascii_lowercase()));
    let words = words.filter(|w| !FUNCTIONS.contains(w)).map(str::to_string);
    words.partition(|w| w.starts_with("pgshrink_") || w.starts_with("process_"))
}

#[test]
fn every_metric_and_label_of_the_dashboard_is_exposed_and_every_metric_is_on_it() {
    let cluster = cluster(Auth::Trust);
    let gateway = scraped_gateway(&cluster);
    let near = connector(&gateway, "ack", "zstd:1");
    let _raw = Raw::login(port(&near));
    let exposed = scrape(&gateway);
    let metrics: BTreeSet<String> =
        exposed.keys().map(|s| s.split('{').next().unwrap().to_string()).collect();
    let labels_of = |metric: &str| -> BTreeSet<String> {
        let sample = exposed.keys().find(|s| s.split('{').next() == Some(metric)).unwrap();
        let inside = sample.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
        let own = inside.split("\",").filter_map(|l| l.split_once('=')).map(|(name, _)| name.to_string());
        // Added by Prometheus.
        own.chain(["job".to_string(), "instance".to_string()]).collect()
    };
    let mut shown = BTreeSet::new();
    let dashboards = dashboards();
    assert!(!dashboards.is_empty());
    for (file, dashboard) in &dashboards {
        for expression in expressions(dashboard) {
            let (asked, labels) = names(&expression);
            assert!(!asked.is_empty(), "{file}: {expression}");
            for metric in &asked {
                assert!(metrics.contains(metric), "{file}: {metric} is not exposed: {expression}");
                let has = labels_of(metric);
                assert!(labels.is_subset(&has), "{file}: {metric} has {has:?}: {expression}");
            }
            shown.extend(asked);
        }
    }
    assert_eq!(shown, metrics, "metrics that no panel shows");
}

/// Names of metrics in the tables of the manual, each with its labels.
fn manual() -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(checkout().join("docs/operating/monitoring.md")).unwrap();
    let quoted =
        |cell: &str| -> BTreeSet<String> { cell.split('`').skip(1).step_by(2).map(str::to_string).collect() };
    let (mut found, mut above) = (BTreeMap::new(), BTreeSet::new());
    for line in
        page.lines().filter(|line| line.starts_with("| `pgshrink_") || line.starts_with("| `process_"))
    {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let labels = if cells[2] == "the same" { above.clone() } else { quoted(cells[2]) };
        for name in quoted(cells[0]) {
            assert!(found.insert(name, labels.clone()).is_none(), "twice: {line}");
        }
        above = labels;
    }
    found
}

#[test]
fn the_manual_has_every_metric_with_its_labels_and_no_other() {
    let cluster = cluster(Auth::Trust);
    let mut config = gateway_config(&cluster);
    config.metrics_listen = Some("127.0.0.1:0".into());
    config.observe = true;
    let gateway = start_gateway(config).unwrap();
    let mut raw = Raw::login(port(&gateway));
    raw.query("select 1");
    raw.until(b'Z');
    let mut exposed = BTreeMap::new();
    wait_until(Duration::from_secs(30), "what was observed", || {
        exposed = scrape(&gateway);
        exposed.keys().any(|sample| sample.starts_with("pgshrink_observed_cpu_seconds"))
    })
    .unwrap();
    let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for sample in exposed.keys() {
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let labels = labels.trim_end_matches('}').split("\",").filter_map(|label| label.split_once('='));
        metrics.entry(name.to_string()).or_default().extend(labels.map(|(name, _)| name.to_string()));
    }
    assert_eq!(manual(), metrics);
}

#[test]
fn a_dashboard_imports_into_any_grafana() {
    for (file, dashboard) in dashboards() {
        assert_eq!(dashboard["id"], Value::Null, "{file}: an id belongs to one installation");
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let source = variables.iter().find(|v| v["type"] == "datasource").unwrap();
        assert_eq!(
            (&source["name"], &source["query"]),
            (&"datasource".into(), &"prometheus".into()),
            "{file}"
        );
        let mut ids = BTreeSet::new();
        let mut places: Vec<[u64; 4]> = Vec::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{file}: id {} twice", panel["id"]);
            let at = ["x", "y", "w", "h"].map(|k| panel["gridPos"][k].as_u64().unwrap());
            assert!(at[0] + at[2] <= 24, "{file}: {} is too wide", panel["title"]);
            let apart = |o: &[u64; 4]| {
                at[0] + at[2] <= o[0] || o[0] + o[2] <= at[0] || at[1] + at[3] <= o[1] || o[1] + o[3] <= at[1]
            };
            assert!(places.iter().all(apart), "{file}: {} covers another panel", panel["title"]);
            places.push(at);
            if panel["type"] == "row" {
                continue;
            }
            let mut references = BTreeSet::new();
            for part in panel["targets"].as_array().unwrap().iter().chain([panel]) {
                assert_eq!(part["datasource"]["uid"], "${datasource}", "{file}: {}", panel["title"]);
            }
            for target in panel["targets"].as_array().unwrap() {
                assert!(references.insert(target["refId"].as_str().unwrap()), "{file}: {}", panel["title"]);
            }
        }
    }
}

#[test]
fn a_gateway_that_observes_shows_savings_by_client_and_database_within_a_limit() {
    let cluster = cluster(Auth::Trust);
    let gateway = start_gateway(GatewayConfig {
        metrics_listen: Some("127.0.0.1:0".into()),
        observe: true,
        observe_cpu_percent: 20.0,
        observe_clients: 2,
        allow_unchallenged: true,
        ..gateway_config(&cluster)
    })
    .unwrap();
    for address in 2..6 {
        let mut raw = Raw::connect_from([127, 0, 0, address], port(&gateway));
        raw.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres")]));
        raw.until(b'Z');
        raw.query("select repeat('abc', 1000) from generate_series(1, 100)");
        raw.until(b'Z');
    }
    wait_until(Duration::from_secs(60), "samples to be measured", || {
        gateway.registry().is_empty() && gateway.registry().samples_pending() == 0
    })
    .unwrap();
    let page = scrape(&gateway);
    let line =
        |client: &str| format!(r#"client="127.0.0.{client}",database="postgres",direction="to_client""#);
    let value = |name: &str, labels: &str| sum(&page, name, labels);
    for client in ["2", "3"] {
        let bytes = value("pgshrink_observed_bytes_total", &line(client));
        assert!(bytes > 300_000.0, "{page:?}");
        assert!(value("pgshrink_observed_compressed_bytes", &line(client)) < bytes / 20.0, "{page:?}");
        assert!(value("pgshrink_observed_sampled_bytes_total", &line(client)) > 0.0);
        assert!(value("pgshrink_observed_cpu_seconds", &line(client)) > 0.0);
    }
    let other = r#"client="other",database="postgres",direction="to_client""#;
    assert!(value("pgshrink_observed_bytes_total", other) > 600_000.0);
    assert_eq!(value("pgshrink_observed_bytes_total", &line("4")), 0.0);
    assert!(page["pgshrink_observe_sampling_seconds_total"] > 0.0);
    assert_eq!(page["pgshrink_observe_write_failures_total"], 0.0);
    assert_eq!(page["pgshrink_observe_written_time_seconds"], 0.0);
    assert_eq!(page["pgshrink_observe_dropped_samples_total"], 0.0);
}
