//! Sessions under bytes, descriptors, times, polls and commands in any order (§4).

use std::collections::VecDeque;
use std::fmt::{self, Debug, Write};
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::error::ErrorCode;
use cuframes_core::session::{PublisherEvent, PublisherSession, Session, SubscriberEvent, SubscriberSession};
use cuframes_core::wire::control::EventFd;
use cuframes_core::wire::framing::{HEADER_LEN, MAX_PAYLOAD};
use cuframes_core::wire::{FdPurpose, ShutdownReason};

use super::Script;
use crate::pair::subscribed;
use crate::solo::{publisher_in, subscriber_in};
use crate::vectors::vector;

/// Does to a publisher's session what `data` says.
pub fn publisher(data: &[u8]) {
    let command = |session: &mut PublisherSession<u32>, now, choice: u8, argument: u8| match choice % 5 {
        // A command at the wrong time is an error, and nothing else.
        0 => session.admit(now, Ok(subscribed())).unwrap_or_default(),
        1 => session.admit(now, Err(ErrorCode(i32::from(argument) - 128))).unwrap_or_default(),
        2 => {
            let purpose = FdPurpose(u32::from(argument) % 8);
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
    let mut flood = FLOOD;
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
            1 => session.handle_bytes(now, &message(&mut data), &mut fds),
            2 => fds.extend(0..u32::from(choice / 8)),
            3 => {
                now = now + Duration::from_millis(u64::from(choice) * 10);
                session.handle_timeout(now);
            }
            4 => session.transmitted(usize::from(choice)),
            5 => drop(poll_event(&mut session)),
            6 => command(&mut session, now, choice / 8, data.byte()),
            _ if choice == u8::MAX => session.handle_eof(now),
            _ => {
                let message = message(&mut data);
                let times = flood.min(usize::from(data.byte()) * 16);
                flood -= times;
                for _ in 0..times {
                    session.handle_bytes(now, &message, &mut fds);
                }
                assert!(held(&session) < MAX_HELD, "it holds too much");
            }
        }
        assert!(session.poll_transmit().is_none_or(|transmit| !transmit.bytes.is_empty()));
    }
    assert!(held(&session) < MAX_HELD, "it holds too much");
    while poll_event(&mut session) {}
    session.handle_eof(now);
    while poll_event(&mut session) {}
    assert!(
        ended && session.is_closed() && session.poll_transmit().is_none() && session.poll_timeout().is_none()
    );
}

/// A golden message, with one byte changed if the script wants that.
fn message(script: &mut Script<'_>) -> Vec<u8> {
    let choice = usize::from(script.byte());
    let mut bytes = vector(MESSAGES.get(choice % MESSAGES.len()).unwrap());
    if let [at, value] = *script.take(2)
        && let Some(byte) = bytes.get_mut(usize::from(at))
    {
        *byte = value;
    }
    bytes
}

/// How much a session holds: the length of its debug form, in which a byte takes at most five characters.
fn held(session: &impl Debug) -> usize {
    struct Length(usize);
    impl Write for Length {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }
    let mut length = Length(0);
    write!(length, "{session:?}").unwrap();
    length.0
}

/// What [`message`] chooses from.
pub(super) const MESSAGES: [&str; 14] = [
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
/// The most that a session may hold: bytes that wait for a peer (D-29), one message more, one partial message, the texts
/// of a path and of an error, and a hundred events.
const MAX_HELD: usize = 5 * (64 * 1024 + 4 * (HEADER_LEN + MAX_PAYLOAD)) + 100 * 200;
/// The most messages that one script repeats: enough to fill every queue of a session twice.
const FLOOD: usize = 16 * 1024;
