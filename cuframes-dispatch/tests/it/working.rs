//! A worker, at a server that is written by hand.

use std::iter;
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine as _};
use cuframes_dispatch::wire::{FrameError, Message, Stats, Status, Version};
use cuframes_dispatch::{Stop, Worker, WorkerConfig, WorkerEvent};

use crate::bytes::{
    CREATED, FAILED, acquire, block, disconnect, done, failed, frame, messages, sent, shutdown, text, vector,
    w2,
};
use crate::world::{TIMEOUT, id};

struct Solo {
    now: Instant,
    worker: Worker,
    conn: ConnId,
}

fn config(depth: usize) -> WorkerConfig {
    let mut config = WorkerConfig::new("here", "t");
    config.depth = depth;
    config
}

impl Solo {
    /// It has begun to connect.
    fn unconnected(config: WorkerConfig) -> Self {
        let now = Instant::from_nanos(5);
        let mut worker = Worker::new(now, config);
        let Some(Action::Connect { conn, address, delay }) = worker.poll_action() else {
            panic!("no attempt")
        };
        assert_eq!((&address[..], delay), ("here", Duration::ZERO));
        Self { now, worker, conn }
    }

    /// It is connected, and has asked for blocks.
    fn new(depth: usize) -> Self {
        let mut solo = Self::unconnected(config(depth));
        solo.worker.handle_connected(solo.now, solo.conn);
        assert_eq!(solo.said(), acquire("t").repeat(depth));
        solo
    }

    /// What it has sent since the last look.
    fn said(&mut self) -> Vec<u8> {
        let mut said = Vec::new();
        while let Some(bytes) = self.worker.poll_transmit(self.conn).map(<[u8]>::to_vec) {
            self.worker.transmitted(self.conn, bytes.len());
            said.extend(bytes);
        }
        said
    }

    /// Bytes for it, and what it tells.
    fn hear(&mut self, bytes: &[u8]) -> Vec<WorkerEvent> {
        self.worker.handle_bytes(self.now, self.conn, bytes);
        self.events()
    }

    fn events(&mut self) -> Vec<WorkerEvent> {
        iter::from_fn(|| self.worker.poll_event()).collect()
    }

    fn is_closing(&mut self) -> bool {
        iter::from_fn(|| self.worker.poll_action()).any(|action| action == Action::Close(self.conn))
    }

    fn done(&mut self, number: u8) -> Vec<u8> {
        assert!(self.worker.done(self.now, &id("t", number), None));
        self.said()
    }

    /// The block as the worker tells it, with the time that a task has by default.
    fn given(&self, number: u8) -> WorkerEvent {
        let block = crate::world::block("t", number);
        let block = cuframes_dispatch::wire::Block { status: Status::Processing, ..block };
        WorkerEvent::Block { block, until: Some(self.now + TIMEOUT) }
    }
}

#[test]
fn it_takes_one_block_at_a_time_and_sends_it_back_with_what_became_of_it() {
    let mut solo = Solo::new(1);
    assert_eq!(solo.hear(&sent("t", 4, CREATED)), [solo.given(4)]);
    assert_eq!((solo.worker.len(), solo.said()), (1, vec![]));
    assert_eq!(solo.done(4), [done("t", 4), acquire("t")].concat());
    // A block that failed before is told like any other.
    assert_eq!(solo.hear(&sent("t", 5, FAILED)), [solo.given(5)]);
    assert!(solo.worker.failed(solo.now, &id("t", 5), "boom"));
    assert_eq!(solo.said(), [failed("t", 5, "boom"), acquire("t")].concat());
    assert!(solo.worker.is_empty() && !solo.worker.is_finished());
    assert_eq!(solo.worker.poll_timeout(), None);
}

#[test]
fn it_says_its_number_and_its_measurements_if_it_has_some() {
    let mut config = config(0);
    config.worker_id = Some(3);
    let mut solo = Solo::unconnected(config);
    solo.worker.handle_connected(solo.now, solo.conn);
    // A depth of 0 is one of 1.
    assert_eq!(solo.said(), vector!("w2_acquire"));
    solo.hear(&vector!("w2_send"));
    let stats = Stats {
        wall_seconds: 1.5,
        cpu_seconds: 1.25,
        peak_rss_bytes: 4096,
        io_read_bytes: 10,
        io_write_bytes: 70_000,
        gpu_util_pct: f32::NAN,
        gpu_mem_bytes: 0,
    };
    assert!(solo.worker.done(solo.now, &id("t", 7), Some(stats)));
    assert_eq!(solo.said(), [vector!("w2_release_stats"), vector!("w2_acquire")].concat());
}

#[test]
fn with_depth_3_the_next_blocks_are_there_when_one_is_done() {
    let mut solo = Solo::new(3);
    let blocks = [0, 1].map(|number| sent("t", number, CREATED)).concat();
    assert_eq!(solo.hear(&blocks), [solo.given(0), solo.given(1)]);
    // A third one is on its way.
    assert_eq!(solo.done(1), [done("t", 1), acquire("t")].concat());
    let blocks = [2, 3].map(|number| sent("t", number, CREATED)).concat();
    assert_eq!(solo.hear(&blocks), [solo.given(2), solo.given(3)]);
    assert_eq!(solo.worker.len(), 3);
    for number in [3, 0, 2] {
        assert_eq!(solo.done(number), [done("t", number), acquire("t")].concat());
    }
}

