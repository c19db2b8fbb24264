use std::os::unix::fs::{lchown, symlink};
use std::process::Command;
use std::sync::atomic::Ordering;

use cuframes_testkit::conformance::region::Memory;
use cuframes_testkit::region_conformance;
use tempfile::{TempDir, tempdir};

use super::*;
use crate::testing::{key, skipped};

/// A region's file, every view of which is a map of its own.
struct MappedFile {
    _dir: TempDir,
    path: PathBuf,
}

impl Memory for MappedFile {
    type View = MappedRegion;

    fn new() -> Self {
        let (_dir, path) = shm_with_region(REGION_SIZE);
        Self { _dir, path }
    }

    fn view(&self) -> MappedRegion {
        MappedRegion::map(&open_region(&self.path, OFlags::RDWR).unwrap(), &self.path).unwrap()
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        Some(fs::read(&self.path).unwrap())
    }
}

region_conformance!(mapped, MappedFile);

/// A directory that stands for /dev/shm, with a region of `size` bytes for the key of the tests.
fn shm_with_region(size: usize) -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let path = region_path(dir.path(), &key());
    fs::write(&path, vec![0; size]).unwrap();
    (dir, path)
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn open_at(dir: &TempDir, shm_path: impl AsRef<Path>, peer: u32) -> Result<MappedRegion, Error> {
    let path = named_region(dir.path(), &key(), shm_path.as_ref().to_str().unwrap())?;
    MappedRegion::open(&path, &key(), peer)
}

#[test]
fn what_one_map_stores_the_other_loads() {
    let (dir, path) = shm_with_region(REGION_SIZE);
    let ours = MappedRegion::map(&open_region(&path, OFlags::RDWR).unwrap(), &path).unwrap();
    let by_path = open_at(&dir, &path, uid()).unwrap();
    let by_short_path = open_at(&dir, "/cuframes-cam0", uid()).unwrap();
    let fd = open_region(&path, OFlags::RDWR).unwrap().into();
    let by_fd = MappedRegion::from_fd(fd, &key(), uid()).unwrap();
    fs::remove_file(&path).unwrap();
    for (index, region) in [by_path, by_short_path, by_fd].iter().enumerate() {
        let value = to_u64(index + 7);
        ours.header().epoch.store(value, Ordering::Relaxed);
        ours.slot(15).mem_offset.store(value, Ordering::Relaxed);
        ours.subscriber(31).reserved[4].store(value, Ordering::Relaxed);
        assert_eq!(region.header().epoch.load(Ordering::Relaxed), value);
        assert_eq!(region.slot(15).mem_offset.load(Ordering::Relaxed), value);
        assert_eq!(region.subscriber(31).reserved[4].load(Ordering::Relaxed), value);
    }
}

#[test]
fn a_longer_region_is_accepted_and_a_shorter_one_is_a_violation() {
    let (dir, path) = shm_with_region(REGION_SIZE + 1);
    open_at(&dir, &path, uid()).unwrap();
    fs::write(&path, vec![0; REGION_SIZE - 1]).unwrap();
    let error = open_at(&dir, &path, uid()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stream cam0: the peer broke the protocol: region size: needs 7424 bytes, 7423 are there; \
         use versions that fit each other, and if they do, report it"
    );
}

#[test]
fn a_publisher_cannot_make_a_subscriber_open_another_file() {
    let (dir, path) = shm_with_region(REGION_SIZE);
    let other = dir.path().join("cuframes-cam1");
    fs::copy(&path, &other).unwrap();
    for shm_path in [other.as_path(), Path::new("/etc/passwd"), Path::new("cuframes-cam0"), Path::new("")] {
        let error = open_at(&dir, shm_path, uid()).unwrap_err();
        let problem = Distrust::NotTheRegion { region: path.clone() };
        assert!(matches!(error, Error::Untrusted { problem: found, .. } if found == problem), "{shm_path:?}");
    }
}

