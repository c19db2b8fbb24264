//! The streams in Prometheus text format.

use std::fmt::{self, Display, Write as _};

use crate::model::{Model, Stream, Subscriber};
use crate::survey::State;

/// One kind of figure.
struct Family<T> {
    name: &'static str,
    /// `gauge` or `counter`.
    kind: &'static str,
    help: &'static str,
    /// The figure of one of those that have it.
    figure: fn(&T) -> Option<f64>,
}

#[expect(clippy::as_conversions, reason = "Prometheus has no other numbers than those with 53 bits")]
const fn number(n: u64) -> f64 {
    n as f64
}

const OF_STREAMS: [Family<Stream>; 10] = [
    Family {
        name: "cuframes_stream_up",
        kind: "gauge",
        help: "1 if the publisher lives and frames come.",
        figure: |stream| Some(if stream.facts.state == State::Live { 1.0 } else { 0.0 }),
    },
    Family {
        name: "cuframes_stream_sequence_total",
        kind: "counter",
        help: "Number of the newest frame; numbers are left out where slots were leased.",
        figure: |stream| stream.facts.newest.map(number),
    },
    Family {
        name: "cuframes_stream_frames_per_second",
        kind: "gauge",
        help: "Frames a second between the last two looks.",
        figure: |stream| stream.facts.fps,
    },
    Family {
        name: "cuframes_stream_last_frame_age_seconds",
        kind: "gauge",
        help: "Time since the time stamp of the newest frame, or since it was found at a look, if that is less.",
        figure: |stream| stream.facts.last_frame_age_s,
    },
    Family {
        name: "cuframes_stream_subscribers",
        kind: "gauge",
        help: "Active subscribers.",
        figure: |stream| stream.facts.subscribers.map(f64::from),
    },
    Family {
        name: "cuframes_stream_leases",
        kind: "gauge",
        help: "Frames that subscribers hold, each counted for each of them.",
        figure: |stream| Some(number(u64::try_from(stream.leases).unwrap_or(u64::MAX))),
    },
    Family {
        name: "cuframes_stream_leased_slots",
        kind: "gauge",
        help: "Slots whose frames subscribers hold.",
        figure: |stream| Some(number(u64::try_from(stream.leased_slots).unwrap_or(u64::MAX))),
    },
    Family {
        name: "cuframes_stream_ring_slots",
        kind: "gauge",
        help: "Slots of the ring.",
        figure: |stream| stream.facts.ring_size.map(number),
    },
    Family {
        name: "cuframes_stream_frame_bytes",
        kind: "gauge",
        help: "Size of a frame.",
        figure: |stream| stream.facts.frame_bytes.map(number),
    },
    Family {
        name: "cuframes_stream_age_seconds",
        kind: "gauge",
        help: "Time since the stream was made.",
        figure: |stream| stream.facts.age_s,
    },
];

const OF_SUBSCRIBERS: [Family<Subscriber>; 4] = [
    Family {
        name: "cuframes_subscriber_lag_frames",
        kind: "gauge",
        help: "How many frames a subscriber is behind the newest, if it has acknowledged any.",
        figure: |subscriber| subscriber.lag.map(number),
    },
    Family {
        name: "cuframes_subscriber_leases",
        kind: "gauge",
        help: "Frames that a subscriber holds.",
        figure: |subscriber| Some(number(u64::try_from(subscriber.leases).unwrap_or(u64::MAX))),
    },
    Family {
        name: "cuframes_subscriber_lost_frames_total",
        kind: "counter",
        help: "Frames that were overwritten before a subscriber was done with them, since the exporter has looked.",
        figure: |subscriber| Some(number(subscriber.lost)),
    },
    Family {
        name: "cuframes_subscriber_latency_seconds",
        kind: "gauge",
        help: "From a frame's time stamp until a subscriber was done with it, to 10 ms.",
        figure: |subscriber| subscriber.latency_s,
    },
];

/// A value of a label, in quotes.
struct Quoted<T>(T);

impl<T: Display> Display for Quoted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.to_string().chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// All of them.
pub(super) fn text(model: &Model) -> String {
    let mut text = String::new();
    info(&mut text, model);
    for family in &OF_STREAMS {
        head(&mut text, family.name, family.kind, family.help);
        for stream in &model.streams {
            if let Some(figure) = (family.figure)(stream) {
                let _ = writeln!(text, "{}{{key={}}} {figure}", family.name, Quoted(&stream.facts.key));
            }
        }
    }
    for family in &OF_SUBSCRIBERS {
        head(&mut text, family.name, family.kind, family.help);
        for (stream, subscriber) in model
            .streams
            .iter()
            .flat_map(|stream| stream.subscribers_seen.iter().map(move |one| (stream, one)))
        {
            let Some(figure) = (family.figure)(subscriber) else { continue };
            let (key, bit, name) =
                (Quoted(&stream.facts.key), Quoted(subscriber.bit), Quoted(&subscriber.name));
            let _ = writeln!(text, "{}{{key={key},bit={bit},name={name}}} {figure}", family.name);
        }
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// What does not change, as labels.
fn info(text: &mut String, model: &Model) {
    head(text, "cuframes_exporter_info", "gauge", "Version of the program.");
    let _ = writeln!(text, "cuframes_exporter_info{{version={}}} 1", Quoted(env!("CARGO_PKG_VERSION")));
    head(
        text,
        "cuframes_stream_info",
        "gauge",
        "What a stream is; the state is live, stalled, stale, foreign or unknown.",
    );
    for stream in &model.streams {
        let facts = &stream.facts;
        let size = facts.width.zip(facts.height).map(|(width, height)| format!("{width}x{height}"));
        let labels = [
            ("key", facts.key.to_string()),
            ("state", facts.state.name().to_string()),
            ("format", facts.format.clone().unwrap_or_default()),
            ("size", size.unwrap_or_default()),
            ("policy", facts.policy.clone().unwrap_or_default()),
            ("backend", facts.backend.clone().unwrap_or_default()),
            ("publisher", facts.publisher_name.clone().unwrap_or_default()),
        ];
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={}", Quoted(value))).collect();
        let _ = writeln!(text, "cuframes_stream_info{{{}}} 1", labels.join(","));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_can_hold_anything() {
        assert_eq!(Quoted("a\"b\\c\nd").to_string(), r#""a\"b\\c\nd""#);
    }

    #[test]
    fn without_streams_there_are_families_and_the_version() {
        let text = text(&Model::default());
        assert!(text.contains("cuframes_exporter_info{version=\"0.1.0\"} 1\n"), "{text}");
        assert!(text.contains("# TYPE cuframes_stream_sequence_total counter\n"), "{text}");
        assert!(text.lines().filter(|line| !line.starts_with('#')).count() == 1, "{text}");
    }
}
