//! Places of a restore that goes on, and space on one filesystem.

use super::*;
use pgshrink_testkit::TempDir;

struct Scene {
    keep: TempDir,
}

impl Scene {
    fn places(&self, space: &str) -> Places {
        let at = self.keep.path().join(space).display().to_string();
        let mapping = [format!("/srv/space={at}")];
        let to = Destination::new(&self.keep.path().join("into"), &mapping).unwrap();
        Places::new(&to, [(16_385, &b"/srv/space"[..])].into_iter(), Access::Owner).unwrap()
    }
}

#[test]
fn a_tablespace_of_a_restore_that_goes_on_goes_where_it_went() {
    let scene = Scene { keep: TempDir::new().unwrap() };
    scene.places("one").make().unwrap();
    scene.places("one").make_again().unwrap();
    let Err(error) = scene.places("other").make_again() else { panic!("the link leads elsewhere") };
    let error = error.to_string();
    assert!(error.contains("/one") && error.contains("--tablespace-mapping"), "{error}");
    assert!(!scene.keep.path().join("other").exists());
}

#[test]
fn a_tablespace_without_a_link_yet_goes_into_an_empty_directory_only() {
    let scene = Scene { keep: TempDir::new().unwrap() };
    scene.places("one").make().unwrap();
    let [link, other] = ["into/pg_tblspc/16385", "other"].map(|name| scene.keep.path().join(name));
    fs::remove_file(&link).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(other.join("of somebody else"), b"").unwrap();
    let Err(error) = scene.places("other").make_again() else { panic!("it is not empty") };
    assert!(error.to_string().contains("not empty"), "{error}");
    fs::remove_file(other.join("of somebody else")).unwrap();
    scene.places("other").make_again().unwrap();
    assert_eq!(fs::read_link(link).unwrap(), other);
}

#[test]
fn what_goes_to_one_filesystem_is_added_up() {
    let keep = TempDir::new().unwrap();
    let space = rustix::fs::statvfs(keep.path()).unwrap();
    // Others may write or remove something meanwhile, but not a third of all.
    let two_thirds = space.f_bavail * space.f_frsize / 3 * 2;
    let [one, other] = ["one", "not there/yet"].map(|name| keep.path().join(name));
    check_space([(&*one, two_thirds)].into_iter()).unwrap();
    check_space([(&*one, two_thirds), (&*other, 0)].into_iter()).unwrap();
    let error = check_space([(&*one, two_thirds), (&*other, two_thirds)].into_iter()).unwrap_err();
    assert!(error.to_string().contains("not enough space on its filesystem"), "{error}");
}

#[test]
fn segments_are_archived_up_to_the_one_that_the_backup_ends_in() {
    let size = WalSegmentSize::DEFAULT;
    let is_done = |name: &str, stop: u64| is_archived(name.as_bytes(), size, Lsn(stop));
    let second = "000000010000000000000001";
    assert!(is_done(second, 0x200_0000), "it ends where the backup does");
    assert!(!is_done(second, 0x1ff_ffff) && !is_done("000000010000000000000002", 0x200_0000));
    assert!(is_done("00000002.history", 0) && !is_done("archive_status", u64::MAX));
}
