//! The frames of a stream are handed out to workers, which map them by their numbers.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::Duration;

use crate::common::{LONG, NEWEST, STRICT, Stream, check, publish, until};
use crate::other::Other;
use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Features, Instant, Policy, Tile};
use cuframes_mio::dispatch::{
    Block, BlockId, Dispatcher, FRAMES, FeedEvent, NextWork, Outcome, Roi, ServerEvent, Stop,
    StreamDispatchError, StreamDispatcher, StreamDispatcherBuilder, StreamTask, StreamWorkError,
    StreamWorker, TaskConfig, WhenFull, Work,
};
use cuframes_mio::net::Endpoint;
use cuframes_mio::{EventSource, Subscriber, now};
use mio::{Events, Poll, Token};

fn anywhere() -> Endpoint {
    "tcp://127.0.0.1:0".parse().unwrap()
}

fn dispatcher(stream: &Stream, settings: StreamDispatcherBuilder) -> StreamDispatcher {
    settings.start(stream.subscriber("dispatcher", STRICT).connect().unwrap()).unwrap()
}

fn worker(stream: &Stream, endpoint: &Endpoint, depth: usize) -> StreamWorker {
    let subscriber = stream.subscriber("worker", NEWEST).no_ack().connect().unwrap();
    StreamWorker::start(endpoint, FRAMES, subscriber, |settings| settings.depth(depth)).unwrap()
}

/// Drives the dispatcher until its worker has something to do, or stops.
fn next_work(dispatcher: &mut StreamDispatcher, worker: &mut StreamWorker) -> Result<Work, Stop> {
    let mut found = None;
    until("work", || {
        let _ = dispatcher.next_event(Some(Duration::from_millis(1))).unwrap();
        match worker.next(Some(Duration::from_millis(1))).unwrap() {
            NextWork::Work(work) => found = Some(Ok(work)),
            NextWork::Stopped(stop) => found = Some(Err(stop)),
            NextWork::Nothing => {}
        }
        found.is_some()
    });
    found.unwrap()
}

/// Drives the dispatcher until a frame has ended.
fn frame_end(dispatcher: &mut StreamDispatcher) -> (u64, Outcome) {
    loop {
        if let Some(FeedEvent::Frame { seq, outcome }) = dispatcher.next_event(Some(LONG)).unwrap() {
            return (seq, outcome);
        }
    }
}

#[test]
fn two_tiles_of_one_frame_are_worked_on_at_a_time_and_a_prefetched_one_is_still_there_much_later() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let settings = StreamDispatcher::builder(anywhere()).tile(120, 320).frames(1);
    let mut dispatcher = dispatcher(&stream, settings);
    assert_eq!((dispatcher.tiles(), dispatcher.queue()), (2, 2));
    let mut worker = worker(&stream, &dispatcher.endpoint().clone(), 2);
    publish(&mut publisher);
    let first = next_work(&mut dispatcher, &mut worker).unwrap();
    assert_eq!((first.seq(), first.tile()), (1, Tile { y: 0, x: 0, height: 120, width: 320 }));
    // The second is here, but not mapped yet.
    for _ in 0..50 {
        publish(&mut publisher);
        let _ = dispatcher.next_event(Some(Duration::ZERO)).unwrap();
    }
    let second = next_work(&mut dispatcher, &mut worker).unwrap();
    assert_eq!((second.seq(), second.tile().y), (1, 120));
    for work in [&first, &second] {
        check(work.frame());
        let plane = work.planes()[0];
        assert_eq!((plane.rows, work.rows(0).unwrap().count()), (120, 120));
        assert!(work.rows(0).unwrap().all(|row| row.len() == usize::try_from(plane.row_bytes).unwrap()));
        assert!(work.rows(9).is_none());
    }
    assert_eq!(worker.done(first).unwrap(), Ok(()));
    check(second.frame());
    assert_eq!(worker.done(second).unwrap(), Ok(()));
    assert_eq!(frame_end(&mut dispatcher), (1, Outcome::Success));
    assert!(dispatcher.is_finished());
    assert_eq!((dispatcher.counts().done, dispatcher.counts().taken), (1, 1));
    dispatcher.shut_down().unwrap();
    until("the end", || matches!(worker.next(Some(LONG)).unwrap(), NextWork::Stopped(Stop::Shutdown)));
}

