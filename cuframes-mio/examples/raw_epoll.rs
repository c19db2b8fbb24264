//! A publisher and a subscriber as one descriptor each in a plain epoll loop: whatever waits for descriptors (epoll, poll, glib,
//! Qt, libuv) drives them like this.
//!
//! ```sh
//! cargo run --example raw_epoll -- demo 25
//! ```

#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::env;
use std::error::Error;

use cuframes_mio::core::{Format, FrameMeta, Key, Policy, ShutdownReason, SubscriberMode};
use cuframes_mio::{Error as StreamError, Pollable, Publisher, Subscriber, Turn, now};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let key: Key = args.next().ok_or("usage: raw_epoll KEY [FRAMES]")?.parse()?;
    let frames: u64 = args.next().map_or(Ok(25), |frames| frames.parse())?;

    let meta = FrameMeta::new(Format::GRAY8, 640, 480)?;
    let builder = Publisher::builder(key.clone(), meta).policy(Policy::STRICT_WAIT);
    let mut publisher = Pollable::new(builder.create()?)?;
    let builder = Subscriber::builder(key).mode(SubscriberMode::STRICT_ORDER);
    let mut subscriber = Pollable::new(builder.start()?)?;

    // Their timers are inside: the loop itself needs no timeout.
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &publisher, EventData::new_u64(PUBLISHER), EventFlags::IN)?;
    epoll::add(&epoll, &subscriber, EventData::new_u64(SUBSCRIBER), EventFlags::IN)?;

    let mut events = Vec::with_capacity(2);
    let mut published = 0;
    while !publisher.get_ref().is_finished(now()) {
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Err(Errno::INTR) => continue,
            result => _ = result?,
        }
        for event in &events {
            // Until `Idle`, or the descriptor may stay silent about what is left. Others may have their turn in between.
            match event.data.u64() {
                PUBLISHER => while publisher.turn()? == Turn::Again {},
                _ => while subscriber.turn()? == Turn::Again {},
            }
        }

        // `with`, and not a reference: what is done inside may change what the timer has to be set to.
        publisher.with(|publisher| publish(publisher, &mut published, frames))?;

        // Until `None`: only then does the descriptor tell of the next frame.
        loop {
            match subscriber.with(Subscriber::poll_next)? {
                Ok(Some(frame)) => println!("frame {}: {} bytes", frame.seq(), frame.len()),
                // After the end it has let go of everything by itself. When everybody has, the publisher is finished.
                Ok(None) | Err(StreamError::Gone { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    println!("published {published} frames");
    Ok(())
}

/// Publishes as many frames as there is room for, once somebody is there to see them; the last one ends the stream.
fn publish(publisher: &mut Publisher, published: &mut u64, frames: u64) {
    while *published < frames && publisher.members().next().is_some() {
        // Nobody waits here. If no slot is free, the descriptor becomes readable when it is worth trying again.
        let Ok(mut claim) = publisher.try_claim(now()) else { return };
        *published += 1;
        claim.bytes_mut().fill(published.to_le_bytes()[0]);
        claim.commit();
    }
    if *published == frames {
        publisher.shut_down(now(), ShutdownReason::NORMAL);
    }
}

const PUBLISHER: u64 = 0;
const SUBSCRIBER: u64 = 1;
