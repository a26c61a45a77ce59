//! Sealed containers against somebody who knows the format and can compute its check sums, but has no key.

use super::{Kernel, key};
use crate::fixture::{Bench, Open, read, write};
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::seal::{Keyring, MasterKey};
use pgshrink_cfs::{Birth, Error, Identity, KEY_BYTES, Reason, Scratch, Seal, segment};

const HEAD_BYTES: usize = 3 * 4096;

/// A container with this id, sealed or not; blocks 0 and 1 hold as many bytes.
fn made(id: u8, master: Option<&MasterKey>, fill: u8) -> (Bench, Open<'static>) {
    let mut bench = Bench::small();
    let mut birth = Birth { id: [id; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
    if let Some(master) = master {
        let (data, slot) = master.new_data_key(&birth.id, &Kernel);
        birth.key = slot;
        let seal: &'static dyn Seal = Box::leak(Box::new(data.into_seal(master.id(), Kernel)));
        bench.options.seal = Some(seal);
    }
    let container = segment::create(&bench.disk, Alone, bench.words(), &birth, bench.options).unwrap();
    for block in [0, 1] {
        container.write(block, 1, 0, &[fill + block as u8; 500], &mut Scratch::new()).unwrap();
    }
    container.commit().unwrap();
    (bench, container)
}

/// Where the record of a block begins, by its check sum (`formats/cfs.md`, "Records").
pub fn place(file: &[u8], id: u8, block: u32) -> std::ops::Range<usize> {
    places(file, id, block).next().unwrap()
}

/// All of a block that are in the file.
pub fn places(file: &[u8], id: u8, block: u32) -> impl Iterator<Item = std::ops::Range<usize>> {
    (HEAD_BYTES..file.len() - 16).step_by(16).filter_map(move |at| {
        let word = u32::from_le_bytes(file[at + 4..at + 8].try_into().unwrap());
        let end = at + 16 + (word >> 17) as usize;
        let is_it = word >> 31 == 0 && word & 0x1ffff == block && end <= file.len();
        (is_it && file[at..at + 4] == crc(file, id, at..end)).then_some(at..end)
    })
}

fn crc(file: &[u8], id: u8, range: std::ops::Range<usize>) -> [u8; 4] {
    let seed = crc32fast::hash(&[id; 16]) ^ (range.start / 16) as u32;
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(&file[range.start + 4..range.end]);
    hasher.finalize().to_le_bytes()
}

/// Puts a payload into a record of the same length, whose check sum is right afterwards.
pub fn transplant(file: &mut [u8], id: u8, to: std::ops::Range<usize>, payload: &[u8]) {
    file[to.start + 16..to.end].copy_from_slice(payload);
    let crc = crc(file, id, to.clone());
    file[to.start..to.start + 4].copy_from_slice(&crc);
}

fn is_refused(result: Result<Vec<u8>, Error>) -> bool {
    matches!(result, Err(Error::Damaged(damage)) if damage.reason == Reason::Seal)
}

#[test]
fn a_forged_check_sum_moves_pages_of_a_plain_container_and_none_of_a_sealed_one() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    for sealed in [false, true] {
        let (bench, container) = made(1, sealed.then_some(&master), 10);
        let mut file = bench.bytes();
        let (from, to) = (place(&file, 1, 0), place(&file, 1, 1));
        let payload = file[from.start + 16..from.end].to_vec();
        transplant(&mut file, 1, to, &payload);
        bench.set_bytes(file);
        assert_eq!(read(&container, 0).unwrap(), [10; 500]);
        if sealed {
            assert!(is_refused(read(&container, 1)));
        } else {
            assert_eq!(
                read(&container, 1).unwrap(),
                [10; 500],
                "the check sum is right: this test can forge"
            );
        }
    }
}

#[test]
fn a_record_of_another_container_under_the_same_master_key_is_refused() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (other, _) = made(2, Some(&master), 50);
    let (bench, container) = made(1, Some(&master), 10);
    let (mut file, others) = (bench.bytes(), other.bytes());
    let payload = others[place(&others, 2, 1)][16..].to_vec();
    let to = place(&file, 1, 1);
    transplant(&mut file, 1, to, &payload);
    bench.set_bytes(file);
    assert!(is_refused(read(&container, 1)));
    assert_eq!(read(&container, 0).unwrap(), [10; 500]);
}

#[test]
fn an_older_record_of_the_same_block_is_refused() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (bench, container) = made(1, Some(&master), 10);
    let old = bench.bytes();
    let old = old[place(&old, 1, 1)][16..].to_vec();
    container.write(1, 1, 0, &[99; 500], &mut Scratch::new()).unwrap();
    container.commit().unwrap();
    let mut file = bench.bytes();
    // The newer record is behind the older one.
    let first = place(&file, 1, 1);
    let newer = (first.end.next_multiple_of(16)..file.len() - 16).step_by(16).find_map(|at| {
        let end = at + 16 + old.len();
        (end <= file.len() && file[at..at + 4] == crc(&file, 1, at..end) && file[at + 4] == 1)
            .then_some(at..end)
    });
    transplant(&mut file, 1, newer.unwrap(), &old);
    bench.set_bytes(file);
    assert!(is_refused(read(&container, 1)), "its version is bound to it");
}

#[test]
fn a_changed_root_is_refused_though_its_check_sum_is_right() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (mut bench, _) = made(1, Some(&master), 10);
    let mut file = bench.bytes();
    for disk_block in file[..HEAD_BYTES].chunks_mut(4096).filter(|disk_block| disk_block[..8] == *b"pgshrcfs")
    {
        // Another count of pages: a truncation that never was.
        disk_block[56] ^= 1;
        let crc = crc32fast::hash(&disk_block[12..]);
        disk_block[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    bench.set_bytes(file);
    assert!(matches!(bench.open().map(drop), Err(Error::Damaged(damage)) if damage.reason == Reason::Seal));
    bench.options.seal = None;
    assert!(matches!(bench.open().map(drop), Err(Error::KeyMissing { needed }) if needed == master.id()));
}

#[test]
fn rotation_in_a_container_writes_roots_only() {
    let (old, new) = (MasterKey::new(&key(1), &Kernel).unwrap(), MasterKey::new(&key(2), &Kernel).unwrap());
    let (mut bench, container) = made(1, Some(&old), 10);
    let head = segment::clear(&pgshrink_cfs::Folder::open(&bench.disk, segment::FILE_NAME).unwrap()).unwrap();
    let data = Keyring::new(vec![key(1)]).data_key(&head.id, &head.key_id, &head.key).unwrap();
    let before = bench.bytes();
    container.rekey(new.id(), new.wrap(&head.id, &data, &Kernel)).unwrap();
    let after = bench.bytes();
    let records = [place(&before, 1, 0), place(&before, 1, 1)];
    assert!(records.into_iter().all(|record| before[record.clone()] == after[record]));
    bench.options.seal = Some(Box::leak(Box::new(data.into_seal(new.id(), Kernel))));
    let (container, _) = bench.open().unwrap();
    assert_eq!(read(&container, 1).unwrap(), [11; 500]);
    write(&container, 2, 1);
    container.commit().unwrap();
}
