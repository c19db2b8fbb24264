//! Frames to another host: [`StreamSender`] sends the frames of a stream, [`StreamReceiver`] publishes them there, under the same
//! key, with the same numbers, time stamps and bytes.
//!
//! The frames are sent from where they are, and received to where they are published; no byte is copied in between but by the
//! kernel. What is on the wire is that of `cuframes-bridge`. There is no authentication and no encryption: use it on loopback,
//! through `ssh -L` or WireGuard, or on a network where you trust everybody.
//!
//! ```
//! use std::thread;
//! use std::time::Duration;
//!
//! use cuframes_mio::bridge::{IntakeEvent, StreamReceiver, StreamSender};
//! use cuframes_mio::core::{Format, FrameMeta, SubscriberMode};
//! use cuframes_mio::{Publisher, Subscriber};
//!
//! # let dir = tempfile::tempdir()?;
//! # let key: cuframes_mio::core::Key = format!("doc-span-{}", std::process::id()).parse()?;
//! // On one host.
//! let publisher = Publisher::builder(key.clone(), FrameMeta::new(Format::GRAY8, 64, 32)?);
//! # let publisher = publisher.run_dir(dir.path());
//! let mut publisher = publisher.create()?.serve()?;
//!
//! // On another one; here it is the same, where the key is taken.
//! let receiver = StreamReceiver::builder("tcp://127.0.0.1:0".parse()?).prefix("far-");
//! # let receiver = receiver.run_dir(dir.path());
//! let mut receiver = receiver.listen()?;
//!
//! let subscriber = Subscriber::builder(key.clone()).mode(SubscriberMode::STRICT_ORDER);
//! # let subscriber = subscriber.run_dir(dir.path());
//! let mut sender = StreamSender::builder(receiver.endpoint().clone()).strict().start(subscriber.connect()?)?;
//! publisher.claim()?.commit();
//! let sending = thread::spawn(move || {
//!     while sender.stats().delivered == 0 {
//!         sender.next_event(None)?;
//!     }
//!     sender.finish(Duration::from_secs(5))
//! });
//! let (name, seq) = loop {
//!     if let Some(IntakeEvent::Frame { key, info, .. }) = receiver.next_event(None)? {
//!         break (key, info.seq);
//!     }
//! };
//! assert_eq!((name.to_string(), seq), (format!("far-{key}"), 1));
//! sending.join().map_err(|_| "the sender panicked")??;
//! receiver.shut_down()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod courier;
mod errand;
mod event;
mod intake;
mod numbers;
mod parcel;
mod receiver;
mod sender;
mod station;
mod streams;

use std::time::Duration;

pub use courier::Courier;
pub use cuframes_bridge::pair::{Bulk, NoRdma, Transport, choose};
pub use cuframes_bridge::stream::{FarTimes, Fate, FrameInfo, LinkFault, SenderEvent, SenderStats};
pub use event::{CourierEvent, HopTimes, IntakeEvent};
pub use intake::Intake;
pub use parcel::Copier;
pub use receiver::{StreamReceiver, StreamReceiverBuilder};
pub use sender::{StreamSendError, StreamSender, StreamSenderBuilder};

use crate::net::{Endpoint, Keepalive, SocketOptions};

/// Of a sender: a host that is gone is to be noticed.
///
/// It has no TCP_USER_TIMEOUT: that would also end a link whose receiver is alive and does not read, because its subscribers are
/// slow (tcp(7)); and on one that is idle it would take the place of the questions here, which find out after 30 s. Where bytes or
/// answers are due the machine has a time of its own.
fn sender_options(to: &Endpoint) -> SocketOptions {
    SocketOptions {
        keepalive: Some(Keepalive::new(Duration::from_secs(10), Duration::from_secs(5), 4)),
        send_buffer: buffer(to),
        receive_buffer: buffer(to),
        ..SocketOptions::default()
    }
}

/// Of a receiver. What it sends are answers, which a sender always reads; so that the system gives one up that acknowledges none is
/// the only way to find out that it is gone in the middle of them: then nothing is asked.
fn receiver_options(at: &Endpoint) -> SocketOptions {
    SocketOptions { user_timeout: Some(Duration::from_secs(30)), ..sender_options(at) }
}

/// How many bytes a socket is to hold; for TCP the system finds out by itself how many the link needs, unless it is told.
fn buffer(endpoint: &Endpoint) -> Option<usize> {
    (!matches!(endpoint, Endpoint::Tcp(_))).then_some(BUFFER)
}

/// About a frame in 1080p.
const BUFFER: usize = 4 << 20;
