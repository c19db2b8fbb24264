//! What the owner of a worker answers.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use cuframes_core::Instant;
use cuframes_core::streams::ConnId;
use cuframes_core::text::cut;

use super::task::{FinishError, Outcome, Snapshot, TaskId, Wants};
use super::upstream::{self, Job, Step, failed, no_snapshot};
use super::{Out, What, Worker};
use crate::layers::transfer::Sending;
use crate::wire::{Begin, Message, ResultKind, SnapshotId, token_hash};

impl Worker {
    /// Answers a [`Work`](super::WorkerEvent::Work). What nobody waits for any more is answered, too.
    ///
    /// # Errors
    /// If the outcome is not what is wanted; the task still waits then.
    pub fn finish(&mut self, now: Instant, task: TaskId, outcome: Outcome) -> Result<(), FinishError> {
        self.tick(now);
        let unknown = FinishError::Unknown(task);
        let Some(Out { conn, session, what: What::Work { wants, width, hash } }) = self.out.get(&task) else {
            return Err(unknown);
        };
        let (conn, session) = (*conn, *session);
        check_outcome(&outcome, *wants, *width, self.config.limits.work_bytes)?;
        let hash = (!matches!(outcome, Outcome::Failed(_))).then_some(*hash);
        self.out.remove(&task);
        self.sessions.give_back(session, task, hash);
        let (now, max) = (self.now, self.max_text());
        if let Some(slot) = self.upstream(conn).and_then(|upstream| upstream.slot(task)) {
            let step = mem::replace(&mut slot.step, Step::Loading);
            slot.step = if let Step::Working(job) = step { job.finish(now, outcome, max) } else { step };
        }
        self.settle();
        Ok(())
    }

    /// Answers a [`Save`](super::WorkerEvent::Save): with the snapshot, or with why there is none.
    ///
    /// # Errors
    /// If there is no such task, or the tokens are not those of the session; the task still waits then.
    pub fn saved(
        &mut self,
        now: Instant,
        task: TaskId,
        saved: Result<Snapshot, String>,
    ) -> Result<(), FinishError> {
        self.tick(now);
        let Some(Out { conn, session, what: What::Save(id) }) = self.out.get(&task) else {
            return Err(FinishError::Unknown(task));
        };
        let (conn, session, id) = (*conn, *session, *id);
        if let Ok(Snapshot { tokens, .. }) = &saved {
            let is_right =
                u32::try_from(tokens.len()) == Ok(id.token_count) && token_hash(tokens) == id.token_hash;
            if !is_right {
                return Err(FinishError::Tokens);
            }
        }
        self.out.remove(&task);
        self.sessions.give_back(session, task, Some(id.token_hash));
        self.send_snapshot(conn, task, id, saved);
        self.settle();
        Ok(())
    }

    /// Answers a [`Load`](super::WorkerEvent::Load): that it is loaded, or why not; then the session is freed.
    ///
    /// # Errors
    /// If there is no such task.
    pub fn loaded(
        &mut self,
        now: Instant,
        task: TaskId,
        loaded: Result<(), String>,
    ) -> Result<(), FinishError> {
        self.tick(now);
        let Some(Out { conn, session, what: What::Load { hash } }) = self.out.get(&task) else {
            return Err(FinishError::Unknown(task));
        };
        let (conn, session, hash) = (*conn, *session, loaded.is_ok().then_some(*hash));
        self.out.remove(&task);
        self.sessions.give_back(session, task, hash);
        let max = self.max_text();
        if let Some(slot) = self.upstream(conn).and_then(|upstream| upstream.slot(task)) {
            let refusal = loaded.err();
            let refusal = refusal.as_deref().map(|text| cut(text, max));
            slot.step = Step::Done(upstream::done(slot.request, refusal));
        }
        self.settle();
        Ok(())
    }

    /// The owner has saved a session, or not.
    fn send_snapshot(&mut self, conn: ConnId, task: TaskId, id: SnapshotId, saved: Result<Snapshot, String>) {
        let (size, max) = (self.config.chunk_bytes, self.max_text());
        let Some(slot) = self.upstream(conn).and_then(|upstream| upstream.slot(task)) else { return };
        match saved {
            Ok(Snapshot { tokens, payload }) => {
                let payload_bytes = u64::try_from(payload.len()).unwrap_or(u64::MAX);
                slot.step = Step::Sending(Sending::new(id.request, payload, size));
                let begin = Begin { id, payload_bytes, tokens, ..Begin::default() };
                self.send(conn, Message::Begin(begin));
            }
            Err(text) => slot.step = Step::Done(no_snapshot(id, cut(&text, max))),
        }
    }
}

impl Job {
    /// What is next when the owner is done.
    fn finish(mut self: Box<Self>, now: Instant, outcome: Outcome, max: usize) -> Step {
        self.computed = now;
        match outcome {
            Outcome::Failed(text) => Step::Done(failed(self.work.request, cut(&text, max))),
            Outcome::Hidden(payload) if self.next_hop().is_some() => Step::Computed(self, payload),
            Outcome::Hidden(payload) => Step::Done(self.result(ResultKind::HIDDEN, payload)),
            Outcome::Logits(payload) => Step::Done(self.result(ResultKind::LOGITS, payload)),
            Outcome::Ack => Step::Done(self.result(ResultKind::ACK, Vec::new())),
        }
    }
}

/// Whether an outcome is what is wanted.
fn check_outcome(outcome: &Outcome, wants: Wants, width: usize, max: u32) -> Result<(), FinishError> {
    let payload = match (outcome, wants) {
        (Outcome::Failed(_), _) | (Outcome::Ack, Wants::Ack) => return Ok(()),
        (Outcome::Hidden(payload), Wants::Hidden | Wants::Forward { .. })
        | (Outcome::Logits(payload), Wants::Logits) => payload,
        _ => return Err(FinishError::Kind(wants)),
    };
    let got = payload.len();
    let wide = u64::try_from(got).unwrap_or(u64::MAX);
    let bytes =
        |holds: bool, expected| if holds { Ok(()) } else { Err(FinishError::Bytes { got, expected }) };
    if let Wants::Forward { bytes: expected } = wants {
        bytes(wide == expected, expected)?;
    }
    let unit = if wants == Wants::Logits { 4 } else { width };
    bytes(got.checked_rem(unit) == Some(0), u64::try_from(unit).unwrap_or(u64::MAX))?;
    bytes(wide <= u64::from(max), max.into())
}
