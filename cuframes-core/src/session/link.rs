//! [`Link`]: what both sessions do alike. It cuts bytes into messages, keeps received descriptors until their message
//! comes, answers PING, and ends a connection.
//!
//! Invariants:
//! - Once `closing` is set nothing is queued any more, neither bytes nor events: `Closed` is the last event, and the
//!   only one of its kind.
//! - Everything that is kept has a bound: one partial message, `max_fds` received descriptors,
//!   [`MAX_QUEUED`] bytes to send, [`MAX_EVENTS`] events and those that a handshake can cause.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use core::mem;
use core::time::Duration;

use bytes::BytesMut;

use super::outbox::Outbox;
use super::{Closed, Transmit};
use crate::error::{ErrorCode, Gone, Problem, Refused, Violation};
use crate::time::Instant;
use crate::wire::control::Pong;
use crate::wire::fault::ErrorMessage;
use crate::wire::framing::{Decoder, RawMessage};
use crate::wire::{MessageType, PROTO_VERSION};

/// The events that both sides have.
pub(super) trait CommonEvent {
    fn unknown(message_type: MessageType, count: u64) -> Self;
    fn closed(closed: Closed) -> Self;
}

/// One end of a connection, whichever it is.
#[derive(Debug)]
pub(super) struct Link<F, E> {
    /// The latest time that was given.
    now: Instant,
    /// While open, when the current step of the handshake must be over; while closing, when the last bytes must be gone.
    deadline: Option<Instant>,
    decoder: Decoder,
    /// Received descriptors whose message did not come yet (D-22).
    fds: VecDeque<F>,
    /// How many of them there may be: none where no message brings one.
    max_fds: usize,
    outbox: Outbox<F>,
    events: VecDeque<E>,
    /// Messages skipped because their type is unknown (D-11).
    skipped: u64,
    closing: bool,
}

impl<F, E: CommonEvent> Link<F, E> {
    pub(super) fn new(now: Instant, max_fds: usize) -> Self {
        Self {
            now,
            deadline: None,
            decoder: Decoder::new(),
            fds: VecDeque::new(),
            max_fds,
            outbox: Outbox::new(),
            events: VecDeque::new(),
            skipped: 0,
            closing: false,
        }
    }

    /// Time goes on; it never goes back.
    pub(super) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Gives each message in `bytes` to `handle`, until one of them ends the connection.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        fds: &mut VecDeque<F>,
        handle: impl FnMut(&mut Self, RawMessage<'_>) -> Result<(), Violation>,
    ) {
        if self.closing {
            fds.clear();
            return;
        }
        self.fds.append(fds);
        let mut decoder = mem::take(&mut self.decoder);
        if let Err(violation) = self.read(&mut decoder, bytes, handle) {
            self.fail(violation.code(), violation.to_string(), Closed::Violation(violation));
        }
        self.decoder = decoder;
    }

