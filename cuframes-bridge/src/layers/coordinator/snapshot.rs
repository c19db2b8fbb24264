//! [`Transfer`]: a snapshot that is saved or loaded, on a connection of its own.

use alloc::vec::Vec;

use cuframes_core::Instant;
use cuframes_core::streams::ConnId;

use super::request::{CoordinatorEvent, Failure, SubmitError};
use super::{Coordinator, How, Role};
use crate::layers::Fault;
use crate::layers::peer::{Arrived, Piece};
use crate::layers::transfer::{ChunkFault, Receiving, Sending};
use crate::wire::{Begin, Done, Message, SnapshotId, WireError, token_hash};

/// A snapshot under way.
#[derive(Debug)]
pub(super) struct Transfer {
    /// The control connection of the worker.
    pub(super) worker: ConnId,
    pub(super) id: SnapshotId,
    pub(super) deadline: Option<Instant>,
    pub(super) is_connected: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// A snapshot was asked for.
    Asked,
    /// It comes.
    Receiving(Vec<u32>, Receiving),
    /// One is sent.
    Sending(Sending),
}

impl Coordinator {
    /// Asks a worker for what it has of a session, whose tokens have this hash. Answers the number of the request: they count
    /// up from 2^63.
    ///
    /// # Errors
    /// If it can't be sent now: [`SubmitError`] says why.
    pub fn save(
        &mut self,
        now: Instant,
        worker: ConnId,
        session: u64,
        token_hash: u64,
        token_count: u32,
    ) -> Result<u64, SubmitError> {
        let id = SnapshotId { session, token_hash, token_count, ..SnapshotId::default() };
        self.begin(now, worker, id, |id| (State::Asked, Message::SaveRequest(id)))
    }

    /// Gives a worker what it had of a session. Answers the number of the request: they count up from 2^63.
    ///
    /// # Errors
    /// If it can't be sent now: [`SubmitError`] says why.
    pub fn load(
        &mut self,
        now: Instant,
        worker: ConnId,
        session: u64,
        tokens: Vec<u32>,
        payload: Vec<u8>,
    ) -> Result<u64, SubmitError> {
        let token_count = u32::try_from(tokens.len()).map_err(|_| SubmitError::Tokens)?;
        if token_count > self.config.limits.tokens {
            return Err(SubmitError::Tokens);
        }
        let hash = token_hash(&tokens);
        let id = SnapshotId { session, token_hash: hash, token_count, ..SnapshotId::default() };
        let size = self.config.chunk_bytes;
        self.begin(now, worker, id, |id| {
            let payload_bytes = u64::try_from(payload.len()).unwrap_or(u64::MAX);
            let begin = Begin { id, payload_bytes, tokens, ..Begin::default() };
            (State::Sending(Sending::new(id.request, payload, size)), Message::LoadBegin(begin))
        })
    }

    fn begin(
        &mut self,
        now: Instant,
        worker: ConnId,
        id: SnapshotId,
        make: impl FnOnce(SnapshotId) -> (State, Message),
    ) -> Result<u64, SubmitError> {
        self.tick(now);
        if self.is_over {
            return Err(SubmitError::ShutDown);
        }
        let member = self.registry.get(worker).ok_or(SubmitError::NoWorker)?;
        let host = member.host.clone().ok_or(SubmitError::NoWorker)?;
        let port = member.hello.listen_port;
        let (layer_start, layer_end) = (member.hello.layer_start, member.hello.layer_end);
        let transfers = self.links.iter().filter(|(_, line)| matches!(line.role, Role::Transfer(_)));
        if transfers.count() >= self.config.max_snapshots {
            return Err(SubmitError::Full);
        }
        let (model_id, request) = (self.config.model_id, self.next_snapshot);
        self.next_snapshot += 1;
        let id = SnapshotId { model_id, request, layer_start, layer_end, ..id };
        let (state, message) = make(id);
        let deadline = Some(self.now + self.config.connect_timeout);
        let transfer = Transfer { worker, id, deadline, is_connected: false, state };
        let conn = self.connect(&host, port, Role::Transfer(alloc::boxed::Box::new(transfer)));
        self.send(conn, message);
        self.look();
        Ok(request)
    }

