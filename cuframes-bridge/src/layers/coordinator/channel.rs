//! [`Channel`]: a connection to the first worker of a route.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use cuframes_core::Instant;
use cuframes_core::streams::ConnId;

use super::request::{Answer, CoordinatorEvent, Failure, Request, SubmitError};
use super::{Coordinator, How, Role};
use crate::layers::peer::Arrived;
use crate::layers::{Fault, Path};
use crate::wire::{Message, ResultKind};

/// A connection to the data port of a worker, for requests.
#[derive(Debug)]
pub(super) struct Channel {
    /// The control connection of the worker.
    pub(super) worker: ConnId,
    /// What is not answered, in order.
    pub(super) pending: VecDeque<Pending>,
    /// By when it has to be connected, or to say something.
    pub(super) deadline: Option<Instant>,
    pub(super) is_connected: bool,
}

/// A request that is not answered.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) request: u64,
    result_hash: u64,
    kind: ResultKind,
    /// The workers of its route.
    route: Vec<ConnId>,
}

impl Channel {
    /// Whether something is under way on it that needs this worker.
    pub(super) fn needs(&self, worker: ConnId) -> bool {
        self.worker == worker || self.pending.iter().any(|pending| pending.route.contains(&worker))
    }
}

impl Coordinator {
    /// Sends tokens through all layers. Answers the number of the request: they count up from 1. Several may be under way, each
    /// of which follows the one before without waiting for it.
    ///
    /// # Errors
    /// If it can't be sent now: [`SubmitError`] says why.
    pub fn submit(&mut self, now: Instant, request: Request) -> Result<u64, SubmitError> {
        self.tick(now);
        if self.is_over {
            return Err(SubmitError::ShutDown);
        }
        let path = self.path().map_err(SubmitError::Route)?;
        self.check(&request, &path)?;
        let (first, port) =
            path.hops().first().map(|hop| (hop.conn, hop.hello.listen_port)).ok_or(SubmitError::NoWorker)?;
        let window = self.config.window(path.hops().len());
        let channel = self.channel_to(first);
        if channel.is_some_and(|(_, pending)| pending >= window) {
            return Err(SubmitError::Full);
        }
        let (result_hash, kind) = (request.result_hash(), request.wants.kind());
        let work = request.into_work(self.config.model_id, self.next_request, &path);
        let message = Message::Work(alloc::boxed::Box::new(work));
        let number = self.next_request;
        self.next_request += 1;
        let conn = match channel {
            Some((conn, _)) => conn,
            None => {
                let host = path.hops().first().and_then(|hop| hop.host.clone()).unwrap_or_default();
                let deadline = Some(self.now + self.config.connect_timeout);
                let pending = VecDeque::new();
                let channel = Channel { worker: first, pending, deadline, is_connected: false };
                self.connect(&host, port, Role::Channel(channel))
            }
        };
        self.send(conn, message);
        let due = self.due();
        if let Some(Role::Channel(channel)) = self.role(conn) {
            let route = path.hops().iter().map(|hop| hop.conn).collect();
            channel.pending.push_back(Pending { request: number, result_hash, kind, route });
            if channel.is_connected && channel.pending.len() == 1 {
                channel.deadline = due;
            }
        }
        self.look();
        Ok(number)
    }

    /// How many requests are under way.
    #[must_use]
    pub fn pending(&self) -> usize {
        let pending = self.links.iter().map(|(_, line)| match &line.role {
            Role::Channel(channel) => channel.pending.len(),
            _ => 0,
        });
        pending.sum()
    }

    fn check(&self, request: &Request, path: &Path) -> Result<(), SubmitError> {
        let require = |holds: bool, error| if holds { Ok(()) } else { Err(error) };
        let tokens = u64::try_from(request.tokens.len()).unwrap_or(u64::MAX);
        let all = tokens.saturating_add(request.pos0.into());
        require(tokens > 0 && all <= u64::from(self.config.ctx_size), SubmitError::Tokens)?;
        let each = request.tokens.len().saturating_mul(request.width.bytes());
        let is_right = request.activations.is_empty() == (self.config.local_layers == 0)
            && request.activations.len().checked_rem(each) == Some(0);
        require(is_right, SubmitError::Activations)?;
        let has_output = path.hops().last().is_some_and(|last| last.hello.has_output == 1);
        require(has_output || request.wants.kind() != ResultKind::LOGITS, SubmitError::NoOutput)?;
        let hops = path.hops().iter().map(|hop| hop.host.as_ref().map_or(0, alloc::string::String::len) + 20);
        let bytes = [80 + 12, request.tokens.len().saturating_mul(4), request.activations.len()];
        let bytes = bytes.into_iter().chain(hops).fold(0_usize, usize::saturating_add);
        let fits = u32::try_from(bytes).is_ok_and(|bytes| bytes <= self.config.limits.work_bytes);
        require(fits, SubmitError::TooLong)
    }

    /// The connection to the data port of a worker, and how much is under way on it.
    fn channel_to(&self, worker: ConnId) -> Option<(ConnId, usize)> {
        self.links.iter().find_map(|(conn, line)| match &line.role {
            Role::Channel(channel) if channel.worker == worker => Some((conn, channel.pending.len())),
            _ => None,
        })
    }

    /// Takes what the first worker of a route answers.
    pub(super) fn answered(&mut self, conn: ConnId, arrived: Arrived) -> Result<(), Fault> {
        let result = match arrived {
            Arrived::Message(Message::Result(result)) => result,
            other => return Err(other.fault()),
        };
        result.check().map_err(Fault::Frame)?;
        let Some(Role::Channel(channel)) = self.role(conn) else { return Ok(()) };
        let got = result.request;
        let expected = channel.pending.front().map(|pending| pending.request);
        let Some(first) = channel.pending.front().filter(|first| first.request == got) else {
            return Err(Fault::Order { got, expected });
        };
        let error = result.error();
        if error.is_none() {
            if result.result_hash != first.result_hash {
                return Err(Fault::Hash { request: got });
            }
            if result.kind != first.kind {
                return Err(Fault::Kind { request: got, got: result.kind });
            }
        }
        channel.pending.pop_front();
        if channel.pending.is_empty() {
            channel.deadline = None;
        }
        self.events.push_back(match error {
            None => CoordinatorEvent::Answer(Answer::new(*result)),
            Some(text) => {
                let text = cuframes_core::text::cut(&text, self.max_text()).into();
                CoordinatorEvent::Failed { request: got, failure: Failure::Remote(text) }
            }
        });
        Ok(())
    }

    /// The way to a first worker failed: its requests fail, and every worker of their routes is forgotten.
    pub(super) fn channel_gone(&mut self, channel: &Channel, fault: &Fault, is_forgotten: bool) {
        let mut members = BTreeSet::new();
        for Pending { request, route, .. } in &channel.pending {
            let failure = Failure::Transport(fault.clone());
            self.events.push_back(CoordinatorEvent::Failed { request: *request, failure });
            members.extend(route);
        }
        if is_forgotten {
            for worker in members {
                self.end(worker, How::Now, Fault::Forgotten);
            }
        }
    }
}
