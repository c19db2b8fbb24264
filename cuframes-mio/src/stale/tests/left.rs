//! What a killed publisher left is replaced, whatever its subscribers did to it; and what else has one of the names is not.

use std::os::unix::fs::{chown, symlink};
use std::time::UNIX_EPOCH;

use super::*;

/// What a subscriber can do with the descriptor of the region that it got.
type Attack = fn(&File);

const ATTACKS: [(&str, Attack); 5] = [
    ("no magic word", |region| write(region, offset_of!(HeaderWords<AtomicU64>, magic_version), 0)),
    ("the words of a plain v1 publisher that lives", seem_foreign),
    ("no bytes", |region| region.set_len(0).unwrap()),
    ("a lock", |region| flock(region, FlockOperation::LockExclusive).unwrap()),
    ("other times", |region| region.set_modified(UNIX_EPOCH).unwrap()),
];

fn seem_foreign(region: &File) {
    write(region, offset_of!(HeaderWords<AtomicU64>, epoch), 0);
    write(region, offset_of!(HeaderWords<AtomicU64>, producer_pid), 1);
}

fn write(region: &File, offset: usize, word: u64) {
    region.write_all_at(&word.to_le_bytes(), u64::try_from(offset).unwrap()).unwrap();
}

/// A host on which a publisher was killed, and the region that it left.
fn after_a_crash() -> (Host, File) {
    let host = Host::new();
    let mut region = None;
    host.leave_publisher(|| region = Some(open_region(&host.region(), OFlags::RDWR).unwrap()));
    (host, region.unwrap())
}

#[test]
fn whatever_a_subscriber_did_to_the_region_of_a_dead_publisher_it_is_replaced() {
    for (name, attack) in ATTACKS {
        for run_dir in ["a", "b"] {
            let (host, region) = after_a_crash();
            attack(&region);
            let taken = host.take(run_dir);
            let (claimed, _listener) = taken.unwrap_or_else(|error| panic!("{name}, {run_dir}: {error}"));
            assert!(!Inode::of(&region.metadata().unwrap()).is_named(&host.region()), "{name}");
            assert_eq!(claimed.region().header().epoch.load(Ordering::Relaxed), 77, "{name}");
        }
    }
}

/// While a publisher lives its region is its own, whatever it says and although nobody can see any more who locked it.
#[test]
fn whatever_a_subscriber_did_to_the_region_of_a_publisher_that_lives_it_stays() {
    let host = Host::new();
    let (claimed, _listener) = host.take("a").unwrap();
    seem_foreign(&open_region(&host.region(), OFlags::RDWR).unwrap());
    flock(claimed.region_fd(), FlockOperation::Unlock).unwrap();
    assert_eq!(host.holder("b"), Holder::Lock(host.region_lock()));
    assert!(!claimed.is_region_lost());
}

#[test]
fn a_region_that_the_dead_publisher_did_not_make_is_judged_by_itself() {
    let (host, _region) = after_a_crash();
    fs::remove_file(host.region()).unwrap();
    host.leave_region(0, 1);
    for _ in 0..2 {
        assert_eq!(host.holder("a"), Holder::Process { region: host.region(), pid: 1 });
    }
    // Nor does it count what somebody wrote who is not the owner of the region.
    let (host, region) = after_a_crash();
    seem_foreign(&region);
    fs::set_permissions(host.region_lock(), fs::Permissions::from_mode(0o620)).unwrap();
    assert_eq!(host.holder("a"), Holder::Process { region: host.region(), pid: 1 });
}

#[test]
fn a_start_that_fails_before_it_has_a_region_of_its_own_leaves_no_trace() {
    let (host, region) = after_a_crash();
    seem_foreign(&region);
    let failed = take(&host.run_dir("b"), host.0.path(), |_| {
        assert!(!host.region().exists(), "what the dead one left goes first");
        fs::create_dir(host.region()).unwrap();
    });
    assert!(matches!(failed, Err(Error::AlreadyExists { holder: Holder::Foreign(_), .. })), "{failed:?}");
    fs::remove_dir(host.region()).unwrap();
    fs::remove_file(host.socket()).unwrap();
    assert_eq!(host.leftovers(), [""; 0]);
}

#[test]
fn what_is_no_file_does_not_become_a_lock() {
    let makers: [fn(&Path); 4] = [
        |path| fs::create_dir(path).unwrap(),
        |path| symlink("/nowhere", path).unwrap(),
        |path| symlink("/dev/null", path).unwrap(),
        |path| drop(UnixListener::bind(path).unwrap()),
    ];
    for make in makers {
        let host = Host::new();
        for path in [host.run_dir("a").lock_path(&key()), host.region_lock()] {
            make(&path);
            assert_eq!(host.holder("a"), Holder::Foreign(path.clone()));
            fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
        }
        host.take("a").unwrap();
    }
}

#[test]
fn a_lock_of_another_user_is_told_and_root_may_follow_any_publisher() {
    if !geteuid().is_root() {
        return skipped("locks of another user", "only root can make them");
    }
    let (host, region) = after_a_crash();
    seem_foreign(&region);
    chown(host.region(), Some(65534), None).unwrap();
    assert!(matches!(host.holder("a"), Holder::Process { .. }), "that is not the word of its owner");

    let (host, region) = after_a_crash();
    seem_foreign(&region);
    for path in [host.region(), host.region_lock()] {
        chown(path, Some(65534), None).unwrap();
    }
    host.take("a").unwrap();

    fs::set_permissions(host.0.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(host.region_lock(), "").unwrap();
    fs::set_permissions(host.region_lock(), fs::Permissions::from_mode(0o666)).unwrap();
    let mut command = child("stale::tests::child_starts_as_nobody", host.0.path());
    let Ok(output) = command.uid(65534).stdout(Stdio::piped()).output() else {
        return skipped("locks of another user", "nobody may not run this program");
    };
    let output = String::from_utf8(output.stdout).unwrap();
    let expected = format!(
        "outcome {} can't be trusted: owned by user 0 and not 65534; delete it or let its owner do so",
        host.region_lock().display()
    );
    assert!(output.lines().any(|line| line == expected), "{output}");
}
