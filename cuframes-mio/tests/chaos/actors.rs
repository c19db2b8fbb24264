//! What the processes do: publish frames whose every word says which frame it is, and check them.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Features, Format, FrameMeta, Policy, RingSize, SubscriberMode, Timeouts};
use cuframes_mio::{Error, Frame, Leave, MemberEvent, Publisher, Reconnect, StreamEvent, Subscriber};
use fastrand::Rng;

use crate::process::Told;

/// How often a process says how far it is.
const REPORT: Duration = Duration::from_millis(20);

/// Short, so that a stopped process is evicted within a round.
fn timeouts() -> Timeouts {
    let mut timeouts = Timeouts::default();
    timeouts.consumer_ack = Duration::from_millis(50);
    timeouts.lease = Duration::from_millis(50);
    timeouts
}

#[test]
#[ignore = "is a process of the test in main.rs"]
fn child_publishes() {
    let Told { key, dir, seed, strict_wait, .. } = Told::here();
    let mut rng = Rng::with_seed(seed);
    let meta = FrameMeta::new(Format::NV12, 64, 48).unwrap();
    let builder = Publisher::builder(key, meta).run_dir(dir).timeouts(timeouts());
    let policy = if strict_wait { Policy::STRICT_WAIT } else { Policy::DROP_OLDEST };
    let ring_size = RingSize::new(rng.u64(2..=6)).unwrap();
    let mut publisher = builder.policy(policy).ring_size(ring_size).create().unwrap().serve().unwrap();
    // Subscribers learn it from the first frame they get of this publisher: no other has these numbers.
    let instance = rng.i64(0..i64::MAX / 2);
    let size = publisher.meta().frame_size_bytes;
    let pace = Duration::from_micros(rng.u64(0..2000));
    let ending = ending();
    let (mut frames, mut evicted) = (0, 0);
    let mut report = Report::new();
    while !ending.load(Ordering::Relaxed) {
        let mut claim = publisher.claim().unwrap();
        let stamp = instance + i64::try_from(claim.seq()).unwrap();
        fill(claim.bytes_mut(), stamp);
        if rng.u8(..) == 0 {
            // Given up half way: nobody may ever see it.
            continue;
        }
        claim.commit_with(stamp, size);
        frames += 1;
        while let Some(event) = publisher.poll_event() {
            evicted += u64::from(matches!(event, MemberEvent::Left(_, Leave::Evicted(_))));
        }
        report.say([("frames", frames), ("evicted", evicted)]);
        thread::sleep(pace);
    }
    let reason = if rng.bool() { ShutdownReason::NORMAL } else { ShutdownReason::UPGRADE };
    publisher.shut_down(reason).unwrap();
}

#[test]
#[ignore = "is a process of the test in main.rs"]
fn child_subscribes() {
    let Told { key, dir, seed, reconnect, .. } = Told::here();
    let mut rng = Rng::with_seed(seed);
    let mode = if rng.bool() { SubscriberMode::NEWEST_ONLY } else { SubscriberMode::STRICT_ORDER };
    let mut features = Features::FD_PASSING;
    for feature in [Features::LEASE, Features::WAKE_HINT, Features::WITNESS] {
        if rng.u8(0..4) > 0 {
            features = features.union(feature);
        }
    }
    // Fewer than the smallest ring has; without a lease one frame at a time is all that may be held.
    let held = if features.contains(Features::LEASE) { rng.usize(0..2) } else { 0 };
    let work = Duration::from_micros(rng.u64(0..1500));
    let mut builder = Subscriber::builder(key).run_dir(dir).mode(mode).features(features);
    builder = builder.timeout(Duration::from_millis(200));
    if reconnect {
        builder = builder.reconnect(Reconnect::default());
    }
    let ending = ending();
    let mut report = Report::new();
    let mut said = Said::default();
    report.say(said.numbers());
    while !ending.load(Ordering::Relaxed) {
        let builder = builder.clone();
        match if reconnect { builder.start() } else { builder.connect() } {
            Ok(subscriber) => read(subscriber, held, work, &ending, &mut report, &mut said),
            Err(error) => bear(&error, &mut said),
        }
        report.say(said.numbers());
        thread::sleep(Duration::from_millis(2));
    }
}

