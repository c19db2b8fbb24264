//! The director: two streams with four subscribers each, and rounds of misfortune.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::process::{Numbers, Process, Told, becomes};
use crate::traces::{Holds, bits, leftovers, seats};

const SUBSCRIBERS: usize = 4;
/// What is done in one round, to whomever it hits.
const BLOWS: usize = 12;

/// A stream and whoever takes part in it.
struct Stream {
    told: Told,
    publisher: Option<Process>,
    subscribers: Vec<Option<Process>>,
}

/// Everything.
pub(crate) struct Show {
    rng: Rng,
    dir: tempfile::TempDir,
    streams: Vec<Stream>,
    /// What a publisher without subscribers and a subscriber without a publisher hold, the latter by `reconnect`.
    quiet_publisher: Holds,
    quiet_subscriber: [Holds; 2],
    tally: Tally,
}

impl Show {
    pub(crate) fn new(seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let told = |name: &str, strict_wait| Told {
            key: format!("{}-{name}", prefix()).parse().unwrap(),
            dir: dir.path().to_owned(),
            seed: 0,
            strict_wait,
            reconnect: false,
        };
        let stream =
            |told| Stream { told, publisher: None, subscribers: (0..SUBSCRIBERS).map(|_| None).collect() };
        let streams = vec![stream(told("drop", false)), stream(told("strict", true))];
        let quiet = |test, reconnect| {
            let process = Process::start(test, &Told { reconnect, ..told("quiet", false) });
            assert!(becomes(|| process.has_spoken()), "a process that is alone says nothing");
            let holds = Holds::of(&process);
            process.end();
            holds
        };
        let quiet_publisher = quiet("child_publishes", false);
        let quiet_subscriber = [false, true].map(|reconnect| quiet("child_subscribes", reconnect));
        Self {
            rng: Rng::with_seed(seed),
            dir,
            streams,
            quiet_publisher,
            quiet_subscriber,
            tally: Tally::default(),
        }
    }

    /// Rounds until the time is over, one at least.
    pub(crate) fn run(&mut self, time: Duration) {
        let start = Instant::now();
        while self.tally.rounds == 0 || start.elapsed() < time {
            self.start_whoever_is_missing();
            for _ in 0..BLOWS {
                self.strike();
                thread::sleep(Duration::from_millis(self.rng.u64(0..40)));
            }
            self.see_that_everybody_goes_on();
            if self.rng.bool() {
                self.end_subscribers();
            } else {
                self.end_publishers();
            }
            self.tally.rounds += 1;
        }
        self.end_subscribers();
        self.end_publishers();
    }

    pub(crate) const fn tally(&self) -> &Tally {
        &self.tally
    }

    fn start_whoever_is_missing(&mut self) {
        let Self { rng, streams, .. } = self;
        for Stream { told, publisher, subscribers } in streams {
            let mut start = |test, reconnect| {
                self.tally.started += 1;
                Process::start(test, &Told { seed: rng.u64(..), reconnect, ..told.clone() })
            };
            publisher.get_or_insert_with(|| start("child_publishes", false));
            for (number, subscriber) in subscribers.iter_mut().enumerate() {
                subscriber.get_or_insert_with(|| start("child_subscribes", reconnects(number)));
            }
        }
    }

    /// Somebody is killed, stopped, or goes on; the dead come back at once or in the next round.
    fn strike(&mut self) {
        let Self { rng, streams, tally, .. } = self;
        let stream = rng.choice(streams.iter_mut()).unwrap();
        let victim = if rng.usize(0..=SUBSCRIBERS) == 0 {
            &mut stream.publisher
        } else {
            rng.choice(stream.subscribers.iter_mut()).unwrap()
        };
        match rng.u8(0..6) {
            0..=2 => {
                if let Some(process) = victim.take() {
                    tally.kills += 1;
                    tally.hear(process.kill());
                }
            }
            3 => {
                if let Some(process) = victim {
                    tally.stops += 1;
                    process.stop();
                }
            }
            4 => {
                if let Some(process) = victim {
                    process.go_on();
                }
            }
            _ => self.start_whoever_is_missing(),
        }
    }

