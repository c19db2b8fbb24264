//! Our subscriber's sessions pass the suite for subscribers, on virtual time, with a driver that does the least a driver must.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

use cuframes_core::session::{Closed, Session, SubscriberEvent, SubscriberHello, SubscriberSession};
use cuframes_core::{Features, Gone, Instant, SubscriberMode};
use cuframes_testkit::conformance::session::bytes::{
    FD_PASSING, HOST_POOL, Hello, PUBLISHER_WAKE_UP, REGION, Stream, WAKE_HINT, WAKE_UP, meta,
};
use cuframes_testkit::conformance::session::subscriber::{End, Subscriber};
use cuframes_testkit::conformance::session::{JUNK, Wire};
use cuframes_testkit::pipe::Pipe;
use cuframes_testkit::subscriber_conformance;

struct Simulated(Rc<RefCell<Machine>>);

subscriber_conformance!(session, Simulated);

/// A descriptor for a purpose; [`Machine::junk`] knows whether it is open.
type Fd = Rc<u32>;

/// The subscriber and its socket.
struct Machine {
    now: Instant,
    session: SubscriberSession<Fd>,
    inbox: Pipe<Fd>,
    outbox: Pipe<Fd>,
    features: Features,
    /// It has its bit.
    has_bit: bool,
    /// What is mapped or kept.
    fds: BTreeMap<u32, Fd>,
    ready: bool,
    end: Option<End>,
    junk: Vec<Weak<u32>>,
}

struct Socket(Rc<RefCell<Machine>>);

impl Machine {
    /// Goes on until nothing moves any more. No time passes.
    fn settle(&mut self) {
        loop {
            let mut fds = VecDeque::new();
            let bytes = self.inbox.read(&mut fds).filter(|_| !self.session.is_closed());
            match &bytes {
                Some(bytes) if bytes.is_empty() => self.session.handle_eof(self.now),
                Some(bytes) => self.session.handle_bytes(self.now, bytes, &mut fds),
                None => {}
            }
            let moved = self.flush();
            while let Some(event) = self.session.poll_event() {
                self.act(event);
            }
            if bytes.is_none() && !moved {
                return;
            }
        }
    }

    /// Sends what the socket takes, and closes it at the end; says whether anything was sent.
    fn flush(&mut self) -> bool {
        let mut moved = false;
        while let Some(transmit) = self.session.poll_transmit() {
            let n = self.outbox.write(transmit);
            if n == 0 {
                break;
            }
            self.session.transmitted(n);
            moved = true;
        }
        if self.session.is_closed() {
            self.outbox.end();
            self.inbox = Pipe::default();
        }
        moved
    }

    fn act(&mut self, event: SubscriberEvent<Fd>) {
        match event {
            SubscriberEvent::Stream(stream) => self.features = stream.features,
            SubscriberEvent::Subscribed(_) => self.has_bit = true,
            SubscriberEvent::Fd { purpose, fd, .. } => {
                assert!([purpose.0, JUNK].contains(&*fd), "a descriptor that belongs to another message");
                self.fds.insert(purpose.0, fd);
            }
            SubscriberEvent::Shutdown(reason) => self.end = Some(End::Shutdown(reason.0)),
            SubscriberEvent::Closed(closed) => {
                self.fds.clear();
                let why = match closed {
                    Closed::Violation(_) => End::Violation,
                    Closed::Refused(refused) => End::Refused(refused.code.0),
                    Closed::Gone(Gone::Shutdown(reason)) => End::Shutdown(reason.0),
                    Closed::Gone(Gone::Disconnected) => End::Disconnected,
                    Closed::Gone(Gone::Timeout { .. }) => End::Timeout,
                    Closed::Gone(Gone::NotReading) => End::NotReading,
                    Closed::Gone(Gone::Unsubscribed) => End::Unsubscribed,
                    other => panic!("{other}"),
                };
                self.end.get_or_insert(why);
            }
            _ => {}
        }
        let needed = [(FD_PASSING, [REGION, HOST_POOL]), (WAKE_HINT, [PUBLISHER_WAKE_UP, WAKE_UP])];
        let is_there = |purposes: [u32; 2]| purposes.iter().all(|purpose| self.fds.contains_key(purpose));
        let all = needed.into_iter().all(|(bit, fds)| self.features.0 & bit == 0 || is_there(fds));
        if self.has_bit && all && !self.ready {
            self.session.attached(self.now).unwrap();
            self.ready = true;
        }
    }
}

