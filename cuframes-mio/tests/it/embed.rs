//! Publisher and subscriber inside somebody else's event loop: one thread, no blocking call of ours.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{LONG, NEWEST, STRICT, Stream, check, fill};
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Instant, Policy, Timeouts};
use cuframes_mio::{Error, EventSource, Pollable, Publisher, Subscriber, Turn, now};
use mio::{Events, Poll, Token};
use rustix::event::{PollFd, PollFlags, poll};

/// A caller's loop around a publisher and a subscriber on one mio `Poll`.
pub(crate) struct Loop {
    poll: Poll,
    events: Events,
    pub(crate) publisher: Publisher,
    pub(crate) subscriber: Subscriber,
}

impl Loop {
    const SUBSCRIBER: usize = <Publisher>::TOKENS;

    pub(crate) fn new(mut publisher: Publisher, mut subscriber: Subscriber) -> Self {
        let poll = Poll::new().unwrap();
        publisher.register(poll.registry(), Token(0)).unwrap();
        subscriber.register(poll.registry(), Token(Self::SUBSCRIBER)).unwrap();
        Self { poll, events: Events::with_capacity(8), publisher, subscriber }
    }

    pub(crate) fn turn(&mut self) {
        let due = self.publisher.poll_timeout().into_iter().chain(self.subscriber.poll_timeout()).min();
        let timeout = due.map_or(LONG, |due| due.saturating_since(now()));
        self.poll.poll(&mut self.events, Some(timeout)).unwrap();
        let tokens: Vec<Token> = self.events.iter().map(mio::event::Event::token).collect();
        for token in tokens {
            while self.handle(token, now()) == Turn::Again {}
        }
        self.publisher.handle_timeout(now());
        self.subscriber.handle_timeout(now());
    }

    fn handle(&mut self, token: Token, now: Instant) -> Turn {
        if token.0 < Self::SUBSCRIBER {
            self.publisher.handle_event(token, now).unwrap()
        } else {
            self.subscriber.handle_event(token, now).unwrap()
        }
    }

    fn publish(&mut self) -> u64 {
        loop {
            if let Ok(mut claim) = self.publisher.try_claim(now()) {
                fill(&mut claim);
                return claim.commit();
            }
            self.turn();
        }
    }
}

#[test]
fn both_ends_live_in_the_callers_own_poll() {
    let stream = Stream::new();
    let publisher = stream.publisher(2, Policy::STRICT_WAIT).create().unwrap();
    let mut lives = Loop::new(publisher, stream.subscriber("loop", STRICT).start().unwrap());
    while !lives.subscriber.is_ready() {
        lives.turn();
    }
    assert_eq!(lives.publisher.members().count(), 1);
    for expected in 1..=100 {
        assert!(lives.subscriber.poll_next().unwrap().is_none());
        let published = lives.publish();
        let frame = loop {
            match lives.subscriber.poll_next().unwrap() {
                Some(frame) => break frame,
                None => lives.turn(),
            }
        };
        check(&frame);
        assert_eq!((published, frame.seq()), (expected, expected));
    }
    lives.publisher.shut_down(now(), ShutdownReason::NORMAL);
    let error = loop {
        match lives.subscriber.poll_next() {
            Ok(_) => lives.turn(),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    let Loop { mut publisher, subscriber, mut poll, mut events, .. } = lives;
    drop(subscriber);
    while !publisher.is_finished(now()) {
        poll.poll(&mut events, Some(LONG)).unwrap();
        for event in &events {
            let _ = publisher.handle_event(event.token(), now()).unwrap();
        }
    }
    drop(publisher);
    stream.assert_nothing_left();
}

#[test]
fn a_stalled_claim_in_a_callers_poll_is_woken_by_the_release_and_ended_by_the_deadline() {
    let stream = Stream::new();
    let mut timeouts = Timeouts::default();
    timeouts.lease = Duration::from_millis(100);
    let publisher = stream.publisher(1, Policy::DROP_OLDEST).timeouts(timeouts).create().unwrap();
    let mut lives = Loop::new(publisher, stream.subscriber("holder", NEWEST).start().unwrap());
    while !lives.subscriber.is_ready() {
        lives.turn();
    }
    assert_eq!(lives.publish(), 1);
    let frame = lives.subscriber.poll_next().unwrap().unwrap();
    assert_eq!(lives.publisher.try_claim(now()).unwrap_err().waiting_for_leases, 0b10);
    drop(frame);
    lives.turn();
    assert_eq!(lives.publish(), 2);
    let frame = lives.subscriber.poll_next().unwrap().unwrap();
    assert_eq!(lives.publish(), 3, "turns until the holder was evicted");
    assert!(frame.release().is_err());
    assert_eq!(lives.publisher.members().count(), 0);
}

/// Turns `pollable` whenever its one descriptor is readable, until `done` says so.
fn run<T: EventSource, R>(pollable: &mut Pollable<T>, mut done: impl FnMut(&mut T) -> Option<R>) -> R {
    loop {
        while pollable.turn().unwrap() == Turn::Again {}
        if let Some(result) = pollable.with(&mut done).unwrap() {
            return result;
        }
        let timeout = LONG.try_into().unwrap();
        let ready =
            poll(&mut [PollFd::from_borrowed_fd(pollable.as_fd(), PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(ready, 1, "the descriptor stayed silent");
    }
}

#[test]
fn both_ends_are_one_descriptor_each() {
    let stream = Stream::new();
    let publisher = stream.publisher(2, Policy::STRICT_WAIT).create().unwrap();
    let mut publisher = Pollable::new(publisher).unwrap();
    let subscriber = stream.subscriber("pollable", STRICT);
    let reader = std::thread::spawn(move || {
        let mut subscriber = Pollable::new(subscriber.start().unwrap()).unwrap();
        let mut expected = 1;
        run(&mut subscriber, |subscriber| {
            loop {
                match subscriber.poll_next() {
                    Ok(Some(frame)) => {
                        check(&frame);
                        assert_eq!(frame.seq(), expected);
                        expected += 1;
                    }
                    Ok(None) => return None,
                    Err(Error::Gone { .. }) => return Some(()),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        expected - 1
    });
    run(&mut publisher, |publisher| (publisher.members().count() == 1).then_some(()));
    for _ in 0..200 {
        run(&mut publisher, |publisher| {
            let mut claim = publisher.try_claim(now()).ok()?;
            fill(&mut claim);
            Some(claim.commit())
        });
    }
    publisher.with(|publisher| publisher.shut_down(now(), ShutdownReason::NORMAL)).unwrap();
    run(&mut publisher, |publisher| publisher.is_finished(now()).then_some(()));
    assert_eq!(reader.join().unwrap(), 200);
    drop(publisher);
    stream.assert_nothing_left();
}
