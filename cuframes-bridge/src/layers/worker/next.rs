//! The next workers: each connection that has requests has its own connections to them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::ConnId;

use super::task::TaskId;
use super::upstream::{Job, Slot, Step, failed, to_u32};
use super::{How, Line, Role, Worker};
use crate::layers::Fault;
use crate::layers::peer::{Arrived, Peer, Piece};
use crate::layers::route::address;
use crate::wire::{Hop, Message, Work, WorkFlags, WorkResult};

/// A connection to a next worker.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) upstream: ConnId,
    address: String,
    /// What it has not answered, in the order in which it was sent.
    pub(super) sent: VecDeque<Sent>,
    /// By when it has to be connected, or to say something.
    pub(super) deadline: Option<Instant>,
    pub(super) is_connected: bool,
}

#[derive(Debug)]
pub(super) struct Sent {
    task: TaskId,
    request: u64,
    result_hash: u64,
    /// When so many bytes of the connection are sent, this is.
    end: u64,
    is_sent: bool,
}

impl Next {
    /// What is wrong if its deadline has passed.
    pub(super) const fn late(&self) -> Fault {
        if self.is_connected { Fault::Receive } else { Fault::Unreachable }
    }
}

impl Worker {
    /// Sends on what is computed, in order, as far as the next workers take it.
    pub(super) fn forward(&mut self, conn: ConnId) -> bool {
        let mut moved = false;
        while let Some((task, address)) = self.first_computed(conn) {
            let Some(next) = self.next_for(conn, &address) else { break };
            moved |= self.forward_to(conn, task, next);
        }
        moved
    }

    /// The first request that can be sent on, and where to.
    fn first_computed(&mut self, conn: ConnId) -> Option<(TaskId, String)> {
        self.upstream(conn)?.slots.iter().find_map(|slot| match &slot.step {
            Step::Computed(job, _) => {
                let Hop { host, port, .. } = job.work.route.hops.get(job.next_hop()?)?;
                Some((slot.task, address(host, *port)))
            }
            _ => None,
        })
    }

    /// The connection to a next worker, if it can have one more request.
    fn next_for(&mut self, upstream: ConnId, address: &str) -> Option<ConnId> {
        let all = || {
            self.links.iter().filter_map(|(conn, line)| match &line.role {
                Role::Next(next) if next.upstream == upstream => Some((conn, next)),
                _ => None,
            })
        };
        if let Some((conn, next)) = all().find(|(_, next)| next.address == address) {
            return (next.sent.len() < self.config.max_forward).then_some(conn);
        }
        if all().count() >= self.config.max_next {
            // One that has nothing to do makes room.
            let (idle, _) = all().find(|(_, next)| next.sent.is_empty())?;
            self.links.close(idle);
        }
        let next = Next {
            upstream,
            address: address.into(),
            sent: VecDeque::new(),
            deadline: Some(self.now + self.config.connect_timeout),
            is_connected: false,
        };
        let line = Line::new(Role::Next(Box::new(next)));
        let peer = Peer::new(self.config.limits);
        Some(self.links.connect(address.into(), Duration::ZERO, peer, line))
    }

    fn forward_to(&mut self, conn: ConnId, task: TaskId, next: ConnId) -> bool {
        let Some(slot) = self.upstream(conn).and_then(|upstream| upstream.slot(task)) else { return false };
        let request = slot.request;
        let Step::Computed(job, activations) = &mut slot.step else { return false };
        let Some(work) = next_work(job, mem::take(activations)) else { return false };
        job.output_bytes = to_u32(work.activations.len());
        let result_hash = work.result_hash;
        slot.step = match mem::replace(&mut slot.step, Step::Loading) {
            Step::Computed(job, _) => Step::Forwarded(job),
            other => other,
        };
        self.links.send(next, &Piece::Message(Message::Work(Box::new(work))));
        let end = self.links.get(next).map_or(0, |(peer, _)| peer.queued());
        let due = self.config.receive_timeout.map(|timeout| self.now + timeout);
        if let Some(Role::Next(next)) = self.links.what_mut(next).map(|line| &mut line.role) {
            next.sent.push_back(Sent { task, request, result_hash, end, is_sent: false });
            if next.is_connected && next.sent.len() == 1 {
                next.deadline = due;
            }
        }
        true
    }

    /// A next worker is connected.
    pub(super) fn next_connected(&mut self, conn: ConnId) {
        let due = self.config.receive_timeout.map(|timeout| self.now + timeout);
        if let Some(Role::Next(next)) = self.links.what_mut(conn).map(|line| &mut line.role) {
            next.is_connected = true;
            next.deadline = due;
        }
    }

