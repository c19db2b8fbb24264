//! Both sessions do what the model of §3 and §4 does, whatever their drivers do, in whatever pieces the bytes travel, and
//! whoever else writes into the connection.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure ends the test")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cuframes_core::error::ErrorCode;
use cuframes_core::session::{
    Closed, PublisherEvent, PublisherOffer, PublisherSession, Session, SubscriberEvent, SubscriberHello,
    SubscriberSession,
};
use cuframes_core::wire::control::EventFd;
use cuframes_core::wire::subscribe::{InitialSeq, Subscribed};
use cuframes_core::wire::{FdPurpose, ShutdownReason};
use cuframes_core::{Features, Gone, Instant, Misuse, SubscriberBit, SubscriberMode};
use cuframes_testkit::conformance::session::bytes::{Hello, Stream};
use cuframes_testkit::oracle::{Sent, Side, Told, Why, publisher, subscriber};
use cuframes_testkit::pair;
use cuframes_testkit::pipe::Pipe;
use cuframes_testkit::strategies::{config, descriptors, maybe_malformed, negative, number};
use proptest::collection::vec;
use proptest::prelude::*;

/// Something that happens.
#[derive(Clone, Debug)]
enum Op {
    /// One read of at most so many bytes, at the publisher or the subscriber.
    Deliver {
        to_publisher: bool,
        most: usize,
    },
    /// Everything is read, on both sides.
    Settle,
    /// Somebody else's message, and descriptors.
    Inject {
        to_publisher: bool,
        message: Vec<u8>,
        fds: usize,
    },
    Lose {
        publisher: bool,
    },
    Pass {
        milliseconds: u64,
    },
    Admit(Result<(u32, u64), i32>),
    OfferFd([u32; 3]),
    ShutDown(u32),
    Expel(i32),
    Attached,
    Ping,
    Unsubscribe,
    Reject(i32),
}

fn op() -> impl Strategy<Value = Op> {
    let inject = (any::<bool>(), maybe_malformed()).prop_flat_map(|(to_publisher, message)| {
        let fds = descriptors(&message);
        (Just(to_publisher), Just(message), fds).prop_map(|(to_publisher, message, fds)| Op::Inject {
            to_publisher,
            message,
            fds,
        })
    });
    prop_oneof![
        24 => (any::<bool>(), 1..60_usize).prop_map(|(to_publisher, most)| Op::Deliver { to_publisher, most }),
        12 => Just(Op::Settle),
        4 => inject,
        8 => (1..=31_u32, any::<u64>()).prop_map(|(bit, initial_seq)| Op::Admit(Ok((bit, initial_seq)))),
        1 => prop_oneof![negative(), Just(0), Just(3)].prop_map(|code| Op::Admit(Err(code))),
        8 => [number(), number(), number()].prop_map(Op::OfferFd),
        12 => (1..=6_u32).prop_map(|purpose| Op::OfferFd([purpose, 0, u32::from([2, 3, 6].contains(&purpose))])),
        8 => Just(Op::Attached),
        1 => number().prop_map(Op::ShutDown),
        1 => negative().prop_map(Op::Expel),
        4 => Just(Op::Ping),
        1 => Just(Op::Unsubscribe),
        1 => negative().prop_map(Op::Reject),
        1 => any::<bool>().prop_map(|publisher| Op::Lose { publisher }),
        3 => (0..6000_u64).prop_map(|milliseconds| Op::Pass { milliseconds }),
    ]
}

/// The first so many steps of a handshake in which nothing goes wrong; other operations follow wherever it stops.
fn handshake() -> impl Strategy<Value = Vec<Op>> {
    let steps = [Op::Settle, Op::Admit(Ok((1, 41))), Op::OfferFd([1, 0, 0]), Op::Settle, Op::Attached];
    (0..=steps.len()).prop_map(move |n| steps[..n].to_vec())
}

/// One end: the session, its model, and what was sent to it.
struct End<S, M> {
    name: &'static str,
    session: S,
    model: M,
    inbox: Pipe,
}

impl<S: Session<Fd = u32>, M: Side> End<S, M> {
    fn read(&mut self, now: Instant, most: usize) -> bool {
        self.inbox.read_size = most;
        let mut fds = VecDeque::new();
        let Some(bytes) = self.inbox.read(&mut fds) else { return false };
        if self.session.is_closed() {
            return false;
        }
        if bytes.is_empty() {
            self.lose(now);
        } else {
            self.model.handle_bytes(&bytes, fds.make_contiguous());
            self.session.handle_bytes(now, &bytes, &mut fds);
        }
        true
    }

    fn lose(&mut self, now: Instant) {
        self.session.handle_eof(now);
        self.model.handle_eof();
    }