#[test]
fn a_frame_keeps_its_slot_until_its_blocks_have_ended_and_no_longer() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(2, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
    let settings = StreamDispatcher::builder(anywhere()).queue(1).expect_workers();
    let mut dispatcher = dispatcher(&stream, settings);
    let mut worker = worker(&stream, &dispatcher.endpoint().clone(), 1);
    for round in 0..5 {
        publish(&mut publisher);
        let work = next_work(&mut dispatcher, &mut worker).unwrap();
        assert_eq!(work.seq(), 2 * round + 1);
        publish(&mut publisher);
        // The dispatcher does not take the second one, and both keep the first.
        assert!(publisher.try_claim().is_err());
        assert_eq!(worker.done(work).unwrap(), Ok(()));
        assert_eq!(frame_end(&mut dispatcher), (2 * round + 1, Outcome::Success));
        drop(publisher.try_claim().unwrap());
        let work = next_work(&mut dispatcher, &mut worker).unwrap();
        worker.failed(work, "once").unwrap();
        let again = next_work(&mut dispatcher, &mut worker).unwrap();
        check(again.frame());
        assert_eq!(again.seq(), 2 * round + 2);
        assert_eq!(worker.done(again).unwrap(), Ok(()));
        assert_eq!(frame_end(&mut dispatcher), (2 * round + 2, Outcome::Success));
    }
    assert_eq!((dispatcher.lost(), dispatcher.counts().dropped), (0, 0));
}

#[test]
fn a_dispatcher_that_waits_takes_each_frame_and_one_that_drops_the_newer_ones() {
    for when_full in [WhenFull::Wait, WhenFull::Drop] {
        let stream = Stream::new();
        let mut publisher = stream.publisher(8, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
        let settings = StreamDispatcher::builder(anywhere()).queue(2).when_full(when_full);
        let mut dispatcher = dispatcher(&stream, settings.expect_workers());
        let mut worker = worker(&stream, &dispatcher.endpoint().clone(), 1);
        publish(&mut publisher);
        let first = next_work(&mut dispatcher, &mut worker).unwrap();
        for seq in 2..=6 {
            publish(&mut publisher);
            until("the frame", || {
                let _ = dispatcher.next_event(Some(Duration::from_millis(1))).unwrap();
                dispatcher.counts().taken == if when_full == WhenFull::Drop { seq } else { 2 }
            });
        }
        worker.done(first).unwrap().unwrap();
        let second = next_work(&mut dispatcher, &mut worker).unwrap();
        check(second.frame());
        let expected = if when_full == WhenFull::Drop { (6, 4) } else { (2, 0) };
        assert_eq!((second.seq(), dispatcher.counts().dropped), expected);
    }
}

#[test]
fn blocks_without_a_frame_fail_and_the_worker_goes_on() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let subscriber = stream.subscriber("worker", NEWEST).no_ack().connect().unwrap();
    let epoch = subscriber.header().unwrap().epoch;
    let task = StreamTask { name: FRAMES.into(), key: stream.key.clone(), epoch }.to_string();
    let mut server = Dispatcher::builder(anywhere()).listen().unwrap();
    let block = |number, offset: &[i64], shape: &[i64]| {
        let roi = Roi::new(offset, shape);
        let block_id = BlockId::new(task.clone(), number);
        Block { read_roi: roi.clone(), write_roi: roi, block_id, ..Block::default() }
    };
    publish(&mut publisher);
    let (max, min) = (i64::MAX, i64::MIN);
    let blocks = [
        block(0, &[7, 0, 0], &[1, 4, 64]),
        block(1, &[0, 0, 0], &[1, 4, 64]),
        block(2, &[-1, 0, 0], &[1, 4, 64]),
        block(3, &[max, max, max], &[max, max, max]),
        block(4, &[min, min, min], &[min, min, min]),
        block(5, &[1, 0, 0], &[1, 5000, 64]),
        block(6, &[1, 0], &[1, 4]),
        block(7, &[], &[]),
        block(8, &[1, 0, 0], &[2, 4, 64]),
        block(9, &[1, 0, 0], &[1, 4, 64]),
    ];
    let added = server.schedule(|scheduler| {
        let mut config = TaskConfig::new(task.clone());
        config.max_retries = 0;
        scheduler.add_task(config)?;
        blocks.into_iter().try_for_each(|block| scheduler.add_block(block, &[]))?;
        scheduler.close_task(&task)
    });
    added.unwrap().unwrap();
    let endpoint = server.endpoint().clone();
    let working = thread::spawn(move || {
        let mut worker = StreamWorker::start(&endpoint, FRAMES, subscriber, |settings| settings).unwrap();
        let mut works = Vec::new();
        loop {
            match worker.next(Some(LONG)).unwrap() {
                NextWork::Work(work) => {
                    works.push(work.block().block_id.spatial_id);
                    worker.done(work).unwrap().unwrap();
                }
                NextWork::Stopped(Stop::Shutdown) => return works,
                other => panic!("{other:?}"),
            }
        }
    });
    until("the end", || {
        let _ = server.next_event(Some(Duration::from_millis(10))).unwrap();
        server.scheduler().is_finished()
    });
    let counts = server.scheduler().counts(&task).unwrap();
    assert_eq!((counts.succeeded, counts.failed), (1, 9));
    server.shut_down().unwrap();
    assert_eq!(working.join().unwrap(), [9]);
}

