//! Who only looks sees every stream as it is, and nobody notices.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cuframes_mio::core::Policy;
use cuframes_mio::core::shm::Snapshot;
use cuframes_mio::{Error, Liveness, Observer, Sighting, remove_leftovers};

use crate::common::{LONG, NEWEST, Stream, until};
use crate::other::Other;

/// A file with the name of a stream's region, until it is dropped.
struct Region(PathBuf);

impl Region {
    fn of(stream: &Stream) -> Self {
        Self(PathBuf::from("/dev/shm").join(stream.key.region_file()))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0).or_else(|_| fs::remove_dir(&self.0));
    }
}

fn observer(stream: &Stream) -> Observer {
    Observer::new(Some(stream.dir.path()))
}

/// The stream in the list, which has to agree with a look at it alone.
fn sight(stream: &Stream) -> Option<Sighting> {
    let (streams, _) = observer(stream).streams();
    let listed = streams.into_iter().find(|sighting| sighting.key == stream.key);
    let alone = observer(stream).stream(&stream.key);
    assert_eq!(listed.as_ref().map(facts), alone.as_ref().map(facts));
    listed
}

fn facts(sighting: &Sighting) -> (Liveness, Option<PathBuf>, Option<String>, Option<u32>) {
    (sighting.publisher, sighting.socket.clone(), sighting.foreign(), sighting.owner)
}

#[test]
fn a_stream_is_seen_with_its_subscribers_and_leases() {
    let stream = Stream::new();
    assert!(sight(&stream).is_none());
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    publisher.wait_for(1, LONG).unwrap();
    for _ in 0..6 {
        publisher.claim().unwrap().commit();
    }
    let frame = subscriber.next(LONG).unwrap().unwrap();
    publisher.claim().unwrap().commit();

    let seen = sight(&stream).unwrap();
    assert_eq!((seen.publisher, seen.foreign()), (Liveness::Alive, None));
    assert_eq!(seen.socket.as_deref(), Some(&*stream.dir.path().join(stream.key.socket_file())));
    assert_eq!(seen.owner, Some(rustix::process::geteuid().as_raw()));
    let snapshot = seen.snapshot.unwrap();
    let header = snapshot.header().unwrap();
    assert_eq!(header.producer_pid, u64::from(std::process::id()));
    assert_eq!((snapshot.newest(), header.ring_size.get(), snapshot.faults()), (7, 4, vec![]));
    let eyes: Vec<_> = snapshot.subscribers().collect();
    let [eye] = &eyes[..] else { panic!("{eyes:?}") };
    assert_eq!((&*eye.name, eye.is_active(), eye.pid), ("eye", true, u64::from(std::process::id())));
    assert_eq!((snapshot.lag_of(eye), snapshot.leases_of(eye)), (Some(2), 1), "5 is done with, 6 is held");
    drop(frame);
}

#[test]
fn looking_changes_no_byte_and_no_publisher_hears_of_it() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    publisher.claim().unwrap().commit();
    let region = Region::of(&stream);
    let (before, stats) = (fs::read(&region.0).unwrap(), publisher.stats());
    for _ in 0..20 {
        sight(&stream).unwrap();
    }
    assert_eq!(fs::read(&region.0).unwrap(), before);
    let (after, times) = (publisher.stats(), |mut stats: cuframes_mio::PublisherStats| {
        stats.last_publish_age = None;
        stats
    });
    assert_eq!(times(after), times(stats));
}

#[test]
fn whoever_looks_never_keeps_a_publisher_from_its_key() {
    let stream = Stream::new();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = sight_alone(&stream);
            }
        });
        let publishers: Result<Vec<_>, _> =
            (0..200).map(|_| stream.publisher(2, Policy::DROP_OLDEST).create().map(drop)).collect();
        is_over.store(true, Ordering::Relaxed);
        publishers.unwrap();
    });
}

fn sight_alone(stream: &Stream) -> Option<Sighting> {
    observer(stream).stream(&stream.key)
}

#[test]
fn what_a_killed_publisher_left_is_seen_as_left_over() {
    let stream = Stream::new();
    let publisher = Other::start("processes::child_publishes", &stream);
    until("it to publish", || {
        sight(&stream).is_some_and(|seen| seen.publisher == Liveness::Alive && newest(&seen) > 0)
    });
    publisher.kill();
    let seen = sight(&stream).unwrap();
    assert_eq!((seen.publisher, seen.foreign()), (Liveness::Dead, None));
    assert!(newest(&seen) > 0);
    // The next one takes over, and is seen.
    let _publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap();
    assert_eq!(sight(&stream).unwrap().publisher, Liveness::Alive);
}

