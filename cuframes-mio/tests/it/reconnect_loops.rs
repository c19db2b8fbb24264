//! A subscriber that goes on with the next publisher inside every kind of loop.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use cuframes_mio::core::Policy;
use cuframes_mio::{EventSource, Pollable, Subscriber, Turn, now};
use mio::{Events, Poll, Token};
use rustix::event::{PollFd, PollFlags, poll};

use crate::common::{LONG, NEWEST, Stream, check, publish, until};
use crate::other::Other;

const PUBLISHERS: usize = 5;

/// Starts one publisher after the other, and kills each when `take` has had a frame of it: it runs the loop around the
/// subscriber until its closure answers `Some`.
fn one_after_the_other(stream: &Stream, mut take: impl FnMut(&mut dyn FnMut(&mut Subscriber) -> Option<()>)) {
    let mut last = 0;
    for _ in 0..PUBLISHERS {
        let publisher = Other::start("processes::child_publishes", stream);
        take(&mut |subscriber| {
            while let Some(frame) = subscriber.poll_next().unwrap() {
                check(&frame);
                if frame.epoch() != last {
                    last = frame.epoch();
                    return Some(());
                }
            }
            None
        });
        publisher.kill();
        take(&mut |subscriber| {
            while subscriber.poll_next().unwrap().is_some() {}
            (!subscriber.is_attached()).then_some(())
        });
    }
}

#[test]
fn it_goes_on_in_the_callers_own_poll() {
    let stream = Stream::new();
    let mut subscriber = stream.reconnecting(NEWEST).start().unwrap();
    let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(2));
    subscriber.register(poll.registry(), Token(40)).unwrap();
    one_after_the_other(&stream, |done| {
        while done(&mut subscriber).is_none() {
            let timeout = subscriber.poll_timeout().map_or(LONG, |due| due.saturating_since(now()));
            poll.poll(&mut events, Some(timeout)).unwrap();
            for event in &events {
                assert!((40..40 + <Subscriber>::TOKENS).contains(&event.token().0));
                while subscriber.handle_event(event.token(), now()).unwrap() == Turn::Again {}
            }
            subscriber.handle_timeout(now());
        }
    });
    assert_eq!(subscriber.stats().reconnects, 4);
}

#[test]
fn it_goes_on_as_one_descriptor() {
    let stream = Stream::new();
    let mut subscriber = Pollable::new(stream.reconnecting(NEWEST).start().unwrap()).unwrap();
    one_after_the_other(&stream, |done| {
        loop {
            while subscriber.turn().unwrap() == Turn::Again {}
            if subscriber.with(&mut *done).unwrap().is_some() {
                return;
            }
            let mut fds = [PollFd::from_borrowed_fd(subscriber.as_fd(), PollFlags::IN)];
            let ready = poll(&mut fds, Some(&LONG.try_into().unwrap())).unwrap();
            assert_eq!(ready, 1, "the descriptor stayed silent");
        }
    });
    assert_eq!(subscriber.get_ref().stats().reconnects, 4);
}

#[test]
fn it_goes_on_in_a_loop_that_spins() {
    let stream = Stream::new();
    let mut subscriber = stream.reconnecting(NEWEST).start().unwrap();
    for reconnects in 0..3 {
        let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
        publish(&mut publisher);
        let frame = loop {
            if let Some(frame) = subscriber.try_next().unwrap() {
                break frame;
            }
        };
        check(&frame);
        drop(frame);
        assert_eq!(subscriber.stats().reconnects, reconnects);
        let stopping = thread::spawn(move || drop(publisher));
        while subscriber.is_attached() {
            assert!(subscriber.try_next().unwrap().is_none());
        }
        stopping.join().unwrap();
    }
}

#[test]
fn a_loop_sleeps_while_nobody_is_there() {
    let stream = Stream::new();
    let mut subscriber = Pollable::new(stream.reconnecting(NEWEST).start().unwrap()).unwrap();
    let (start, mut turns) = (std::time::Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(500) {
        let _ = subscriber.wait(Some(Duration::from_millis(500))).unwrap();
        assert!(subscriber.with(Subscriber::poll_next).unwrap().unwrap().is_none());
        turns += 1;
    }
    assert!(turns < 50, "{turns} turns");
    assert!(subscriber.get_ref().stats().wake_ups < 50);
}

#[test]
fn a_registration_ends_with_the_next_one_whatever_is_registered() {
    let stream = Stream::new();
    let (mut first, mut second) = (Poll::new().unwrap(), Poll::new().unwrap());
    let (mut events, none) = (Events::with_capacity(8), Some(Duration::ZERO));
    // While it waits; then while it is attached.
    let mut subscriber = stream.reconnecting(NEWEST).start().unwrap();
    let mut publisher = None;
    for _ in 0..2 {
        for poll in [&first, &first, &second] {
            subscriber.register(poll.registry(), Token(0)).unwrap();
        }
        publisher = publisher
            .or_else(|| Some(stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap()));
        until("a frame", || {
            publish(publisher.as_mut().unwrap());
            second.poll(&mut events, Some(Duration::from_millis(5))).unwrap();
            for event in &events {
                let _ = subscriber.handle_event(event.token(), now()).unwrap();
            }
            subscriber.handle_timeout(now());
            subscriber.poll_next().unwrap().is_some()
        });
        first.poll(&mut events, none).unwrap();
        assert!(events.is_empty(), "events at the first registration");
    }
    drop(subscriber);
}
