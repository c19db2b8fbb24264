//! [`Upstream`]: a connection that requests come from, and what is not answered of them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use cuframes_core::Instant;

use super::task::TaskId;
use crate::layers::transfer::{Receiving, Sending};
use crate::wire::{Begin, Done, Message, ResultKind, SnapshotId, Telemetry, Width, Work, WorkResult};

/// The control connection, or a data connection.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    /// A frame has come.
    pub(super) has_spoken: bool,
    /// In the order in which they came, which is that of the answers.
    pub(super) slots: VecDeque<Slot>,
    /// What was read and can't be looked at yet.
    pub(super) backlog: Backlog,
}

/// A request that is not answered.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) task: TaskId,
    pub(super) request: u64,
    pub(super) step: Step,
}

/// How far a request is.
#[derive(Debug)]
pub(super) enum Step {
    /// To be computed when its turn comes.
    Work(Box<Work>, Width),
    /// With the owner.
    Working(Box<Job>),
    /// Computed; its next worker has enough to do.
    Computed(Box<Job>, Vec<u8>),
    /// With the next worker.
    Forwarded(Box<Job>),
    /// To be saved when everything before it is answered.
    Save(SnapshotId),
    /// With the owner.
    Saving,
    /// On its way.
    Sending(Sending),
    /// To be loaded when it is there, and everything before it is answered.
    Load(Box<Begin>, Receiving),
    /// With the owner.
    Loading,
    /// The answer, which waits for its turn.
    Done(Message),
}

/// A request that is being computed, or was.
#[derive(Debug)]
pub(super) struct Job {
    /// Without its activations.
    pub(super) work: Work,
    pub(super) width: Width,
    pub(super) input_bytes: u32,
    pub(super) output_bytes: u32,
    pub(super) started: Instant,
    /// When it was computed.
    pub(super) computed: Instant,
    /// When the next worker was sent everything.
    pub(super) sent: Option<Instant>,
}

impl Upstream {
    pub(super) fn slot(&mut self, task: TaskId) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.task == task)
    }

    /// Whether it has asked for nothing yet.
    pub(super) fn is_idle(&self) -> bool {
        !self.has_spoken && self.slots.is_empty()
    }

    /// Whether one more request can be read.
    pub(super) fn has_room(&self, prefetch: usize) -> bool {
        self.is_loading() || {
            let here = self.slots.iter().filter(|slot| !matches!(slot.step, Step::Forwarded(_)));
            here.count() <= prefetch
        }
    }

    /// Whether it is in the middle of a snapshot, so that nothing but chunks may come.
    pub(super) fn is_loading(&self) -> bool {
        self.slots
            .back()
            .is_some_and(|slot| matches!(&slot.step, Step::Load(_, receiving) if !receiving.is_complete()))
    }

    /// Bytes of snapshots that came.
    pub(super) fn loaded(&self) -> usize {
        let bytes = self.slots.iter().map(|slot| match &slot.step {
            Step::Load(_, receiving) => receiving.len(),
            _ => 0,
        });
        bytes.sum()
    }
}

impl Slot {
    /// Whether the owner has it.
    pub(super) const fn is_out(&self) -> bool {
        matches!(self.step, Step::Working(_) | Step::Saving | Step::Loading)
    }
}

impl Job {
    pub(super) fn new(mut work: Work, width: Width, now: Instant) -> (Self, Vec<u8>) {
        let activations = core::mem::take(&mut work.activations);
        let input = work.tokens.len().saturating_mul(4).saturating_add(activations.len());
        let input_bytes = to_u32(input);
        let job = Self { work, width, input_bytes, output_bytes: 0, started: now, computed: now, sent: None };
        (job, activations)
    }

    /// Which hop comes next, if this is not the last one.
    pub(super) fn next_hop(&self) -> Option<usize> {
        let next = usize::try_from(self.work.route.index).ok()?.checked_add(1)?;
        (next < self.work.route.hops.len()).then_some(next)
    }

    /// Where its time went, if its answer, or that of the next worker, is there at `now`.
    pub(super) fn telemetry(&self, now: Instant) -> Telemetry {
        let usec = |from: Instant, to: Instant| {
            u32::try_from(to.saturating_since(from).as_micros()).unwrap_or(u32::MAX)
        };
        // Where nothing was sent on, both are 0.
        let sent = self.sent.unwrap_or(now);
        Telemetry {
            layer_start: self.work.layer_start,
            layer_end: self.work.layer_end,
            route_index: self.work.route.index,
            pos0: self.work.pos0,
            n_tokens: to_u32(self.work.tokens.len()),
            eval_usec: usec(self.started, self.computed),
            downstream_wait_usec: usec(sent, now),
            forward_send_usec: usec(self.computed, sent),
            input_bytes: self.input_bytes,
            output_bytes: self.output_bytes,
        }
    }

    /// The result of a last hop.
    pub(super) fn result(&mut self, kind: ResultKind, payload: Vec<u8>) -> Message {
        let payload_bits = match kind {
            ResultKind::ACK => 0,
            ResultKind::LOGITS => 32,
            _ => self.width.bits(),
        };
        self.output_bytes = to_u32(payload.len());
        Message::Result(Box::new(WorkResult {
            request: self.work.request,
            result_hash: self.work.result_hash,
            status: 0,
            kind,
            payload_bits,
            telemetry: Vec::from([self.telemetry(self.computed)]),
            payload,
        }))
    }
}

/// Bytes that were read and can't be looked at yet.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: Vec<u8>,
    /// How many of them were looked at.
    done: usize,
}

impl Backlog {
    pub(super) const fn len(&self) -> usize {
        self.bytes.len() - self.done
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.done);
        self.done = 0;
        self.bytes.extend(bytes);
    }

    /// All of it; [`put_back`](Self::put_back) what is left.
    pub(super) const fn take(&mut self) -> Self {
        core::mem::replace(self, Self { bytes: Vec::new(), done: 0 })
    }

    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.done..).unwrap_or_default()
    }

    /// Only the last `left` bytes are still to be looked at.
    pub(super) fn put_back(&mut self, mut taken: Self, left: usize) {
        taken.done = taken.bytes.len().saturating_sub(left);
        if left > 0 {
            *self = taken;
        }
    }
}

/// The answer to a request that is not done.
pub(super) fn failed(request: u64, text: &str) -> Message {
    Message::Result(Box::new(WorkResult::failed(request, text)))
}

/// The end of a snapshot.
pub(super) fn done(request: u64, refusal: Option<&str>) -> Message {
    let message = refusal.unwrap_or_default().into();
    Message::Done(Done { request, status: refusal.is_some().into(), message })
}

/// There is no snapshot.
pub(super) fn no_snapshot(id: SnapshotId, text: &str) -> Message {
    Message::Begin(Begin { id, status: 1, message: text.into(), ..Begin::default() })
}

pub(super) fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
