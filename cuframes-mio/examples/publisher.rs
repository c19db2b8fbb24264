//! Publishes a moving test picture with blocking calls: the shortest way to share frames.
//!
//! ```sh
//! cargo run --example publisher -- cam0        # until it is interrupted
//! cargo run --example publisher -- cam0 100    # 100 frames
//! ```
//!
//! `subscriber`, in another terminal, shows what arrives. Neither has to be there first.

#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::env;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use cuframes_mio::core::{Format, FrameMeta, Key, ShutdownReason};
use cuframes_mio::{Claim, Publisher};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let key: Key = args.next().ok_or("usage: publisher KEY [FRAMES]")?.parse()?;
    let frames: u64 = args.next().map_or(Ok(u64::MAX), |frames| frames.parse())?;

    // `create` takes the key and makes the memory; `serve` starts the thread that subscribers talk to.
    let meta = FrameMeta::new(Format::GRAY8, 640, 480)?;
    let mut publisher = Publisher::builder(key, meta).create()?.serve()?;
    println!("publishing {}", publisher.key());

    // Whoever comes later misses what was before. So this waits a while for the first subscriber, but not for ever.
    if let Err(missing) = publisher.wait_for(1, Duration::from_secs(3)) {
        println!("{missing}; going on without");
    }

    let mut due = Instant::now();
    for _ in 0..frames {
        let mut claim = publisher.claim()?;
        paint(&mut claim);
        claim.commit();

        while let Some(event) = publisher.poll_event() {
            println!("{event:?}");
        }
        due += FRAME_TIME;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }

    // Waits for those who still read. Dropping it would do the same, but could not tell whether it went well.
    let stats = publisher.stats();
    publisher.shut_down(ShutdownReason::NORMAL)?;
    println!("published {} frames", stats.frames);
    Ok(())
}

/// A gradient that moves with the frame's number. What is not written still shows an older frame.
fn paint(claim: &mut Claim<'_>) {
    let first = claim.seq();
    for (y, row) in (first..).zip(claim.plane_rows_mut(0).into_iter().flatten()) {
        row.fill(y.to_le_bytes()[0]);
    }
}

/// 25 frames a second.
const FRAME_TIME: Duration = Duration::from_millis(40);
