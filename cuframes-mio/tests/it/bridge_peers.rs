//! Whatever a sender does, only its own connection ends, and the streams of others go on.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::bridge::{
    anywhere, drive, far_subscriber, first_frame, look, patient, received, sent, strict_sender,
};
use crate::bridge_raw::{RawEnd, begin, chunk, encode, hello};
use crate::common::{Stream, check, publish, until};
use cuframes_bridge::wire::{FrameType, Header, Message, WireError};
use cuframes_mio::bridge::{
    Fate, IntakeEvent, LinkFault, StreamReceiver, StreamReceiverBuilder, StreamSender,
};
use cuframes_mio::core::{Format, FrameMeta, Key, Policy};
use cuframes_mio::net::Endpoint;
use cuframes_mio::{ServedPublisher, Subscriber};

/// A stream whose frames arrive, whatever others do to the receiver.
struct Good {
    // Dropped first: the others wait for it.
    subscriber: Subscriber,
    sender: StreamSender,
    receiver: StreamReceiver,
    publisher: ServedPublisher,
    events: Vec<IntakeEvent>,
    stream: Stream,
}

impl Good {
    fn new(settings: impl FnOnce(StreamReceiverBuilder) -> StreamReceiverBuilder) -> Self {
        let stream = Stream::new();
        let mut publisher = crate::bridge::publisher(&stream, 4, Policy::STRICT_WAIT);
        let builder = StreamReceiver::builder(anywhere()).prefix("far-").timeouts(patient());
        let mut receiver = settings(builder.run_dir(stream.dir.path())).listen().unwrap();
        let mut sender = strict_sender(&stream, &receiver);
        let mut subscriber = far_subscriber(&stream);
        first_frame(&mut publisher, &mut sender, &mut receiver, &mut subscriber);
        Self { subscriber, sender, receiver, publisher, events: Vec::new(), stream }
    }

    fn peer(&self) -> RawEnd {
        RawEnd::connect(self.receiver.endpoint())
    }

    /// A name that nobody else uses.
    fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.stream.key)
    }

    fn turn(&mut self) {
        sent(&mut self.sender);
        self.events.extend(received(&mut self.receiver));
    }

    fn goes_on(&mut self) {
        for _ in 0..3 {
            let seq = publish(&mut self.publisher);
            let mut frame = None;
            drive(&mut self.sender, &mut self.receiver, |_, heard| {
                assert!(!heard.iter().any(|event| matches!(event, IntakeEvent::Left { .. })), "{heard:?}");
                frame = look(&mut self.subscriber);
                frame.is_some()
            });
            let frame = frame.unwrap();
            assert_eq!((frame.seq(), frame.lost()), (seq, 0));
            check(&frame);
        }
    }

    /// Drives all until something is so.
    fn until(&mut self, peer: &mut RawEnd, mut is_so: impl FnMut(&[IntakeEvent], &mut RawEnd) -> bool) {
        until("a peer", || {
            self.turn();
            peer.turn();
            is_so(&self.events, peer)
        });
    }

    /// The fault for which a peer was sent away.
    fn fault(&mut self, mut peer: RawEnd) -> (LinkFault, RawEnd) {
        self.events.clear();
        let mut found = None;
        self.until(&mut peer, |events, peer| {
            found = events.iter().find_map(|event| match event {
                IntakeEvent::Left { fault, .. } => fault.clone(),
                _ => None,
            });
            found.is_some() && peer.is_over
        });
        (found.unwrap(), peer)
    }
}

fn small() -> FrameMeta {
    FrameMeta::new(Format::GRAY8, 64, 32).unwrap()
}