    /// Everybody who is stopped goes on, everybody who is dead comes back: then frames flow to all of them.
    fn see_that_everybody_goes_on(&mut self) {
        for stream in &mut self.streams {
            let everybody = stream.publisher.iter_mut().chain(stream.subscribers.iter_mut().flatten());
            everybody.for_each(Process::go_on);
        }
        self.start_whoever_is_missing();
        for Stream { told, publisher, subscribers } in &mut self.streams {
            let goes_on = |process: &mut Option<Process>, word: &str| {
                let process = process.as_mut().unwrap();
                let before = process.number(word);
                let goes_on = becomes(|| {
                    assert!(process.is_alive(), "a process of {} ended by itself", told.key);
                    process.number(word) > before
                });
                assert!(
                    goes_on,
                    "{word}={before} for good: {process}; bits {:x?}; its stream's subscribers {:x?}",
                    bits(&told.key),
                    seats(&told.key)
                );
            };
            goes_on(publisher, "frames");
            subscribers.iter_mut().for_each(|subscriber| goes_on(subscriber, "checked"));
        }
    }

    /// All subscribers go, one way or the other: the publishers hold nothing of them any more.
    fn end_subscribers(&mut self) {
        let Self { rng, streams, tally, .. } = self;
        for Stream { subscribers, .. } in &mut *streams {
            for process in subscribers.iter_mut().filter_map(Option::take) {
                tally.hear(if rng.bool() { process.end() } else { process.kill() });
            }
        }
        for Stream { told, publisher, .. } in streams {
            let Some(publisher) = publisher else { continue };
            let none = becomes(|| bits(&told.key).iter().all(|word| *word == 0));
            assert!(none, "bits of {} are left: {:x?}", told.key, bits(&told.key));
            comes_to_hold(publisher, self.quiet_publisher);
        }
    }

    /// All publishers go: their subscribers hold nothing of them any more, and no file is left.
    fn end_publishers(&mut self) {
        let Self { streams, tally, .. } = self;
        for Stream { publisher, .. } in &mut *streams {
            if let Some(process) = publisher.take() {
                tally.hear(process.end());
            }
        }
        let left = leftovers(self.dir.path(), &prefix());
        assert!(left.is_empty(), "left behind: {left:?}");
        for stream in streams {
            for (number, subscriber) in stream.subscribers.iter().enumerate() {
                let [starts_over, goes_on] = self.quiet_subscriber;
                let quiet = if reconnects(number) { goes_on } else { starts_over };
                subscriber.iter().for_each(|subscriber| comes_to_hold(subscriber, quiet));
            }
        }
    }
}

/// Half of the subscribers find the next publisher by themselves, the others start over.
const fn reconnects(number: usize) -> bool {
    number % 2 == 1
}

#[track_caller]
fn comes_to_hold(process: &Process, holds: Holds) {
    assert!(becomes(|| Holds::of(process) == holds), "{:?}, but alone it is {holds:?}", Holds::of(process));
}

/// What all our keys begin with.
fn prefix() -> String {
    format!("chaos-{}", std::process::id())
}

impl Drop for Show {
    fn drop(&mut self) {
        // Only there if the test failed.
        self.streams.clear();
        for name in leftovers(self.dir.path(), &prefix()) {
            let _ = std::fs::remove_file(Path::new("/dev/shm").join(name));
        }
    }
}

/// What happened.
#[derive(Default)]
pub(crate) struct Tally {
    rounds: u64,
    started: u64,
    kills: u64,
    stops: u64,
    numbers: BTreeMap<String, u64>,
}

impl Tally {
    fn hear(&mut self, numbers: Numbers) {
        for (name, number) in numbers {
            *self.numbers.entry(name).or_default() += number;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, started, kills, stops, numbers } = self;
        write!(f, "rounds={rounds} started={started} kills={kills} stops={stops}")?;
        numbers.iter().try_for_each(|(name, number)| write!(f, " {name}={number}"))
    }
}
