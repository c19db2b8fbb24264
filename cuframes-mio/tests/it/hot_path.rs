//! With a subscriber that is awake, claiming and committing makes no system call and allocates nothing; nor does taking
//! and releasing a frame.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use crate::common::{LONG, NEWEST, Running, STRICT, Stream, meta, told};
use cuframes_mio::core::{Format, FrameMeta, Key, Policy, RingSize};
use cuframes_mio::{Publisher, Reconnect, ServedPublisher, Subscriber};

const FRAMES: u64 = 1000;

/// Gives `measure` a way to publish [`FRAMES`] frames, while another thread takes them without ever sleeping.
fn with_an_awake_subscriber(key: Key, dir: &Path, measure: impl FnOnce(&mut (dyn FnMut() + Send))) {
    let publisher = Publisher::builder(key.clone(), meta()).run_dir(dir);
    let mut publisher = publisher.create().unwrap().serve().unwrap();
    let mut subscriber = Subscriber::builder(key).run_dir(dir).connect().unwrap();
    publisher.wait_for(1, LONG).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                drop(subscriber.try_next().unwrap());
            }
        });
        // Without this a failure of `measure` would wait for the other thread for ever.
        let _done = Finally(|| done.store(true, Ordering::Relaxed));
        measure(&mut || (0..FRAMES).for_each(|_| publish(&mut publisher)));
    });
}

struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        self.0();
    }
}

fn publish(publisher: &mut ServedPublisher) {
    let mut claim = publisher.claim().unwrap();
    claim.bytes_mut()[0] = 1;
    claim.commit();
}

#[test]
fn publishing_allocates_nothing() {
    let stream = Stream::new();
    with_an_awake_subscriber(stream.key.clone(), stream.dir.path(), |publish| {
        let allocations = allocation_counter::measure(publish);
        assert_eq!(allocations.count_total, 0);
    });
}

#[test]
fn the_first_frames_cost_no_page_faults() {
    let stream = Stream::new();
    let meta = FrameMeta::new(Format::BYTES, 1 << 20, 1).unwrap();
    let publisher = Publisher::builder(stream.key.clone(), meta).run_dir(stream.dir.path());
    let mut publisher = publisher.ring_size(RingSize::new(4).unwrap()).create().unwrap().serve().unwrap();
    let before = page_faults();
    for _ in 0..4 {
        let mut claim = publisher.claim().unwrap();
        claim.bytes_mut().fill(1);
        claim.commit();
    }
    // There are 256 pages in each frame.
    assert!(page_faults() - before < 256);
}

/// Those of this thread that read nothing from a disk.
fn page_faults() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The name in parentheses may have spaces in it; field 3 comes after it.
    stat.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap().parse().unwrap()
}

#[test]
fn who_spins_sleeps_only_when_no_frame_has_come_for_so_long() {
    if std::thread::available_parallelism().unwrap().get() == 1 {
        println!("SKIPPED: spinning before sleeping: there is only one CPU");
        return;
    }
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::STRICT_WAIT).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("eye", STRICT).spin(LONG).connect().unwrap();
    let before = subscriber.stats().wake_ups;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(1));
                publish(&mut publisher);
            }
        });
        for seq in 1..=20 {
            assert_eq!(subscriber.next(LONG).unwrap().unwrap().seq(), seq);
        }
    });
    assert_eq!(subscriber.stats().wake_ups, before, "it has slept");
    drop(subscriber);
    let short = std::time::Duration::from_micros(100);
    let mut subscriber = stream.subscriber("lid", STRICT).spin(short).connect().unwrap();
    drop(subscriber.next(LONG).unwrap().expect("the newest frame"));
    let before = subscriber.stats().wake_ups;
    assert!(subscriber.next(10 * short).unwrap().is_none());
    assert!(subscriber.stats().wake_ups > before);
}

#[test]
fn taking_and_releasing_a_frame_allocates_nothing() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber: Subscriber = stream.subscriber("awake", NEWEST).connect().unwrap();
    publish(&mut publisher);
    let allocations = allocation_counter::measure(|| {
        let frame = subscriber.try_next().unwrap().expect("the frame just published");
        frame.release().unwrap();
        assert!(subscriber.try_next().unwrap().is_none());
    });
    assert_eq!(allocations.count_total, 0);
    drop(subscriber);
}

#[test]
#[ignore = "ends its process: see publishing_makes_no_system_call"]
fn child_publishes_without_system_calls() {
    let (key, dir) = told();
    with_an_awake_subscriber(key, &dir, |publish| without_system_calls(publish));
}

#[test]
#[ignore = "ends its process: see taking_and_releasing_frames_makes_no_system_call"]
fn child_takes_frames_without_system_calls() {
    let (key, dir) = told();
    let builder = Publisher::builder(key.clone(), meta()).run_dir(&dir);
    let builder = builder.ring_size(RingSize::new(16).unwrap());
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let builder = Subscriber::builder(key).run_dir(&dir).mode(STRICT);
    let mut subscriber = builder.reconnect(Reconnect::default()).connect().unwrap();
    (0..16).for_each(|_| publish(&mut publisher));
    without_system_calls(&mut || {
        (1..=16).for_each(|seq| {
            let frame = subscriber.try_next().unwrap().expect("a frame that is there");
            assert_eq!((frame.seq(), frame.lost()), (seq, 0));
            frame.release().unwrap();
        });
        assert!(subscriber.try_next().unwrap().is_none());
    });
}

#[test]
#[ignore = "ends its process: see publishing_makes_no_system_call"]
fn child_makes_a_system_call() {
    without_system_calls(&mut || {
        let _ = rustix::process::getsid(None);
    });
}

/// Runs `work` in a thread that is killed, and all of its process, at its first system call; then ends the process.
fn without_system_calls(work: &mut (dyn FnMut() + Send)) -> ! {
    let filter = no_system_calls();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = seccompiler::apply_filter(&filter) {
                println!("{error}");
                std::process::exit(NO_FILTER);
            }
            work();
            done.store(true, Ordering::Release);
            // A thread can't end without a system call.
            loop {
                std::hint::spin_loop();
            }
        });
        while !done.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        std::process::exit(0)
    })
}

/// Reading the clock is a system call on some machines, whose kernel can't answer it otherwise.
fn no_system_calls() -> BpfProgram {
    let clock = [(libc::SYS_clock_gettime, Vec::new())].into();
    let arch: TargetArch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(clock, SeccompAction::KillProcess, SeccompAction::Allow, arch).unwrap();
    filter.try_into().unwrap()
}

/// The exit code that says that this kernel has no such filters, or does not let us use them.
const NO_FILTER: i32 = 77;

/// Runs a test that uses [`without_system_calls`] in a process of its own.
fn makes_no_system_call(test: &str) {
    let stream = Stream::new();
    let end = |test| Running::start(stream.child(test).stdout(Stdio::null())).end();
    let caught = end("hot_path::child_makes_a_system_call");
    if caught.code() == Some(NO_FILTER) {
        println!("SKIPPED: system calls of a thread can't be filtered here");
        return;
    }
    assert_eq!(caught.signal(), Some(libc::SIGSYS), "{caught:?}: a system call must be seen");
    let status = end(test);
    assert_eq!(status.code(), Some(0), "{status:?}: signal 31 means a system call");
}

#[test]
fn publishing_makes_no_system_call() {
    makes_no_system_call("hot_path::child_publishes_without_system_calls");
}

#[test]
fn taking_and_releasing_frames_makes_no_system_call() {
    makes_no_system_call("hot_path::child_takes_frames_without_system_calls");
}
