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

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cuframes_mio::bridge::{IntakeEvent, StreamReceiver, StreamSender};
use cuframes_mio::core::{Format, FrameMeta, Key, Policy, RingSize, ShutdownReason, SubscriberMode};
use cuframes_mio::net::Endpoint;
use cuframes_mio::{Publisher, Subscriber};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::time::{ClockId, clock_gettime};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut args = env::args().skip(1);
    let key: Key = args.next().ok_or("usage: bridge_throughput KEY [FRAMES] [ROUNDS]")?.parse()?;
    let frames = args.next().map_or(Ok(300), |frames| frames.parse())?;
    let rounds = args.next().map_or(Ok(7), |rounds| rounds.parse())?;
    match args.next().as_deref() {
        Some("receive") => receive(frames, rounds),
        _ => send(&key, frames, rounds),
    }
}

/// What one round took.
#[derive(Clone, Copy)]
struct Round {
    time: Duration,
    /// Processor time of the sending and of the receiving process.
    sending: Duration,
    receiving: Duration,
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
    tune(&bare)?;
    let to: Endpoint = far.line()?.parse()?;
    let subscriber = Subscriber::builder(key.clone()).mode(SubscriberMode::STRICT_ORDER);
    let mut sender = StreamSender::builder(to).strict().start(subscriber.connect()?)?;
    // The first frame makes the stream there.
    order.send(1)?;
    let mut delivered = 1;
    until(&mut sender, delivered)?;

    let memory = slots(&meta)?;
    let (mut plain, mut bridged) = (Vec::new(), Vec::new());
    // The first round of each is to warm up.
    for _ in 0..=rounds {
        plain.push(far.measure(|| send_bare(&mut bare, &memory, frames))?);
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

/// As much memory as the ring of the stream has.
fn slots(meta: &FrameMeta) -> Outcome<Vec<Vec<u8>>> {
    let size = usize::try_from(meta.frame_size_bytes)?;
    Ok((0..4).map(|_| vec![1; size]).collect())
}

fn send_bare(bare: &mut TcpStream, slots: &[Vec<u8>], frames: u64) -> Outcome<()> {
    for slot in slots.iter().cycle().take(usize::try_from(frames)?) {
        let mut rest = &slot[..];
        while !rest.is_empty() {
            let sent = bare.write_vectored(&[IoSlice::new(rest)])?;
            rest = rest.get(sent..).unwrap_or_default();
        }
    }
    // All has arrived.
    bare.read_exact(&mut [0])?;
    Ok(())
}

fn receive(frames: u64, rounds: usize) -> Outcome<()> {
    let bare = TcpListener::bind("127.0.0.1:0")?;
    tune(&bare)?;
    println!("{}", bare.local_addr()?);
    let dir = tempfile::tempdir()?;
    let receiver = StreamReceiver::builder("tcp://127.0.0.1:0".parse()?).prefix("far-").run_dir(dir.path());
    let mut receiver = receiver.listen()?;
    println!("{}", receiver.endpoint());
    let (mut bare, _) = bare.accept()?;
    tune(&bare)?;
    let mut slots = slots(&FrameMeta::new(Format::NV12, 1920, 1080)?)?;
    receive_frames(&mut receiver, 1)?;
    for _ in 0..=rounds {
        say_cost(|| {
            for slot in (0..slots.len()).cycle().take(usize::try_from(frames)?) {
                let slot = slots.get_mut(slot).ok_or("no slot")?;
                bare.read_exact(slot)?;
            }
            Ok(bare.write_all(&[1])?)
        })?;
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

/// The process that receives.
struct Far {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Far {
    fn start(key: &Key, frames: u64, rounds: usize) -> Outcome<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(key.as_str()).args([frames.to_string(), rounds.to_string(), "receive".to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no pipe to the receiver")?);
        Ok(Self { child, stdout })
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_string())
    }

    /// What a round costs on both sides.
    fn measure(&mut self, round: impl FnOnce() -> Outcome<()>) -> Outcome<Round> {
        let (start, own) = (Instant::now(), processor_time());
        round()?;
        let (time, sending) = (start.elapsed(), processor_time() - own);
        let receiving = Duration::from_nanos(self.line()?.parse()?);
        Ok(Round { time, sending, receiving })
    }

    fn end(mut self) -> Outcome<()> {
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

/// The same as the sockets of a link have.
fn tune(socket: impl std::os::fd::AsFd) -> Outcome<()> {
    set_socket_send_buffer_size(&socket, BUFFER)?;
    set_socket_recv_buffer_size(&socket, BUFFER)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(())
}

/// Of all threads of this process, in the kernel and outside.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

const BUFFER: usize = 4 << 20;
