//! [`Watcher`]: a subscriber in the test itself, that takes every frame and remembers what it saw.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use cuframes_mio::core::{FrameMeta, Gone, SubscriberMode};
use cuframes_mio::{Error, Frame, Subscriber};

use crate::stage::Stage;

/// What a subscriber can see of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) seq: u64,
    pub(crate) pts_ns: i64,
    pub(crate) meta: FrameMeta,
    /// Valid bytes.
    pub(crate) len: usize,
    /// The rows, without what lies between them; of format BYTES the valid bytes.
    pub(crate) bytes: Vec<u8>,
}

impl Seen {
    fn new(frame: &Frame) -> Self {
        let meta = *frame.meta();
        let planes = (0..meta.planes().count()).filter_map(|plane| frame.plane_rows(plane));
        let bytes = match meta.format {
            cuframes_mio::core::Format::BYTES => frame.bytes().unwrap().to_vec(),
            _ => planes.flatten().flatten().copied().collect(),
        };
        Self { seq: frame.seq(), pts_ns: frame.pts_ns(), meta, len: frame.len(), bytes }
    }

    /// The same but for the number, which starts anew in a replay.
    pub(crate) fn without_seq(&self) -> Self {
        Self { seq: 0, ..self.clone() }
    }
}

/// Frames are on their way to it until the stream ends.
pub(crate) struct Watcher(JoinHandle<Vec<Seen>>);

impl Watcher {
    /// Waits for the stream, then takes every frame of it.
    pub(crate) fn start(stage: &Stage) -> Self {
        let builder = Subscriber::builder(stage.key.parse().unwrap())
            .run_dir(stage.run_dir())
            .mode(SubscriberMode::STRICT_ORDER);
        Self(thread::spawn(move || {
            let mut subscriber = loop {
                match builder.clone().connect() {
                    Ok(subscriber) => break subscriber,
                    Err(Error::NotFound { .. }) => thread::sleep(Duration::from_millis(5)),
                    Err(error) => panic!("{error}"),
                }
            };
            let mut seen = Vec::new();
            loop {
                match subscriber.next(Duration::from_secs(120)) {
                    Ok(frame) => seen.push(Seen::new(&frame.expect("it came to nothing"))),
                    Err(Error::Gone { gone: Gone::Shutdown(_), .. }) => return seen,
                    Err(error) => panic!("{error}"),
                }
            }
        }))
    }

    /// All frames, when the stream has ended.
    pub(crate) fn end(self) -> Vec<Seen> {
        self.0.join().unwrap()
    }
}
