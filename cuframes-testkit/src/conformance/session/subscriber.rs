//! What a subscriber must do towards its publisher (§3, §4.1): the suite is the publisher.
//!
//! [`subscriber_conformance!`](crate::subscriber_conformance) makes a test of each case.

pub mod descriptors;
pub mod ends;
pub mod handshake;

use std::marker::PhantomData;
use std::time::Duration;

use super::bytes::{
    EVENT_FD, FD_PASSING, HELLO_RESP, HOST_POOL, Hello, LEASE, PUBLISHER_WAKE_UP, REGION, SHUTDOWN,
    SUBSCRIBE_RESP, Stream, WAKE_HINT, WAKE_UP, event_fd, shutdown, subscribe_req, subscribe_resp,
};
use super::{Party, Raw, Wire};

/// A subscriber under test, and the connection that it made.
pub trait Subscriber: Sized {
    /// The publisher's end of its connection.
    type Wire: Wire;

    /// The features without which it can use no stream.
    const NEEDED: u32;

    /// Begins to subscribe with these features; each step of the handshake may take `patience`.
    fn new(features: u32, patience: Duration) -> (Self, Self::Wire);

    /// What its HELLO_REQ says of it.
    fn hello(&self) -> Hello;

    /// A stream that it can use, with all features in force that it asked for.
    fn stream(&self) -> Stream;

    /// Whether it is ready (§4.1).
    fn is_ready(&self) -> bool;

    /// Leaves.
    fn leave(&self);

    /// How it ended, if it has.
    fn end(&self) -> Option<End>;
}

/// What a subscriber tells its application about the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum End {
    /// The publisher broke the protocol.
    Violation,
    /// The publisher said no, with this code.
    Refused(i32),
    /// SHUTDOWN with this reason.
    Shutdown(u32),
    /// The connection ended without a word.
    Disconnected,
    /// The publisher did not answer in time.
    Timeout,
    /// The publisher does not read what it is sent.
    NotReading,
    /// It left by itself.
    Unsubscribed,
}

/// Makes a module `$name` with a test for each case of the [suite](self), on `$subscriber`, a [`Subscriber`].
#[macro_export]
macro_rules! subscriber_conformance {
    ($name:ident, $subscriber:ident) => {
        mod $name {
            use super::$subscriber;
            type Connected = $crate::conformance::session::subscriber::Connected<$subscriber>;
            $crate::common_conformance!(alike, Connected);
            $crate::subscriber_handshake_conformance!(handshake, $subscriber);
            $crate::subscriber_descriptors_conformance!(descriptors, $subscriber);
            $crate::subscriber_ends_conformance!(ends, $subscriber);
        }
    };
}

/// A subscriber as a [`Party`].
#[derive(Debug)]
pub struct Connected<S> {
    subscriber: PhantomData<S>,
}

impl<S: Subscriber> Party for Connected<S> {
    type Wire = S::Wire;
    type Held = S;

    const STATES: &'static [&'static str] = &["Hello", "Subscribe", "Attaching", "Ready", "ShuttingDown"];
    const STEPS: &'static [&'static str] = &["Hello", "Subscribe", "Attaching"];

    fn is_legal(state: &str, message_type: u32) -> bool {
        let legal: &[u32] = match state {
            "Hello" => &[HELLO_RESP, SHUTDOWN],
            "Subscribe" => &[SUBSCRIBE_RESP, EVENT_FD, SHUTDOWN],
            _ => &[EVENT_FD, SHUTDOWN],
        };
        legal.contains(&message_type)
    }

    fn in_state(state: &str, patience: Duration) -> (S, Raw<S::Wire>) {
        let (subscriber, wire) = S::new(ALL, patience);
        let mut raw = Raw::new(wire);
        raw.expect(&subscriber.hello().message());
        let depth = Self::STATES.iter().position(|known| *known == state).unwrap();
        if depth > 0 {
            raw.send(&subscriber.stream().message());
            raw.expect(&subscribe_req(1));
        }
        if depth > 1 {
            raw.send(&subscribe_resp(0, 1, 41));
        }
        if depth > 2 {
            PURPOSES.iter().for_each(|purpose| raw.send_with(&event_fd(*purpose), &[*purpose]));
            raw.expect_silence();
            assert!(subscriber.is_ready());
        }
        if depth > 3 {
            raw.send(&shutdown(0));
        }
        raw.expect_silence();
        (subscriber, raw)
    }
}

/// What we know to serve.
const ALL: u32 = FD_PASSING | LEASE | WAKE_HINT;

/// The descriptors that a subscriber with [`ALL`] gets, in the order of D-26.
const PURPOSES: [u32; 4] = [REGION, HOST_POOL, PUBLISHER_WAKE_UP, WAKE_UP];