#[test]
fn only_a_regular_file_of_the_publisher_or_root_is_mapped() {
    let problem = |error| match error {
        Error::Untrusted { problem, .. } => problem,
        other => panic!("{other}"),
    };
    let (dir, path) = shm_with_region(REGION_SIZE);
    let target = dir.path().join("target");
    fs::rename(&path, &target).unwrap();
    symlink(&target, &path).unwrap();
    assert_eq!(problem(open_at(&dir, &path, uid()).unwrap_err()), Distrust::NotARegularFile);
    fs::remove_file(&path).unwrap();

    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(problem(open_at(&dir, &path, uid()).unwrap_err()), Distrust::NotARegularFile);
    fs::remove_file(&path).unwrap();

    fs::rename(&target, &path).unwrap();
    let (owner, peer) = (uid() + 1, uid() + 2);
    if lchown(&path, Some(owner), None).is_err() {
        return skipped("a region of another user", "only root can make one");
    }
    assert_eq!(
        problem(open_at(&dir, &path, peer).unwrap_err()),
        Distrust::Owner { found: owner, expected: peer }
    );
    open_at(&dir, &path, owner).unwrap();
    lchown(&path, Some(ROOT), None).unwrap();
    open_at(&dir, &path, peer).unwrap();
}

#[test]
fn a_region_that_is_missing_says_what_both_sides_need() {
    let dir = tempdir().unwrap();
    let error = open_at(&dir, "/cuframes-cam0", uid()).unwrap_err();
    assert!(error.to_string().contains("need the same /dev/shm"), "{error}");
}

#[test]
fn a_full_file_system_is_an_error_with_the_bytes_needed_and_available() {
    let dir = tempdir().unwrap();
    let mount = |args: &[&str]| {
        Command::new("mount").args(args).arg(dir.path()).status().is_ok_and(|status| status.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "size=4k", "tmpfs"]) {
        return skipped("a full file system", "not allowed to mount a small one");
    }
    let path = dir.path().join("region");
    let result = allocate(File::create(&path).unwrap(), REGION_SIZE, &path);
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
    match result.unwrap_err() {
        Error::NoSpace { needed: REGION_BYTES, available: Some(available), .. } => assert!(available <= 4096),
        other => panic!("{other}"),
    }
}

fn witness() -> (MappedRegion, OwnedFd) {
    MappedRegion::sealed(&key(), |region| region.slot(15).seq.store(7, Ordering::Relaxed)).unwrap()
}

#[test]
fn a_witness_says_what_its_publisher_writes() {
    let (ours, fd) = witness();
    let view = Witness::open(&key(), &fd).unwrap();
    assert_eq!(view.testimony(15), Testimony { seq: 7, pts_ns: 0, written_bytes: 0 });
    ours.slot(3).seq.store(1, Ordering::Relaxed);
    ours.slot(3).pts_ns.store(2, Ordering::Relaxed);
    ours.slot(3).written_bytes.store(3, Ordering::Relaxed);
    ours.slot(3).mem_offset.store(4, Ordering::Relaxed);
    ours.subscriber(31).state.store(5, Ordering::Relaxed);
    ours.subscriber(31).term.store(6, Ordering::Relaxed);
    drop((ours, fd));
    assert_eq!(view.testimony(3), Testimony { seq: 1, pts_ns: 2, written_bytes: 3 });
    assert_eq!(view.memory(3).offset, 4);
    assert_eq!(view.standing(SubscriberBit::new(31).unwrap()), Standing { state: 5, term: 6 });
    assert!(view.header().is_err(), "this one has no header");
}

#[test]
fn nobody_else_can_write_a_witness_or_make_it_shorter() {
    let (_ours, fd) = witness();
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
    assert!(MmapOptions::new().len(REGION_SIZE).map_raw(&fd).is_err(), "a writable map");
}

#[test]
fn what_others_could_write_or_what_is_too_short_is_no_witness() {
    let field = |fd: OwnedFd| match Witness::open(&key(), &fd).unwrap_err() {
        Error::Violation { violation, .. } => violation.field,
        error => panic!("{error}"),
    };
    let unsealed = |len| memfd::create("test", len).unwrap().0;
    assert_eq!(field(unsealed(REGION_SIZE)), "seals of the witness");
    let (_dir, path) = shm_with_region(REGION_SIZE);
    assert_eq!(field(open_region(&path, OFlags::RDWR).unwrap().into()), "seals of the witness");
    let short = unsealed(REGION_SIZE - 1);
    memfd::seal(&short, Path::new("short")).unwrap();
    assert_eq!(field(short), "witness");
}
