//! What an event loop around us may rely on: it sleeps when nothing is to do, hears of everything, and of nothing that is
//! gone.

use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cuframes_mio::core::{Gone, Policy, Timeouts};
use cuframes_mio::{Error, EventSource, Pollable, Publisher, Subscriber, Turn, now};
use cuframes_testkit::vectors::vector;
use mio::{Events, Poll, Registry, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{LONG, NEWEST, STRICT, Stream, fill, until};
use crate::other::Other;

/// How often `pollable` wakes up by itself during a while in which nothing happens.
fn wake_ups<T: EventSource>(pollable: &mut Pollable<T>) -> usize {
    let (start, mut turns) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(500) {
        let _ = pollable.wait(Some(Duration::from_millis(500))).unwrap();
        turns += 1;
    }
    turns
}

/// A publisher in its own loop, and a subscriber that was admitted by it.
fn pollable_pair(stream: &Stream, timeouts: Timeouts) -> (Pollable<Publisher>, Subscriber) {
    let publisher = stream.publisher(1, Policy::DROP_OLDEST).timeouts(timeouts).create().unwrap();
    let mut publisher = Pollable::new(publisher).unwrap();
    let subscriber = stream.subscriber("eye", NEWEST);
    let connecting = thread::spawn(move || subscriber.connect().unwrap());
    while !connecting.is_finished() {
        let _ = publisher.wait(Some(Duration::from_millis(5))).unwrap();
    }
    (publisher, connecting.join().unwrap())
}

#[test]
fn idle_means_that_the_one_descriptor_is_silent_however_many_peers_spoke() {
    let stream = Stream::new();
    let publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap();
    let mut publisher = Pollable::new(publisher).unwrap();
    let is_readable = |publisher: &Pollable<Publisher>| {
        poll(&mut [PollFd::new(publisher, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
    };
    let mut peers: Vec<_> = (0..100).map(|_| UnixStream::connect(stream.socket()).unwrap()).collect();
    while publisher.turn().unwrap() == Turn::Again || is_readable(&publisher) {}
    for peer in &mut peers {
        io::Write::write_all(peer, &vector("hello_req_features")).unwrap();
    }
    while publisher.turn().unwrap() == Turn::Again {}
    assert!(!is_readable(&publisher), "events are left in the nested epoll");
}

/// Without time to wait each call looks once, so that a loop of the caller's own gets on.
#[test]
fn a_loop_that_never_waits_connects_takes_frames_and_hears_of_the_end() {
    let stream = Stream::new();
    let mut subscriber = stream.reconnecting(NEWEST).start().unwrap();
    assert!(!subscriber.wait_until_ready(Duration::ZERO).unwrap());
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    until("the handshake", || subscriber.wait_until_ready(Duration::ZERO).unwrap());
    drop(subscriber);

    let mut subscriber = stream.reconnecting(NEWEST).start().unwrap();
    until("the handshake", || subscriber.next(Duration::ZERO).unwrap().is_none() && subscriber.is_ready());
    publisher.claim().unwrap().commit();
    assert!(subscriber.next(Duration::ZERO).unwrap().is_some());
    drop((subscriber, publisher));

    let publisher = Other::start("processes::child_publishes", &stream);
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    publisher.kill();
    let mut looks = 0;
    let error = loop {
        looks += 1;
        if let Err(error) = subscriber.next(Duration::ZERO) {
            break error;
        }
    };
    assert!(matches!(error, Error::Gone { gone: Gone::Disconnected, .. }), "{error}");
    assert!(looks < 100, "{looks} looks");
}

#[test]
fn a_subscriber_that_is_not_asked_for_frames_lets_the_loop_sleep() {
    let stream = Stream::new();
    let _publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = Pollable::new(stream.subscriber("eye", NEWEST).connect().unwrap()).unwrap();
    assert!(subscriber.with(Subscriber::poll_next).unwrap().unwrap().is_none());
    let turns = wake_ups(&mut subscriber);
    assert!(turns < 50, "{turns} turns");
}

#[test]
fn a_subscriber_is_parked_while_it_sleeps_and_not_when_it_is_awake_again() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", NEWEST).connect().unwrap();
    assert_eq!(subscriber.bit().unwrap().get(), 1);
    let region = std::fs::File::open(stream.region()).unwrap();
    // `parked` is at 0x48 of the slot of bit 1.
    let parked = || {
        let mut word = [0; 8];
        region.read_exact_at(&mut word, 0xD00 + 0x80 + 0x48).unwrap();
        u64::from_le_bytes(word)
    };
    for _ in 0..3 {
        assert!(subscriber.next(Duration::from_millis(5)).unwrap().is_none());
        assert_eq!(parked(), 1);
        publisher.claim().unwrap().commit();
        assert!(subscriber.next(LONG).unwrap().is_some());
        assert_eq!(parked(), 0, "the publisher would make a system call for each frame");
    }
}

#[test]
fn a_publisher_that_does_not_claim_again_lets_the_loop_sleep_and_still_evicts() {
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    timeouts.lease = Duration::from_millis(100);
    let (mut publisher, mut subscriber) = pollable_pair(&stream, timeouts);
    publisher.with(|publisher| publisher.try_claim(now()).unwrap().commit()).unwrap();
    let _frame = subscriber.next(LONG).unwrap().unwrap();
    assert!(publisher.with(|publisher| publisher.try_claim(now()).is_err()).unwrap());
    let turns = wake_ups(&mut publisher);
    assert!(turns < 50, "{turns} turns");
    assert_eq!(publisher.get_ref().members().count(), 0);
}

#[test]
fn a_publisher_that_is_served_after_it_was_registered_keeps_its_peers() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(1, Policy::DROP_OLDEST).create().unwrap();
    let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(8));
    publisher.register(poll.registry(), Token(0)).unwrap();
    let subscriber = stream.subscriber("eye", NEWEST);
    let connecting = thread::spawn(move || subscriber.connect().unwrap());
    while !connecting.is_finished() {
        poll.poll(&mut events, Some(Duration::from_millis(5))).unwrap();
        for event in &events {
            while publisher.handle_event(event.token(), now()).unwrap() == Turn::Again {}
        }
    }
    let publisher = publisher.serve().unwrap();
    assert_eq!(publisher.members().len(), 1);
    drop(connecting.join().unwrap());
    until("the subscriber to be gone", || publisher.members().is_empty());
    poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    assert!(events.is_empty(), "the first registration has ended");
}

#[test]
fn what_is_dropped_leaves_the_callers_poll_although_its_descriptors_live_on() {
    let stream = Stream::new();
    let (publisher, mut subscriber) = pollable_pair(&stream, Timeouts::default());
    let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(8));
    let mut publisher = { publisher }.into_inner().serve().unwrap();
    subscriber.register(poll.registry(), Token(70)).unwrap();
    publisher.claim().unwrap().commit();
    let frame = subscriber.poll_next().unwrap().unwrap();
    assert!(subscriber.poll_next().unwrap().is_none());
    drop(subscriber);
    poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
    let ended = thread::spawn(move || drop(publisher));
    poll.poll(&mut events, Some(Duration::from_millis(200))).unwrap();
    assert!(events.is_empty(), "events of a subscriber that was dropped");
    drop(frame);
    ended.join().unwrap();
}

