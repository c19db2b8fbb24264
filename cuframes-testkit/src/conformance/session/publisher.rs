//! What a publisher must do towards each of its peers (§3, §4.2): the suite is the subscriber.
//!
//! [`publisher_conformance!`](crate::publisher_conformance) makes a test of each case.

pub mod ends;
pub mod handshake;
pub mod members;

use std::marker::PhantomData;
use std::time::Duration;

use super::bytes::{
    FD_PASSING, HELLO_REQ, HOST_POOL, Hello, NO_ACK, PUBLISHER_WAKE_UP, REGION, SUBSCRIBE_REQ, Stream,
    UNSUBSCRIBE, WAKE_HINT, WAKE_UP, WITNESS, WITNESSED, event_fd, shutdown, subscribe_req,
};
use super::{LONG, Party, Raw, Wire};

/// A publisher under test: a stream of eight slots under STRICT_WAIT, with as many subscribers as like to come.
pub trait Publisher: Sized {
    /// A connection to it.
    type Wire: Wire;

    /// A publisher that has published nothing yet.
    fn new(timeouts: Timeouts) -> Self;

    /// What it says about its stream; `features` are those that it honours.
    fn stream(&self) -> Stream;

    /// The features without which a subscriber can't use the stream.
    fn required(&self) -> u32;

    /// The process that its peers belong to.
    fn peer_pid(&self) -> u64;

    /// A new connection.
    fn connect(&self) -> Self::Wire;

    /// Publishes one frame, and waits for room if there is none.
    fn publish(&self);

    /// Stops: from now on it waits for its subscribers to go.
    fn shut_down(&self, reason: u32);

    /// The word of the region at this offset.
    fn word(&self, offset: usize) -> u64;
}

/// The deadlines of a publisher under test (§3.12).
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For each step of the handshake.
    pub handshake: Duration,
    /// `consumer_ack_timeout`.
    pub consumer_ack: Duration,
    /// At shutdown.
    pub grace: Duration,
}

impl Default for Timeouts {
    /// None that a test would see pass.
    fn default() -> Self {
        Self { handshake: LONG, consumer_ack: LONG, grace: LONG }
    }
}

/// Makes a module `$name` with a test for each case of the [suite](self), on `$publisher`, a [`Publisher`].
#[macro_export]
macro_rules! publisher_conformance {
    ($name:ident, $publisher:ident) => {
        mod $name {
            use super::$publisher;
            type Connected = $crate::conformance::session::publisher::Connected<$publisher>;
            $crate::common_conformance!(alike, Connected);
            $crate::publisher_handshake_conformance!(handshake, $publisher);
            $crate::publisher_members_conformance!(members, $publisher);
            $crate::publisher_ends_conformance!(ends, $publisher);
        }
    };
}

/// A publisher as a [`Party`]: one connection to it.
#[derive(Debug)]
pub struct Connected<P> {
    publisher: PhantomData<P>,
}

impl<P: Publisher> Connected<P> {
    /// As [`Party::in_state`], for whoever needs the publisher.
    ///
    /// # Panics
    /// If there is no such state, or it can't be reached.
    #[must_use]
    pub fn reach(state: &str, timeouts: Timeouts) -> (P, Raw<P::Wire>) {
        let publisher = P::new(timeouts);
        let mut raw = Raw::new(publisher.connect());
        match state {
            "Hello" => {}
            "Subscribe" => say_hello(&publisher, &mut raw),
            "Active" => drop(subscribe(&publisher, &mut raw)),
            "Draining" => {
                subscribe(&publisher, &mut raw);
                publisher.shut_down(0);
                raw.expect(&shutdown(0));
            }
            other => panic!("no state {other}"),
        }
        (publisher, raw)
    }
}

/// Admitting is missing: a publisher may be through it before its peer can say anything.
impl<P: Publisher> Party for Connected<P> {
    type Wire = P::Wire;
    type Held = P;

    const STATES: &'static [&'static str] = &["Hello", "Subscribe", "Active", "Draining"];
    const STEPS: &'static [&'static str] = &["Hello", "Subscribe"];

    fn is_legal(state: &str, message_type: u32) -> bool {
        match state {
            "Hello" => message_type == HELLO_REQ,
            "Subscribe" => message_type == SUBSCRIBE_REQ,
            "Active" => message_type == UNSUBSCRIBE,
            _ => [UNSUBSCRIBE, HELLO_REQ, SUBSCRIBE_REQ].contains(&message_type),
        }
    }

    fn in_state(state: &str, patience: Duration) -> (P, Raw<P::Wire>) {
        Self::reach(state, Timeouts { handshake: patience, ..Timeouts::default() })
    }
}

/// All features that the publisher honours, but for the one that excuses from acknowledging.
pub(super) fn hello<P: Publisher>(publisher: &P) -> Hello {
    Hello::rec(publisher.stream().features & !NO_ACK)
}

/// The answer to [`hello`].
pub(super) fn answer<P: Publisher>(publisher: &P) -> Vec<u8> {
    publisher.stream().with(hello(publisher).features).message()
}

/// Goes through the first step of the handshake.
pub(super) fn say_hello<P: Publisher>(publisher: &P, raw: &mut Raw<P::Wire>) {
    raw.send(&hello(publisher).message());
    raw.expect(&answer(publisher));
}

/// Goes through the whole handshake: the bit and `initial_seq`.
pub(super) fn subscribe<P: Publisher>(publisher: &P, raw: &mut Raw<P::Wire>) -> (u32, u64) {
    say_hello(publisher, raw);
    raw.send(&subscribe_req(1));
    let answer = raw.next().unwrap();
    for purpose in purposes(publisher.stream().features) {
        raw.expect_with(&event_fd(purpose), 1);
    }
    let word = |at: usize| u64::from_le_bytes(*answer.bytes.get(at..).and_then(<[u8]>::first_chunk).unwrap());
    assert_eq!((answer.bytes.len(), word(8) & 0xFFFF_FFFF), (36, 0), "{answer:?}");
    ((word(8) >> 32).try_into().unwrap(), word(16))
}

/// The descriptors that come with these features in force, in the order of D-26.
pub fn purposes(features: u32) -> Vec<u32> {
    let mut purposes = Vec::new();
    if features & FD_PASSING != 0 {
        purposes.extend([REGION, HOST_POOL]);
        if features & WITNESSED != 0 {
            purposes.push(WITNESS);
        }
    }
    if features & WAKE_HINT != 0 {
        purposes.push(PUBLISHER_WAKE_UP);
    }
    purposes.push(WAKE_UP);
    purposes
}
