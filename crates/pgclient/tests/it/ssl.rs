//! How a server would be verified.

use crate::world::World;
use pgshrink_pgclient::ssl::{
    ChannelBinding, RootCertificate, SslCertMode, SslMode, SslNegotiation, SslParameters, TlsVersion,
    Verification,
};
use std::path::PathBuf;

const ROOT: &str = "/home/ann/.postgresql/root.crt";
const CERT: &str = "/home/ann/.postgresql/postgresql.crt";
const KEY: &str = "/home/ann/.postgresql/postgresql.key";

fn resolve(world: &World, conninfo: &str) -> Result<SslParameters, String> {
    SslParameters::resolve(&world.parameters(conninfo), &world.around()).map_err(|error| error.to_string())
}

#[test]
fn with_nothing_said_tls_is_preferred_and_nothing_verified() {
    let found = resolve(&World::new(), "").unwrap();
    assert_eq!((found.mode, found.negotiation), (SslMode::Prefer, SslNegotiation::Postgres));
    assert_eq!((&found.root_cert, found.verification()), (&RootCertificate::None, Verification::None));
    assert_eq!((found.cert, found.key, found.cert_mode), (None, None, SslCertMode::Allow));
    assert_eq!((found.min_version, found.max_version), (Some(TlsVersion::Tls12), None));
    assert_eq!((found.sni, found.channel_binding), (true, ChannelBinding::Prefer));
}

#[test]
fn an_existing_root_certificate_is_used_in_every_mode() {
    let with_root = World::new().file(ROOT, "");
    let without = World::new();
    let table = [
        (&with_root, "disable", Verification::None),
        (&with_root, "allow", Verification::Chain),
        (&with_root, "prefer", Verification::Chain),
        (&with_root, "require", Verification::Chain),
        (&with_root, "verify-ca", Verification::Chain),
        (&with_root, "verify-full", Verification::ChainAndName),
        (&without, "allow", Verification::None),
        (&without, "require", Verification::None),
    ];
    for (world, mode, expected) in table {
        let found = resolve(world, &format!("sslmode={mode}")).unwrap();
        assert_eq!((found.verification(), found.mode.name()), (expected, mode));
    }
}

#[test]
fn verifying_modes_need_a_root_certificate() {
    for mode in ["verify-ca", "verify-full"] {
        let error = resolve(&World::new(), &format!("sslmode={mode}")).unwrap_err();
        assert!(error.starts_with(&format!("root certificate file \"{ROOT}\" does not exist")), "{error}");
        let error = resolve(&World::new(), &format!("sslmode={mode} sslrootcert=/gone")).unwrap_err();
        assert!(error.starts_with("root certificate file \"/gone\" does not exist"), "{error}");
    }
    let mut homeless = World::new();
    homeless = homeless.env("PGSSLMODE", "verify-ca");
    let around = pgshrink_pgclient::Surroundings { home: None, ..homeless.around() };
    let error = SslParameters::resolve(&homeless.parameters(""), &around).unwrap_err().to_string();
    assert!(error.starts_with("could not get home directory to locate root certificate file"), "{error}");
}

#[test]
fn system_roots_insist_on_verify_full() {
    let found = resolve(&World::new(), "sslrootcert=system").unwrap();
    assert_eq!((found.mode, found.root_cert), (SslMode::VerifyFull, RootCertificate::System));
    for mode in ["disable", "prefer", "require", "verify-ca"] {
        let error = resolve(&World::new(), &format!("sslrootcert=system sslmode={mode}")).unwrap_err();
        let expected =
            format!("weak sslmode \"{mode}\" may not be used with sslrootcert=system (use \"verify-full\")");
        assert_eq!(error, expected);
    }
}

#[test]
fn direct_negotiation_needs_a_mode_without_a_way_back() {
    for mode in ["disable", "allow", "prefer"] {
        let error = resolve(&World::new(), &format!("sslnegotiation=direct sslmode={mode}")).unwrap_err();
        assert!(
            error.starts_with(&format!("weak sslmode \"{mode}\" may not be used with sslnegotiation=direct"))
        );
    }
    let found = resolve(&World::new(), "sslnegotiation=direct sslmode=require").unwrap();
    assert_eq!(found.negotiation, SslNegotiation::Direct);
}

