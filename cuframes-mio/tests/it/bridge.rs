//! Frames go from a stream of one host to one of another; here both are this one.

use std::time::Duration;

use crate::common::{LONG, NEWEST, STRICT, Stream, check, publish, until};
use cuframes_mio::bridge::{
    CourierEvent, Fate, IntakeEvent, SenderEvent, StreamReceiver, StreamReceiverBuilder, StreamSender,
    StreamSenderBuilder,
};
use cuframes_mio::core::{Format, FrameMeta, Key, Policy, RingSize};
use cuframes_mio::net::Endpoint;
use cuframes_mio::{Publisher, Reconnect, Subscriber};

/// The name of a stream at the far end.
fn far(stream: &Stream) -> Key {
    format!("far-{}", stream.key).parse().unwrap()
}

fn receiver(stream: &Stream, endpoint: &Endpoint) -> StreamReceiverBuilder {
    StreamReceiver::builder(endpoint.clone()).prefix("far-").run_dir(stream.dir.path())
}

fn anywhere() -> Endpoint {
    "tcp://127.0.0.1:0".parse().unwrap()
}

fn sender(stream: &Stream, settings: StreamSenderBuilder) -> StreamSender {
    settings.start(stream.subscriber("sender", STRICT).connect().unwrap()).unwrap()
}

fn far_subscriber(stream: &Stream) -> Subscriber {
    let builder = Subscriber::builder(far(stream)).run_dir(stream.dir.path()).mode(STRICT);
    builder.reconnect(Reconnect::default()).start().unwrap()
}

/// Drives both ends until something is true.
fn drive(
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
    mut on_sent: impl FnMut(CourierEvent),
    mut on_received: impl FnMut(IntakeEvent),
    mut is_done: impl FnMut() -> bool,
) {
    until("both ends", || {
        while let Some(event) = sender.next_event(Some(Duration::from_millis(1))).unwrap() {
            on_sent(event);
        }
        while let Some(event) = receiver.next_event(Some(Duration::from_millis(1))).unwrap() {
            on_received(event);
        }
        is_done()
    });
}

fn ignore<T>(_: T) {}

#[test]
fn frames_arrive_with_number_time_stamp_geometry_and_bytes() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
    let mut receiver = receiver(&stream, &anywhere()).listen().unwrap();
    let mut sender = sender(&stream, StreamSender::builder(receiver.endpoint().clone()).strict());
    let mut subscriber = far_subscriber(&stream);
    let mut got = 0;
    // The first frame makes the stream; who subscribes to it then gets that one.
    for seq in 1..=40_u64 {
        assert_eq!(publish(&mut publisher), seq);
        until("the frame", || {
            while sender.next_event(Some(Duration::from_millis(1))).unwrap().is_some() {}
            while receiver.next_event(Some(Duration::from_millis(1))).unwrap().is_some() {}
            match subscriber.next(Duration::from_millis(1)).unwrap() {
                Some(frame) => {
                    got += 1;
                    assert_eq!((frame.seq(), frame.lost()), (seq, 0));
                    check(&frame);
                    assert_eq!(frame.meta(), publisher.meta());
                    true
                }
                None => false,
            }
        });
    }
    assert_eq!(got, 40);
    let stats = sender.stats();
    assert_eq!((stats.refused, stats.given_up, stats.lost_connections), (0, 0, 0));
    receiver.shut_down().unwrap();
}
