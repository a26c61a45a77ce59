//! Master keys, slots, rotation, and which error says what.

use super::{CHEAP, Kernel, container_of, key, opened, passphrase, sealed};
use pgshrink_cfs::seal::{HexId, KeyError, Keyring, MasterKey, Seal};

const CONTAINER: [u8; 16] = [3; 16];

#[test]
fn the_same_key_has_the_same_id_everywhere_and_another_another() {
    let ids = [key(1), key(1), key(2)].map(|secret| MasterKey::new(&secret, &Kernel).unwrap().id());
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2]);
    // Two salts are two keys.
    let of_passphrase = || MasterKey::with_cost(&passphrase("correct horse"), CHEAP, &Kernel).unwrap().id();
    assert_ne!(of_passphrase(), of_passphrase());
}

#[test]
fn no_key_a_wrong_key_and_a_damaged_slot_are_different_errors() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (_, slot) = master.new_data_key(&CONTAINER, &Kernel);
    let needed = HexId(master.id());
    let open = |mut ring: Keyring, slot| ring.data_key(&CONTAINER, &master.id(), &slot).map(drop);
    assert_eq!(open(Keyring::new(vec![key(1)]), slot), Ok(()));
    assert_eq!(open(Keyring::new(vec![]), slot), Err(KeyError::Missing { needed }));
    let wrong = |tried| Err(KeyError::Wrong { needed, of: "a key of 32 bytes", tried });
    assert_eq!(open(Keyring::new(vec![key(2)]), slot), wrong(1));
    assert_eq!(open(Keyring::new(vec![passphrase("correct horse"), key(2)]), slot), wrong(2));
    let mut damaged = slot;
    damaged[50] ^= 1;
    assert_eq!(open(Keyring::new(vec![key(1)]), damaged), Err(KeyError::Damaged { needed }));
    let text = KeyError::Missing { needed }.to_string();
    assert!(text.contains(&needed.to_string()) && needed.to_string().len() == 32, "{text}");
}

#[test]
fn a_passphrase_opens_what_it_sealed_and_another_is_the_wrong_one() {
    let master = MasterKey::with_cost(&passphrase("correct horse"), CHEAP, &Kernel).unwrap();
    let (seal, slot) = container_of(&master, 3);
    let bytes = sealed(&seal, b"place", b"page");
    let mut ring = Keyring::new(vec![key(9), passphrase("correct horse")]);
    let again = ring.data_key(&CONTAINER, &master.id(), &slot).unwrap().into_seal(master.id(), Kernel);
    assert_eq!(opened(&again, b"place", &bytes).unwrap(), b"page");
    let error = Keyring::new(vec![passphrase("correct house")]).data_key(&CONTAINER, &master.id(), &slot);
    let needed = HexId(master.id());
    assert_eq!(error.unwrap_err(), KeyError::Wrong { needed, of: "a passphrase", tried: 1 });
}

#[test]
fn every_bit_of_a_slot_counts() {
    let masters = [
        (MasterKey::new(&key(1), &Kernel).unwrap(), key(1)),
        (
            MasterKey::with_cost(&passphrase("correct horse"), CHEAP, &Kernel).unwrap(),
            passphrase("correct horse"),
        ),
    ];
    for (master, secret) in masters {
        let (_, slot) = master.new_data_key(&CONTAINER, &Kernel);
        let mut ring = Keyring::new(vec![secret]);
        for bit in 0..slot.len() * 8 {
            // More memory and passes than these are refused, but take their time below.
            if (4..12).contains(&(bit / 8)) && bit != 36 && bit != 65 {
                continue;
            }
            let mut damaged = slot;
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = ring.data_key(&CONTAINER, &master.id(), &damaged).map(drop).unwrap_err();
            assert!(!matches!(error, KeyError::Missing { .. }), "bit {bit}: {error}");
        }
        assert!(ring.data_key(&CONTAINER, &master.id(), &slot).is_ok());
    }
}

