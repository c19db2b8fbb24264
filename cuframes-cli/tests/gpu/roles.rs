//! What the processes do.

use std::env;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use cuframes_core::gpu::{Device, Import};
use cuframes_core::wire::ShutdownReason;
use cuframes_core::{Backend, Format, FrameMeta, Gone, Key, Policy, RingSize, SubscriberMode};
use cuframes_cuda::{Cuda, Stream};
use cuframes_mio::{Error, Frame, FrameLost, Publisher, PublisherBuilder, ServedPublisher, Subscriber};

use crate::stage::{LONG, tell};

/// What the environment says, or something else.
fn told(name: &str, usual: &str) -> String {
    env::var(name).unwrap_or_else(|_| usual.into())
}

fn number(name: &str, usual: u64) -> u64 {
    told(name, &usual.to_string()).parse().unwrap()
}

fn meta() -> FrameMeta {
    FrameMeta::new(Format::NV12, 64, 32).unwrap()
}

/// A frame that says which one it is in every word.
fn picture(seq: u64) -> Vec<u8> {
    seq.to_le_bytes().repeat(usize::try_from(meta().frame_size_bytes).unwrap() / 8)
}

fn key() -> Key {
    told("TEST_KEY", "").parse().unwrap()
}

fn device() -> Result<Cuda, cuframes_cuda::CudaError> {
    Cuda::open_as(0, Backend(number("TEST_BACKEND", 2)))
}

fn builder() -> PublisherBuilder {
    let policy = if number("TEST_STRICT", 0) == 1 { Policy::STRICT_WAIT } else { Policy::DROP_OLDEST };
    let ring = RingSize::new(number("TEST_RING", 4)).unwrap();
    Publisher::builder(key(), meta()).run_dir(told("TEST_DIR", "")).ring_size(ring).policy(policy)
}

fn publish_on(publisher: &mut ServedPublisher<Cuda>, stream: &Stream) -> Result<u64, Error> {
    let mut claim = publisher.claim()?;
    let seq = claim.seq();
    claim.copy_in(stream, &picture(seq))?;
    claim.commit_on(stream)
}

/// What it came to, told to the test.
fn say(result: Result<(), String>) {
    match result {
        Ok(()) => tell("well"),
        Err(error) => tell(&format!("error: {error}")),
    }
}

#[test]
#[ignore = "a role"]
fn publishes() {
    say(publish().map_err(|error| error.to_string()));
}

fn publish() -> Result<(), Box<dyn std::error::Error>> {
    let cuda = device()?;
    let stream = cuda.stream()?;
    let mut publisher = builder().create_on(cuda)?.serve()?;
    tell("ready");
    let wanted = usize::try_from(number("TEST_WAIT", 1)).unwrap();
    publisher.wait_for(wanted, LONG)?;
    let stop = Path::new(&told("TEST_DIR", "")).join("stop");
    let frames = number("TEST_FRAMES", 20);
    // 0: until the test says so.
    for _ in (0..).take_while(|n| if frames == 0 { !stop.exists() } else { *n < frames }) {
        // One frame that a driver does not take is no reason to end.
        if let Err(error) = publish_on(&mut publisher, &stream) {
            tell(&format!("error: {error}"));
        }
    }
    publisher.shut_down(ShutdownReason::NORMAL)?;
    Ok(())
}

#[test]
#[ignore = "a role"]
fn publishes_on_a_stream_that_stands_still() {
    let cuda = device().unwrap();
    let stream = cuda.stream().unwrap();
    let mut publisher = builder().create_on(cuda).unwrap().serve().unwrap();
    for seq in 1..=number("TEST_RING", 4) {
        assert_eq!(publish_on(&mut publisher, &stream).unwrap(), seq);
    }
    assert_eq!(publisher.stats().frames, 0);
    let error = publisher.claim_timeout(Duration::from_millis(10)).unwrap_err();
    assert!(matches!(&error, Error::Stalled { stalled, .. } if stalled.unfinished), "{error}");
    tell("well");
    // Its end waits for the stream, and then leaves the memory alone.
    drop(publisher);
    std::process::exit(0);
}

#[test]
#[ignore = "a role"]
fn publishes_one_and_has_the_next_under_way() {
    let cuda = device().unwrap();
    let (fast, slow) = (cuda.stream().unwrap(), cuda.stream().unwrap());
    let mut publisher = builder().create_on(cuda.clone()).unwrap().serve().unwrap();
    tell("ready");
    publisher.wait_for(1, LONG).unwrap();
    publish_on(&mut publisher, &fast).unwrap();
    // Committed, before a host function that CUDA may call before all others stands in the way.
    cuda.synchronize(&fast, LONG).unwrap();
    cuda.notify(&slow, Box::new(|| wait_for_file("stop"))).unwrap();
    // From now on the event of the ring, which plain v1 subscribers wait for, stands for the second one.
    publish_on(&mut publisher, &slow).unwrap();
    assert_eq!(publisher.stats().frames, 1);
    tell("under way");
    cuda.synchronize(&slow, LONG).unwrap();
    publisher.shut_down(ShutdownReason::NORMAL).unwrap();
    tell("well");
}

