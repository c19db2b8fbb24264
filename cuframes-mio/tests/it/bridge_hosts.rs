//! Whatever a receiver does, its sender notices, says why, and hurts nobody at the near end.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::bridge::{offer, publisher, sent};
use crate::bridge_raw::{RawEnd, STALL, encode};
use crate::common::{NEWEST, Stream, publish, until};
use cuframes_bridge::wire::{Done, FrameType, Header, Message, SnapshotId};
use cuframes_mio::bridge::{CourierEvent, LinkFault, SenderEvent, StreamSender, StreamSenderBuilder};
use cuframes_mio::core::{Format, FrameMeta, Policy, RingSize};
use cuframes_mio::net::Endpoint;
use cuframes_mio::{Publisher, ServedPublisher};

fn listen() -> (TcpListener, StreamSenderBuilder) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
    (listener, StreamSender::builder(endpoint).stall(STALL))
}

/// More than the buffers of the system hold.
fn large(stream: &Stream) -> ServedPublisher {
    let meta = FrameMeta::new(Format::GRAY8, 5000, 5000).unwrap();
    let builder = Publisher::builder(stream.key.clone(), meta).run_dir(stream.dir.path());
    builder.ring_size(RingSize::new(3).unwrap()).create().unwrap().serve().unwrap()
}

fn strictly(stream: &Stream, settings: StreamSenderBuilder) -> StreamSender {
    crate::bridge::sender(stream, settings.strict())
}

fn accept(listener: &TcpListener, sender: &mut StreamSender) -> RawEnd {
    let mut end = None;
    until("the sender", || {
        sent(sender);
        end = RawEnd::accept(listener);
        end.is_some()
    });
    end.unwrap()
}

/// Why the connection to a receiver was given up, or what it said.
fn end(sender: &mut StreamSender, receiver: &mut RawEnd) -> SenderEvent {
    let mut found = None;
    until("the end", || {
        receiver.turn();
        found = sent(sender).into_iter().find_map(|event| match event {
            CourierEvent::Link(event @ (SenderEvent::Lost { .. } | SenderEvent::Refused(_))) => Some(event),
            _ => None,
        });
        found.is_some()
    });
    found.unwrap()
}

fn fault(sender: &mut StreamSender, receiver: &mut RawEnd) -> LinkFault {
    match end(sender, receiver) {
        SenderEvent::Lost { fault } => fault.expect("a reason"),
        other => panic!("{other:?}"),
    }
}

/// The frames that have begun to arrive.
fn begun(receiver: &mut RawEnd) -> Vec<u64> {
    receiver.turn();
    let begun = |message: &Message| match message {
        Message::LoadBegin(begin) => Some(begin.id.request),
        _ => None,
    };
    receiver.heard.iter().filter_map(begun).collect()
}

#[test]
fn a_receiver_that_stops_reading_is_given_up_and_the_next_connection_gets_the_frame() {
    let stream = Stream::new();
    let mut publisher = large(&stream);
    let (listener, settings) = listen();
    let mut sender = strictly(&stream, settings);
    let mut receiver = accept(&listener, &mut sender);
    receiver.is_deaf = true;
    publish(&mut publisher);
    assert_eq!(fault(&mut sender, &mut receiver), LinkFault::Stalled(STALL));
    let mut receiver = accept(&listener, &mut sender);
    until("the frame", || {
        sent(&mut sender);
        begun(&mut receiver) == [1]
    });
    assert_eq!((sender.stats().delivered, sender.stats().given_up, sender.stats().resent), (0, 0, 1));
}

#[test]
fn a_receiver_that_reads_slowly_is_not_given_up() {
    let stream = Stream::new();
    let mut publisher = large(&stream);
    let (listener, settings) = listen();
    let stall = Duration::from_secs(1);
    let mut sender = strictly(&stream, settings.stall(stall));
    let mut receiver = accept(&listener, &mut sender);
    publish(&mut publisher);
    let start = Instant::now();
    // For longer than nothing may go on, a little does.
    while start.elapsed() < 2 * stall {
        receiver.read_some();
        let lost = sent(&mut sender);
        let is_lost = |event: &CourierEvent| matches!(event, CourierEvent::Link(SenderEvent::Lost { .. }));
        assert!(!lost.iter().any(is_lost), "{lost:?}");
    }
    assert_eq!(sender.stats().delivered, 0);
}

#[test]
fn answers_to_nothing_and_noise_end_the_connection_and_frames_are_sent_again() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::STRICT_WAIT);
    let (listener, settings) = listen();
    let mut sender = strictly(&stream, settings);
    publish(&mut publisher);
    let done = |request| Message::Done(Done { request, status: 0, message: String::new() });
    let save = |request| Message::SaveRequest(SnapshotId { request, ..SnapshotId::default() });
    let unknown = Header { kind: FrameType(77), bytes: 0 }.encode().to_vec();
    let noise = [
        ("it sent SNAPSHOT_SAVE_REQ, which has no place there", encode(&vec![save(1 << 63); 100])),
        ("it sent SNAPSHOT_SAVE_REQ, which has no place there", encode(&[save(5)])),
        ("it is no frame", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("it sent 77, which has no place there", unknown),
        ("it sent data of request 9 where those of 1 belong", encode(&[done(9)])),
        ("it sent data of request 1 where those of 0 belong", encode(&[done(1), done(1)])),
    ];
    for (expected, bytes) in noise {
        let mut receiver = accept(&listener, &mut sender);
        until("the frame", || {
            sent(&mut sender);
            !begun(&mut receiver).is_empty()
        });
        receiver.out = bytes;
        let fault = fault(&mut sender, &mut receiver);
        assert!(fault.to_string().contains(expected), "{fault}, and not {expected}");
    }
    // Whether it arrived is what the receiver says.
    assert_eq!((sender.stats().delivered, sender.stats().resent), (1, 5));
    assert!(!sender.courier().is_finished());
}

#[test]
fn a_receiver_that_does_not_read_keeps_no_publisher_waiting_that_may_drop_frames() {
    let stream = Stream::new();
    let mut publisher = publisher(&stream, 4, Policy::DROP_OLDEST);
    let (listener, settings) = listen();
    let subscriber = stream.subscriber("sender", NEWEST).no_ack().connect().unwrap();
    let mut sender = settings.start(subscriber).unwrap();
    let mut receiver = accept(&listener, &mut sender);
    receiver.is_deaf = true;
    for _ in 0..100 {
        assert!(offer(&mut publisher).is_some(), "the publisher would have to wait");
        sent(&mut sender);
    }
    assert!(sender.courier().taken() <= 4, "{} were taken", sender.courier().taken());
    let SenderEvent::Lost { fault } = end(&mut sender, &mut receiver) else { panic!("refused") };
    assert_eq!(fault, Some(LinkFault::Stalled(STALL)));
    assert_eq!(sender.stats().given_up, 2);
}

#[test]
fn a_receiver_that_says_no_is_not_asked_again() {
    let stream = Stream::new();
    let _publisher = publisher(&stream, 4, Policy::DROP_OLDEST);
    let (listener, settings) = listen();
    let mut sender = strictly(&stream, settings);
    let mut receiver = accept(&listener, &mut sender);
    receiver.say(&Message::Error("no room".into()));
    assert_eq!(end(&mut sender, &mut receiver), SenderEvent::Refused("no room".into()));
    assert!(sender.courier().is_finished());
    sent(&mut sender);
    assert!(RawEnd::accept(&listener).is_none());
}