#[test]
fn a_newer_slot_is_unsupported_and_an_empty_one_damaged() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (_, slot) = master.new_data_key(&CONTAINER, &Kernel);
    let error = |at: usize, value: u8| {
        let mut slot = slot;
        slot[at] = value;
        master.unwrap(&CONTAINER, &slot).unwrap_err()
    };
    assert_eq!(error(0, 2), KeyError::Unsupported { what: "cipher", found: 2, known: 1 });
    assert_eq!(error(1, 2), KeyError::Unsupported { what: "derivation", found: 2, known: 1 });
    assert!(matches!(error(0, 0), KeyError::Slot { property: "cipher", .. }));
    assert!(matches!(error(2, 1), KeyError::Slot { property: "reserved bytes", .. }));
    assert!(matches!(error(95, 1), KeyError::Slot { property: "reserved bytes", .. }));
}

#[test]
fn a_slot_does_not_open_in_another_container_nor_under_another_id() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (_, slot) = master.new_data_key(&CONTAINER, &Kernel);
    let needed = HexId(master.id());
    assert_eq!(master.unwrap(&[4; 16], &slot).unwrap_err(), KeyError::Damaged { needed });
    let other = MasterKey::new(&key(2), &Kernel).unwrap();
    assert!(matches!(other.unwrap(&CONTAINER, &slot), Err(KeyError::Damaged { .. })));
}

#[test]
fn rotation_wraps_the_data_key_anew_and_leaves_every_record() {
    let old = MasterKey::new(&key(1), &Kernel).unwrap();
    let (seal, old_slot) = container_of(&old, 3);
    let bytes = sealed(&seal, b"place", b"written before the rotation");

    // The new secret first, as configured while keys are rotated.
    let mut ring = Keyring::new(vec![passphrase("correct horse"), key(1)]);
    let data = ring.data_key(&CONTAINER, &old.id(), &old_slot).unwrap();
    let new = ring.master(&Kernel).unwrap();
    let (new_id, new_slot) = (new.id(), new.wrap(&CONTAINER, &data, &Kernel));
    assert_ne!((new_id, new_slot), (old.id(), old_slot));

    let mut ring = Keyring::new(vec![passphrase("correct horse")]);
    let after = ring.data_key(&CONTAINER, &new_id, &new_slot).unwrap().into_seal(new_id, Kernel);
    assert_eq!(after.key_id(), new_id);
    assert_eq!(opened(&after, b"place", &bytes).unwrap(), b"written before the rotation");
    let mut old_alone = Keyring::new(vec![key(1)]);
    assert!(matches!(old_alone.data_key(&CONTAINER, &new_id, &new_slot), Err(KeyError::Wrong { .. })));
    // What is kept of the old slot still opens with the old key: rotation has to overwrite it.
    assert!(old_alone.data_key(&CONTAINER, &old.id(), &old_slot).is_ok());
}

#[test]
fn a_keyring_stretches_once_and_new_containers_share_the_salt() {
    let mut ring = Keyring::new(vec![passphrase("correct horse")]);
    let first = ring.master(&Kernel).unwrap().id();
    assert_eq!(ring.master(&Kernel).unwrap().id(), first);
    let mut other = Keyring::new(vec![passphrase("correct horse")]);
    let master = MasterKey::with_cost(&passphrase("correct horse"), CHEAP, &Kernel).unwrap();
    let (_, slot) = master.new_data_key(&CONTAINER, &Kernel);
    other.data_key(&CONTAINER, &master.id(), &slot).unwrap();
    assert_eq!(other.master(&Kernel).unwrap().id(), master.id());
}

#[test]
fn nothing_printed_shows_a_key() {
    let secret = "0123456789abcdef".repeat(4);
    let master = MasterKey::new(&passphrase(&secret), &Kernel).unwrap();
    let (data, _) = master.new_data_key(&CONTAINER, &Kernel);
    let ring = Keyring::new(vec![passphrase(&secret)]);
    let printed = format!("{master:?} {data:?} {ring:?} {:?}", data.clone().into_seal(master.id(), Kernel));
    assert!(!printed.contains("01234567") && !printed.contains("1, 35"), "{printed}");
}

#[test]
fn each_slot_has_a_nonce_of_its_own() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (data, _) = master.new_data_key(&CONTAINER, &Kernel);
    let slots = [(); 3].map(|()| master.wrap(&CONTAINER, &data, &Kernel));
    for (slot, other) in [(0, 1), (1, 2), (0, 2)] {
        let (slot, other) = (&slots[slot], &slots[other]);
        // The nonce, and the wrapped key.
        assert_ne!(slot[28..40], other[28..40]);
        assert_ne!(slot[40..72], other[40..72]);
    }
}
