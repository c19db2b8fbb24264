//! Requests: what comes, what goes to the owner, and what is answered.

use alloc::boxed::Box;
use alloc::string::ToString as _;
use core::mem;

use cuframes_core::streams::{ConnId, Machine as _};

use super::task::{Task, TaskId, Wants, WorkerEvent};
use super::upstream::{Job, Slot, Step, done, failed, no_snapshot};
use super::{How, MAX_WAITING, Out, Refusal, What, Worker, check, upstream_of};
use crate::layers::Fault;
use crate::layers::peer::{Arrived, Piece};
use crate::layers::transfer::{ChunkFault, Receiving};
use crate::wire::{Begin, FrameType, Message, WorkFlags};

impl Worker {
    /// Looks at what was read before and at `bytes`, as far as there is room for it.
    pub(super) fn pump(&mut self, conn: ConnId, bytes: &[u8]) -> bool {
        let max = self.config.backlog_bytes;
        let Some(upstream) = self.upstream(conn) else { return false };
        let mut backlog = upstream.backlog.take();
        // Mostly there is none, and nothing is copied.
        let is_empty = backlog.len() == 0;
        if !is_empty {
            backlog.push(bytes);
        }
        let mut rest = if is_empty { bytes } else { backlog.rest() };
        let before = rest.len();
        while !rest.is_empty() && self.is_hungry(conn) {
            let result = match self.links.receive(conn, &mut rest) {
                Ok(None) if self.is_dribbled(conn) => Err(Fault::Dribble),
                Ok(None) => Ok(()),
                Ok(Some(arrived)) => self.arrived(conn, arrived),
                Err(error) => Err(Fault::Frame(error)),
            };
            if let Err(fault) = result {
                self.end(conn, How::Now, fault);
            }
            // As if it had come alone.
            self.advance(conn);
        }
        let left = rest.len();
        let Some(upstream) = self.upstream(conn) else { return true };
        if is_empty {
            backlog.push(bytes.get(bytes.len() - left..).unwrap_or_default());
        }
        upstream.backlog.put_back(backlog, left);
        if left > max {
            self.end(conn, How::Now, Fault::Flood);
        }
        left < before
    }

    fn arrived(&mut self, conn: ConnId, arrived: Arrived) -> Result<(), Fault> {
        let Some(upstream) = self.upstream(conn) else { return Ok(()) };
        upstream.has_spoken = true;
        if upstream.is_loading() {
            return self.chunk(conn, arrived);
        }
        match arrived {
            Arrived::Message(Message::Error(text)) => return Err(Fault::Remote(text)),
            Arrived::Message(Message::Work(work)) => {
                let request = work.request;
                let step = match check::work(&self.config, &work) {
                    Ok(width) => Step::Work(work, width),
                    Err(refusal) => Step::Done(failed(request, &refusal.to_string())),
                };
                self.add(conn, request, step);
            }
            Arrived::Message(Message::SaveRequest(id)) => {
                let step = match check::save(&self.config, &id) {
                    Ok(()) => Step::Save(id),
                    Err(refusal) => Step::Done(no_snapshot(id, &refusal.to_string())),
                };
                self.add(conn, id.request, step);
            }
            Arrived::Message(Message::LoadBegin(begin)) => self.load(conn, begin),
            Arrived::Message(other) => self.unexpected(conn, other.kind()),
            Arrived::Unknown(header) => self.unexpected(conn, header.kind),
            Arrived::Unreadable { kind: FrameType::WORK, request, error } => {
                let refusal = Refusal::Frame(error).to_string();
                self.add(conn, request, Step::Done(failed(request, &refusal)));
            }
            Arrived::Unreadable { kind: FrameType::LOAD_BEGIN, request, error } => {
                self.refuse_load(conn, request, Refusal::Frame(error));
            }
            Arrived::Unreadable { error, .. } => return Err(Fault::Frame(error)),
            Arrived::Data(_) => {}
        }
        Ok(())
    }

    fn add(&mut self, conn: ConnId, request: u64, step: Step) {
        let task = TaskId::new(self.next_task);
        self.next_task += 1;
        if let Some(upstream) = self.upstream(conn) {
            upstream.slots.push_back(Slot { task, request, step });
        }
    }

