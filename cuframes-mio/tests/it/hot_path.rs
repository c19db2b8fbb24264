//! With a subscriber that is awake, claiming and committing makes no system call and allocates nothing; nor does taking
//! and releasing a frame.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{LONG, NEWEST, Stream};
use cuframes_mio::core::Policy;
use cuframes_mio::{ServedPublisher, Subscriber};

const FRAMES: u64 = 1000;

/// Publishes [`FRAMES`] frames while another thread takes them without ever sleeping.
fn with_an_awake_subscriber(measure: impl FnOnce(&mut dyn FnMut())) {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut subscriber = stream.subscriber("awake", NEWEST).connect().unwrap();
    publisher.wait_for(1, LONG).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                drop(subscriber.try_next().unwrap());
            }
        });
        measure(&mut || (0..FRAMES).for_each(|_| publish(&mut publisher)));
        done.store(true, Ordering::Relaxed);
    });
    drop(subscriber);
}

fn publish(publisher: &mut ServedPublisher) {
    let mut claim = publisher.claim().unwrap();
    claim.bytes_mut()[0] = 1;
    claim.commit();
}

#[test]
fn publishing_allocates_nothing() {
    with_an_awake_subscriber(|publish| {
        let allocations = allocation_counter::measure(publish);
        assert_eq!(allocations.count_total, 0);
    });
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
#[ignore = "is run under strace by the test below"]
fn child_publishes_between_two_marks() {
    with_an_awake_subscriber(|publish| {
        mark();
        publish();
        mark();
    });
}

/// A system call that nothing else here makes.
fn mark() {
    let _ = rustix::process::getsid(None);
}

#[test]
fn publishing_makes_no_system_call() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("strace.log");
    let mut command = Command::new("strace");
    command.args(["-f", "-o"]).arg(&log).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "hot_path::child_publishes_between_two_marks", "--ignored"]);
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("ptrace") => {
            println!("SKIPPED: strace may not trace here");
            return;
        }
        Ok(output) => panic!("{output:?}"),
        Err(error) => {
            println!("SKIPPED: strace: {error}");
            return;
        }
    }
    let log = std::fs::read_to_string(log).unwrap();
    let marks: Vec<usize> = log
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains("getsid("))
        .map(|(number, _)| number)
        .collect();
    let [first, last] = marks[..] else { panic!("two marks expected, found lines {marks:?}") };
    let lines: Vec<&str> = log.lines().collect();
    let (thread, _) = lines[first].split_once(' ').unwrap();
    let between = &lines[first + 1..last];
    // The second half of a call that strace shows in two lines is not one more.
    let is_call = |line: &&&str| line.starts_with(&format!("{thread} ")) && !line.contains(" resumed>");
    let calls: Vec<_> = between.iter().filter(is_call).collect();
    assert!(
        calls.is_empty(),
        "{} system calls in {FRAMES} frames: {:?}",
        calls.len(),
        &calls[..calls.len().min(5)]
    );
}
