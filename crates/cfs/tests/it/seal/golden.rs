//! What was sealed once opens for ever; what must be refused is refused for its reason.

use super::Kernel;
use pgshrink_cfs::seal::{KeyError, KeyId, KeySlot, Keyring, Secret};
use pgshrink_testkit::checkout;
use std::collections::BTreeMap;

struct Golden(BTreeMap<String, Vec<u8>>);

impl Golden {
    /// `name hex` on each line.
    fn read(path: &str) -> Golden {
        let text = std::fs::read_to_string(checkout().join("formats/cfs-seal").join(path)).unwrap();
        let bytes = |hex: &str| -> Vec<u8> {
            let digits: Vec<u8> = hex.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
            digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
        };
        Golden(
            text.lines()
                .map(|line| line.split_once(' ').unwrap())
                .map(|(n, h)| (n.into(), bytes(h)))
                .collect(),
        )
    }

    fn open(&self) -> Result<Option<Vec<u8>>, KeyError> {
        let id: KeyId = self.0["key-id"].as_slice().try_into().unwrap();
        let slot: KeySlot = self.0["slot"].as_slice().try_into().unwrap();
        let container: [u8; 16] = self.0["container"].as_slice().try_into().unwrap();
        let mut ring = Keyring::new(vec![Secret::parse(&self.0["secret"])?]);
        let seal = ring.data_key(&container, &id, &slot)?.into_seal(id, Kernel);
        Ok(super::opened(&seal, &self.0["associated"], &self.0["sealed"]))
    }
}

fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(checkout().join("formats/cfs-seal").join(folder)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn golden_records_open() {
    let all = names("golden");
    assert_eq!(all, ["page-key.txt", "page-passphrase.txt", "root-key.txt", "short-key.txt"]);
    for name in all {
        let golden = Golden::read(&format!("golden/{name}"));
        assert_eq!(golden.open().unwrap().as_ref(), Some(&golden.0["plaintext"]), "{name}");
        // None: as every engine's `Seal` for what is not its own.
        let mut moved = golden;
        moved.0.get_mut("associated").unwrap()[4] ^= 1;
        assert_eq!(moved.open().unwrap(), None, "{name}");
    }
}

#[test]
fn golden_errors_are_refused_for_their_reasons() {
    let expected = [
        ("another-container.txt", "the data key is damaged"),
        ("cipher-2.txt", "the key slot needs cipher 2, but this version supports only 1"),
        ("derivation-9.txt", "the key slot needs derivation 9, but this version supports only 1"),
        ("memory-4-tib.txt", "stretching memory in KiB should be 8 to 1048576, is 4294967295"),
        ("record-moved.txt", "does not open"),
        ("reserved.txt", "reserved bytes should be 0, is 1"),
        ("wrapped-key-flipped.txt", "the data key is damaged"),
        ("wrong-passphrase.txt", "derived from a passphrase; none of the 1 keys supplied matches"),
    ];
    assert_eq!(names("golden-errors"), expected.map(|(name, _)| name));
    for (name, reason) in expected {
        let found = match Golden::read(&format!("golden-errors/{name}")).open() {
            Ok(None) => "does not open".to_owned(),
            Ok(Some(_)) => "opens".to_owned(),
            Err(error) => error.to_string(),
        };
        assert!(found.contains(reason), "{name}: {found}");
    }
}
