//! Our publisher's sessions pass the suite for publishers, on virtual time, with a driver that does the least a driver must.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failure ends the test")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::EventHandle;
use cuframes_core::ring::StallClock;
use cuframes_core::roster::Departure;
use cuframes_core::session::{
    Closed, PublisherEvent, PublisherOffer, PublisherSession, Session, SubscribeRequest,
};
use cuframes_core::shm::StreamHeader;
use cuframes_core::wire::ShutdownReason;
use cuframes_core::wire::control::EventFd;
use cuframes_core::{Backend, Features, Gone, Instant, Policy, SubscriberBit};
use cuframes_testkit::conformance::session::Wire;
use cuframes_testkit::conformance::session::bytes::{Stream, meta};
use cuframes_testkit::conformance::session::publisher::{Publisher, Timeouts, purposes};
use cuframes_testkit::heap::{HeapRing, PID};
use cuframes_testkit::pair::offer;
use cuframes_testkit::pipe::Pipe;
use cuframes_testkit::solo::FEATURES;
use cuframes_testkit::{layout, publisher_conformance};

/// A publisher whose stream needs the features `REQUIRED`.
struct Simulated<const REQUIRED: u32>(Rc<RefCell<Machine>>);

type PlainV1Welcome = Simulated<0>;
type FdPassingNeeded = Simulated<{ Features::FD_PASSING.0 }>;

publisher_conformance!(for_everybody, PlainV1Welcome);
publisher_conformance!(with_fd_passing, FdPassingNeeded);

/// A descriptor; [`Machine::junk`] knows whether it is open.
type Fd = Rc<()>;

/// The publisher, and the sockets of its peers.
struct Machine {
    now: Instant,
    ring: HeapRing,
    stall: StallClock,
    offer: Arc<PublisherOffer>,
    peers: Vec<Peer>,
    grace: Duration,
    /// When it stops waiting for subscribers.
    stop: Option<Instant>,
    junk: Vec<Weak<()>>,
}

struct Peer {
    session: PublisherSession<Fd>,
    inbox: Pipe<Fd>,
    outbox: Pipe<Fd>,
    bit: Option<SubscriberBit>,
}

struct Socket {
    machine: Rc<RefCell<Machine>>,
    index: usize,
}

impl Machine {
    /// Goes on until nothing moves any more. No time passes.
    fn settle(&mut self) {
        while (0..self.peers.len()).fold(false, |moved, index| self.turn(index) | moved) {}
    }

    /// Reads, sends, and does what the events ask for; says whether there was anything.
    fn turn(&mut self, index: usize) -> bool {
        let Self { now, peers, .. } = self;
        let Peer { session, inbox, outbox, .. } = &mut peers[index];
        let mut moved = false;
        let mut fds = VecDeque::new();
        if !session.is_closed()
            && let Some(bytes) = inbox.read(&mut fds)
        {
            moved = true;
            if bytes.is_empty() {
                session.handle_eof(*now);
            } else {
                session.handle_bytes(*now, &bytes, &mut fds);
            }
        }
        while let Some(transmit) = session.poll_transmit() {
            let n = outbox.write(transmit);
            if n == 0 {
                break;
            }
            moved = true;
            session.transmitted(n);
        }
        while let Some(event) = self.peers[index].session.poll_event() {
            moved = true;
            self.act(index, event);
        }
        let peer = &mut self.peers[index];
        if peer.session.is_closed() {
            peer.outbox.end();
            peer.inbox = Pipe::default();
        }
        moved
    }

    fn act(&mut self, index: usize, event: PublisherEvent) {
        match event {
            PublisherEvent::Subscribe(request) => self.admit(index, request),
            PublisherEvent::Closed(closed) => {
                if let Some(bit) = self.peers[index].bit.take() {
                    let clean = closed == Closed::Gone(Gone::Unsubscribed);
                    let departure = if clean { Departure::Clean } else { Departure::Abrupt };
                    self.ring.roster.leave(self.now, bit, departure);
                }
            }
            _ => {}
        }
    }

    fn admit(&mut self, index: usize, request: SubscribeRequest) {
        let features = request.features;
        let answer = self.ring.roster.admit(PID, request);
        let Peer { session, bit, .. } = &mut self.peers[index];
        *bit = answer.ok().map(|subscribed| subscribed.bit);
        session.admit(self.now, answer).unwrap();
        for purpose in purposes(features.0).into_iter().filter(|_| answer.is_ok()) {
            session
                .offer_fd(EventFd::single(cuframes_core::wire::FdPurpose(purpose)), Fd::default())
                .unwrap();
        }
    }

    /// Goes on to the next deadline; `false` if there is none.
    fn advance(&mut self) -> bool {
        let Some(due) = self.poll_timeout() else { return false };
        self.now = self.now.max(due);
        self.ring.roster.handle_timeout(self.now);
        let over = self.stop.is_some_and(|stop| stop <= self.now);
        for Peer { session, .. } in &mut self.peers {
            session.handle_timeout(self.now);
            if over {
                session.handle_eof(self.now);
            }
        }
        self.settle();
        true
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let open = self.peers.iter().filter(|peer| !peer.session.is_closed());
        let stop = self.stop.filter(|_| open.clone().count() > 0);
        open.filter_map(|peer| peer.session.poll_timeout()).chain(stop).min()
    }

