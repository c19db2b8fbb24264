//! One session without a peer: the test says what comes in, and looks at what goes out.

use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;

use bytes::BytesMut;
use cuframes_core::session::{PublisherSession, Session, SubscriberSession, Transmit};
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{Features, Instant};

use crate::pair::{hello, offer, subscribed};
use crate::vectors::vector;

/// The extensions of the vectors `hello_req_features` and `hello_resp_features`, and of the sessions here.
pub const FEATURES: Features = Features::FD_PASSING.union(Features::LEASE).union(Features::WAKE_HINT);

/// A state by its name, and what leads out of it.
pub type State<S> = (&'static str, fn(&mut S));

/// The states of a publisher's session.
pub const PUBLISHER_STATES: [State<PublisherSession<u32>>; 5] = [
    ("Hello", |session| feed(session, &vector("hello_req_features"), &[])),
    ("Subscribe", |session| feed(session, &vector("subscribe_req"), &[])),
    ("Admitting", |session| session.admit(Instant::ZERO, Ok(subscribed())).unwrap()),
    ("Active", |session| session.shutdown(Instant::ZERO, ShutdownReason::NORMAL)),
    ("Draining", |_| {}),
];

/// The states of a subscriber's session.
pub const SUBSCRIBER_STATES: [State<SubscriberSession<u32>>; 5] = [
    ("Hello", |session| feed(session, &vector("hello_resp_features"), &[])),
    ("Subscribe", |session| feed(session, &vector("subscribe_resp"), &[])),
    ("Attaching", |session| session.attached(Instant::ZERO).unwrap()),
    ("Ready", |session| feed(session, &vector("shutdown_normal"), &[])),
    ("ShuttingDown", |_| {}),
];

/// A publisher's session in one of [`PUBLISHER_STATES`], with nothing left to send and no event to take.
#[must_use]
pub fn publisher_in(state: &str) -> PublisherSession<u32> {
    let session = PublisherSession::new(Instant::ZERO, Arc::new(offer(FEATURES)));
    in_state(session, &PUBLISHER_STATES, state)
}

/// A subscriber's session in one of [`SUBSCRIBER_STATES`], with nothing left to send and no event to take.
#[must_use]
pub fn subscriber_in(state: &str) -> SubscriberSession<u32> {
    let session = SubscriberSession::new(Instant::ZERO, hello(FEATURES));
    in_state(session, &SUBSCRIBER_STATES, state)
}

fn in_state<S: Session<Fd = u32>>(mut session: S, states: &[State<S>], state: &str) -> S {
    for (_, leave) in states.iter().take_while(|(name, _)| *name != state) {
        leave(&mut session);
    }
    sent(&mut session);
    events(&mut session);
    session
}

/// Gives a session bytes and descriptors, as one read.
pub fn feed(session: &mut impl Session<Fd = u32>, bytes: &[u8], fds: &[u32]) {
    let mut fds: VecDeque<u32> = fds.iter().copied().collect();
    session.handle_bytes(Instant::ZERO, bytes, &mut fds);
    assert!(fds.is_empty(), "a session takes all descriptors");
}

/// Everything that a session wants to send: bytes and descriptors.
pub fn sent(session: &mut impl Session<Fd = u32>) -> (Vec<u8>, Vec<u32>) {
    let (mut all, mut fds) = (Vec::new(), Vec::new());
    while let Some(Transmit { bytes, fd }) = session.poll_transmit() {
        let n = bytes.len();
        all.extend_from_slice(bytes);
        fds.extend(fd);
        session.transmitted(n);
    }
    (all, fds)
}

/// Everything that a session has to tell.
pub fn events<S: Session>(session: &mut S) -> Vec<S::Event> {
    iter::from_fn(|| session.poll_event()).collect()
}

/// A message as bytes.
pub fn encoded(encode: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.to_vec()
}