#[test]
#[ignore = "a role"]
fn takes_one_while_the_next_is_under_way() {
    let cuda = device().unwrap();
    let stream = cuda.stream().unwrap();
    let mut subscriber = subscriber(cuda.clone()).unwrap();
    tell("attached");
    let frame = subscriber.next(LONG).unwrap().expect("a frame in time");
    tell("taken");
    wait_for_file("go");
    frame.wait_on(&stream).unwrap();
    cuda.synchronize(&stream, LONG).unwrap();
    let mut bytes = picture(0);
    frame.copy_to_host(&stream, &mut bytes, LONG).unwrap();
    assert!(bytes == picture(1), "it has other bytes");
    frame.release().unwrap();
    tell("complete");
    wait_for_file("stop");
    let frame = subscriber.next(LONG).unwrap().expect("a frame in time");
    assert!(look(frame, &stream).unwrap());
    cuda.synchronize(&stream, LONG).unwrap();
    tell("well");
}

fn wait_for_file(name: &str) {
    let path = Path::new(&told("TEST_DIR", "")).join(name);
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "a role"]
fn publishes_frames_of_its_own() {
    let cuda = device().unwrap();
    let stream = cuda.stream().unwrap();
    let size = meta().frame_size_bytes;
    // Two frames in each buffer: at its start and at an offset.
    let buffers = [(); 2].map(|()| std::sync::Arc::new(cuda.alloc(2 * size).unwrap()));
    let frames = buffers.iter().flat_map(|buffer| {
        [0, size].map(|offset| cuframes_cuda::External::new(std::sync::Arc::clone(buffer), offset))
    });
    let mut publisher = builder().create_external(cuda, frames.collect()).unwrap().serve().unwrap();
    tell("ready");
    publisher.wait_for(1, LONG).unwrap();
    for seq in 1..=20 {
        assert_eq!(publish_on(&mut publisher, &stream).unwrap(), seq);
    }
    publisher.shut_down(ShutdownReason::NORMAL).unwrap();
    tell("well");
}

#[test]
#[ignore = "a role"]
fn subscribes() {
    say(subscribe().map_err(|error| error.to_string()));
}

fn subscribe() -> Result<(), Box<dyn std::error::Error>> {
    let cuda = device()?;
    let stream = cuda.stream()?;
    let mut subscriber = subscriber(cuda.clone())?;
    tell("attached");
    let taken = take(&mut subscriber, &stream);
    // The stream has still to give frames back. Once more if it was this call that had to fail.
    let ended = cuda.synchronize(&stream, LONG);
    let _ = cuda.synchronize(&stream, LONG);
    // Where the stream has ended the last frame held everything, and another thread closes that.
    while !subscriber.is_attached() && subscriber.stats().mapped_bytes != 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    tell(&format!("seen {}", taken?));
    Ok(ended?)
}

fn take(subscriber: &mut Subscriber<Cuda>, stream: &Stream) -> Result<u64, Box<dyn std::error::Error>> {
    let (mut seen, enough) = (0, number("TEST_TAKE", u64::MAX));
    while seen < enough {
        match subscriber.next(LONG) {
            Ok(Some(frame)) => {
                seen += u64::from(look(frame, stream)?);
                if number("TEST_TELL", 0) == 1 {
                    tell(&format!("read {seen}"));
                }
            }
            Ok(None) => return Err("no frame in time".into()),
            Err(Error::Gone { gone: Gone::Shutdown(ShutdownReason::NORMAL), .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(seen)
}

fn subscriber<B: Import<Fd = OwnedFd>>(backend: B) -> Result<Subscriber<B>, Error> {
    let mode = SubscriberMode::STRICT_ORDER;
    Subscriber::builder(key()).run_dir(told("TEST_DIR", "")).mode(mode).connect_on(backend)
}

/// Checks every word of a frame, and gives it back in stream order; `false` if it was overwritten meanwhile.
fn look(frame: Frame<Cuda>, stream: &Stream) -> Result<bool, Error> {
    let seq = frame.seq();
    assert_ne!(frame.device_ptr(), 0);
    let mut bytes = picture(0);
    match frame.copy_to_host(stream, &mut bytes, LONG) {
        Err(Error::Lost { lost: FrameLost::Overwritten, .. }) => return Ok(false),
        copied => assert_eq!(copied?, bytes.len()),
    }
    assert!(bytes == picture(seq), "frame {seq} has other bytes");
    frame.release_after(stream)?;
    Ok(true)
}

#[test]
#[ignore = "a role"]
fn subscribes_without_a_device() {
    let error = subscriber(cuframes_mio::HostMemory::new(key())).unwrap_err();
    say(Err(error.to_string()));
}

#[test]
#[ignore = "a role"]
fn holds_a_frame() {
    let cuda = device().unwrap();
    let mut subscriber = subscriber(cuda).unwrap();
    tell("attached");
    let frame = subscriber.next(LONG).unwrap().expect("a frame in time");
    tell(&format!("holds {}", frame.seq()));
    std::thread::sleep(LONG);
}
