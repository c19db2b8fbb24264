//! What a driver sees of a [`Sender`].

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine};

use super::{End, LinkFault, Payload, Sender, SenderEvent};
use crate::wire::{Decoded, FrameType, Message};

impl<F: Payload> Machine for Sender<F> {
    type Event = SenderEvent;

    /// It listens nowhere.
    fn handle_accepted(&mut self, _now: Instant, _listener: usize) -> Option<ConnId> {
        None
    }

    fn handle_connected(&mut self, now: Instant, conn: ConnId) {
        self.now = now;
        if !self.is(conn) || self.since.is_some() {
            return;
        }
        self.since = Some(now);
        self.moved = now;
        self.said = Some(self.announcement.ring_size);
        let hello = self.announcement.hello();
        self.words.push(|out| Message::Hello(hello).encode(out));
        self.events.push_back(SenderEvent::Connected);
        self.go_on();
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, mut bytes: &[u8]) {
        self.now = now;
        while !bytes.is_empty() && self.is(conn) {
            let result = match self.decoder.next(&mut bytes) {
                Ok(None) if self.decoder.data_left() > 0 => Err(LinkFault::Unexpected(FrameType::CHUNK)),
                Ok(None) => match self.decoder.unknown() {
                    Some(header) => Err(LinkFault::Unexpected(header.kind)),
                    None => return,
                },
                Ok(Some(Decoded::Message(message))) => self.message(message),
                Ok(Some(Decoded::Unknown(header))) => Err(LinkFault::Unexpected(header.kind)),
                Err(error) => Err(error.into()),
            };
            match result {
                Ok(()) => self.go_on(),
                Err(fault) => self.close(fault),
            }
        }
    }

    fn handle_eof(&mut self, now: Instant, conn: ConnId) {
        self.now = now;
        if self.is(conn) {
            self.lost(None);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if let End::At(end) = self.end
            && end <= now
        {
            self.over();
        }
        if self.is_waiting() && self.moved + self.config.stall <= now {
            self.close(LinkFault::Stalled(self.config.stall));
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front()?;
        if matches!(action, Action::Transmit(_)) {
            self.is_announced = false;
        }
        Some(action)
    }

    fn poll_transmit(&self, conn: ConnId) -> Option<&[u8]> {
        let mut parts: [&[u8]; 1] = [&[]];
        let n = self.poll_transmit_vectored(conn, &mut parts);
        parts.into_iter().take(n).next()
    }

    fn poll_transmit_vectored<'a>(&'a self, conn: ConnId, parts: &mut [&'a [u8]]) -> usize {
        if !self.is(conn) || self.since.is_none() {
            return 0;
        }
        let Some(transfer) = &self.transfer else {
            return match (parts.first_mut(), self.words.poll_transmit()) {
                (Some(part), Some(words)) => {
                    *part = words;
                    1
                }
                _ => 0,
            };
        };
        transfer.parts(self.current().map_or(&[], Payload::bytes), parts)
    }

    fn transmitted(&mut self, conn: ConnId, n: usize) {
        if !self.is(conn) || n == 0 {
            return;
        }
        self.moved = self.now;
        let Some(mut transfer) = self.transfer.take() else {
            self.words.transmitted(n);
            self.go_on();
            return;
        };
        if !transfer.sent(n, || self.current().is_some_and(Payload::is_intact)) {
            self.transfer = Some(transfer);
            return;
        }
        if self.is_answering {
            self.answer = None;
            self.stats.answered += 1;
            self.ask();
        } else {
            self.sent += 1;
        }
        self.go_on();
    }

    fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let end = match self.end {
            End::At(end) => Some(end),
            _ => None,
        };
        let stall = self.is_waiting().then(|| self.moved + self.config.stall);
        end.into_iter().chain(stall).min()
    }
}