    /// Sends on what the session wants to send, and compares it and all that it tells with the model.
    fn compare(
        &mut self,
        now: Instant,
        peer: &mut Pipe,
        told: fn(S::Event) -> Told,
    ) -> Result<(), TestCaseError> {
        let name = self.name;
        let (expected_bytes, expected_events) = self.model.link().take();
        let mut sent = Vec::new();
        while let Some(transmit) = self.session.poll_transmit() {
            let n = peer.write(transmit);
            prop_assert_eq!(n, transmit.bytes.len());
            sent.push((transmit.bytes.to_vec(), transmit.fd.copied()));
            self.session.transmitted(n);
        }
        let sent = messages(sent);
        let matches = |((bytes, fd), expected): (&(Vec<u8>, _), &Sent)| expected.is(bytes, *fd);
        let as_expected = sent.len() == expected_bytes.len() && sent.iter().zip(&expected_bytes).all(matches);
        prop_assert!(as_expected, "{} sent {:?}, expected {:?}", name, sent, expected_bytes);
        let events: Vec<Told> = std::iter::from_fn(|| self.session.poll_event()).map(told).collect();
        prop_assert_eq!(events, expected_events, "{}", name);
        prop_assert_eq!(self.session.is_closed(), self.model.link().is_over(), "{}", name);
        let due = self.model.link().time_left().map(|left| now + Duration::from_millis(left));
        prop_assert_eq!(self.session.poll_timeout(), due, "{}", name);
        if self.session.is_closed() {
            peer.end();
        }
        Ok(())
    }
}

/// Cuts what was sent into messages.
fn messages(sent: Vec<(Vec<u8>, Option<u32>)>) -> Vec<(Vec<u8>, Option<u32>)> {
    let mut found = Vec::new();
    for (bytes, mut fd) in sent {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let len = 8 + usize::try_from(u32::from_le_bytes(rest[4..8].try_into().unwrap())).unwrap();
            found.push((rest[..len].to_vec(), fd.take()));
            rest = &rest[len..];
        }
    }
    found
}

fn why(closed: Closed) -> Why {
    match closed {
        Closed::Violation(_) => Why::Violation,
        Closed::Refused(refused) => Why::Refused(refused.code.0),
        Closed::Rejected(code) => Why::Rejected(code.0),
        Closed::Gone(Gone::Unsubscribed) => Why::Unsubscribed,
        Closed::Gone(Gone::Shutdown(reason)) => Why::Shutdown(reason.0),
        Closed::Gone(Gone::Disconnected) => Why::Disconnected,
        Closed::Gone(Gone::Timeout { .. }) => Why::Timeout,
        other => panic!("{other}"),
    }
}

fn told_by_publisher(event: PublisherEvent) -> Told {
    match event {
        PublisherEvent::Subscribe(request) => Told::Subscribe(
            request.name.as_str().into(),
            request.cuda_device,
            request.mode.0,
            request.features.0,
        ),
        PublisherEvent::Unknown { message_type, count } => Told::Unknown(message_type.0, count),
        PublisherEvent::Closed(closed) => Told::Closed(why(closed)),
        other => panic!("{other:?}"),
    }
}

fn told_by_subscriber(event: SubscriberEvent<u32>) -> Told {
    match event {
        SubscriberEvent::Stream(stream) => Told::Stream(stream.features.0),
        SubscriberEvent::Subscribed(Subscribed { bit, initial_seq }) => {
            let initial_seq = match initial_seq {
                InitialSeq::Full(seq) => Ok(seq),
                InitialSeq::Low(seq) => Err(seq),
                other => panic!("{other:?}"),
            };
            Told::Subscribed(bit.get().into(), initial_seq)
        }
        SubscriberEvent::Fd { purpose, index, count, fd } => Told::Fd([purpose.0, index, count], fd),
        SubscriberEvent::Shutdown(reason) => Told::Shutdown(reason.0),
        SubscriberEvent::Unknown { message_type, count } => Told::Unknown(message_type.0, count),
        SubscriberEvent::Pong => Told::Pong,
        SubscriberEvent::Closed(closed) => Told::Closed(why(closed)),
        other => panic!("{other:?}"),
    }
}

struct Run {
    now: Instant,
    publisher: End<PublisherSession<u32>, publisher::Model>,
    subscriber: End<SubscriberSession<u32>, subscriber::Model>,
    next_fd: u32,
}

