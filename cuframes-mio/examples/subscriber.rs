//! Receives a stream with blocking calls, and goes on with the next publisher when one is gone.
//!
//! ```sh
//! cargo run --example subscriber -- cam0       # until it is interrupted
//! cargo run --example subscriber -- cam0 100   # until it had 100 frames
//! ```
//!
//! It may be started before there is a publisher. Stop and start `publisher` while it runs.

#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::env;
use std::error::Error;
use std::time::Duration;

use cuframes_mio::core::{Key, SubscriberMode};
use cuframes_mio::{Frame, Reconnect, StreamEvent, Subscriber};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let key: Key = args.next().ok_or("usage: subscriber KEY [FRAMES]")?.parse()?;
    let frames: u64 = args.next().map_or(Ok(u64::MAX), |frames| frames.parse())?;

    // STRICT_ORDER: every frame, in order. The default, NEWEST_ONLY, skips what is older when it is late.
    let builder = Subscriber::builder(key).mode(SubscriberMode::STRICT_ORDER);
    // `start` does not wait. `connect` would, and fail if there is no publisher in time.
    let mut subscriber = builder.reconnect(Reconnect::default()).start()?;

    let mut taken = 0;
    while taken < frames {
        // An error is the end here: what waiting can cure is no error for one that reconnects.
        let frame = subscriber.next(PATIENCE)?;
        // What happened before this frame.
        while let Some(event) = subscriber.poll_event() {
            match event {
                StreamEvent::Attached { meta, .. } => {
                    println!("attached: {} {} x {}", meta.format, meta.width, meta.height);
                }
                StreamEvent::Lost(error) => println!("lost: {error}"),
                _ => {}
            }
        }
        match frame {
            Some(frame) => {
                taken += 1;
                show(frame);
            }
            None => match subscriber.trouble() {
                Some(error) => println!("waiting: {error}"),
                None => println!("no frame for {PATIENCE:?}"),
            },
        }
    }

    let stats = subscriber.stats();
    println!("took {} frames, reconnected {} times", stats.frames, stats.reconnects);
    Ok(())
}

/// Looks at a frame, and gives it back.
fn show(frame: Frame) {
    // Read where the publisher wrote it. Nobody overwrites it while we hold it.
    let (mut sum, mut samples) = (0_u64, 0_u64);
    for sample in frame.plane_rows(0).into_iter().flatten().flatten() {
        sum += u64::from(*sample);
        samples += 1;
    }
    let brightness = sum / samples.max(1);
    let (seq, lost) = (frame.seq(), frame.lost());
    // Dropping it would do. But who was evicted, because it held the frame for too long, hears of it here.
    match frame.release() {
        Ok(()) => println!("frame {seq}: brightness {brightness}, {lost} lost before"),
        Err(error) => println!("frame {seq}: {error}"),
    }
}

/// How long to wait for a frame before saying so.
const PATIENCE: Duration = Duration::from_secs(2);
