//! [`Far`]: the process that receives, and what it does there.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cuframes_mio::bridge::{IntakeEvent, StreamReceiver};
use cuframes_mio::core::{Format, FrameMeta, Key};
use rustix::time::{ClockId, clock_gettime};

use crate::{Outcome, bare};

/// The process that receives.
pub(crate) struct Far {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Far {
    pub(crate) fn start(key: &Key, frames: u64, rounds: usize) -> Outcome<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(key.as_str()).args([frames.to_string(), rounds.to_string(), "receive".to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no pipe to the receiver")?);
        Ok(Self { child, stdout })
    }

    pub(crate) fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_string())
    }

    /// What a round costs on both sides.
    pub(crate) fn measure(&mut self, round: impl FnOnce() -> Outcome<()>) -> Outcome<Round> {
        let (start, own) = (Instant::now(), processor_time());
        round()?;
        let (time, sending) = (start.elapsed(), processor_time() - own);
        let receiving = Duration::from_nanos(self.line()?.parse()?);
        Ok(Round { time, sending, receiving })
    }

    pub(crate) fn end(mut self) -> Outcome<()> {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the receiver has ended with {status}").into()) }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // It has ended, unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What one round took.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    pub(crate) time: Duration,
    /// Processor time of the sending and of the receiving process.
    pub(crate) sending: Duration,
    pub(crate) receiving: Duration,
}

pub(crate) fn receive(frames: u64, rounds: usize) -> Outcome<()> {
    let bare = TcpListener::bind("127.0.0.1:0")?;
    bare::tune(&bare)?;
    println!("{}", bare.local_addr()?);
    let dir = tempfile::tempdir()?;
    let receiver = StreamReceiver::builder("tcp://127.0.0.1:0".parse()?).prefix("far-").run_dir(dir.path());
    let mut receiver = receiver.listen()?;
    println!("{}", receiver.endpoint());
    let (mut bare, _) = bare.accept()?;
    bare::tune(&bare)?;
    let mut slots = bare::slots(&FrameMeta::new(Format::NV12, 1920, 1080)?)?;
    receive_frames(&mut receiver, 1)?;
    for _ in 0..=rounds {
        say_cost(|| bare::receive(&mut bare, &mut slots, frames))?;
        say_cost(|| receive_frames(&mut receiver, frames))?;
    }
    // Until the sender goes.
    while receiver.senders() > 0 {
        receiver.next_event(None)?;
    }
    Ok(receiver.shut_down()?)
}

fn receive_frames(receiver: &mut StreamReceiver, frames: u64) -> Outcome<()> {
    let mut left = frames;
    while left > 0 {
        match receiver.next_event(None)? {
            Some(IntakeEvent::Frame { .. }) => left -= 1,
            Some(IntakeEvent::NotPublished { fate, .. }) => return Err(fate.to_string().into()),
            _ => {}
        }
    }
    Ok(())
}

/// Says how much processor time something took.
fn say_cost(work: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let start = processor_time();
    work()?;
    println!("{}", (processor_time() - start).as_nanos());
    Ok(())
}

/// Of all threads of this process, in the kernel and outside.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}
