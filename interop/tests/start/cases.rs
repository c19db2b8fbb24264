//! [`Case`]: what participants do to a frontend, and how each of the frontends ends it.

use std::time::Duration;

use bytes::Bytes;
use cuframes_barrier::message::{Registration, Status};
use cuframes_interop::{LIMIT, within};
use tokio::task::{JoinSet, LocalSet};
use ts_wire::{HandshakeInitMessage, decode_bytes};
use zeromq::util::PeerIdentity;
use zeromq::{DealerSocket, Socket, SocketOptions, SocketRecv, SocketSend, ZmqMessage};

use crate::frontends::{End, Frontend, barrier};

/// What participants do, and what comes of it.
#[derive(Debug)]
pub(crate) struct Case {
    /// What happens, as a sentence.
    pub(crate) what: &'static str,
    pub(crate) count: u16,
    pub(crate) steps: Vec<Step>,
    /// What the original's error must contain; empty if it starts.
    pub(crate) original: &'static str,
    /// Our fault, as it is told; empty if it starts. `{after}` is the deadline.
    pub(crate) ours: &'static str,
    /// The same with all that is new, where that differs.
    pub(crate) new: Option<&'static str>,
}

/// Something that one of the participants does.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// It connects to the handshake socket with this routing id.
    Connect(usize, Vec<u8>),
    /// It sends these frames there.
    Say(usize, Vec<Vec<u8>>),
    /// It waits for INIT.
    Init(usize),
    /// It connects to the input socket with this routing id, wherever an INIT said that it is.
    Input(usize, Vec<u8>),
    /// It sends these frames there.
    Register(usize, Vec<Vec<u8>>),
    /// It ends.
    Leave(usize),
}

/// The routing id of an index.
pub(crate) fn id(index: u16) -> Vec<u8> {
    index.to_le_bytes().into()
}

pub(crate) fn word(word: &str) -> Vec<u8> {
    Status::new(word).encode()
}

/// Connects and says HELLO.
pub(crate) fn hello(n: u16) -> Vec<Step> {
    vec![Step::Connect(n.into(), id(n)), Step::Say(n.into(), vec![word("HELLO")])]
}

/// As it should be until INIT is there.
pub(crate) fn greet(n: u16) -> Vec<Step> {
    [hello(n), vec![Step::Init(n.into())]].concat()
}

/// As it should be until READY is said.
pub(crate) fn ready(n: u16) -> Vec<Step> {
    [greet(n), vec![Step::Say(n.into(), vec![word("READY")])]].concat()
}

/// Registers, after READY.
pub(crate) fn register(n: u16, count: u16) -> Vec<Step> {
    let registration = Registration::new(n, count).encode();
    vec![Step::Input(n.into(), id(n)), Step::Register(n.into(), vec![registration])]
}

/// As it should be.
pub(crate) fn joins(n: u16, count: u16) -> Vec<Step> {
    [ready(n), register(n, count)].concat()
}

/// A case that ends the same way everywhere.
pub(crate) fn case(
    what: &'static str,
    count: u16,
    steps: &[Vec<Step>],
    original: &'static str,
    ours: &'static str,
) -> Case {
    Case { what, count, steps: steps.concat(), original, ours, new: None }
}

/// One that what is new ends otherwise.
pub(crate) fn new(case: Case, new: &'static str) -> Case {
    Case { new: Some(new), ..case }
}

pub(crate) fn say(n: usize, frames: &[&[u8]]) -> Vec<Step> {
    vec![Step::Say(n, frames.iter().map(|frame| frame.to_vec()).collect())]
}

pub(crate) fn registers(n: usize, frames: &[&[u8]]) -> Vec<Step> {
    vec![Step::Register(n, frames.iter().map(|frame| frame.to_vec()).collect())]
}

/// Ready, and with an input socket under this routing id.
pub(crate) fn at_input(n: u16, id: &[u8]) -> Vec<Step> {
    [ready(n), vec![Step::Input(n.into(), id.to_vec())]].concat()
}

pub(crate) fn registration(rank: u16, size: u16) -> Vec<u8> {
    Registration::new(rank, size).encode()
}