fn newest(seen: &Sighting) -> u64 {
    seen.snapshot.as_ref().map_or(0, Snapshot::newest)
}

#[test]
fn what_only_has_the_name_of_a_region_is_told_apart() {
    let stream = Stream::new();
    let region = Region::of(&stream);
    let path = &region.0;
    let foreign = || sight(&stream).unwrap().foreign().unwrap();

    fs::write(path, "").unwrap();
    assert_eq!(foreign(), "needs 7424 bytes, 0 are there");
    fs::write(path, vec![0xA5; 7424]).unwrap();
    assert_eq!(foreign(), "region magic: value 0xa5a5a5a5, expected 0xcc7c1dcc");
    fs::remove_file(path).unwrap();

    symlink("/etc/passwd", path).unwrap();
    assert!(foreign().contains("not a regular file"), "{}", foreign());
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
    assert!(foreign().contains("not a regular file"), "{}", foreign());
    fs::remove_dir(path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    assert!(foreign().contains("not a regular file"), "{}", foreign());
    fs::remove_file(path).unwrap();
    assert!(sight(&stream).is_none());
}

#[test]
fn a_region_that_is_shortened_while_it_is_read_is_an_error_and_no_more() {
    let stream = Stream::new();
    let region = Region::of(&stream);
    let file = File::create(&region.0).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                file.set_len(0).unwrap();
                file.write_all_at(&[0xA5; 7424], 0).unwrap();
            }
        });
        for _ in 0..2000 {
            let seen = sight_alone(&stream).unwrap();
            assert!(seen.foreign().is_some());
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn another_implementations_publisher_lives_as_long_as_its_process() {
    let stream = Stream::new();
    let other = Stream::new();
    let mut publisher = other.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    publisher.claim().unwrap().commit();
    let mut bytes = fs::read(&Region::of(&other).0).unwrap();
    drop(publisher);
    let region = Region::of(&stream);
    let mut with = |epoch: u64, pid: u32| {
        bytes[0xE8..0xF0].copy_from_slice(&epoch.to_le_bytes());
        bytes[0x18..0x20].copy_from_slice(&u64::from(pid).to_le_bytes());
        fs::write(&region.0, &bytes).unwrap();
        sight(&stream).unwrap().publisher
    };
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    assert_eq!(with(0, std::process::id()), Liveness::Alive);
    assert_eq!(with(0, child.id()), Liveness::Dead);
    assert_eq!(with(0, 0), Liveness::Unknown);
    assert_eq!(with(7, std::process::id()), Liveness::Dead, "ours holds a lock while it lives");
}

#[test]
fn only_what_the_dead_have_left_is_removed() {
    let stream = Stream::new();
    let remove = || remove_leftovers(&stream.key, Some(stream.dir.path()));
    assert_eq!(remove().unwrap(), [""; 0].map(PathBuf::from));
    let publisher = Other::start("processes::child_publishes", &stream);
    until("it to publish", || sight(&stream).is_some_and(|seen| newest(&seen) > 0));
    assert!(matches!(remove(), Err(Error::AlreadyExists { .. })));
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    assert!(subscriber.next(LONG).unwrap().is_some(), "it goes on");
    publisher.kill();

    let region = Region::of(&stream);
    let socket = stream.dir.path().join(stream.key.socket_file());
    let lock = region.0.with_file_name(stream.key.region_lock_file());
    assert_eq!(remove().unwrap(), [socket, region.0.clone(), lock]);
    assert!(sight(&stream).is_none());

    // A publisher of another implementation takes no lock; what is no region is nobody's to remove.
    let other = Stream::new();
    let publisher = other.publisher(2, Policy::DROP_OLDEST).create().unwrap();
    let mut bytes = fs::read(&Region::of(&other).0).unwrap();
    drop(publisher);
    bytes[0xE8..0xF0].fill(0);
    for bytes in [&bytes[..], b"junk"] {
        fs::write(&region.0, bytes).unwrap();
        assert!(matches!(remove(), Err(Error::AlreadyExists { .. })));
        assert_eq!(fs::read(&region.0).unwrap(), bytes);
    }
}

#[test]
fn a_run_directory_that_others_control_is_passed_over_and_named() {
    let stream = Stream::new();
    let file = stream.dir.path().join("no-directory");
    fs::write(&file, "").unwrap();
    let (_, troubles) = Observer::new(Some(&file)).streams();
    assert!(matches!(&troubles[..], [Error::Untrusted { .. }]), "{troubles:?}");
    let (_, troubles) = Observer::new(Some(&stream.dir.path().join("nothing"))).streams();
    assert!(troubles.is_empty(), "{troubles:?}");
}