impl Run {
    fn new(hello: &Hello, offered: u32, required: u32) -> Self {
        let now = Instant::ZERO;
        let offer = PublisherOffer { required: Features(required), ..pair::offer(Features(offered)) };
        let stream = Stream {
            version: 1,
            ring_size: 8,
            ownership: 0,
            meta: offer.meta.to_bytes(),
            shm_path: offer.shm_path.clone(),
            features: offered,
        };
        let request = SubscriberHello {
            name: String::from_utf8(hello.name.clone()).unwrap().parse().unwrap(),
            cuda_device: hello.device,
            mode: SubscriberMode(hello.mode),
            features: Features(hello.features),
            handshake_timeout: pair::HANDSHAKE_TIMEOUT,
        };
        let patience = 5000;
        let publisher = End {
            name: "publisher",
            session: PublisherSession::new(now, Arc::new(offer)),
            model: publisher::Model::new(stream, required, patience),
            inbox: Pipe::default(),
        };
        let subscriber = End {
            name: "subscriber",
            session: SubscriberSession::new(now, request),
            model: subscriber::Model::new(hello, patience),
            inbox: Pipe::default(),
        };
        Self { now, publisher, subscriber, next_fd: 0 }
    }

    fn compare(&mut self) -> Result<(), TestCaseError> {
        let Self { now, publisher, subscriber, .. } = self;
        publisher.compare(*now, &mut subscriber.inbox, told_by_publisher)?;
        subscriber.compare(*now, &mut publisher.inbox, told_by_subscriber)
    }

    fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        let Self { now, publisher, subscriber, next_fd } = self;
        let now = *now;
        let both = |did: Result<(), Misuse>, must: Result<(), publisher::Misuse>| {
            prop_assert_eq!(did.is_ok(), must.is_ok(), "{:?}", did);
            Ok(())
        };
        match op {
            Op::Deliver { to_publisher: true, most } => drop(publisher.read(now, most)),
            Op::Deliver { to_publisher: false, most } => drop(subscriber.read(now, most)),
            Op::Settle => {
                while self.publisher.read(now, usize::MAX) | self.subscriber.read(now, usize::MAX) {
                    self.compare()?;
                }
            }
            Op::Inject { to_publisher, message, fds } => {
                let first = *next_fd + 1;
                *next_fd += u32::try_from(fds).unwrap();
                let inbox = if to_publisher { &mut publisher.inbox } else { &mut subscriber.inbox };
                inbox.write_with(&message, (first..=*next_fd).collect());
            }
            Op::Lose { publisher: true } => publisher.lose(now),
            Op::Lose { publisher: false } => subscriber.lose(now),
            Op::Pass { milliseconds } => {
                self.now = now + Duration::from_millis(milliseconds);
                publisher.model.advance(milliseconds);
                subscriber.model.advance(milliseconds);
                publisher.session.handle_timeout(self.now);
                subscriber.session.handle_timeout(self.now);
            }
            Op::Admit(answer) => {
                let bit = |bit: u32| SubscriberBit::new(bit.into()).unwrap();
                let initial_seq = InitialSeq::Full;
                let subscribed = answer
                    .map(|(number, seq)| Subscribed { bit: bit(number), initial_seq: initial_seq(seq) })
                    .map_err(ErrorCode);
                both(publisher.session.admit(now, subscribed), publisher.model.admit(answer))?;
            }
            Op::OfferFd(what) => {
                *next_fd += 1;
                let [purpose, index, count] = what;
                let message = EventFd { purpose: FdPurpose(purpose), index, count };
                both(
                    publisher.session.offer_fd(message, *next_fd),
                    publisher.model.offer_fd(what, *next_fd),
                )?;
            }
            Op::ShutDown(reason) => {
                publisher.session.shutdown(now, ShutdownReason(reason));
                publisher.model.shut_down(reason);
            }
            Op::Expel(code) => {
                publisher.session.expel(now, ErrorCode(code), "go away");
                publisher.model.expel(code);
            }
            Op::Attached => both(subscriber.session.attached(now), subscriber.model.attached())?,
            Op::Ping => {
                subscriber.session.ping(now);
                subscriber.model.ping();
            }
            Op::Unsubscribe => {
                subscriber.session.unsubscribe(now);
                subscriber.model.unsubscribe();
            }
            Op::Reject(code) => {
                subscriber.session.reject(now, ErrorCode(code), "no use");
                subscriber.model.reject(code);
            }
        }
        self.compare()
    }
}

proptest! {
    #![proptest_config(config(1024))]

    #[test]
    fn both_sessions_do_what_the_model_does(
        asked in number(), device: i32, mode in number(), offered in number(), needed in number(),
        handshake in handshake(), ops in vec(op(), 0..60),
    ) {
        let hello = Hello { device, mode, ..Hello::rec(asked) };
        // Often nothing is needed.
        let mut run = Run::new(&hello, offered, offered & needed & needed >> 1);
        run.compare()?;
        for op in handshake.into_iter().chain(ops) {
            run.apply(op)?;
        }
    }
}