#[test]
fn a_frame_of_the_next_publisher_is_not_taken_for_one_of_the_same_number() {
    let stream = Stream::new();
    let old = Other::start("processes::child_publishes", &stream);
    let subscriber = stream.reconnecting(NEWEST).no_ack().connect().unwrap();
    let epoch = subscriber.header().unwrap().epoch;
    let task = StreamTask { name: FRAMES.into(), key: stream.key.clone(), epoch }.to_string();
    let mut server = Dispatcher::builder(anywhere()).listen().unwrap();
    let mut config = TaskConfig::new(task.clone());
    config.max_retries = 0;
    server.schedule(|scheduler| scheduler.add_task(config)).unwrap().unwrap();
    let endpoint = server.endpoint().clone();
    let mut worker = StreamWorker::start(&endpoint, FRAMES, subscriber, |settings| settings).unwrap();
    old.kill();
    let mut new = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    publish(&mut new);
    let (mut asked, mut asked_of_the_new) = (0, 0);
    until("blocks that were asked for there", || {
        let roi = Roi::new(&[1, 0, 0], &[1, 4, 64]);
        let block_id = BlockId::new(task.clone(), asked);
        let block = Block { read_roi: roi.clone(), write_roi: roi, block_id, ..Block::default() };
        server.schedule(|scheduler| scheduler.add_block(block, &[])).unwrap().unwrap();
        asked += 1;
        until("the end of a block", || {
            let _ = server.next_event(Some(Duration::from_millis(1))).unwrap();
            let next = worker.next(Some(Duration::from_millis(1))).unwrap();
            assert!(matches!(next, NextWork::Nothing), "{next:?}");
            server.scheduler().counts(&task).unwrap().failed == asked
        });
        asked_of_the_new += u32::from(worker.subscriber().header().unwrap().epoch != epoch);
        asked_of_the_new == 3
    });
}

#[test]
fn an_orderly_end_leaves_what_is_on_its_way_and_a_crash_gives_it_up() {
    for is_orderly in [true, false] {
        let stream = Stream::new();
        let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
        let mut dispatcher = dispatcher(&stream, StreamDispatcher::builder(anywhere()));
        let mut worker = worker(&stream, &dispatcher.endpoint().clone(), 1);
        publish(&mut publisher);
        publish(&mut publisher);
        let work = next_work(&mut dispatcher, &mut worker).unwrap();
        if is_orderly {
            let stopping = thread::spawn(move || publisher.shut_down(ShutdownReason::NORMAL));
            until("the shutdown", || {
                matches!(
                    dispatcher.next_event(Some(Duration::from_millis(1))).unwrap(),
                    Some(FeedEvent::Ended(_))
                )
            });
            stopping.join().unwrap().unwrap();
            worker.done(work).unwrap().unwrap();
            let second = next_work(&mut dispatcher, &mut worker).unwrap();
            check(second.frame());
            worker.done(second).unwrap().unwrap();
            until("the end", || {
                let _ = dispatcher.next_event(Some(Duration::from_millis(1))).unwrap();
                dispatcher.is_finished()
            });
            assert_eq!((dispatcher.counts().done, dispatcher.counts().given_up), (2, 0));
        } else {
            // As when it is killed: nobody says anything.
            drop(dispatcher);
            let ended = until_stopped(&mut worker);
            assert!(matches!(ended, Stop::Closed { lost: 1 }), "{ended:?}");
            check(work.frame());
        }
    }
}

