//! How fast frames go over a link on loopback, beside the same bytes over a bare socket, and what that costs on each side.
//!
//! ```sh
//! cargo run --release --example bridge_throughput -- demo            # 7 rounds of 300 frames
//! cargo run --release --example bridge_throughput -- demo 1000 11    # 11 rounds of 1000
//! ```
//!
//! There are two processes: this one publishes and sends, and starts itself once more to receive. The rounds of both ways take
//! turns, so that whatever else goes on slows both of them down. The frames are in 1080p, and already there: nobody writes them.

#![expect(clippy::print_stdout, reason = "it shows what it has measured")]

mod bare;
mod far;

use std::env;
use std::error::Error;
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cuframes_mio::bridge::StreamSender;
use cuframes_mio::core::{Format, FrameMeta, Key, Policy, RingSize, ShutdownReason, SubscriberMode};
use cuframes_mio::net::Endpoint;
use cuframes_mio::{Publisher, Subscriber};

use far::{Far, Round};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut args = env::args().skip(1);
    let key: Key = args.next().ok_or("usage: bridge_throughput KEY [FRAMES] [ROUNDS]")?.parse()?;
    let frames = args.next().map_or(Ok(300), |frames| frames.parse())?;
    let rounds = args.next().map_or(Ok(7), |rounds| rounds.parse())?;
    match args.next().as_deref() {
        Some("receive") => far::receive(frames, rounds),
        _ => send(&key, frames, rounds),
    }
}

fn send(key: &Key, frames: u64, rounds: usize) -> Outcome<()> {
    let meta = FrameMeta::new(Format::NV12, 1920, 1080)?;
    let ring_size = RingSize::new(4).ok_or("no such ring")?;
    let publisher = Publisher::builder(key.clone(), meta).policy(Policy::STRICT_WAIT).ring_size(ring_size);
    let mut publisher = publisher.create()?.serve()?;
    // Publishes so many frames each time that it is told to.
    let (order, orders) = mpsc::channel::<u64>();
    let publishing = thread::spawn(move || -> Result<(), cuframes_mio::Error> {
        for frames in orders {
            for _ in 0..frames {
                publisher.claim()?.commit();
            }
        }
        publisher.shut_down(ShutdownReason::NORMAL)
    });

    let mut far = Far::start(key, frames, rounds)?;
    let mut bare = TcpStream::connect(far.line()?)?;
    bare::tune(&bare)?;
    let to: Endpoint = far.line()?.parse()?;
    let subscriber = Subscriber::builder(key.clone()).mode(SubscriberMode::STRICT_ORDER);
    let mut sender = StreamSender::builder(to).strict().start(subscriber.connect()?)?;
    // The first frame makes the stream there.
    order.send(1)?;
    let mut delivered = 1;
    until(&mut sender, delivered)?;

    let memory = bare::slots(&meta)?;
    let (mut plain, mut bridged) = (Vec::new(), Vec::new());
    // The first round of each is to warm up.
    for _ in 0..=rounds {
        plain.push(far.measure(|| bare::send(&mut bare, &memory, frames))?);
        bridged.push(far.measure(|| {
            order.send(frames)?;
            delivered += frames;
            until(&mut sender, delivered)
        })?);
    }
    sender.finish(Duration::from_secs(5))?;
    drop((sender, order));
    publishing.join().map_err(|_| "the publisher panicked")??;
    far.end()?;

    let plain = show("bare socket", plain, frames, meta.frame_size_bytes);
    let bridged = show("bridge", bridged, frames, meta.frame_size_bytes);
    println!("ratio: {:.2}", bridged / plain);
    Ok(())
}

/// Sends until so many frames have arrived.
fn until(sender: &mut StreamSender, delivered: u64) -> Outcome<()> {
    while sender.stats().delivered < delivered {
        sender.next_event(None)?;
    }
    Ok(())
}

/// Shows the median round, and returns its frames per second.
fn show(what: &str, rounds: Vec<Round>, frames: u64, size: u64) -> f64 {
    let rounds: Vec<Round> = rounds.into_iter().skip(1).collect();
    let median = |value: fn(&Round) -> Duration| {
        let mut values: Vec<Duration> = rounds.iter().map(value).collect();
        values.sort_unstable();
        values.get(values.len() / 2).map_or(0.0, Duration::as_secs_f64)
    };
    #[expect(clippy::as_conversions, reason = "a number of frames to show")]
    let (frames, size) = (frames as f64, size as f64);
    let per_second = frames / median(|round| round.time);
    println!(
        "{what}: {per_second:.0} frames/s, {:.2} GB/s; processor time per frame: {:.0} us to send, {:.0} us to receive",
        per_second * size / 1e9,
        median(|round| round.sending) / frames * 1e6,
        median(|round| round.receiving) / frames * 1e6,
    );
    per_second
}