#[test]
fn what_can_not_be_said_ends_the_connection_with_the_reason_and_costs_no_memory() {
    let mut good = Good::new(|builder| builder);
    let name = good.name("bad");
    let mut with_nul = encode(&[hello(&name)]);
    *with_nul.last_mut().unwrap() = 0;
    let header = |kind| Header { kind, bytes: u32::MAX }.encode().to_vec();
    let after = |bytes: &[u8]| [&encode(&[hello(&name)]), bytes].concat();
    let frame = |chunk_of: u64, bytes: usize| {
        let mut out = encode(&[Message::LoadBegin(begin(7, 1, &small(), 2048))]);
        chunk(&mut out, chunk_of, &vec![0; bytes]);
        out
    };
    let (length, other) = (" are allowed", "where those of 1 belong");
    let cases = [
        (header(FrameType::HELLO), length),
        (with_nul, "it is not a text in UTF-8"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "it is no frame: it starts with 0x47455420"),
        (after(&header(FrameType::LOAD_BEGIN)), length),
        (after(&header(FrameType::ERROR)), length),
        (after(&header(FrameType::CHUNK)), length),
        (after(&after(&[])), "it sent HELLO, which has no place there"),
        (after(&frame(2, 100)), other),
        (after(&frame(1, 2050)), "it sent more data of request 1 than it had announced"),
    ];
    for (bytes, expected) in cases {
        let used = allocation_counter::measure(|| {
            let mut peer = good.peer();
            peer.out.clone_from(&bytes);
            let (fault, peer) = good.fault(peer);
            assert!(fault.to_string().contains(expected), "{fault}, and not {expected}");
            assert_eq!(peer.last_word(), Some(fault.to_string().as_str()));
        });
        assert!(used.bytes_max < 1 << 20, "{} bytes for {expected}", used.bytes_max);
        good.goes_on();
    }
    let mut peer = good.peer();
    peer.out = header(FrameType::HELLO);
    let (fault, _) = good.fault(peer);
    assert!(matches!(
        fault,
        LinkFault::Wire(WireError::Length { kind: FrameType::HELLO, bytes: u32::MAX, .. })
    ));
    assert_eq!(good.receiver.senders(), 1);
}

#[test]
fn a_stream_that_needs_more_memory_than_there_may_be_is_refused_and_its_connection_goes_on() {
    let mut good = Good::new(|builder| builder.memory(8 << 20));
    let mut peer = good.peer();
    peer.say(&hello(&good.name("large")));
    let large = FrameMeta::new(Format::GRAY8, 4096, 1024).unwrap();
    peer.frame(&begin(7, 1, &large, 4 << 20), &vec![0; 4 << 20]);
    peer.frame(&begin(7, 2, &small(), 2048), &[5; 2048]);
    // Valid bytes may be fewer.
    peer.frame(&begin(7, 3, &small(), 0), &[]);
    let mut fates = Vec::new();
    good.until(&mut peer, |events, peer| {
        fates = events
            .iter()
            .filter_map(|event| match event {
                IntakeEvent::NotPublished { seq, fate, .. } => Some((*seq, fate.clone())),
                _ => None,
            })
            .collect();
        peer.answers().len() == 3
    });
    let answers = peer.answers();
    let [(1, 1, refusal), (2, 0, _), (3, 0, _)] = &answers[..] else { panic!("{answers:?}") };
    assert!(
        refusal.starts_with("it needs ") && refusal.contains(" bytes of memory; of 8388608 that"),
        "{refusal}"
    );
    assert_eq!(fates, [(1, Fate::Refused(refusal.clone()))]);
    assert_eq!(good.receiver.senders(), 2);
    good.goes_on();
}

#[test]
fn bytes_that_dribble_in_hold_up_nobody_else_and_are_given_up_when_nothing_comes() {
    let mut good = Good::new(|builder| builder.stall(Duration::from_secs(1)));
    let mut peer = good.peer();
    let mut bytes = encode(&[hello(&good.name("slow")), Message::LoadBegin(begin(7, 1, &small(), 2048))]);
    chunk(&mut bytes, 1, &[5; 2048]);
    let (slow, _) = bytes.split_at(600);
    let used = allocation_counter::measure(|| {
        for (i, byte) in slow.iter().enumerate() {
            peer.out.push(*byte);
            peer.turn();
            good.turn();
            if i % 200 == 0 {
                good.goes_on();
            }
        }
    });
    assert!(used.bytes_max < 1 << 20, "{} bytes", used.bytes_max);
    let (fault, _) = good.fault(peer);
    assert_eq!(fault, LinkFault::Stalled(Duration::from_secs(1)));
    good.goes_on();
    let mut quiet = good.peer();
    quiet.out.extend(&bytes[..20]);
    let (fault, _) = good.fault(quiet);
    assert_eq!(fault, LinkFault::NoHello);
    good.goes_on();
}

#[test]
fn connections_that_say_nothing_are_limited_and_the_streams_go_on() {
    let mut good = Good::new(|builder| builder.senders(8));
    let Endpoint::Tcp(address) = *good.receiver.endpoint() else { panic!("no address") };
    let connecting = thread::spawn(move || [(); 200].map(|()| TcpStream::connect(address).unwrap()));
    until("all connections", || {
        good.turn();
        assert!(good.receiver.senders() <= 8);
        connecting.is_finished()
    });
    let idle = connecting.join().unwrap();
    good.goes_on();
    assert_eq!(good.receiver.senders(), 8);
    // They keep nobody out who has something to say.
    let mut peer = good.peer();
    peer.say(&hello(&good.name("late")));
    good.events.clear();
    good.until(&mut peer, |events, _| events.iter().any(|event| matches!(event, IntakeEvent::Joined { .. })));
    drop(idle);
    let mut left = 0;
    good.until(&mut peer, |_, _| {
        left += 1;
        left > 20
    });
    good.goes_on();
    assert!(!peer.is_over);
}