#[test]
fn nobody_can_keep_the_others_from_waking_the_publisher() {
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    timeouts.consumer_ack = Duration::from_secs(3600);
    let builder = stream.publisher(1, Policy::STRICT_WAIT).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("slow", STRICT).connect().unwrap();
    let region = std::fs::OpenOptions::new().write(true).open(stream.region()).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // `publisher_parked` is at 0xF0 of the header.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                region.write_at(&[0; 8], 0xF0).unwrap();
            }
        });
        scope.spawn(|| {
            for _ in 0..5 {
                let frame = subscriber.next(LONG).unwrap().expect("a frame in time");
                thread::sleep(Duration::from_millis(10));
                drop(frame);
            }
        });
        for _ in 0..5 {
            let mut claim = publisher.claim().unwrap();
            fill(&mut claim);
            claim.commit();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Wakes its loop up every millisecond, and has something to say at last.
struct Ticking {
    due: cuframes_mio::core::Instant,
    left: u32,
}

impl EventSource for Ticking {
    const TOKENS: usize = 0;

    fn register(&mut self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn handle_event(&mut self, _: Token, _: cuframes_mio::core::Instant) -> io::Result<Turn> {
        Ok(Turn::Idle)
    }

    fn handle_timeout(&mut self, now: cuframes_mio::core::Instant) {
        self.left = self.left.saturating_sub(1);
        self.due = now + Duration::from_millis(1);
    }

    fn poll_timeout(&self) -> Option<cuframes_mio::core::Instant> {
        Some(self.due)
    }
}

#[test]
fn who_waits_for_an_event_is_not_woken_by_what_is_none() {
    for timeout in [Some(LONG), None] {
        let mut ticking = Pollable::new(Ticking { due: now(), left: 20 }).unwrap();
        let is_over = |ticking: &mut Ticking| (ticking.left == 0).then_some(());
        assert_eq!(ticking.poll_within(Some(Duration::ZERO), is_over).unwrap(), None);
        assert_eq!(ticking.poll_within(timeout, is_over).unwrap(), Some(()));
    }
}