    /// A frame that a worker does not take.
    fn unexpected(&mut self, conn: ConnId, kind: FrameType) {
        self.send(conn, Message::Error(alloc::format!("unexpected frame {kind}")));
        self.end(conn, How::WhenSent, Fault::Unexpected(kind));
    }

    fn load(&mut self, conn: ConnId, begin: Begin) {
        let request = begin.id.request;
        match check::load(&self.config, &begin) {
            Ok(()) => {
                let receiving = Receiving::new(request, begin.payload_bytes);
                self.add(conn, request, Step::Load(Box::new(begin), receiving));
            }
            // Nothing of it is under way.
            Err(refusal) if begin.payload_bytes == 0 => {
                self.add(conn, request, Step::Done(done(request, Some(&refusal.to_string()))));
            }
            Err(refusal) => self.refuse_load(conn, request, refusal),
        }
    }

    /// A snapshot that is wrong while chunks of it are under way ends the connection.
    fn refuse_load(&mut self, conn: ConnId, request: u64, refusal: Refusal) {
        self.send(conn, done(request, Some(&refusal.to_string())));
        let fault = match refusal {
            Refusal::Snapshot(fault) => Fault::Chunk(fault),
            Refusal::Frame(error) => Fault::Frame(error),
            refusal => Fault::Refused(refusal),
        };
        self.end(conn, How::WhenSent, fault);
    }

    /// In the middle of a snapshot.
    fn chunk(&mut self, conn: ConnId, arrived: Arrived) -> Result<(), Fault> {
        let loaded = |worker: &Self| {
            worker.links.iter().map(|(_, line)| line.loaded()).fold(0_usize, usize::saturating_add)
        };
        let max = self.config.snapshot_bytes;
        let fault = |worker: &mut Self, request, fault| {
            worker.refuse_load(conn, request, Refusal::Snapshot(fault));
            Ok(())
        };
        let Some(Slot { request, step: Step::Load(begin, receiving), .. }) =
            self.upstream(conn).and_then(|upstream| upstream.slots.back_mut())
        else {
            return Ok(());
        };
        let (request, bytes) = (*request, begin.payload_bytes);
        match arrived {
            Arrived::Message(Message::Error(text)) => Err(Fault::Remote(text)),
            Arrived::Message(Message::Chunk(chunk)) => match receiving.begin(chunk) {
                Ok(()) => Ok(()),
                Err(error) => fault(self, request, error),
            },
            Arrived::Data(data) => {
                receiving.push(&data);
                if loaded(self) > max {
                    self.refuse_load(conn, request, Refusal::SnapshotBytes(bytes));
                }
                Ok(())
            }
            _ => {
                let left = receiving.missing();
                fault(self, request, ChunkFault::Missing { left })
            }
        }
    }

    /// Sends what is answered, gives the owner what is next, and sends on what is computed.
    pub(super) fn advance(&mut self, conn: ConnId) -> bool {
        let mut moved = false;
        while self.answer(conn) | self.start(conn) | self.forward(conn) | self.pour(conn) {
            moved = true;
        }
        moved
    }

    /// Sends the oldest answers.
    fn answer(&mut self, conn: ConnId) -> bool {
        let mut moved = false;
        while let Some(upstream) = self.upstream(conn)
            && let Some(Slot { step: Step::Done(_), .. }) = upstream.slots.front()
        {
            if let Some(Slot { step: Step::Done(message), .. }) = upstream.slots.pop_front() {
                self.send(conn, message);
            }
            moved = true;
        }
        moved
    }

