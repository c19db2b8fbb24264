//! What a peer can do to its publisher's time, memory and descriptors: nothing that the others notice (D-29, §3.7).

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{LONG, STRICT, Stream, check, fill, meta, told, until};
use crate::other::{Other, hear, tell};
use crate::raw::{RawPeer, empty, error_in, stuff};
use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Policy, Timeouts};
use cuframes_mio::{Publisher, ServedPublisher, Subscriber};
use cuframes_testkit::vectors::vector;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A publisher, and a subscriber that shall not notice what others do.
struct Good {
    // Dropped first: the publisher waits for it.
    subscriber: Subscriber,
    publisher: ServedPublisher,
    stream: Stream,
}

impl Good {
    fn new(policy: Policy, timeouts: Timeouts) -> Self {
        let stream = Stream::new();
        let publisher = stream.publisher(2, policy).timeouts(timeouts).create().unwrap().serve().unwrap();
        let subscriber = stream.subscriber("good", STRICT).connect().unwrap();
        Self { subscriber, publisher, stream }
    }

    fn goes_on(&mut self, frames: u64) {
        for _ in 0..frames {
            let mut claim = self.publisher.claim().unwrap();
            fill(&mut claim);
            let seq = claim.commit();
            let frame = self.subscriber.next(LONG).unwrap().expect("a frame in time");
            check(&frame);
            assert_eq!((frame.seq(), frame.lost()), (seq, 0));
        }
    }
}

fn patient() -> Timeouts {
    let mut timeouts = Timeouts::default();
    timeouts.handshake = Duration::from_secs(3600);
    timeouts
}

#[test]
fn two_hundred_connections_that_say_nothing_are_turned_away_in_time_or_at_once() {
    let mut good = Good::new(Policy::STRICT_WAIT, patient());
    let mut silent: Vec<_> = (0..200).map(|_| RawPeer::connect(good.stream.socket())).collect();
    for surplus in &mut silent[128..] {
        assert_eq!(error_in(&surplus.rest()).code, ErrorCode::TOO_MANY);
    }
    good.goes_on(4);
    assert_eq!(good.publisher.stats().refused.too_many, 72);
    drop(silent);

    let mut timeouts = Timeouts::default();
    timeouts.handshake = Duration::from_millis(100);
    let mut good = Good::new(Policy::STRICT_WAIT, timeouts);
    let mut silent: Vec<_> = (0..128).map(|_| RawPeer::connect(good.stream.socket())).collect();
    for peer in &mut silent {
        assert_eq!(error_in(&peer.rest()).code, ErrorCode::TIMEOUT);
    }
    good.goes_on(4);
    until("all to be counted", || good.publisher.stats().refused.slow == 128);
}

#[test]
fn a_flood_of_pings_does_not_stop_the_others() {
    let mut good = Good::new(Policy::STRICT_WAIT, patient());
    let peer = RawPeer::connect(good.stream.socket());
    let (mut writing, mut reading) = (peer.socket.try_clone().unwrap(), peer.socket.try_clone().unwrap());
    thread::scope(|scope| {
        scope.spawn(move || {
            let ping = vector("ping").repeat(100);
            while writing.write_all(&ping).is_ok() {}
        });
        // If this thread gets no time to read, the peer is closed for that, but not before it was answered.
        let answers = scope.spawn(move || {
            let mut answer = [0; 4096];
            std::iter::from_fn(|| reading.read(&mut answer).ok().filter(|n| *n > 0)).sum::<usize>()
        });
        good.goes_on(500);
        peer.socket.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(answers.join().unwrap() > 0, "it was answered");
    });
    good.goes_on(4);
}

#[test]
fn who_floods_with_pings_and_does_not_read_the_answers_is_closed() {
    let mut good = Good::new(Policy::DROP_OLDEST, patient());
    let ping = vector("ping").repeat(100);
    let until_closed = |peer: &mut RawPeer| while peer.socket.write_all(&ping).is_ok() {};
    until_closed(&mut RawPeer::connect(good.stream.socket()));
    until_closed(&mut RawPeer::subscribe(good.stream.socket()));
    good.goes_on(4);
    until("both to be gone", || {
        let stats = good.publisher.stats();
        (stats.refused.slow, stats.left.vanished) == (1, 1)
    });
}