    fn publish(&mut self) {
        self.settle();
        loop {
            let stalled = match self.ring.writer.claim() {
                Ok(claim) => {
                    let _ = claim.commit(0, 0);
                    return;
                }
                Err(stalled) => stalled,
            };
            if self.stall.stalled(self.now, &stalled, self.ring.writer.members()) {
                let accused: Vec<_> = self.ring.roster.take_accused().collect();
                for (bit, _) in accused {
                    let peer = self.peers.iter_mut().find(|peer| peer.bit == Some(bit)).unwrap();
                    peer.session.expel(self.now, ErrorCode::EVICTED, "no acknowledgement");
                }
                self.settle();
            } else {
                self.now = self.stall.deadline().unwrap();
            }
        }
    }
}

impl<const REQUIRED: u32> Publisher for Simulated<REQUIRED> {
    type Wire = Socket;

    fn new(timeouts: Timeouts) -> Self {
        let offer = PublisherOffer {
            required: Features(REQUIRED),
            handshake_timeout: timeouts.handshake,
            ..offer(FEATURES.union(Features::NO_ACK))
        };
        let ring = HeapRing::new(8, Policy::STRICT_WAIT);
        let PublisherOffer { ring_size, ownership, meta, features, .. } = offer;
        let header = StreamHeader {
            lib_version: [0, 1, 0],
            producer_pid: 1,
            ring_size,
            ownership,
            policy: Policy::STRICT_WAIT,
            meta,
            ipc_event_handle: EventHandle::NONE,
            features,
            backend: Backend::HOST,
            epoch: 1,
        };
        header.write(&ring.region);
        let mut deadlines = cuframes_core::Timeouts::default();
        deadlines.consumer_ack = timeouts.consumer_ack;
        let machine = Machine {
            now: Instant::ZERO,
            ring,
            stall: StallClock::new(&deadlines),
            offer: Arc::new(offer),
            peers: Vec::new(),
            grace: timeouts.grace,
            stop: None,
            junk: Vec::new(),
        };
        Self(Rc::new(RefCell::new(machine)))
    }

    fn stream(&self) -> Stream {
        Stream {
            version: 1,
            ring_size: 8,
            ownership: 0,
            meta: meta(1, [1920, 1080], [2048, 2048], 12, 3_317_760),
            shm_path: "/dev/shm/cuframes-cam0".into(),
            features: 0b100_0111,
        }
    }

    fn required(&self) -> u32 {
        REQUIRED
    }

    fn peer_pid(&self) -> u64 {
        PID
    }

    fn connect(&self) -> Socket {
        let mut machine = self.0.borrow_mut();
        let session = PublisherSession::new(machine.now, Arc::clone(&machine.offer));
        // As much as a socket holds.
        let mut outbox = Pipe::default();
        outbox.capacity = 200_000;
        machine.peers.push(Peer { session, inbox: Pipe::default(), outbox, bit: None });
        Socket { machine: Rc::clone(&self.0), index: machine.peers.len() - 1 }
    }

    fn publish(&self) {
        self.0.borrow_mut().publish();
    }

    fn shut_down(&self, reason: u32) {
        let machine = &mut *self.0.borrow_mut();
        machine.stop = Some(machine.now + machine.grace);
        machine.ring.roster.shut_down();
        for peer in &mut machine.peers {
            peer.session.shutdown(machine.now, ShutdownReason(reason));
        }
        machine.settle();
    }

    fn word(&self, offset: usize) -> u64 {
        let mut machine = self.0.borrow_mut();
        machine.settle();
        layout::word(&machine.ring.region, offset).load(Relaxed)
    }
}

impl Wire for Socket {
    fn send(&mut self, bytes: &[u8], fds: &[u32]) -> bool {
        let machine = &mut *self.machine.borrow_mut();
        let fds: Vec<Fd> = fds.iter().map(|_| Fd::default()).collect();
        machine.junk.extend(fds.iter().map(Rc::downgrade));
        let Peer { session, inbox, .. } = &mut machine.peers[self.index];
        if session.is_closed() {
            return false;
        }
        inbox.write_with(bytes, fds);
        machine.settle();
        true
    }

    fn receive(&mut self, max: usize) -> (Vec<u8>, usize) {
        let machine = &mut *self.machine.borrow_mut();
        loop {
            machine.settle();
            let outbox = &mut machine.peers[self.index].outbox;
            outbox.read_size = max;
            let mut fds = VecDeque::new();
            if let Some(bytes) = outbox.read(&mut fds) {
                return (bytes, fds.len());
            }
            assert!(machine.advance(), "it waits for something that never comes");
        }
    }

    fn pass(&mut self, time: Duration) {
        let machine = &mut *self.machine.borrow_mut();
        let until = machine.now + time;
        while machine.poll_timeout().is_some_and(|due| due <= until) {
            machine.advance();
        }
        machine.now = until;
        machine.settle();
    }

    fn junk_open(&mut self) -> usize {
        self.machine.borrow().junk.iter().filter(|fd| fd.strong_count() > 0).count()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let machine = &mut *self.machine.borrow_mut();
        machine.peers[self.index].inbox.end();
        machine.settle();
    }
}
