//! A publisher and a subscriber in a mio `Poll` of one's own, beside a timer that says when the next frame is due: one
//! thread, and no call that blocks but `poll`.
//!
//! ```sh
//! cargo run --example own_poll -- demo 25
//! ```

#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::env;
use std::error::Error;
use std::io::ErrorKind;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use cuframes_mio::core::{Format, FrameMeta, Key, Policy, ShutdownReason, SubscriberMode};
use cuframes_mio::{Error as StreamError, EventSource, Publisher, Subscriber, Turn, now};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::io::{Errno, read};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let key: Key = args.next().ok_or("usage: own_poll KEY [FRAMES]")?.parse()?;
    let frames: u64 = args.next().map_or(Ok(25), |frames| frames.parse())?;
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(16);

    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let period = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    let every = Itimerspec { it_interval: period, it_value: period };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;

    // Each source has as many tokens as it needs, from its first one on.
    let meta = FrameMeta::new(Format::GRAY8, 640, 480)?;
    let builder = Publisher::builder(key.clone(), meta).policy(Policy::STRICT_WAIT);
    let mut publisher = builder.create()?;
    publisher.register(poll.registry(), PUBLISHER)?;
    let mut subscriber = Subscriber::builder(key).mode(SubscriberMode::STRICT_ORDER).start()?;
    subscriber.register(poll.registry(), SUBSCRIBER)?;

    let (mut due_frames, mut published) = (0, 0_u64);
    let mut again = Vec::new();
    loop {
        // Sleep until something happens or is due; not at all while something was left over.
        let due = publisher.poll_timeout().into_iter().chain(subscriber.poll_timeout()).min();
        let sleep = due.map(|due| due.saturating_since(now()));
        match poll.poll(&mut events, if again.is_empty() { sleep } else { Some(Duration::ZERO) }) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            result => result?,
        }
        let mut tokens = mem::take(&mut again);
        tokens.extend(events.iter().map(mio::event::Event::token));
        for token in tokens {
            let turn = match token {
                TIMER => {
                    due_frames += expirations(&timer)?;
                    Turn::Idle
                }
                Token(number) if number < SUBSCRIBER.0 => publisher.handle_event(token, now())?,
                _ => subscriber.handle_event(token, now())?,
            };
            if turn == Turn::Again {
                again.push(token);
            }
        }
        publisher.handle_timeout(now());
        subscriber.handle_timeout(now());

        // What is due while nobody is there is left out.
        if publisher.members().next().is_none() {
            due_frames = 0;
        }
        // If no slot is free the loop wakes up when it is worth trying again.
        while due_frames > 0 && published < frames {
            let Ok(mut claim) = publisher.try_claim(now()) else { break };
            published += 1;
            claim.bytes_mut().fill(published.to_le_bytes()[0]);
            claim.commit();
            due_frames -= 1;
        }
        if published == frames {
            publisher.shut_down(now(), ShutdownReason::NORMAL);
        }

        // Until `None`: only then does the loop wake up for the next frame.
        loop {
            match subscriber.poll_next() {
                Ok(Some(frame)) => println!("frame {}: {} bytes", frame.seq(), frame.len()),
                // It has let go of everything by itself. When everybody has, the publisher is finished.
                Err(StreamError::Gone { .. }) if publisher.is_finished(now()) => return Ok(()),
                Ok(None) | Err(StreamError::Gone { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// How often the timer has fired since the last call.
fn expirations(timer: &impl AsFd) -> Result<u64, Errno> {
    let mut count = [0; 8];
    match read(timer, &mut count) {
        Ok(_) => Ok(u64::from_ne_bytes(count)),
        Err(Errno::AGAIN) => Ok(0),
        Err(errno) => Err(errno),
    }
}

const PUBLISHER: Token = Token(0);
const SUBSCRIBER: Token = Token(PUBLISHER.0 + <Publisher>::TOKENS);
const TIMER: Token = Token(SUBSCRIBER.0 + <Subscriber>::TOKENS);