    /// Notes which requests have left.
    pub(super) fn next_transmitted(&mut self, conn: ConnId) {
        let Some((peer, _)) = self.links.get(conn) else { return };
        let (sent, now) = (peer.sent(), self.now);
        loop {
            let Some(Role::Next(next)) = self.links.what_mut(conn).map(|line| &mut line.role) else { return };
            let upstream = next.upstream;
            let Some(first) = next.sent.iter_mut().find(|request| !request.is_sent && request.end <= sent)
            else {
                return;
            };
            first.is_sent = true;
            let task = first.task;
            if let Some(Slot { step: Step::Forwarded(job), .. }) =
                self.upstream(upstream).and_then(|upstream| upstream.slot(task))
            {
                job.sent = Some(now);
            }
        }
    }

    /// Takes bytes of a next worker.
    pub(super) fn hear_next(&mut self, conn: ConnId, mut bytes: &[u8]) {
        let due = self.config.receive_timeout.map(|timeout| self.now + timeout);
        while !bytes.is_empty() {
            match self.links.what_mut(conn).map(|line| &mut line.role) {
                Some(Role::Next(next)) => next.deadline = due.filter(|_| !next.sent.is_empty()),
                _ => return,
            }
            let result = match self.links.receive(conn, &mut bytes) {
                Ok(None) if self.is_dribbled(conn) => Err(Fault::Dribble),
                Ok(None) => Ok(()),
                Ok(Some(arrived)) => self.relay(conn, arrived),
                Err(error) => Err(Fault::Frame(error)),
            };
            if let Err(fault) = result {
                self.end(conn, How::Now, fault);
            }
        }
    }

    /// Passes a result on, with the own times behind those of the next workers.
    fn relay(&mut self, conn: ConnId, arrived: Arrived) -> Result<(), Fault> {
        let mut result = match arrived {
            Arrived::Message(Message::Result(result)) => result,
            other => return Err(other.fault()),
        };
        result.check().map_err(Fault::Frame)?;
        let Some(Role::Next(next)) = self.links.what_mut(conn).map(|line| &mut line.role) else {
            return Ok(());
        };
        let WorkResult { request: got, result_hash, status, .. } = *result;
        let expected = next.sent.front().map(|sent| sent.request);
        let Some(first) = next.sent.front().filter(|sent| sent.request == got) else {
            return Err(Fault::Order { got, expected });
        };
        if status == 0 && result_hash != first.result_hash {
            return Err(Fault::Hash { request: got });
        }
        let (upstream, task) = (next.upstream, first.task);
        next.sent.pop_front();
        if next.sent.is_empty() {
            next.deadline = None;
        }
        let (now, max) = (self.now, self.config.limits.text);
        let Some(slot) = self.upstream(upstream).and_then(|upstream| upstream.slot(task)) else {
            return Ok(());
        };
        if let Step::Forwarded(job) = &slot.step {
            if status == 0 {
                result.telemetry.push(job.telemetry(now));
            } else {
                result.payload.truncate(usize::try_from(max).unwrap_or(usize::MAX));
            }
            slot.step = Step::Done(Message::Result(result));
        }
        Ok(())
    }

    /// A next worker is gone. Where it had something to do, the oldest request fails, and its connection ends.
    pub(super) fn next_gone(&mut self, next: &Next, fault: Fault) {
        if next.sent.is_empty() {
            return;
        }
        let fault = Fault::Next(Box::new(fault));
        let oldest = self.upstream(next.upstream).and_then(|upstream| upstream.slots.front());
        let is_work = |slot: &&Slot| {
            use Step::{Computed, Forwarded, Work, Working};
            matches!(slot.step, Work(..) | Working(_) | Computed(..) | Forwarded(_))
        };
        if let Some(request) = oldest.filter(is_work).map(|slot| slot.request) {
            let message = failed(request, &alloc::format!("{fault}"));
            self.links.send(next.upstream, &Piece::Message(message));
        }
        self.end(next.upstream, How::WhenSent, fault);
    }
}

/// The request as the next worker gets it.
fn next_work(job: &Job, activations: Vec<u8>) -> Option<Work> {
    let next = job.next_hop()?;
    let Hop { layer_start, layer_end, flags, .. } = *job.work.route.hops.get(next)?;
    let mut work = job.work.clone();
    work.route.index = to_u32(next);
    (work.layer_start, work.layer_end) = (layer_start, layer_end);
    let kept = work.flags.0 & (WorkFlags::RESET.0 | WorkFlags::ACK_ONLY.0);
    work.flags = WorkFlags(kept).union(WorkFlags::INPUT);
    if flags & Hop::LOGITS != 0 {
        work.flags = work.flags.union(WorkFlags::LOGITS);
    }
    work.activation_bits = job.width.bits();
    work.activations = activations;
    Some(work)
}
