//! Reading and sending: the part of the [`Driver`] that moves the bytes.

use std::io::{ErrorKind, IoSlice};

use cuframes_core::Instant;
use cuframes_core::streams::{ConnId, Machine};

use super::Driver;
use crate::clock;
use crate::net::Carrier;
use crate::net::conn::{Conn, State};
use crate::pollable::Turn;

impl<M: Machine, C: Carrier> Driver<M, C> {
    /// Reads until nothing more is there, the machine wants no more, or the budget is used up.
    pub(super) fn read(&mut self, mut now: Instant, place: usize) -> Turn {
        let mut budget = BUDGET;
        while budget > 0 {
            let Some(Some(Conn { id, state: State::Open(socket) })) = self.conns.get_mut(place) else {
                return Turn::Idle;
            };
            let id = *id;
            if !self.machine.is_hungry(id) {
                self.backlog.park(id);
                return Turn::Idle;
            }
            let (received, is_bulk) = match self.machine.poll_receive(id) {
                Some(bulk) if !bulk.is_empty() => {
                    let len = bulk.len().min(BULK_SIZE);
                    (self.carrier.recv(socket, bulk.get_mut(..len).unwrap_or_default()), true)
                }
                _ => (self.carrier.recv(socket, &mut self.buffer), false),
            };
            match received {
                Ok(n) if n > 0 => {
                    if is_bulk {
                        // Megabytes take a while, which is not that of what is done with them.
                        now = clock::now();
                        self.machine.received(now, id, n);
                    } else {
                        self.machine.handle_bytes(now, id, self.buffer.get(..n).unwrap_or(&self.buffer));
                    }
                    budget = budget.saturating_sub(n.max(CALL_COST));
                    // It may be closed now.
                    self.settle(now);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Turn::Idle,
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    budget = budget.saturating_sub(CALL_COST);
                }
                // The end, or a reset.
                _ => {
                    self.forget(place);
                    self.machine.handle_eof(now, id);
                    self.settle(now);
                    return Turn::Idle;
                }
            }
        }
        Turn::Again
    }

    /// Sends as much as the socket takes and the budget allows.
    pub(super) fn flush(&mut self, id: ConnId) -> Turn {
        let Some(place) = self.places.get(&id).copied() else { return Turn::Idle };
        let mut budget = BUDGET;
        while budget > 0 {
            let Some(Some(Conn { state: State::Open(socket), .. })) = self.conns.get_mut(place) else {
                return Turn::Idle;
            };
            let mut parts = [[].as_slice(); PARTS];
            let count = self.machine.poll_transmit_vectored(id, &mut parts);
            let (slices, len) = limit(&parts, count);
            if len == 0 {
                return Turn::Idle;
            }
            match self.carrier.send(socket, slices.get(..count).unwrap_or(&slices)) {
                Ok(n) => {
                    self.machine.transmitted(id, n);
                    budget = budget.saturating_sub(n.max(CALL_COST));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    budget = budget.saturating_sub(CALL_COST);
                }
                // Full, or the peer is gone: then what it said before comes first, and reading finds the end after it.
                Err(_) => return Turn::Idle,
            }
        }
        Turn::Again
    }

    /// Sends what the machine says that it has; what is left after that soon.
    pub(super) fn transmit(&mut self, id: ConnId) {
        if self.flush(id) == Turn::Again {
            self.backlog.again(id);
        }
    }

    /// Reads on where the machine had enough, as far as it has not any more: for what is there already no event will come.
    ///
    /// Each is looked at once. Where that makes the machine want another one, [`poll_timeout`](super::EventSource::poll_timeout)
    /// says so.
    pub(super) fn take_up(&mut self, now: Instant) {
        let count = self.backlog.parked().len();
        for _ in 0..count {
            let Some(id) = self.backlog.unpark() else { return };
            if !self.machine.is_hungry(id) {
                self.backlog.park(id);
            } else if let Some(place) = self.places.get(&id).copied()
                && self.read(now, place) == Turn::Again
            {
                self.backlog.again(id);
            }
        }
    }

    /// Reads and sends where the budget was used up.
    pub(super) fn go_on(&mut self, now: Instant) {
        for _ in 0..self.backlog.due() {
            let Some(id) = self.backlog.next_due() else { return };
            if let Some(place) = self.places.get(&id).copied()
                && self.ready(now, place) == Turn::Again
            {
                self.backlog.again(id);
            }
        }
    }

    /// Whether there is something to read or to send for which no event will come.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog.due() > 0 || self.backlog.parked().any(|id| self.machine.is_hungry(id))
    }
}

/// The first `count` of these parts, cut where one call sends enough, and how many bytes they are.
fn limit<'a>(parts: &[&'a [u8]; PARTS], count: usize) -> ([IoSlice<'a>; PARTS], usize) {
    let mut len = 0;
    let mut slices = [IoSlice::new(&[]); PARTS];
    for (slice, part) in slices.iter_mut().zip(parts).take(count) {
        let part = part.get(..BULK_SIZE - len).unwrap_or(part);
        *slice = IoSlice::new(part);
        len += part.len();
    }
    (slices, len)
}

/// Bytes of a read that is no bulk.
pub(super) const READ_SIZE: usize = 64 << 10;
/// Bytes of one call, at most.
const BULK_SIZE: usize = 1 << 20;
/// Parts of one call.
const PARTS: usize = 16;
/// Bytes read from, or sent to, a peer in one turn; then it waits until the others had theirs.
const BUDGET: usize = 4 << 20;
/// A call costs as much as so many bytes at least.
const CALL_COST: usize = BUDGET / 16;
