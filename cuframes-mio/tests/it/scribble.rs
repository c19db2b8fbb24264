//! A subscriber that writes random values over every word of the region, while a good one reads: the publisher goes on,
//! delayed by its deadlines at most, and the good one never takes other bytes for a frame's (D-23, X-6).

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use crate::common::{LONG, STRICT, Stream, check_bytes, fill, meta, told, until};
use crate::other::{Other, tell};
use cuframes_mio::core::shm::layout::REGION_WORDS;
use cuframes_mio::core::{Features, Gone, Policy, Timeouts};
use cuframes_mio::{Error, Frame, ServedPublisher, Subscriber};

/// Random numbers that a seed reproduces (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Values that mean something somewhere, and values that mean nothing.
fn value(random: &mut Random, newest: u64) -> u64 {
    match random.below(6) {
        0 => random.below(4),
        1 => newest.wrapping_add(random.below(9)).wrapping_sub(4),
        2 => 1 << random.below(64),
        3 => u64::MAX,
        4 => 0,
        _ => random.next(),
    }
}

#[test]
#[ignore = "needs a process of its own: started by the tests below, and killed"]
fn child_scribbles() {
    let (key, _) = told();
    let mut random = Random(std::env::var("TEST_SEED").unwrap().parse().unwrap());
    let path = std::path::Path::new("/dev/shm").join(key.region_file());
    let region = OpenOptions::new().read(true).write(true).open(path).unwrap();
    tell("ready");
    let word = |at: u64| {
        let mut bytes = [0; 8];
        region.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    };
    loop {
        let newest = word(0xC0);
        for _ in 0..16 {
            let at = random.below(u64::try_from(REGION_WORDS).unwrap()) * 8;
            region.write_all_at(&value(&mut random, newest).to_le_bytes(), at).unwrap();
        }
    }
}

/// What the good subscriber has seen.
#[derive(Debug, Default)]
struct Seen {
    intact: AtomicU64,
    lost: AtomicU64,
    reconnects: AtomicU64,
}

/// Reads until the stream ends, over one subscription after the other.
fn read(stream: &Stream, features: Features, seen: &Seen) {
    let mut copy = vec![0; meta().frame_size_bytes.try_into().unwrap()];
    loop {
        let subscriber = stream.subscriber("good", STRICT).features(features).connect();
        match subscriber.and_then(|subscriber| read_one(subscriber, &mut copy, seen)) {
            Err(Error::Gone { gone: Gone::Shutdown(_), .. } | Error::NotFound { .. }) => return,
            // Evicted for what was written in its name.
            Err(Error::Refused { .. } | Error::Gone { .. }) => seen.reconnects.fetch_add(1, Relaxed),
            other => panic!("{other:?}"),
        };
    }
}

fn read_one(mut subscriber: Subscriber, copy: &mut [u8], seen: &Seen) -> Result<(), Error> {
    let mut last = 0;
    loop {
        let Some(frame) = subscriber.next(Duration::from_millis(100))? else { continue };
        match use_frame(frame, copy) {
            Some(seq) => {
                assert!(seq > last, "{seq} after {last}");
                last = seq;
                check_bytes(seq, copy);
                seen.intact.fetch_add(1, Relaxed);
            }
            None => _ = seen.lost.fetch_add(1, Relaxed),
        }
    }
}

/// Copies a frame; its number if it was this frame all the time.
fn use_frame(frame: Frame, copy: &mut [u8]) -> Option<u64> {
    let seq = frame.seq();
    match frame.bytes() {
        Some(bytes) => {
            assert_eq!(bytes.len(), copy.len(), "frame {seq} has another length");
            copy.copy_from_slice(bytes);
            // Meanwhile somebody else may give the lease back in our name.
            std::thread::sleep(Duration::from_micros(50));
        }
        None => assert_eq!(frame.copy_to(copy).ok()?, copy.len()),
    }
    assert_eq!(frame.pts_ns(), i64::try_from(seq).unwrap(), "frame {seq} has another time");
    frame.release().ok().map(|()| seq)
}

fn publish(publisher: &mut ServedPublisher) {
    let mut claim = publisher.claim().unwrap();
    fill(&mut claim);
    let seq = claim.seq();
    claim.commit_with(i64::try_from(seq).unwrap(), meta().frame_size_bytes);
}

fn scribbled(policy: Policy, features: Features) {
    let number = |name, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("CUFRAMES_SEED", u64::from(now.subsec_nanos()) | 1);
    let time = Duration::from_secs(number("CUFRAMES_SCRIBBLE_SECONDS", 2));
    println!("CUFRAMES_SEED={seed}");
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    (timeouts.lease, timeouts.consumer_ack) = (Duration::from_millis(100), Duration::from_millis(100));
    timeouts.quarantine = Duration::from_millis(10);
    let builder = stream.publisher(3, policy).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let mut scribbler = stream.child("scribble::child_scribbles");
    let scribbler = Other::run(scribbler.env("TEST_SEED", seed.to_string()));
    let seen = Seen::default();
    std::thread::scope(|scope| {
        scope.spawn(|| read(&stream, features, &seen));
        let (start, mut slowest) = (Instant::now(), Duration::ZERO);
        while start.elapsed() < time || seen.intact.load(Relaxed) < 10 {
            assert!(start.elapsed() < time + LONG, "the good subscriber gets nothing: {seen:?}");
            let before = Instant::now();
            publish(&mut publisher);
            slowest = slowest.max(before.elapsed());
        }
        scribbler.kill();
        let stats = publisher.stats();
        assert!(stats.restored_words > 0, "nobody has scribbled");
        println!("{policy}, {features}: slowest claim {slowest:?}, {seen:?}, {stats:?}");
        // Once nobody scribbles any more, the stream is as it was.
        let mut last = None;
        until("the end of a pause after evictions", || {
            last = stream.subscriber("last", STRICT).features(features).connect().ok();
            last.is_some()
        });
        let mut last = last.unwrap();
        publish(&mut publisher);
        let frame = last.next(LONG).unwrap().expect("a frame in time");
        check_bytes(frame.seq(), &{
            let mut copy = vec![0; frame.len()];
            frame.copy_to(&mut copy).unwrap();
            copy
        });
        drop((frame, last, publisher));
    });
}

const LEASED: Features = Features(0b10_0111);
const UNLEASED: Features = Features(0b10_0101);

#[test]
fn a_scribbled_region_under_drop_oldest_with_leases() {
    scribbled(Policy::DROP_OLDEST, LEASED);
}

#[test]
fn a_scribbled_region_under_drop_oldest_without_leases() {
    scribbled(Policy::DROP_OLDEST, UNLEASED);
}

#[test]
fn a_scribbled_region_under_strict_wait_with_leases() {
    scribbled(Policy::STRICT_WAIT, LEASED);
}

#[test]
fn a_scribbled_region_under_strict_wait_without_leases() {
    scribbled(Policy::STRICT_WAIT, UNLEASED);
}