#[test]
fn when_all_is_done_it_says_goodbye_and_closes() {
    for depth in [1, 3] {
        let mut solo = Solo::new(depth);
        assert_eq!(solo.hear(&shutdown().repeat(depth)), [WorkerEvent::Stopped(Stop::Shutdown)]);
        assert!(!solo.worker.is_finished() && !solo.is_closing());
        assert_eq!(solo.worker.poll_timeout(), Some(solo.now + Duration::from_secs(1)));
        assert_eq!(solo.said(), disconnect());
        assert!(solo.is_closing() && solo.worker.is_finished());
        assert_eq!(solo.worker.poll_timeout(), None);
    }
}

#[test]
fn when_all_is_done_it_finishes_what_it_has_and_asks_for_nothing_more() {
    let mut solo = Solo::new(4);
    let blocks = [0, 1].map(|number| sent("t", number, CREATED)).concat();
    solo.hear(&[blocks, shutdown()].concat());
    assert_eq!((solo.events(), solo.said(), solo.worker.len()), (vec![], vec![], 2));
    assert_eq!(solo.done(0), done("t", 0));
    // Another one that was asked for may still come.
    assert_eq!(solo.hear(&sent("t", 2, CREATED)), [solo.given(2)]);
    assert_eq!(solo.hear(&shutdown()), []);
    assert_eq!(solo.done(1), done("t", 1));
    assert!(solo.worker.failed(solo.now, &id("t", 2), "no"));
    assert_eq!(solo.events(), [WorkerEvent::Stopped(Stop::Shutdown)]);
    assert_eq!(solo.said(), [failed("t", 2, "no"), disconnect()].concat());
    assert!(solo.is_closing() && solo.worker.is_finished());
}

#[test]
fn a_server_that_is_gone_ends_it_and_it_says_how_much_is_lost() {
    let mut solo = Solo::new(2);
    solo.hear(&sent("t", 0, CREATED));
    solo.worker.handle_eof(solo.now, solo.conn);
    assert_eq!(solo.events(), [WorkerEvent::Stopped(Stop::Closed { lost: 1 })]);
    assert!(solo.worker.is_finished() && solo.worker.is_empty());
    assert_eq!(solo.worker.poll_timeout(), None);
    // What was worked on is of no use any more.
    assert!(!solo.worker.done(solo.now, &id("t", 0), None));
    assert!(!solo.worker.failed(solo.now, &id("t", 0), "late"));
    solo.worker.leave(solo.now);
    solo.worker.handle_connected(solo.now, solo.conn);
    assert_eq!((solo.hear(&shutdown()), solo.said()), (vec![], vec![]));
}

#[test]
fn nobody_at_the_address_ends_it_at_its_deadline() {
    let mut config = config(1);
    config.connect_timeout = Duration::from_secs(7);
    let mut solo = Solo::unconnected(config);
    let deadline = solo.now + Duration::from_secs(7);
    assert_eq!(solo.worker.poll_timeout(), Some(deadline));
    solo.worker.handle_timeout(Instant::from_nanos(deadline.as_nanos() - 1));
    assert_eq!((solo.events(), solo.worker.is_finished()), (vec![], false));
    solo.worker.handle_timeout(deadline);
    assert_eq!(solo.events(), [WorkerEvent::Stopped(Stop::Unreachable)]);
    assert!(solo.is_closing() && solo.worker.is_finished());
    assert_eq!(solo.worker.poll_timeout(), None);
    // Nothing brings it back.
    solo.worker.handle_connected(deadline, solo.conn);
    assert_eq!((solo.said(), solo.events()), (vec![], vec![]));
}

#[test]
fn an_address_that_is_none_ends_it_at_once() {
    let mut solo = Solo::unconnected(config(1));
    solo.worker.handle_eof(solo.now, solo.conn);
    assert_eq!(solo.events(), [WorkerEvent::Stopped(Stop::Unreachable)]);
    assert!(solo.worker.is_finished());
}

#[test]
fn a_block_that_it_has_or_did_not_ask_for_and_words_of_workers_end_it() {
    let first = sent("t", 0, CREATED);
    for (depth, bytes) in [
        (2, first.repeat(2)),
        (1, [first.clone(), sent("t", 1, CREATED)].concat()),
        (1, acquire("t")),
        (1, done("t", 0)),
        (1, failed("t", 0, "no")),
        (1, disconnect()),
    ] {
        let mut solo = Solo::new(depth);
        let events = solo.hear(&[bytes, shutdown()].concat());
        assert_eq!(events.last(), Some(&WorkerEvent::Stopped(Stop::Role)));
        assert_eq!(solo.said(), disconnect());
        assert!(solo.is_closing() && solo.worker.is_finished());
    }
}