    fn read(
        &mut self,
        decoder: &mut Decoder,
        mut bytes: &[u8],
        mut handle: impl FnMut(&mut Self, RawMessage<'_>) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        while !self.closing
            && let Some(message) = decoder.next(&mut bytes)?
        {
            handle(self, message)?;
        }
        // A descriptor may be early, never late: once no partial message is buffered, none can be left (D-22).
        let claimable = if decoder.is_mid_message() { self.max_fds } else { 0 };
        if self.fds.len() > claimable {
            return Err(Violation::new(MessageType::EVENT_FD, "fd", Problem::FdSurplus));
        }
        Ok(())
    }

    /// The messages that are the same in every state of both sides; anything else is not legal in `state`.
    pub(super) fn handle_other(
        &mut self,
        RawMessage { message_type, payload }: RawMessage<'_>,
        state: &'static str,
    ) -> Result<(), Violation> {
        match message_type {
            // "PING is answered in every state" (D-10).
            MessageType::PING => self.send(|out| Pong::answer(payload).encode(out)),
            // Nobody asked for this one (D-10).
            MessageType::PONG => {}
            // Either side closes after an ERROR (§3.9, D-28), so nobody would read an answer.
            MessageType::ERROR => {
                let ErrorMessage { code, message } = ErrorMessage::decode(payload)?;
                self.abort(Closed::Refused(Refused { code, message }));
            }
            // A known type that is not legal now is a violation, an unknown one comes from a later version (D-11).
            known if known.name().is_some() => {
                return Err(Violation::new(known, "message_type", Problem::Unexpected { state }));
            }
            unknown => self.skip(unknown),
        }
        Ok(())
    }

    /// Counts and reports a message that is ignored (D-11). A flood of them is counted, not queued.
    pub(super) fn skip(&mut self, message_type: MessageType) {
        self.skipped += 1;
        self.emit_if_few(E::unknown(message_type, self.skipped));
    }

    /// The descriptor of an EVENT_FD (D-22).
    pub(super) fn take_fd(&mut self) -> Result<F, Violation> {
        self.fds.pop_front().ok_or(Violation::new(MessageType::EVENT_FD, "fd", Problem::FdMissing))
    }

    pub(super) fn emit(&mut self, event: E) {
        if !self.closing {
            self.events.push_back(event);
        }
    }

    /// Reports what a peer can cause any number of times, unless many events wait already.
    pub(super) fn emit_if_few(&mut self, event: E) {
        if self.events.len() < MAX_EVENTS {
            self.emit(event);
        }
    }

    pub(super) fn send(&mut self, encode: impl FnOnce(&mut BytesMut)) {
        self.send_with(None, encode);
    }

    /// Queues a message and the descriptor that goes with it.
    pub(super) fn send_with(&mut self, fd: Option<F>, encode: impl FnOnce(&mut BytesMut)) {
        if self.closing {
            return;
        }
        self.outbox.push(fd, encode);
        // Writes to a peer that does not read are bounded (D-29).
        if self.outbox.len() > MAX_QUEUED {
            self.abort(Closed::Gone(Gone::NotReading));
        }
    }

    /// A step of the handshake begins, for which the peer has this long (D-29).
    pub(super) fn begin_step(&mut self, timeout: Duration) {
        self.deadline = Some(self.now + timeout);
    }

    /// Nothing is expected from the peer any more.
    pub(super) fn end_steps(&mut self) {
        if !self.closing {
            self.deadline = None;
        }
    }

    /// Ends the connection once everything that is queued has left.
    fn close(&mut self, reason: Closed) {
        if self.closing {
            return;
        }
        self.emit(E::closed(reason));
        self.closing = true;
        self.fds.clear();
        self.deadline = Some(self.now + LINGER);
    }

    /// Ends the connection at once: the peer has nothing to hear any more.
    pub(super) fn abort(&mut self, reason: Closed) {
        if !self.closing {
            self.outbox.clear();
            self.close(reason);
        }
    }

    /// Ends the connection with a last message.
    pub(super) fn close_with(&mut self, reason: Closed, encode: impl FnOnce(&mut BytesMut)) {
        self.send(encode);
        self.close(reason);
    }

    /// Ends the connection with an ERROR (§3.9).
    pub(super) fn fail(&mut self, code: ErrorCode, message: String, reason: Closed) {
        self.close_with(reason, |out| ErrorMessage { code, message }.encode(out));
    }

    /// The peer can't be reached any more; unless that was to come, `gone` is the reason.
    pub(super) fn handle_eof(&mut self, now: Instant, gone: Gone) {
        self.advance(now);
        self.outbox.clear();
        self.close(Closed::Gone(gone));
    }

    /// `state` is where the handshake stands.
    pub(super) fn handle_timeout(&mut self, now: Instant, state: &'static str) {
        self.advance(now);
        if self.poll_timeout().is_none_or(|deadline| deadline > self.now) {
            return;
        }
        let gone = Gone::Timeout { state };
        if self.closing {
            self.outbox.clear();
        } else {
            self.fail(ErrorCode::TIMEOUT, gone.to_string(), Closed::Gone(gone));
        }
    }

    pub(super) fn poll_transmit(&self) -> Option<Transmit<'_, F>> {
        self.outbox.poll_transmit()
    }

    pub(super) fn transmitted(&mut self, n: usize) {
        self.outbox.transmitted(n);
    }

    pub(super) fn poll_event(&mut self) -> Option<E> {
        self.events.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.deadline.filter(|_| !self.is_closed())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closing && self.outbox.len() == 0
    }
}

/// "v1 has no backward layer": any other version is a mismatch (§6.1).
pub(super) fn check_version(
    message_type: MessageType,
    field: &'static str,
    version: u32,
) -> Result<(), Violation> {
    if version == PROTO_VERSION {
        return Ok(());
    }
    let problem = Problem::Mismatch { found: version.into(), expected: PROTO_VERSION.into() };
    Err(Violation::new(message_type, field, problem))
}

/// The most bytes that wait for a peer that does not read (D-29).
const MAX_QUEUED: usize = 64 * 1024;
/// How long the last bytes may take to leave.
const LINGER: Duration = Duration::from_secs(1);
/// While this many events wait, skipped messages are counted only, and PONGs are not reported.
const MAX_EVENTS: usize = 64;
