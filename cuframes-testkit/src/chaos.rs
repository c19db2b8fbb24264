//! Sessions and the framing under arbitrary input: bytes, descriptors, times, polls and commands in any order, and the
//! checks that must hold for every one. Fuzz targets and property tests share them.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use bytes::BytesMut;
use cuframes_core::Instant;
use cuframes_core::error::{ErrorCode, Violation};
use cuframes_core::session::{PublisherEvent, PublisherSession, Session, SubscriberEvent, SubscriberSession};
use cuframes_core::wire::control::{EventFd, Shutdown};
use cuframes_core::wire::fault::ErrorMessage;
use cuframes_core::wire::framing::{Decoder, HEADER_LEN};
use cuframes_core::wire::hello::{HelloReq, HelloResp};
use cuframes_core::wire::subscribe::{SubscribeReq, SubscribeResp};
use cuframes_core::wire::{FdPurpose, MessageType, ShutdownReason};

use crate::pair::subscribed;
use crate::solo::{encoded, publisher_in, subscriber_in};
use crate::vectors::vector;

/// Cuts a stream into messages in chunks whose size is the first byte, and in one piece: both must find the same. Whatever
/// is understood of a message stays the same when it is sent again.
pub fn framing(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else { return };
    let (found, violation) = messages(stream, stream.len().max(1));
    for (message_type, payload) in &found {
        send_again(*message_type, payload);
    }
    assert_eq!(messages(stream, size.max(1).into()), (found, violation));
}

/// Messages as type and payload, and the violation that ended the stream.
type Messages = (Vec<(MessageType, Vec<u8>)>, Option<Violation>);

fn messages(stream: &[u8], chunk: usize) -> Messages {
    let mut decoder = Decoder::new();
    let mut found = Vec::new();
    for mut input in stream.chunks(chunk) {
        loop {
            match decoder.next(&mut input) {
                Ok(Some(message)) => found.push((message.message_type, message.payload.to_vec())),
                Ok(None) => break,
                Err(violation) => return (found, Some(violation)),
            }
        }
    }
    (found, None)
}

fn send_again(message_type: MessageType, payload: &[u8]) {
    match message_type {
        MessageType::HELLO_REQ => stays(payload, HelloReq::decode, HelloReq::encode),
        MessageType::HELLO_RESP => stays(payload, HelloResp::decode, HelloResp::encode),
        MessageType::SUBSCRIBE_REQ => stays(payload, SubscribeReq::decode, SubscribeReq::encode),
        MessageType::SUBSCRIBE_RESP => stays(payload, SubscribeResp::decode, SubscribeResp::encode),
        MessageType::EVENT_FD => stays(payload, EventFd::decode, EventFd::encode),
        MessageType::SHUTDOWN => stays(payload, Shutdown::decode, Shutdown::encode),
        MessageType::ERROR => stays(payload, ErrorMessage::decode, ErrorMessage::encode),
        _ => {}
    }
}

/// Reserved bytes are dropped, and the text of an ERROR may be cut; from then on nothing changes.
fn stays<T>(
    payload: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, Violation>,
    encode: impl Fn(&T, &mut BytesMut),
) {
    let Ok(message) = decode(payload) else { return };
    let sent = encoded(|out| encode(&message, out));
    let Some(Ok(message)) = sent.get(HEADER_LEN..).map(decode) else { panic!("our own message is refused") };
    assert_eq!(encoded(|out| encode(&message, out)), sent);
}

/// Does to a publisher's session what `data` says.
pub fn publisher(data: &[u8]) {
    let command = |session: &mut PublisherSession<u32>, now, choice: u8, argument: u8| match choice % 5 {
        // A command at the wrong time is an error, and nothing else.
        0 => session.admit(now, Ok(subscribed())).unwrap_or_default(),
        1 => session.admit(now, Err(ErrorCode(i32::from(argument) - 128))).unwrap_or_default(),
        2 => {
            let purpose = FdPurpose(u32::from(argument) % 7);
            session.offer_fd(EventFd { purpose, index: argument.into(), count: 8 }, 1).unwrap_or_default();
        }
        3 => session.shutdown(now, ShutdownReason(argument.into())),
        _ => session.expel(now, ErrorCode::EVICTED, "too slow"),
    };
    torment(publisher_in("Hello"), data, command, |event| matches!(event, PublisherEvent::Closed(_)));
}