#[test]
fn nobody_can_make_the_publisher_wait_by_filling_an_eventfd() {
    let mut good = Good::new(Policy::STRICT_WAIT, patient());
    let mut evil = RawPeer::subscribe(good.stream.socket());
    let [_, _, of_publisher, own] = &evil.fds[..] else { panic!("four descriptors") };
    stuff(of_publisher);
    stuff(own);
    // It never acknowledges, so the claim waits as well, until it is sent away for one or the other.
    good.goes_on(20);
    let error = error_in(&evil.rest());
    assert!([ErrorCode::PROTOCOL, ErrorCode::EVICTED].contains(&error.code), "{error:?}");
    good.goes_on(20);
}

/// Whoever has a copy of an eventfd can make the others wait who write it, for good if it ends the publisher then.
#[test]
fn nobody_can_fill_the_eventfd_with_which_another_subscriber_wakes_the_publisher() {
    let good = Good::new(Policy::DROP_OLDEST, patient());
    let [evil, other] = [(); 2].map(|()| RawPeer::subscribe(good.stream.socket()));
    stuff(&evil.fds[2]);
    let has_room = |bell: &OwnedFd| {
        let mut polled = [PollFd::new(bell, PollFlags::OUT)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
    };
    assert!(!has_room(&evil.fds[2]) && has_room(&other.fds[2]));
    let is_blocking = |bell: &OwnedFd| !fcntl_getfl(bell).unwrap().contains(OFlags::NONBLOCK);
    assert!(is_blocking(&evil.fds[2]) && !is_blocking(&other.fds[2]));
}

#[test]
fn who_fills_its_eventfd_as_fast_as_it_can_is_sent_away() {
    let mut good = Good::new(Policy::DROP_OLDEST, patient());
    let mut evil = RawPeer::subscribe(good.stream.socket());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let own = evil.fds.pop().unwrap();
        let done = &done;
        // Between a look of the publisher and its write, now and then.
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                stuff(&own);
            }
        });
        let start = Instant::now();
        while good.publisher.stats().left.vanished == 0 {
            assert!(start.elapsed() < LONG, "it is still there");
            good.goes_on(1);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(error_in(&evil.rest()).code, ErrorCode::PROTOCOL);
    good.goes_on(20);
}

#[test]
fn who_fills_its_eventfd_in_the_right_moment_and_leaves_does_not_stop_the_publisher() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let frames = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    // Not in a scope: should it wait for ever, the test shall fail and not wait, too.
    let publishing = thread::spawn({
        let (frames, done) = (Arc::clone(&frames), Arc::clone(&done));
        move || {
            while !done.load(Ordering::Relaxed) {
                frames.store(publisher.claim().unwrap().commit(), Ordering::Relaxed);
            }
        }
    });
    let stands_still = |time| {
        let before = frames.load(Ordering::Relaxed);
        thread::sleep(time);
        frames.load(Ordering::Relaxed) == before
    };
    let start = Instant::now();
    let (mut evil, mut is_stuck) = (RawPeer::subscribe(stream.socket()), false);
    while !is_stuck && start.elapsed() < Duration::from_secs(10) {
        // Between a look of the publisher and its write, until it is found out.
        if !evil.is_connected() {
            evil = RawPeer::subscribe(stream.socket());
        }
        stuff(&evil.fds[3]);
        is_stuck = stands_still(Duration::from_micros(100)) && stands_still(Duration::from_millis(20));
        if !is_stuck {
            empty(&evil.fds[3]);
        }
    }
    if !is_stuck {
        println!("SKIPPED: the right moment did not come");
    }
    let RawPeer { socket, fds: _fds } = evil;
    drop(socket);
    until("the publisher to go on", || !stands_still(Duration::from_millis(1)));
    done.store(true, Ordering::Relaxed);
    publishing.join().unwrap();
}