#[test]
fn a_client_certificate_may_be_missing_but_not_its_key() {
    assert_eq!(resolve(&World::new(), "sslcert=/gone").unwrap().cert, None);
    assert_eq!(resolve(&World::new().file("/file", ""), "sslcert=/file/x").unwrap().cert, None);
    let lonely = World::new().file(CERT, "");
    let error = resolve(&lonely, "").unwrap_err();
    assert_eq!(error, format!("certificate present, but not private key file \"{KEY}\""));
    assert_eq!(resolve(&lonely, "sslcertmode=disable").unwrap().cert, None);
    assert_eq!(resolve(&lonely, "sslmode=disable").unwrap().cert, None);
    let found = resolve(&lonely.file(KEY, ""), "").unwrap();
    assert_eq!((found.cert, found.key), (Some(PathBuf::from(CERT)), Some(PathBuf::from(KEY))));
}

#[test]
fn keys_that_others_can_read_are_refused() {
    let table = [
        (World::new().file_with("/k", "", 0o600), true),
        (World::new().file_with("/k", "", 0o640), false),
        (World::new().file_with("/k", "", 0o604), false),
        (World::new().root_file("/k", 0o640), true),
        (World::new().root_file("/k", 0o660), false),
        (World::new().root_file("/k", 0o644), false),
        (World::new().with_dir("/k"), false),
    ];
    for (index, (world, accepted)) in table.into_iter().enumerate() {
        let found = resolve(&world.file("/c", ""), "sslcert=/c sslkey=/k");
        assert_eq!(found.is_ok(), accepted, "case {index}: {found:?}");
    }
}

#[test]
fn revocation_lists_are_read_only_with_a_root_certificate() {
    let crl = "/home/ann/.postgresql/root.crl";
    let world = World::new().file(ROOT, "").file(crl, "").file("/crl", "");
    assert_eq!(resolve(&world, "").unwrap().crl, Some(PathBuf::from(crl)));
    assert_eq!(resolve(&world, "sslcrl=/crl").unwrap().crl, Some(PathBuf::from("/crl")));
    assert_eq!(resolve(&world, "sslcrl=/gone").unwrap().crl, None);
    assert_eq!(resolve(&World::new().file("/crl", ""), "sslcrl=/crl").unwrap().crl, None);
}

#[test]
fn words_that_are_not_allowed_are_named_with_those_that_are() {
    let table = [
        (
            "sslmode=requires",
            "invalid sslmode value: \"requires\" (allowed: disable, allow, prefer, require, verify-ca, verify-full)",
        ),
        ("sslmode=''", "invalid sslmode value: \"\""),
        ("channel_binding=yes", "invalid channel_binding value: \"yes\" (allowed: disable, prefer, require)"),
        ("sslcertmode=x", "invalid sslcertmode value: \"x\" (allowed: disable, allow, require)"),
        ("sslnegotiation=x", "invalid sslnegotiation value: \"x\" (allowed: postgres, direct)"),
        ("ssl_min_protocol_version=SSLv3", "invalid ssl_min_protocol_version value: \"SSLv3\""),
        ("ssl_max_protocol_version=TLSv1.1", "invalid SSL protocol version range: TLSv1.2 to TLSv1.1"),
    ];
    for (conninfo, message) in table {
        let error = resolve(&World::new(), conninfo).unwrap_err();
        assert!(error.starts_with(message), "{conninfo} gave {error}");
    }
    let found =
        resolve(&World::new(), "ssl_min_protocol_version='' ssl_max_protocol_version=tlsv1.3").unwrap();
    assert_eq!((found.min_version, found.max_version), (None, Some(TlsVersion::Tls13)));
}

#[test]
fn debug_output_hides_the_keys_password() {
    let found = resolve(&World::new(), "sslpassword=hunter2").unwrap();
    assert_eq!(found.key_password.as_deref(), Some(&b"hunter2"[..]));
    assert!(!format!("{found:?}").contains("hunter2"));
}