#[test]
fn streams_whose_senders_are_gone_make_room_for_others() {
    let mut good = Good::new(|builder| builder.senders(3));
    let (mut now, mut most) = (1, 0);
    for i in 0..20 {
        let mut peer = good.peer();
        peer.say(&hello(&good.name(&i.to_string())));
        peer.frame(&begin(7, 1, &small(), 2048), &[5; 2048]);
        good.events.clear();
        good.until(&mut peer, |_, peer| peer.answers().len() == 1);
        assert!(peer.answers()[0].2.starts_with("published"), "{:?}", peer.answers());
        drop(peer);
        until("its end", || {
            good.turn();
            good.receiver.senders() == 1
        });
        for event in &good.events {
            match event {
                IntakeEvent::Published { .. } => now += 1,
                IntakeEvent::Ended { key } => {
                    assert_ne!(*key, crate::bridge::far(&good.stream));
                    now -= 1;
                }
                _ => {}
            }
            most = most.max(now);
        }
    }
    assert_eq!((most, now), (3, 3));
    good.goes_on();
}

#[test]
fn a_sender_that_reads_no_answers_is_given_up() {
    let mut good = Good::new(|builder| builder);
    let mut peer = good.peer();
    peer.is_deaf = true;
    peer.say(&hello(&good.name("deaf")));
    let mut seq = 0;
    let mut fault = None;
    let used = allocation_counter::measure(|| {
        until("its end", || {
            while peer.out.len() < 100_000 && !peer.is_over {
                seq += 1;
                peer.frame(&begin(7, seq, &small(), 0), &[]);
            }
            peer.turn();
            good.turn();
            fault = good.events.drain(..).find_map(|event| match event {
                IntakeEvent::Left { fault, .. } => fault,
                _ => None,
            });
            fault.is_some()
        });
    });
    assert_eq!(fault, Some(LinkFault::Greedy), "after {seq} frames");
    assert!(used.bytes_max < 8 << 20, "{} bytes", used.bytes_max);
    good.goes_on();
}

#[test]
fn what_is_sent_again_of_a_publisher_before_does_not_bring_it_back() {
    let mut good = Good::new(|builder| builder);
    let name = good.name("again");
    let mut peer = good.peer();
    let frames = [(7, 8), (7, 9), (8, 1)];
    let send = |peer: &mut RawEnd, frames: &[(u64, u64)]| {
        peer.say(&hello(&name));
        for (epoch, seq) in frames {
            peer.frame(&begin(*epoch, *seq, &small(), 2048), &[5; 2048]);
        }
    };
    send(&mut peer, &frames);
    good.until(&mut peer, |_, peer| peer.answers().len() == 3);
    // It has not heard that they have arrived.
    drop(peer);
    let mut peer = good.peer();
    send(&mut peer, &[(7, 9), (8, 1), (8, 2)]);
    good.until(&mut peer, |_, peer| peer.answers().len() == 3);
    let answers: Vec<_> =
        peer.answers().into_iter().map(|(seq, status, text)| (seq, status, text.len())).collect();
    let had = "published before".len();
    assert_eq!(answers[..2], [(9, 0, had), (1, 0, had)]);
    assert!(answers[2].0 == 2 && peer.answers()[2].2.starts_with("published wire_ns="));
    let key: Key = format!("far-{name}").parse().unwrap();
    let told = good.events.iter().filter_map(|event| match event {
        IntakeEvent::Published { key: other, info } if *other == key => Some((true, info.epoch)),
        IntakeEvent::Ended { key: other } if *other == key => Some((false, 0)),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [(true, 7), (false, 0), (true, 8)]);
}

#[test]
fn a_stream_whose_sender_leaves_at_once_is_not_left_behind() {
    let mut good = Good::new(|builder| builder.linger(Duration::from_millis(1)));
    let name = good.name("brief");
    let key: Key = format!("far-{name}").parse().unwrap();
    for _ in 0..10 {
        let mut peer = good.peer();
        peer.say(&hello(&name));
        peer.say(&Message::LoadBegin(begin(7, 1, &small(), 2048)));
        peer.turn();
        drop(peer);
        good.events.clear();
        until("its end", || {
            good.turn();
            good.events
                .iter()
                .any(|event| matches!(event, IntakeEvent::Ended { key: other } if *other == key))
        });
    }
    good.goes_on();
    drop(good);
    crate::bridge::assert_gone(&key);
}
