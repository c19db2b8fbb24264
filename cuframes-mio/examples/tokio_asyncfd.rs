//! A subscriber in tokio: one task takes frames from the stream, another one works on them, and Ctrl-C ends both in good order.
//!
//! ```sh
//! cargo run --example publisher -- cam0
//! cargo run --example tokio_asyncfd -- cam0        # until it is interrupted
//! cargo run --example tokio_asyncfd -- cam0 100    # until it had 100 frames
//! ```

#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::env;
use std::error::Error;

use cuframes_mio::core::{Key, SubscriberMode};
use cuframes_mio::{Frame, Pollable, Reconnect, Subscriber, Turn};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::{select, spawn, task};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let key: Key = args.next().ok_or("usage: tokio_asyncfd KEY [FRAMES]")?.parse()?;
    let frames: u64 = args.next().map_or(Ok(u64::MAX), |frames| frames.parse())?;
    // Once, before anything begins: a signal that nobody listens for ends the program on the spot.
    let interrupt = signal(SignalKind::interrupt())?;
    let builder = Subscriber::builder(key).mode(SubscriberMode::STRICT_ORDER);
    let subscriber = builder.reconnect(Reconnect::default()).start()?;

    // A frame may go to any task or thread. Those that wait here are held: fewer than the ring has slots.
    let (sender, receiver) = channel(2);
    let receiving = spawn(receive(subscriber, sender));
    let taken = work(receiver, frames, interrupt).await;

    // Nobody wants frames any more. The subscriber says goodbye when it is dropped, at the end of its task.
    receiving.await??;
    println!("took {taken} frames");
    Ok(())
}

/// Hands out the frames of a stream until it has ended, or nobody wants them any more.
async fn receive(subscriber: Subscriber, frames: Sender<Frame>) -> Result<()> {
    // Readable only: an epoll, which is what it is inside, is never writable.
    #[expect(
        deprecated,
        reason = "its successor is unsafe, and a `Pollable` keeps its descriptor as long as it lives"
    )]
    let mut stream = AsyncFd::with_interest(Pollable::new(subscriber)?, Interest::READABLE)?;
    loop {
        // Until `None`: only then does the descriptor tell of the next frame.
        while let Some(frame) = stream.get_mut().with(Subscriber::poll_next)?? {
            if frames.send(frame).await.is_err() {
                return Ok(());
            }
        }
        select! {
            guard = stream.readable_mut() => {
                let mut guard = guard?;
                // Before reading: what comes later than that is a new event.
                guard.clear_ready();
                while guard.get_inner_mut().turn()? == Turn::Again {
                    task::yield_now().await;
                }
            }
            () = frames.closed() => return Ok(()),
        }
    }
}

/// Works on frames until there are no more, it had `limit` of them, or Ctrl-C; says how many.
async fn work(mut frames: Receiver<Frame>, limit: u64, mut interrupt: Signal) -> u64 {
    let mut taken = 0;
    while taken < limit {
        let frame = select! {
            frame = frames.recv() => frame,
            _ = interrupt.recv() => None,
        };
        let Some(frame) = frame else { break };
        // Much work belongs into `spawn_blocking`, with the frame: it is `Send`, and valid for as long as it is held.
        println!("frame {}: {} bytes, {} lost before", frame.seq(), frame.len(), frame.lost());
        taken += 1;
    }
    taken
}
