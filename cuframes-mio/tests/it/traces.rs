//! What a subscriber tells those who watch over it.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cuframes_mio::core::wire::ShutdownReason;
use cuframes_mio::core::{Features, Policy, Timeouts};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber as Collector};

use crate::common::{NEWEST, Stream, next, publish, until};
use crate::other::Other;

/// Keeps every event that it is told of as a line.
#[derive(Clone, Default)]
pub(crate) struct Lines(pub(crate) Arc<Mutex<Vec<(Level, String)>>>);

impl Lines {
    /// Those since the last call, of the level `least` and above.
    fn take(&self, least: Level) -> Vec<(Level, String)> {
        let mut lines = std::mem::take(&mut *self.0.lock().unwrap());
        // What publishers of this thread say is not what is looked at here.
        lines.retain(|(level, line)| *level <= least && !line.starts_with(OF_PUBLISHERS));
        lines
    }
}

/// The target of a publisher's events.
pub(crate) const OF_PUBLISHERS: &str = "cuframes_mio::report ";

impl Collector for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("cuframes_mio")
    }

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                write!(self.0, "{field}={value:?} ").unwrap();
            }
        }
        let mut text = Text(format!("{} ", event.metadata().target()));
        event.record(&mut text);
        self.0.lock().unwrap().push((*event.metadata().level(), text.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Checks levels and parts of the lines; each line names the stream.
#[track_caller]
fn assert_lines(lines: &[(Level, String)], stream: &Stream, expected: &[(Level, &[&str])]) {
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for ((level, line), (expected, parts)) in lines.iter().zip(expected) {
        assert_eq!(level, expected, "{line}");
        let key = format!("key={} ", stream.key);
        assert!(line.contains(&key) && parts.iter().all(|part| line.contains(part)), "{line}: {parts:?}");
    }
}

#[test]
fn every_turn_in_the_life_of_a_subscriber_is_told_with_its_cause() {
    let stream = Stream::new();
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let mut timeouts = Timeouts::default();
    timeouts.lease = Duration::from_millis(50);
    let builder = || stream.publisher(1, Policy::DROP_OLDEST).timeouts(timeouts);

    let mut subscriber = stream.reconnecting(NEWEST).start().unwrap();
    assert!(subscriber.next(Duration::from_millis(20)).unwrap().is_none());
    let all = lines.take(Level::TRACE);
    assert!(all.iter().any(|(level, line)| *level == Level::DEBUG && line.contains("attempt=3 delay=4ms")));
    let told: Vec<_> = all.into_iter().filter(|(level, _)| *level <= Level::INFO).collect();
    assert_lines(&told, &stream, &[(Level::INFO, &["no publisher", "cause=stream ", "not found in"])]);

    let mut publisher = builder().create().unwrap().serve().unwrap();
    publish(&mut publisher);
    let frame = next(&mut subscriber);
    let pid = format!("publisher={} ", std::process::id());
    let epoch = format!("epoch={:x} ", frame.epoch());
    let attached = [pid.as_str(), &epoch, "bit=1 ", "format_changed=false ", "message=attached"];
    assert_lines(&lines.take(Level::INFO), &stream, &[(Level::INFO, &attached)]);

    publish(&mut publisher);
    drop(frame);
    until("the return of one that was evicted", || {
        let _ = subscriber.next(Duration::from_millis(1)).unwrap();
        subscriber.stats().reconnects == 1
    });
    let back = [pid.as_str(), &epoch, "message=attached"];
    let evicted = [pid.as_str(), "message=evicted", "EVICTED"];
    assert_lines(&lines.take(Level::INFO), &stream, &[(Level::WARN, &evicted), (Level::INFO, &back)]);

    let stopping = std::thread::spawn(move || publisher.shut_down(ShutdownReason::NORMAL));
    until("the end", || {
        let _ = subscriber.next(Duration::from_millis(1)).unwrap();
        !subscriber.is_attached()
    });
    stopping.join().unwrap().unwrap();
    let ended = ["message=the publisher has ended", "shut down (normal)"];
    let told = lines.take(Level::INFO);
    assert_lines(&told[..1], &stream, &[(Level::INFO, &ended)]);

    let publisher = Other::start("processes::child_publishes", &stream);
    let pid = format!("publisher={} ", publisher.pid());
    drop(next(&mut subscriber));
    publisher.kill();
    until("the end", || {
        let _ = subscriber.next(Duration::from_millis(1)).unwrap();
        !subscriber.is_attached()
    });
    let lost = [pid.as_str(), "message=lost the publisher", "the connection ended"];
    let told = lines.take(Level::WARN);
    assert_lines(&told, &stream, &[(Level::WARN, &lost)]);

    let _publisher = builder().create().unwrap().serve().unwrap();
    stream.subscriber("plain", NEWEST).features(Features::NONE).connect().unwrap_err();
    let told = lines.take(Level::WARN);
    assert_lines(&told, &stream, &[(Level::WARN, &["message=refused", "UNSUPPORTED"])]);
    drop(subscriber);
}

#[test]
fn a_run_directory_that_others_can_change_is_told_of_once() {
    let stream = Stream::new();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(stream.dir.path(), all).unwrap();
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let _publisher = stream.publisher(1, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    for _ in 0..2 {
        stream.subscriber("eye", NEWEST).connect().unwrap();
    }
    let told = ["message=the run directory is not safe from others", "others may write in it (mode 777)"];
    assert_lines(&lines.take(Level::WARN), &stream, &[(Level::WARN, &told)]);
}