#[test]
#[ignore = "needs a process of its own, whose limits it changes: started by the tests below"]
fn child_publishes_with_few_descriptors() {
    let (key, dir) = told();
    let publisher = Publisher::builder(key, meta()).run_dir(dir).create().unwrap().serve().unwrap();
    tell("ready");
    let mut fillers = Vec::new();
    while let Some(line) = hear() {
        if let Some(n) = line.strip_prefix("leave ") {
            let n = n.parse().unwrap();
            // Looking at those that are open takes one.
            fillers.pop();
            raise_limit(n);
            fillers.extend(std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()));
            fillers.truncate(fillers.len() - n);
        }
        let stats = publisher.stats();
        tell(&format!("{} {} {}", stats.accept_failures, stats.refused.no_descriptors, stats.subscribers));
    }
}

/// Allows `n` descriptors more than the greatest that is open.
fn raise_limit(n: usize) {
    let number =
        |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| number(entry).parse::<usize>().unwrap());
    let current = Some(u64::try_from(open.max().unwrap() + 1 + n).unwrap());
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// Seconds of processor time that a process has used.
fn processor_time(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let ticks: u32 = after_name.split_whitespace().skip(11).take(2).map(|n| n.parse::<u32>().unwrap()).sum();
    f64::from(ticks) / 100.0
}

#[test]
fn who_finds_no_descriptor_left_is_told_so_and_the_publisher_does_not_spin() {
    let stream = Stream::new();
    let mut other = Other::start("limits::child_publishes_with_few_descriptors", &stream);
    other.say("leave 4");
    assert_eq!(other.hear(), "0 0 0");
    let mut peers: Vec<_> = (0..10).map(|_| RawPeer::connect(stream.socket())).collect();
    for surplus in &mut peers[4..] {
        let error = error_in(&surplus.rest());
        assert_eq!(error.code, ErrorCode::IO);
        assert_eq!(error.message, "the publisher has no file descriptor left");
    }
    let (start, before) = (Instant::now(), processor_time(other.pid()));
    thread::sleep(Duration::from_secs(1));
    let used = processor_time(other.pid()) - before;
    assert!(used < start.elapsed().as_secs_f64() / 2.0, "{used} s of processor time");
    other.say("");
    assert_eq!(other.hear(), "6 6 0");
    // A subscriber needs more descriptors than a connection.
    drop(peers);
    let error = stream.subscriber("eye", STRICT).connect().unwrap_err();
    assert_eq!(error.code(), ErrorCode::IO, "{error}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    other.say("leave 64");
    other.hear();
    stream.subscriber("eye", STRICT).connect().unwrap();
}

#[test]
#[ignore = "needs a process of its own, whose limits it changes: started by the test below"]
fn child_ends_without_descriptors() {
    let (key, dir) = told();
    let mut timeouts = Timeouts::default();
    timeouts.shutdown_grace = LONG;
    let publisher = Publisher::builder(key, meta()).run_dir(dir).timeouts(timeouts);
    let publisher = publisher.create().unwrap().serve().unwrap();
    tell("ready");
    hear();
    // None can be had any more, not even in the place of one that is closed.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum }).unwrap();
    tell("none left");
    until("somebody who can't be accepted", || publisher.stats().accept_failures > 0);
    tell("ends");
    publisher.shut_down(ShutdownReason::NORMAL).unwrap();
}

#[test]
fn a_publisher_without_descriptors_does_not_spin_while_it_waits_for_the_last_subscriber() {
    let stream = Stream::new();
    let mut other = Other::start("limits::child_ends_without_descriptors", &stream);
    let subscriber = RawPeer::subscribe(stream.socket());
    other.say("");
    other.wait_for_line("none left");
    let _waiting = RawPeer::connect(stream.socket());
    other.wait_for_line("ends");
    // When it would try again.
    thread::sleep(Duration::from_millis(200));
    let (start, before) = (Instant::now(), processor_time(other.pid()));
    thread::sleep(Duration::from_secs(1));
    let used = processor_time(other.pid()) - before;
    assert!(used < start.elapsed().as_secs_f64() / 2.0, "{used} s of processor time");
    assert!(subscriber.is_connected());
}