/// Does to a subscriber's session what `data` says.
pub fn subscriber(data: &[u8]) {
    let command = |session: &mut SubscriberSession<u32>, now, choice: u8, _| match choice % 4 {
        // A command at the wrong time is an error, and nothing else.
        0 => session.attached(now).unwrap_or_default(),
        1 => session.ping(now),
        2 => session.unsubscribe(now),
        _ => session.reject(now, ErrorCode::FORMAT, "no such format"),
    };
    torment(subscriber_in("Hello"), data, command, |event| matches!(event, SubscriberEvent::Closed(_)));
}

/// Reads `data` as a list of things to do to `session`.
fn torment<S: Session<Fd = u32> + Debug>(
    mut session: S,
    data: &[u8],
    command: impl Fn(&mut S, Instant, u8, u8),
    is_last: impl Fn(&S::Event) -> bool,
) {
    let mut data = Script(data);
    let mut now = Instant::ZERO;
    let mut ended = false;
    let mut fds = VecDeque::new();
    let mut poll_event = |session: &mut S| {
        let event = session.poll_event();
        if let Some(event) = &event {
            assert!(!ended, "an event after the last one");
            ended = is_last(event);
        }
        event.is_some()
    };
    while let Some(choice) = data.next() {
        match choice % 8 {
            0 => session.handle_bytes(now, data.take(choice / 8), &mut fds),
            1 => session.handle_bytes(now, &data.message(), &mut fds),
            2 => fds.extend(0..u32::from(choice / 8)),
            3 => {
                now = now + Duration::from_millis(u64::from(choice) * 10);
                session.handle_timeout(now);
            }
            4 => session.transmitted(usize::from(choice)),
            5 => drop(poll_event(&mut session)),
            6 => command(&mut session, now, choice / 8, data.next().unwrap_or(0)),
            _ => {
                if choice == u8::MAX {
                    session.handle_eof(now);
                }
            }
        }
        assert!(session.poll_transmit().is_none_or(|transmit| !transmit.bytes.is_empty()));
    }
    // All that it holds is in its debug form, each byte as at most four characters.
    assert!(format!("{session:?}").len() < MAX_HELD * 4, "it holds too much");
    while poll_event(&mut session) {}
    session.handle_eof(now);
    while poll_event(&mut session) {}
    assert!(
        ended && session.is_closed() && session.poll_transmit().is_none() && session.poll_timeout().is_none()
    );
}

/// Fuzz data as choices.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn take(&mut self, n: u8) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(self.0.len().min(n.into()));
        self.0 = rest;
        taken
    }

    /// A golden message, with one byte changed if the script wants that.
    fn message(&mut self) -> Vec<u8> {
        let choice = usize::from(self.next().unwrap_or(0));
        let mut bytes = vector(MESSAGES.get(choice % MESSAGES.len()).unwrap());
        if let [at, value] = *self.take(2)
            && let Some(byte) = bytes.get_mut(usize::from(at))
        {
            *byte = value;
        }
        bytes
    }
}

const MESSAGES: [&str; 14] = [
    "hello_req_features",
    "hello_req_v2",
    "hello_resp_features",
    "hello_resp_ok",
    "subscribe_req",
    "subscribe_resp",
    "subscribe_resp_full",
    "subscribe_resp_u32",
    "unsubscribe",
    "event_fd_wake",
    "event_fd_pool",
    "shutdown_normal",
    "ping",
    "error_protocol",
];

/// More than the bytes that wait for a peer, one partial message, and a hundred events.
const MAX_HELD: usize = 100 * 1024;