    /// Takes what a worker says about a snapshot.
    pub(super) fn transfer(&mut self, conn: ConnId, arrived: Arrived) -> Result<(), Fault> {
        let max = self.config.snapshot_bytes;
        let Some(Role::Transfer(transfer)) = self.role(conn) else { return Ok(()) };
        let id = transfer.id;
        match (&mut transfer.state, arrived) {
            (State::Asked, Arrived::Message(Message::Begin(begin))) => {
                let is_right = SnapshotId { token_count: id.token_count, ..begin.id } == id;
                if !is_right {
                    return Err(Fault::Order { got: begin.id.request, expected: Some(id.request) });
                }
                if begin.status != 0 {
                    self.finish(conn, Err(begin.message));
                    return Ok(());
                }
                if begin.id.token_count != id.token_count || token_hash(&begin.tokens) != id.token_hash {
                    return Err(Fault::Hash { request: id.request });
                }
                if usize::try_from(begin.payload_bytes).is_ok_and(|bytes| bytes <= max) {
                    let receiving = Receiving::new(id.request, begin.payload_bytes);
                    transfer.state = State::Receiving(begin.tokens, receiving);
                    return Ok(());
                }
                let (kind, field) = (Message::Begin(Begin::default()).kind(), "payload_bytes");
                Err(Fault::Frame(WireError::Field { kind, field, value: begin.payload_bytes }))
            }
            (State::Receiving(_, receiving), Arrived::Message(Message::Chunk(chunk))) => {
                receiving.begin(chunk).map_err(Fault::Chunk)
            }
            (State::Receiving(_, receiving), Arrived::Data(data)) => {
                receiving.push(&data);
                Ok(())
            }
            (State::Receiving(..) | State::Sending(_), Arrived::Message(Message::Done(done))) => {
                self.done(conn, done)
            }
            (_, other) => Err(other.fault()),
        }
    }

    fn done(&mut self, conn: ConnId, done: Done) -> Result<(), Fault> {
        let Some(Role::Transfer(transfer)) = self.role(conn) else { return Ok(()) };
        let request = transfer.id.request;
        if done.request != request {
            return Err(Fault::Order { got: done.request, expected: Some(request) });
        }
        if done.status != 0 {
            self.finish(conn, Err(done.message));
            return Ok(());
        }
        let left = match &transfer.state {
            State::Receiving(_, receiving) => receiving.missing(),
            State::Sending(sending) => sending.left(),
            State::Asked => 0,
        };
        if left > 0 {
            return Err(Fault::Chunk(ChunkFault::Missing { left }));
        }
        self.finish(conn, Ok(()));
        Ok(())
    }

    /// A snapshot is over, and so is its connection.
    fn finish(&mut self, conn: ConnId, result: Result<(), alloc::string::String>) {
        let Some(line) = self.links.what_mut(conn) else { return };
        let Role::Transfer(transfer) = core::mem::replace(&mut line.role, Role::Closing) else { return };
        self.links.close(conn);
        let request = transfer.id.request;
        self.events.push_back(match (result, transfer.state) {
            (Err(text), _) => CoordinatorEvent::Failed { request, failure: Failure::Remote(text) },
            (Ok(()), State::Receiving(tokens, receiving)) => {
                CoordinatorEvent::Saved { request, tokens, payload: receiving.into_payload() }
            }
            (Ok(()), _) => CoordinatorEvent::Loaded { request },
        });
    }

    /// Sends the next chunk of a snapshot, when the one before is sent.
    pub(super) fn pour(&mut self, conn: ConnId) {
        if self.links.get(conn).is_none_or(|(peer, _)| peer.waiting() > 0) {
            return;
        }
        let Some(Role::Transfer(transfer)) = self.role(conn) else { return };
        let State::Sending(sending) = &mut transfer.state else { return };
        let Some((chunk, data)) = sending.next().map(|(chunk, data)| (chunk, data.to_vec())) else { return };
        self.send(conn, Message::Chunk(chunk));
        self.links.send(conn, &Piece::Data(data));
    }

    /// The connection of a snapshot is gone before it was over.
    pub(super) fn transfer_gone(&mut self, transfer: &Transfer, fault: Fault) {
        let failure = Failure::Transport(fault);
        self.events.push_back(CoordinatorEvent::Failed { request: transfer.id.request, failure });
    }

    /// Ends everything that is under way through a worker that is gone.
    pub(super) fn worker_gone(&mut self, worker: ConnId) {
        let conns = self.links.iter().filter(|(_, line)| match &line.role {
            Role::Channel(channel) => channel.needs(worker),
            Role::Transfer(transfer) => transfer.worker == worker,
            _ => false,
        });
        for conn in conns.map(|(conn, _)| conn).collect::<Vec<_>>() {
            self.end(conn, How::Now, Fault::Gone);
        }
    }
}