#[test]
fn what_is_no_message_ends_it() {
    for (bytes, error) in
        [(vector!("wrong_version"), FrameError::Version(1)), (vec![0; 4], FrameError::Length(0))]
    {
        let mut solo = Solo::new(1);
        solo.hear(&sent("t", 0, CREATED));
        assert_eq!(solo.hear(&bytes), [WorkerEvent::Stopped(Stop::Frame(error))]);
        assert_eq!(solo.said(), disconnect());
        assert!(solo.worker.is_finished());
    }
}

#[test]
fn it_may_leave_at_any_time() {
    let mut solo = Solo::unconnected(config(1));
    solo.worker.leave(solo.now);
    assert_eq!((solo.events(), solo.said()), (vec![WorkerEvent::Stopped(Stop::Left)], vec![]));
    assert!(solo.is_closing() && solo.worker.is_finished());
    let mut solo = Solo::new(1);
    solo.hear(&sent("t", 0, CREATED));
    solo.worker.leave(solo.now);
    solo.worker.leave(solo.now);
    assert_eq!((solo.events(), solo.said()), (vec![WorkerEvent::Stopped(Stop::Left)], disconnect()));
    assert!(solo.is_closing() && solo.worker.is_finished());
}

#[test]
fn its_last_words_have_a_second() {
    let mut solo = Solo::new(1);
    solo.worker.leave(solo.now);
    let until = solo.now + Duration::from_secs(1);
    solo.worker.handle_timeout(Instant::from_nanos(until.as_nanos() - 1));
    assert!(!solo.worker.is_finished() && !solo.is_closing());
    solo.worker.handle_timeout(until);
    assert!(solo.is_closing() && solo.worker.is_finished());
    assert_eq!((solo.said(), solo.worker.poll_timeout()), (vec![], None));
}

#[test]
fn a_time_that_is_none_is_no_limit() {
    let with = |seconds: f64| w2(&[&[1], &block("t", 0, CREATED), &[0, 1], &seconds.to_le_bytes()]);
    let without = w2(&[&[1], &block("t", 0, CREATED), &[0, 0]]);
    let forever = Instant::from_nanos(i64::MAX);
    let now = Instant::from_nanos(5);
    for (bytes, expected) in [
        (with(0.0), Some(now)),
        (with(1.5), Some(now + Duration::from_millis(1500))),
        (with(1e12), Some(forever)),
        (with(1e300), None),
        (with(-1.0), None),
        (with(f64::NAN), None),
        (with(f64::INFINITY), None),
        (without, None),
    ] {
        let events = Solo::new(1).hear(&bytes);
        let [WorkerEvent::Block { until, .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(*until, expected);
    }
}

#[test]
fn a_long_reason_is_cut_between_two_characters() {
    let mut solo = Solo::new(1);
    solo.hear(&sent("t", 0, CREATED));
    // 'é' has two bytes, and the limit of 64 KiB lies within one.
    assert!(solo.worker.failed(solo.now, &id("t", 0), &format!("x{}", "é".repeat(40_000))));
    let said = messages(&solo.said());
    let [Message::BlockFailed { error, .. }, _] = &said[..] else { panic!("{said:?}") };
    assert_eq!(error.len(), (64 << 10) - 1);
    assert!(error.starts_with("xé") && error.ends_with('é'));
}

#[test]
fn the_older_version_is_spoken_with_neither_numbers_nor_times_nor_measurements() {
    let mut config = config(1);
    (config.version, config.worker_id) = (Version::W0, Some(3));
    let mut solo = Solo::unconnected(config);
    solo.worker.handle_connected(solo.now, solo.conn);
    let asked = frame(&[&[0], &text("t")[..]].concat());
    assert_eq!(solo.said(), asked);
    let events = solo.hear(&vector!("w0_send"));
    assert!(matches!(&events[..], [WorkerEvent::Block { until: None, .. }]), "{events:?}");
    assert!(solo.worker.failed(solo.now, &id("t", 7), "boom"));
    assert_eq!(solo.said(), [vector!("w0_failed"), asked.clone()].concat());
    solo.hear(&frame(&[&[1], &block("t", 0, CREATED)[..]].concat()));
    let stats = Stats {
        wall_seconds: 1.0,
        cpu_seconds: 1.0,
        peak_rss_bytes: 1,
        io_read_bytes: 1,
        io_write_bytes: 1,
        gpu_util_pct: 1.0,
        gpu_mem_bytes: 1,
    };
    assert!(solo.worker.done(solo.now, &id("t", 0), Some(stats)));
    assert_eq!(solo.said(), [frame(&[&[2], &block("t", 0, 2)[..]].concat()), asked].concat());
    assert_eq!(solo.hear(&vector!("w0_shutdown")), [WorkerEvent::Stopped(Stop::Shutdown)]);
    assert_eq!(solo.said(), vector!("w0_disconnect"));
}

#[test]
fn it_listens_nowhere() {
    let mut solo = Solo::new(1);
    assert_eq!(solo.worker.handle_accepted(solo.now, 0), None);
}