fn until_stopped(worker: &mut StreamWorker) -> Stop {
    loop {
        if let NextWork::Stopped(stop) = worker.next(Some(LONG)).unwrap() {
            return stop;
        }
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let stream = Stream::new();
    let _publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let subscriber = || stream.subscriber("dispatcher", STRICT).connect().unwrap();
    let start = |settings: StreamDispatcherBuilder, subscriber: Subscriber| settings.start(subscriber);
    let builder = || StreamDispatcher::builder(anywhere());
    for queue in [0, 2, usize::MAX] {
        let error = start(builder().queue(queue), subscriber()).unwrap_err();
        assert!(matches!(error, StreamDispatchError::Queue { slots: 2, .. }), "{error}");
    }
    let error = start(builder().tile(0, 4), subscriber()).unwrap_err();
    assert!(matches!(error, StreamDispatchError::Tile { .. }), "{error}");
    let error = start(builder().task(TaskConfig::new("a")).task(TaskConfig::new("a")), subscriber());
    assert!(matches!(error, Err(StreamDispatchError::Task { .. })), "{error:?}");
    let without = stream.subscriber("dispatcher", STRICT).features(Features::FD_PASSING).connect().unwrap();
    let error = start(builder(), without).unwrap_err();
    assert!(matches!(error, StreamDispatchError::NoLeases { .. }), "{error}");
    let error = StreamWorker::start(&anywhere(), FRAMES, subscriber(), |settings| settings).unwrap_err();
    assert!(matches!(error, StreamWorkError::ByNumber { .. }), "{error}");
    for error in [
        start(builder().queue(5), subscriber()).unwrap_err().to_string(),
        StreamWorkError::Loop(io::Error::other("no")).to_string(),
    ] {
        assert!(!error.contains('\n') && error.contains(|c: char| c.is_alphabetic()), "{error}");
    }
}

#[test]
fn it_lives_in_an_event_loop_of_the_callers() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
    let dispatcher = dispatcher(&stream, StreamDispatcher::builder(anywhere()).expect_workers());
    let endpoint = dispatcher.endpoint().clone();
    let mut feed = dispatcher.into_feed();
    let mut poll = Poll::new().unwrap();
    let mut events = Events::with_capacity(64);
    feed.register(poll.registry(), Token(7)).unwrap();
    let mut worker = worker(&stream, &endpoint, 2);
    let working = thread::spawn(move || {
        let mut seqs = BTreeSet::new();
        loop {
            match worker.next(Some(LONG)).unwrap() {
                NextWork::Work(work) => {
                    check(work.frame());
                    seqs.insert(work.seq());
                    worker.done(work).unwrap().unwrap();
                }
                NextWork::Stopped(_) => return seqs,
                NextWork::Nothing => {}
            }
        }
    });
    let publishing = thread::spawn(move || {
        (0..100).for_each(|_| _ = publish(&mut publisher));
        publisher.shut_down(ShutdownReason::NORMAL)
    });
    let (mut frames, mut sent) = (0, 0);
    while !feed.is_finished() {
        let wait = feed.poll_timeout().map(|due: Instant| due.saturating_since(now()));
        poll.poll(&mut events, wait.or(Some(LONG))).unwrap();
        for event in &events {
            let _ = feed.handle_event(event.token(), now()).unwrap();
        }
        feed.handle_timeout(now());
        while let Some(event) = feed.poll_event() {
            match event {
                FeedEvent::Frame { outcome: Outcome::Success, .. } => frames += 1,
                FeedEvent::Server(ServerEvent::Sent { .. }) => sent += 1,
                _ => {}
            }
        }
    }
    assert_eq!((frames, sent, feed.lost(), feed.counts().done), (100, 100, 0, 100));
    drop(feed);
    assert_eq!(working.join().unwrap(), (1..=100).collect());
    publishing.join().unwrap().unwrap();
}