    /// Gives the owner what is next.
    fn start(&mut self, conn: ConnId) -> bool {
        let Self { config, links, sessions, out, events, now, .. } = self;
        if links.get(conn).is_none_or(|(peer, _)| peer.waiting() > MAX_WAITING) {
            return false;
        }
        let Some(upstream) = upstream_of(links, conn) else { return false };
        let mut moved = false;
        for (at, slot) in upstream.slots.iter_mut().enumerate() {
            let session = match &slot.step {
                Step::Work(work, _) => work.session,
                Step::Save(id) if at == 0 => id.session,
                Step::Load(begin, receiving) if at == 0 && receiving.is_complete() => begin.id.session,
                Step::Working(_) | Step::Computed(..) | Step::Forwarded(_) | Step::Done(_) => continue,
                // A snapshot is alone.
                _ => break,
            };
            if sessions.is_busy(session) || out.len() >= config.max_tasks {
                break;
            }
            moved = true;
            let task = slot.task;
            let begun = match mem::replace(&mut slot.step, Step::Loading) {
                Step::Work(work, width) => {
                    let taken = if work.flags.contains(WorkFlags::RESET) {
                        Some(sessions.reset(session, task))
                    } else {
                        sessions.take(session, work.prefix_hash, task)
                    };
                    let Some(taken) = taken else {
                        slot.step = Step::Done(failed(work.request, &Refusal::Prefix.to_string()));
                        continue;
                    };
                    let (job, activations) = Job::new(*work, width, *now);
                    let wants = job.wants(config.values);
                    let hash = job.work.result_hash;
                    let event = job.task(task, taken.is_new, activations, wants);
                    slot.step = Step::Working(Box::new(job));
                    (What::Work { wants, width: width.bytes(), hash }, taken.freed, event)
                }
                Step::Save(id) => {
                    if !sessions.look(session, id.token_hash, task) {
                        slot.step = Step::Done(no_snapshot(id, &Refusal::Prefix.to_string()));
                        continue;
                    }
                    slot.step = Step::Saving;
                    (What::Save(id), None, WorkerEvent::Save { task, id })
                }
                Step::Load(begin, receiving) => {
                    let taken = sessions.reset(session, task);
                    let Begin { id, tokens, .. } = *begin;
                    let payload = receiving.into_payload();
                    let event = WorkerEvent::Load { task, id, tokens, payload };
                    (What::Load { hash: id.token_hash }, taken.freed, event)
                }
                other => {
                    slot.step = other;
                    continue;
                }
            };
            let (what, freed, event) = begun;
            out.insert(task, Out { conn, session, what });
            events.extend(freed.map(|session| WorkerEvent::Freed { session }));
            events.push_back(event);
            if !matches!(slot.step, Step::Working(_)) {
                // A snapshot is alone.
                break;
            }
        }
        moved
    }

    /// Whether a snapshot is on its way.
    pub(super) fn is_pouring(&mut self, conn: ConnId) -> bool {
        let front = self.upstream(conn).and_then(|upstream| upstream.slots.front());
        front.is_some_and(|slot| matches!(slot.step, Step::Sending(_)))
    }

    /// Sends the next chunk of a snapshot, when the one before is sent.
    pub(super) fn pour(&mut self, conn: ConnId) -> bool {
        if self.links.get(conn).is_none_or(|(peer, _)| peer.waiting() > 0) {
            return false;
        }
        let Some(slot) = self.upstream(conn).and_then(|upstream| upstream.slots.front_mut()) else {
            return false;
        };
        let Step::Sending(sending) = &mut slot.step else { return false };
        let chunk = sending.next().map(|(chunk, data)| (chunk, data.to_vec()));
        if sending.is_over() {
            slot.step = Step::Done(done(slot.request, None));
        }
        if let Some((chunk, data)) = chunk {
            self.send(conn, Message::Chunk(chunk));
            self.links.send(conn, &Piece::Data(data));
        }
        self.answer(conn);
        true
    }
}

impl Job {
    /// What is wanted of its owner.
    fn wants(&self, values: u32) -> Wants {
        let flags = self.work.flags;
        if self.next_hop().is_some() {
            let bytes = check::activation_bytes(values, self.work.tokens.len(), self.width);
            Wants::Forward { bytes }
        } else if flags.contains(WorkFlags::ACK_ONLY) {
            Wants::Ack
        } else if flags.contains(WorkFlags::LOGITS) {
            Wants::Logits
        } else {
            Wants::Hidden
        }
    }

    fn task(&self, id: TaskId, is_new: bool, activations: alloc::vec::Vec<u8>, wants: Wants) -> WorkerEvent {
        WorkerEvent::Work(Box::new(Task {
            id,
            session: self.work.session,
            request: self.work.request,
            is_new,
            pos0: self.work.pos0,
            tokens: self.work.tokens.clone(),
            activations,
            width: self.width,
            wants,
        }))
    }
}