/// All at once: most of their time is waiting.
pub(crate) async fn check(cases: Vec<Case>) {
    let tried = async {
        let all: JoinSet<_> = cases.into_iter().map(Case::check).fold(JoinSet::new(), |mut all, case| {
            all.spawn_local(case);
            all
        });
        all.join_all().await.concat()
    };
    let wrong = LocalSet::new().run_until(tried).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl Case {
    /// Tries it on all of the frontends, and says what was not as it should be.
    pub(crate) async fn check(self) -> Vec<String> {
        let new = self.new.unwrap_or(self.ours);
        let original =
            self.attempt(self.original, async |timeout| Frontend::original(0, self.count, timeout).await);
        let ours =
            self.attempt(self.ours, async |timeout| Frontend::ours(barrier(0, self.count, timeout, false)));
        let extended =
            self.attempt(new, async |timeout| Frontend::ours(barrier(0, self.count, timeout, true)));
        let (original, ours, extended) = tokio::join!(original, ours, extended);
        let tried = [("the original", original), ("ours", ours), ("ours with all that is new", extended)];
        let wrong = tried.into_iter().filter_map(|(who, wrong)| Some((who, wrong?)));
        wrong.map(|(who, wrong)| format!("{}: {who}: {wrong}", self.what)).collect()
    }

    /// Tries it on one of them. Where the deadline ends it, a machine that is slow does not come as far as it should within
    /// the first one, so there are longer ones.
    async fn attempt(&self, expected: &str, frontend: impl AsyncFn(Duration) -> Frontend) -> Option<String> {
        let is_deadline = expected.contains("{after}") || expected.starts_with("handshake timed out");
        let timeouts: &[u64] = if is_deadline { &[1, 4, 16] } else { &[50] };
        let mut wrong = None;
        for timeout in timeouts {
            let timeout = Duration::from_secs(*timeout);
            let end = self.run(frontend(timeout).await).await;
            let expected = expected.replace("{after}", &format!("{timeout:?}"));
            let is_right = match &end {
                Ok(all) => expected.is_empty() && all.len() == usize::from(self.count),
                Err(error) => !expected.is_empty() && error.contains(&expected),
            };
            if is_right {
                return None;
            }
            wrong = Some(format!("{end:?}, not {expected:?}"));
        }
        wrong
    }

    async fn run(&self, mut frontend: Frontend) -> End {
        let mut script =
            Script { address: frontend.address.clone(), input: String::new(), peers: Vec::new() };
        // Whoever is refused does not get through the rest; and everybody stays until the end.
        tokio::select! {
            end = frontend.end() => return end,
            () = script.run(&self.steps) => {}
        }
        frontend.end().await
    }
}

/// The participants of a case.
struct Script {
    address: String,
    input: String,
    peers: Vec<Peer>,
}

#[derive(Default)]
struct Peer {
    handshake: Option<DealerSocket>,
    input: Option<DealerSocket>,
}

impl Script {
    async fn run(&mut self, steps: &[Step]) {
        for step in steps {
            if self.take(step).await.is_none() {
                return;
            }
        }
    }

    /// `None` if the frontend has closed what is needed for it.
    async fn take(&mut self, step: &Step) -> Option<()> {
        let (Step::Connect(n, _)
        | Step::Say(n, _)
        | Step::Init(n)
        | Step::Input(n, _)
        | Step::Register(n, _)
        | Step::Leave(n)) = step;
        if self.peers.len() <= *n {
            self.peers.resize_with(n + 1, Peer::default);
        }
        let peer = &mut self.peers[*n];
        match step {
            Step::Connect(_, id) => peer.handshake = Some(dealer(&self.address, id).await?),
            Step::Input(_, id) => peer.input = Some(dealer(&self.input, id).await?),
            Step::Say(_, frames) => peer.handshake.as_mut()?.send(message(frames)).await.ok()?,
            Step::Register(_, frames) => peer.input.as_mut()?.send(message(frames)).await.ok()?,
            Step::Init(_) => {
                let init = within("INIT", peer.handshake.as_mut()?.recv()).await.ok()?.into_vec();
                let init: HandshakeInitMessage = decode_bytes(&init[0]).unwrap();
                self.input.clone_from(&init.addresses.inputs[0]);
            }
            Step::Leave(_) => *peer = Peer::default(),
        }
        Some(())
    }
}

/// A DEALER with this routing id, or without one.
async fn dealer(address: &str, id: &[u8]) -> Option<DealerSocket> {
    let mut options = SocketOptions::default();
    if !id.is_empty() {
        options.peer_identity(PeerIdentity::try_from(id.to_vec()).unwrap());
    }
    options.connect_timeout(LIMIT);
    let mut socket = DealerSocket::with_options(options);
    socket.connect(address).await.ok()?;
    Some(socket)
}

fn message(frames: &[Vec<u8>]) -> ZmqMessage {
    let frames: Vec<Bytes> = frames.iter().cloned().map(Bytes::from).collect();
    ZmqMessage::try_from(frames).unwrap()
}
