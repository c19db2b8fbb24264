//! Frames in the memory of a device of one's own, published and received. `backend.rs` is what has to be written for that.
//!
//! ```sh
//! cargo run --example custom_backend -- demo 25
//! ```

#![expect(clippy::print_stdout, reason = "it shows what happens")]

mod backend;
mod device;
mod failed;

use std::env;
use std::error::Error;
use std::time::Duration;

use cuframes_mio::core::{Format, FrameMeta, Key, Policy, SubscriberMode};
use cuframes_mio::{Publisher, Subscriber};

use crate::backend::Dsp;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let key: Key = args.next().ok_or("usage: custom_backend KEY [FRAMES]")?.parse()?;
    let frames: u64 = args.next().map_or(Ok(25), |frames| frames.parse())?;

    let meta = FrameMeta::new(Format::GRAY8, 640, 480)?;
    let builder = Publisher::builder(key.clone(), meta).policy(Policy::STRICT_WAIT);
    let mut publisher = builder.create_on(Dsp)?.serve()?;

    // Usually in another process.
    let builder = Subscriber::builder(key).mode(SubscriberMode::STRICT_ORDER);
    let mut subscriber = builder.connect_on(Dsp)?;

    let size = usize::try_from(meta.frame_size_bytes)?;
    let (mut picture, mut seen) = (vec![0; size], vec![0; size]);
    for number in 1..=frames {
        picture.fill(number.to_le_bytes()[0]);
        let mut claim = publisher.claim()?;
        claim.copy_in(&(), &picture)?;
        claim.commit_on(&())?;

        let frame = subscriber.next(PATIENCE)?.ok_or("no frame in time")?;
        frame.copy_to_host(&(), &mut seen, PATIENCE)?;
        println!("frame {} at {:#x}: intact {}", frame.seq(), frame.device_ptr(), seen == picture);
        frame.release_after(&())?;
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(5);
