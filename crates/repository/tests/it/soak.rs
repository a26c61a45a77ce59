//! Repositories in two more stores than `make test` has, plain and encrypted: versitygw, which shares no code with s3s-fs, and
//! Azurite, Microsoft's emulator of Azure Blob Storage.

use super::model;
use pgshrink_repository::{KeyId, Location, SealKey, Variables, sealed};
use pgshrink_testkit::{Azure, S3, skipped};

fn run(place: &str, variables: &[(String, String)]) {
    let variables: Variables = variables.iter().cloned().collect();
    for (name, model) in model::ALL {
        for keys in [Vec::new(), vec![SealKey::new(KeyId([1; 16]), [1; 32].into())]] {
            let kind = if keys.is_empty() { "plain" } else { "sealed" };
            println!("{place}: {name}, {kind}");
            let location = Location::parse(&format!("{place}/{kind}/{name}")).unwrap();
            model(&*sealed(location.open(&variables).unwrap(), place, keys));
        }
    }
}

#[test]
#[ignore = "soak: needs versitygw"]
fn a_second_s3_server_does_what_every_repository_does() {
    if let Err(missing) = S3::find_versity() {
        return skipped("soak::a_second_s3_server", &missing);
    }
    let server = S3::start_versity().unwrap();
    run("s3://backups", &server.variables("secret"));
}

#[test]
#[ignore = "soak: needs Azurite"]
fn azure_does_what_every_repository_does() {
    if let Err(missing) = Azure::find() {
        return skipped("soak::azure", &missing);
    }
    let server = Azure::start().unwrap();
    run("az://backups", &server.variables());
}
