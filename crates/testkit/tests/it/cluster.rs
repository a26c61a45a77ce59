//! Clusters: started, stopped, killed, followed, many at once.

use std::time::{Duration, Instant};

use pgshrink_testkit::{Auth, Cluster, SUPERUSER_PASSWORD, Server, Stop, wait_until};

#[test]
fn a_cluster_answers_on_tcp_and_on_its_socket() {
    Server::each("a cluster answers", &[15, 16, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        assert_eq!(cluster.sql("select 6 * 7").unwrap(), "42");
        let tcp = cluster.psql().at("127.0.0.1", cluster.port());
        assert_eq!(tcp.sql("select inet_server_port()").unwrap(), cluster.port().to_string());
        let version = cluster.sql("show server_version").unwrap();
        assert!(version.starts_with(&server.major.to_string()), "{version}");
    });
}

#[test]
fn four_clusters_start_at_once_and_know_nothing_of_each_other() {
    let names: Vec<String> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..4)
            .map(|nth| {
                scope.spawn(move || {
                    let cluster = Cluster::builder().start().unwrap();
                    cluster.sql(&format!("create table only{nth} ()")).unwrap();
                    std::thread::sleep(Duration::from_millis(200));
                    cluster
                        .sql("select string_agg(relname, ',') from pg_class where relname ~ '^only'")
                        .unwrap()
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(names, ["only0", "only1", "only2", "only3"]);
}

#[test]
fn passwords_are_asked_for_and_checked() {
    for auth in [Auth::Scram, Auth::Md5, Auth::Password] {
        let cluster = Cluster::builder().auth(auth).start().unwrap();
        assert_eq!(cluster.sql("select 1").unwrap(), "1", "{auth:?}");
        let stored =
            cluster.sql("select left(rolpassword, 3) from pg_authid where rolname = 'postgres'").unwrap();
        assert_eq!(stored, if auth == Auth::Md5 { "md5" } else { "SCR" });
        let wrong = cluster.psql().at("127.0.0.1", cluster.port()).set("password", "not this");
        assert!(wrong.sql("select 1").unwrap_err().to_string().contains("authentication failed"));
    }
}

#[test]
fn peer_lets_the_tests_own_user_in_without_a_password() {
    let cluster = Cluster::builder().auth(Auth::Peer).start().unwrap();
    let peer = cluster.psql().set("password", "");
    assert_eq!(peer.sql("select current_user").unwrap(), "postgres");
    let tcp = cluster.psql().at("127.0.0.1", cluster.port()).set("password", SUPERUSER_PASSWORD);
    assert_eq!(tcp.sql("select 1").unwrap(), "1");
}

#[test]
fn a_killed_server_recovers_what_it_had_committed() {
    let cluster = Cluster::builder().start().unwrap();
    cluster.sql("create table t as select 1 as n; checkpoint; insert into t values (2)").unwrap();
    cluster.kill().unwrap();
    assert!(!cluster.is_running());
    assert!(cluster.sql("select 1").is_err());
    cluster.start().unwrap();
    assert_eq!(cluster.sql("select sum(n) from t").unwrap(), "3");
    assert!(cluster.log_contains("database system was not properly shut down"));
}

#[test]
fn stop_restart_and_reload_do_what_they_say() {
    let cluster = Cluster::builder().conf("work_mem", "5MB").start().unwrap();
    assert_eq!(cluster.sql("show work_mem").unwrap(), "5MB");
    cluster.set_conf("work_mem", "6MB").unwrap();
    cluster.reload().unwrap();
    wait_until(Duration::from_secs(10), "the new work_mem", || {
        cluster.sql("show work_mem").unwrap() == "6MB"
    })
    .unwrap();
    let first = cluster.pid();
    cluster.restart().unwrap();
    assert_ne!(cluster.pid(), first);
    for how in [Stop::Smart, Stop::Fast, Stop::Immediate] {
        cluster.stop(how).unwrap();
        assert!(!cluster.is_running());
        cluster.start().unwrap();
    }
    assert_eq!(cluster.sql("show work_mem").unwrap(), "6MB");
}

#[test]
fn a_server_that_cannot_start_shows_the_end_of_its_log() {
    let error = Cluster::builder().conf("no_such_setting", "1").start().unwrap_err().to_string();
    assert!(error.contains("unrecognized configuration parameter \"no_such_setting\""), "{error}");
}

#[test]
fn a_standby_follows_and_takes_over() {
    Server::each("a standby follows", &[15, 18], |server| {
        let primary = Cluster::builder().server(server).auth(Auth::Scram).start().unwrap();
        let standby = primary.standby().name("second").start().unwrap();
        primary.set_conf("synchronous_standby_names", "second").unwrap();
        primary.set_conf("synchronous_commit", "remote_apply").unwrap();
        primary.reload().unwrap();
        wait_until(Duration::from_secs(20), "a synchronous standby", || {
            primary.sql("select sync_state from pg_stat_replication").unwrap() == "sync"
        })
        .unwrap();
        primary.sql("create table t as select generate_series(1, 500) as n").unwrap();
        assert_eq!(standby.sql("select count(*), pg_is_in_recovery() from t").unwrap(), "500|t");
        primary.stop(Stop::Immediate).unwrap();
        standby.promote().unwrap();
        assert_eq!(standby.sql("insert into t values (0); select count(*) from t").unwrap(), "501");
    });
}

#[test]
fn starting_from_the_template_takes_seconds_at_most() {
    drop(Cluster::builder().start().unwrap());
    let start = Instant::now();
    drop(Cluster::builder().start().unwrap());
    let took = start.elapsed();
    println!("start and stop took {took:?}");
    // Without the template initdb alone takes that long on the smallest machine; the bound is for a loaded one.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn processor_time_of_a_server_includes_backends_that_have_ended() {
    let cluster = Cluster::builder().start().unwrap();
    let before = cluster.cpu_seconds().unwrap();
    // Counted in hundredths of a second. Each psql has a backend of its own, which has ended when psql has.
    wait_until(Duration::from_secs(300), "ended backends to add up to a tenth of a second", || {
        cluster.sql("select count(*) from generate_series(1, 200000)").unwrap();
        cluster.cpu_seconds().unwrap() - before > 0.1
    })
    .unwrap();
}