impl Subscriber for Simulated {
    type Wire = Socket;
    const NEEDED: u32 = 0;

    fn new(features: u32, patience: Duration) -> (Self, Socket) {
        let hello = SubscriberHello {
            name: "rec".parse().unwrap(),
            cuda_device: 2,
            mode: SubscriberMode::STRICT_ORDER,
            features: Features(features),
            handshake_timeout: patience,
        };
        let mut outbox = Pipe::default();
        // As much as a socket holds.
        outbox.capacity = 200_000;
        let machine = Rc::new(RefCell::new(Machine {
            now: Instant::ZERO,
            session: SubscriberSession::new(Instant::ZERO, hello),
            inbox: Pipe::default(),
            outbox,
            features: Features(features),
            has_bit: false,
            fds: BTreeMap::new(),
            ready: false,
            end: None,
            junk: Vec::new(),
        }));
        (Self(Rc::clone(&machine)), Socket(machine))
    }

    fn hello(&self) -> Hello {
        Hello::rec(self.0.borrow().features.0)
    }

    fn stream(&self) -> Stream {
        Stream {
            version: 1,
            ring_size: 8,
            ownership: 0,
            meta: meta(1, [1920, 1080], [2048, 2048], 12, 3_317_760),
            shm_path: "/dev/shm/cuframes-cam0".into(),
            features: self.0.borrow().features.0,
        }
    }

    fn is_ready(&self) -> bool {
        self.0.borrow().ready
    }

    fn leave(&self) {
        let machine = &mut *self.0.borrow_mut();
        machine.end = Some(End::Unsubscribed);
        machine.session.unsubscribe(machine.now);
        machine.settle();
    }

    fn end(&self) -> Option<End> {
        self.0.borrow().end
    }
}

impl Wire for Socket {
    fn send(&mut self, bytes: &[u8], fds: &[u32]) -> bool {
        let machine = &mut *self.0.borrow_mut();
        let fds: Vec<Fd> = fds.iter().map(|purpose| Fd::new(*purpose)).collect();
        machine.junk.extend(fds.iter().filter(|fd| ***fd == JUNK).map(Rc::downgrade));
        if machine.session.is_closed() {
            return false;
        }
        machine.inbox.write_with(bytes, fds);
        machine.settle();
        true
    }

    fn receive(&mut self, max: usize) -> (Vec<u8>, usize) {
        let machine = &mut *self.0.borrow_mut();
        loop {
            machine.settle();
            machine.outbox.read_size = max;
            let mut fds = VecDeque::new();
            if let Some(bytes) = machine.outbox.read(&mut fds) {
                return (bytes, fds.len());
            }
            let Some(due) = machine.session.poll_timeout() else { panic!("it waits for what never comes") };
            machine.now = machine.now.max(due);
            machine.session.handle_timeout(machine.now);
        }
    }

    fn pass(&mut self, time: Duration) {
        let machine = &mut *self.0.borrow_mut();
        machine.now = machine.now + time;
        machine.session.handle_timeout(machine.now);
        machine.settle();
    }

    fn junk_open(&mut self) -> usize {
        self.0.borrow().junk.iter().filter(|fd| fd.strong_count() > 0).count()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let machine = &mut *self.0.borrow_mut();
        machine.inbox.end();
        machine.settle();
    }
}