/// Reads and checks until the stream or this process ends.
fn read(
    mut subscriber: Subscriber,
    held: usize,
    work: Duration,
    ending: &AtomicBool,
    report: &mut Report,
    said: &mut Said,
) {
    let mut frames: VecDeque<Frame> = VecDeque::new();
    // Of each publisher: what its stamps begin with, and the newest number.
    let mut instances: BTreeMap<u64, (i64, u64)> = BTreeMap::new();
    while !ending.load(Ordering::Relaxed) {
        match subscriber.next(REPORT) {
            Ok(Some(frame)) => {
                let instance = frame.pts_ns() - i64::try_from(frame.seq()).unwrap();
                let (of, last) = instances.entry(frame.epoch()).or_insert((instance, 0));
                assert_eq!(*of, instance, "TORN: frame {} has another frame's stamp", frame.seq());
                assert!(frame.seq() > *last, "frame {} after frame {last}", frame.seq());
                *last = frame.seq();
                said.lost += frame.lost();
                frames.push_back(frame);
            }
            Ok(None) => {}
            Err(error) => {
                bear(&error, said);
                break;
            }
        }
        while let Some(event) = subscriber.poll_event() {
            match event {
                StreamEvent::Attached { .. } => said.attached += 1,
                StreamEvent::Lost(error) => {
                    bear(&error, said);
                    frames.drain(..).for_each(|frame| check(frame, work, said));
                }
                _ => {}
            }
        }
        while frames.len() > held
            && let Some(frame) = frames.pop_front()
        {
            check(frame, work, said);
        }
        report.say(said.numbers());
    }
    // What is still held of a stream that is gone is checked as well.
    frames.into_iter().for_each(|frame| check(frame, work, said));
}

/// Checks every word of a frame; what is wrong is a failure if the frame claims to be whole.
fn check(frame: Frame, work: Duration, said: &mut Said) {
    let (seq, stamp) = (frame.seq(), frame.pts_ns());
    let mut copy = Vec::new();
    let wrong = if let Some(bytes) = frame.bytes() {
        thread::sleep(work);
        first_wrong(bytes, stamp)
    } else {
        copy.resize(frame.len(), 0);
        match frame.copy_to(&mut copy) {
            Ok(_) => first_wrong(&copy, stamp),
            Err(_) => {
                said.overwritten += 1;
                return;
            }
        }
    };
    let leased = copy.is_empty();
    match frame.release() {
        Err(_) if leased => said.overwritten += 1,
        // A copy was whole when it was made, whatever came afterwards.
        Ok(()) | Err(_) => {
            assert_eq!(wrong, None, "TORN: frame {seq} has another frame's bytes from this word on");
            said.checked += 1;
        }
    }
}

/// A peer that dies is to be expected; one that breaks the protocol is a fault of ours.
fn bear(error: &Error, said: &mut Said) {
    match error {
        Error::Refused { .. } => said.refused += 1,
        Error::NotFound { .. } | Error::Gone { .. } | Error::Busy { .. } => said.gone += 1,
        error => panic!("{error}"),
    }
}

fn fill(bytes: &mut [u8], stamp: i64) {
    for (word, number) in bytes.chunks_exact_mut(8).zip(stamp..) {
        word.copy_from_slice(&number.to_le_bytes());
    }
}

fn first_wrong(bytes: &[u8], stamp: i64) -> Option<usize> {
    bytes.chunks_exact(8).zip(stamp..).position(|(word, number)| word != number.to_le_bytes())
}

/// Becomes true when the test closes our standard input.
fn ending() -> Arc<AtomicBool> {
    let ending = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&ending);
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::Relaxed);
    });
    ending
}

#[derive(Default)]
struct Said {
    checked: u64,
    lost: u64,
    overwritten: u64,
    attached: u64,
    /// A publisher did not let us in, or evicted us.
    refused: u64,
    /// There was none, or it ended.
    gone: u64,
}

impl Said {
    const fn numbers(&self) -> [(&'static str, u64); 6] {
        [
            ("checked", self.checked),
            ("lost", self.lost),
            ("overwritten", self.overwritten),
            ("attached", self.attached),
            ("refused", self.refused),
            ("gone", self.gone),
        ]
    }
}

/// Says how far we are, now and then.
struct Report {
    due: Instant,
}

impl Report {
    fn new() -> Self {
        Self { due: Instant::now() }
    }

    fn say<const N: usize>(&mut self, numbers: [(&'static str, u64); N]) {
        if Instant::now() >= self.due {
            let words: Vec<_> = numbers.iter().map(|(name, number)| format!("{name}={number}")).collect();
            println!("\nsays {}", words.join(" "));
            self.due = Instant::now() + REPORT;
        }
    }
}
