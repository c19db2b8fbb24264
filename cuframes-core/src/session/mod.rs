//! The two state machines of a connection (§4): [`PublisherSession`] and [`SubscriberSession`], both driven through
//! [`Session`].
//!
//! A session never touches a socket. Its driver moves bytes and file descriptors in both directions, tells the time, and
//! acts on the events:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use cuframes_core::session::{
//!     PublisherEvent, PublisherOffer, PublisherSession, Session, SubscriberEvent, SubscriberHello,
//!     SubscriberSession, Transmit,
//! };
//! use cuframes_core::wire::subscribe::{InitialSeq, Subscribed};
//! use cuframes_core::{
//!     Features, Format, FrameMeta, Instant, Ownership, RingSize, SubscriberBit, SubscriberMode,
//! };
//!
//! /// A socket that takes everything at once.
//! fn carry(now: Instant, from: &mut impl Session<Fd = u32>, to: &mut impl Session<Fd = u32>) {
//!     while let Some(Transmit { bytes, fd }) = from.poll_transmit() {
//!         let n = bytes.len();
//!         to.handle_bytes(now, bytes, &mut fd.copied().into_iter().collect());
//!         from.transmitted(n);
//!     }
//! }
//!
//! let offer = PublisherOffer {
//!     ring_size: RingSize::new(8).ok_or("1 to 16")?,
//!     ownership: Ownership::LIBRARY,
//!     meta: FrameMeta::new(Format::NV12, 1920, 1080)?,
//!     shm_path: "/dev/shm/cuframes-cam0".into(),
//!     features: Features::LEASE,
//!     required: Features::NONE,
//!     handshake_timeout: Duration::from_secs(5),
//! };
//! let hello = SubscriberHello {
//!     name: "detector".parse()?,
//!     cuda_device: -1,
//!     mode: SubscriberMode::NEWEST_ONLY,
//!     features: Features::LEASE,
//!     handshake_timeout: Duration::from_secs(5),
//! };
//! let now = Instant::ZERO;
//! let mut publisher = PublisherSession::new(now, Arc::new(offer));
//! let mut subscriber = SubscriberSession::new(now, hello);
//! let mut assigned = None;
//! while assigned.is_none() {
//!     carry(now, &mut subscriber, &mut publisher);
//!     while let Some(event) = publisher.poll_event() {
//!         if let PublisherEvent::Subscribe(request) = event {
//!             assert_eq!(request.name.as_str(), "detector");
//!             let bit = SubscriberBit::new(1).ok_or("1 to 31")?;
//!             publisher.admit(now, Ok(Subscribed { bit, initial_seq: InitialSeq::Full(41) }))?;
//!         }
//!     }
//!     carry(now, &mut publisher, &mut subscriber);
//!     while let Some(event) = subscriber.poll_event() {
//!         if let SubscriberEvent::Subscribed(subscribed) = event {
//!             // Here a real driver maps the region and the frames.
//!             subscriber.attached(now)?;
//!             assigned = Some(subscribed.bit.get());
//!         }
//!     }
//! }
//! assert_eq!(assigned, Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod descriptors;
mod link;
mod outbox;
mod publisher;
mod subscriber;

use alloc::collections::VecDeque;
use core::fmt;

use crate::error::{ErrorCode, Gone, Refused, Violation};
use crate::time::Instant;

pub use publisher::{PublisherEvent, PublisherOffer, PublisherSession, SubscribeRequest};
pub use subscriber::{SubscriberEvent, SubscriberHello, SubscriberSession};

/// The verbs of both sessions.
///
/// # Driving contract
///
/// Any interleaving of polls is correct. After any input or command drain [`poll_transmit`](Self::poll_transmit) as far
/// as the socket takes it, drain [`poll_event`](Self::poll_event), and read [`poll_timeout`](Self::poll_timeout) again.
/// Forgetting costs latency, never correctness. When [`is_closed`](Self::is_closed) says so, close the socket.
///
/// Inputs never fail: a peer that breaks the protocol is told so with an ERROR and closed, and the `Closed` event says
/// why (D-11). That event is the last one and comes exactly once, as soon as the end is decided; what the peer has to
/// hear before may still be on its way then. From there on inputs and commands have no effect.
///
/// A clock that runs backwards stands still: a time before the latest one that was given counts as that one.
///
/// Whatever a peer sends, a session keeps at most one partial message, 64 KiB to be sent (D-29), 21 received
/// descriptors, and a hundred events.
pub trait Session {
    /// What a file descriptor is to the driver. Sessions only move them; dropping one closes it.
    type Fd;
    /// What a session tells its driver.
    type Event;

    /// Takes what one read gave: `bytes`, and all of `fds`. A descriptor may come before the bytes of its message, but
    /// not after them (D-22).
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8], fds: &mut VecDeque<Self::Fd>);

    /// The connection ended: nothing more can be read, or sent.
    fn handle_eof(&mut self, now: Instant);

    /// Lets deadlines pass. Calling it early, late, or twice does no harm.
    fn handle_timeout(&mut self, now: Instant);

    /// What to send next; the same until [`transmitted`](Self::transmitted).
    fn poll_transmit(&self) -> Option<Transmit<'_, Self::Fd>>;

    /// The first `n` bytes of the last [`Transmit`] were sent, and its descriptor with the first of them.
    fn transmitted(&mut self, n: usize);

    /// The next event.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Whether nothing more comes in or goes out: the driver closes the socket.
    fn is_closed(&self) -> bool;
}

/// Bytes to send with one `sendmsg`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit<'a, F> {
    /// The bytes, at least one; they end before the next message that has a descriptor.
    pub bytes: &'a [u8],
    /// The descriptor that goes with the first of these bytes (D-22).
    pub fd: Option<&'a F>,
}

/// Why a session ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Closed {
    /// The peer broke the protocol.
    Violation(Violation),
    /// The peer said no.
    Refused(Refused),
    /// We said no, and told the peer this code.
    Rejected(ErrorCode),
    /// Nobody did anything wrong.
    Gone(Gone),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(violation) => write!(f, "the peer broke the protocol: {violation}"),
            Self::Refused(refused) => refused.fmt(f),
            Self::Rejected(code) => write!(f, "rejected with {code}"),
            Self::Gone(gone) => gone.fmt(f),
        }
    }
}

impl core::error::Error for Closed {}
