//! A publisher and its subscribers, as a program has them; in this one process, with 16 slots. Nobody sleeps.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cuframes_mio::core::shm::layout::SLOTS;
use cuframes_mio::core::{Format, FrameMeta, Key, Policy, RingSize, SubscriberMode};
use cuframes_mio::{Frame, Publisher, ServedPublisher, Subscriber};

use crate::operation::Operation;

pub(crate) fn operations() -> Vec<Operation> {
    let mut operations = Vec::new();
    for members in [0, 1, 8, 31] {
        let of = format!("{members} subscriber{}", if members == 1 { "" } else { "s" });
        operations.push(Operation::single(
            format!("stream: claim and commit, DROP_OLDEST, {of}"),
            move || {
                let mut stream = Stream::new(Policy::DROP_OLDEST, members);
                move || stream.publish()
            },
        ));
        operations.push(Operation::several(
            format!("stream: claim and commit, STRICT_WAIT, {of}"),
            SLOTS,
            move || Stream::new(Policy::STRICT_WAIT, members),
            Stream::catch_up,
            Stream::fill,
        ));
    }
    operations.push(Operation::several(
        "stream: take a frame",
        SLOTS,
        || Stream::new(Policy::DROP_OLDEST, 1),
        |stream| {
            stream.held.clear();
            stream.fill();
        },
        Stream::take,
    ));
    operations.push(Operation::several(
        "stream: release a frame",
        SLOTS,
        || Stream::new(Policy::DROP_OLDEST, 1),
        |stream| {
            stream.fill();
            stream.take();
        },
        |stream| stream.held.clear(),
    ));
    operations.push(Operation::single("stream: look for a frame where none is", || {
        let mut stream = Stream::new(Policy::DROP_OLDEST, 1);
        move || stream.look_in_vain()
    }));
    for members in [1, 31] {
        let name = format!("stream: claim that fails, STRICT_WAIT, {members} behind");
        operations.push(Operation::single(name, move || {
            let mut stream = Stream::new(Policy::STRICT_WAIT, members);
            stream.fill();
            move || stream.claim_in_vain()
        }));
    }
    operations
}

/// A stream with everybody in it. What stands first is dropped first.
struct Stream {
    held: Vec<Frame>,
    subscribers: Vec<Subscriber>,
    publisher: ServedPublisher,
    _dir: tempfile::TempDir,
}

impl Stream {
    fn new(policy: Policy, members: usize) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let key: Key = format!("bench-{}-{number}", std::process::id()).parse().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let meta = FrameMeta::new(Format::GRAY8, 64, 64).unwrap();
        let publisher = Publisher::builder(key.clone(), meta).run_dir(dir.path());
        let publisher = publisher.ring_size(RING_SIZE).policy(policy).create().unwrap().serve().unwrap();
        let subscribers = (0..members).map(|_| {
            let subscriber = Subscriber::builder(key.clone()).run_dir(dir.path());
            subscriber.mode(SubscriberMode::STRICT_ORDER).connect().unwrap()
        });
        let subscribers = subscribers.collect();
        publisher.wait_for(members, Duration::MAX).unwrap();
        Self { held: Vec::with_capacity(SLOTS), subscribers, publisher, _dir: dir }
    }

    fn publish(&mut self) {
        black_box(self.publisher.claim().unwrap().commit());
    }

    fn fill(&mut self) {
        (0..SLOTS).for_each(|_| self.publish());
    }

    fn claim_in_vain(&mut self) {
        black_box(self.publisher.try_claim().map(|_| ()).unwrap_err());
    }

    fn look_in_vain(&mut self) {
        assert!(self.subscribers.iter_mut().all(|one| one.try_next().unwrap().is_none()));
    }

    /// The first subscriber takes everything, and holds it.
    fn take(&mut self) {
        let Some(subscriber) = self.subscribers.first_mut() else { return };
        self.held.extend((0..SLOTS).map_while(|_| subscriber.try_next().unwrap()));
    }

    /// Everybody is done with everything.
    fn catch_up(&mut self) {
        for subscriber in &mut self.subscribers {
            while let Some(frame) = subscriber.try_next().unwrap() {
                frame.release().unwrap();
            }
        }
    }
}

const RING_SIZE: RingSize = RingSize::new(16).unwrap();
