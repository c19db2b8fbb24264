//! Thousands of handshakes leave nothing behind: the publisher has as many descriptors as before, and takes no more
//! memory (P-15). And what a subscriber takes of its own is little.

use std::fs;
use std::io::Write;
use std::time::Duration;

use crate::common::{LONG, NEWEST, Stream, fill, meta, told, until};
use crate::other::{Other, hear, tell};
use crate::raw::RawPeer;
use cuframes_mio::core::{Policy, Timeouts};
use cuframes_mio::{Publisher, Subscriber};
use cuframes_testkit::vectors::vector;

#[test]
#[ignore = "needs a process of its own: started by the test below"]
fn child_publishes_and_counts() {
    let (key, dir) = told();
    let mut timeouts = Timeouts::default();
    // Those that vanish are in a process that lives.
    timeouts.quarantine = Duration::ZERO;
    let builder = Publisher::builder(key, meta()).run_dir(dir).timeouts(timeouts);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    let mut claim = publisher.claim().unwrap();
    fill(&mut claim);
    claim.commit();
    tell("ready");
    while hear().is_some() {
        until("everybody to be gone", || publisher.stats().subscribers == 0);
        let stats = publisher.stats();
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let resident = resident.trim().strip_suffix(" kB").unwrap();
        tell(&format!("{descriptors} {resident} {} {}", stats.joined, stats.refused.protocol));
    }
}

#[test]
#[ignore = "needs a process of its own: started by the test below"]
fn child_shakes_hands() {
    let (key, dir) = told();
    let socket = dir.join(key.socket_file());
    let connect = || Subscriber::builder(key.clone()).mode(NEWEST).run_dir(&dir).connect().unwrap();
    tell("ready");
    while let Some(line) = hear() {
        for number in 0..line.parse::<u32>().unwrap() {
            match number % 5 {
                // Says goodbye.
                0 | 1 => drop(connect()),
                // So does this one, when the frame goes.
                2 => {
                    let mut subscriber = connect();
                    let frame = subscriber.next(LONG).unwrap().expect("the one frame");
                    drop(subscriber);
                    drop(frame);
                }
                // Is just gone.
                3 => drop(RawPeer::subscribe(&socket)),
                // Does not get that far.
                _ => {
                    let mut peer = RawPeer::connect(&socket);
                    peer.socket.write_all(&vector("unsubscribe")).unwrap();
                    peer.rest();
                }
            }
        }
        tell("done");
    }
}

#[test]
#[ignore = "needs a process of its own: started by the test below"]
fn child_weighs_a_subscriber() {
    let (key, dir) = told();
    let private = || {
        let maps = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let lines = maps.lines().filter_map(|line| line.strip_prefix("Private_")?.split_once(':'));
        lines.map(|(_, size)| size.trim().trim_end_matches(" kB").parse::<u64>().unwrap()).sum::<u64>()
    };
    let before = private();
    let mut subscriber = Subscriber::builder(key).mode(NEWEST).run_dir(dir).connect().unwrap();
    let frame = subscriber.next(LONG).unwrap().expect("the one frame");
    assert_eq!(frame.bytes().unwrap().len(), frame.len());
    tell("ready");
    tell(&(private().saturating_sub(before)).to_string());
    let _ = hear();
}

#[test]
fn a_subscriber_takes_3_mib_of_memory_of_its_own_at_most() {
    let stream = Stream::new();
    let mut publisher = stream.publisher(4, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    let mut claim = publisher.claim().unwrap();
    fill(&mut claim);
    claim.commit();
    let mut subscriber = Other::start("handshakes::child_weighs_a_subscriber", &stream);
    let kilobytes: u64 = subscriber.hear().parse().unwrap();
    println!("a subscriber takes {kilobytes} kB of its own");
    assert!(kilobytes <= 3 * 1024, "{kilobytes} kB");
}

/// Open descriptors, and kilobytes of memory.
fn figures(publisher: &mut Other) -> (u64, u64, String) {
    publisher.say("");
    let line = publisher.hear();
    let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap(), line.clone())
}

#[test]
fn handshakes_leave_no_descriptor_and_no_memory_behind() {
    let number = std::env::var("CUFRAMES_HANDSHAKES").unwrap_or_else(|_| "10000".into());
    let stream = Stream::new();
    let mut publisher = Other::start("handshakes::child_publishes_and_counts", &stream);
    let mut peer = Other::start("handshakes::child_shakes_hands", &stream);
    let mut shake_hands = |number: &str| {
        peer.say(number);
        peer.wait_for_line("done");
    };
    // What is allocated once, is.
    shake_hands("1000");
    let (descriptors, memory, before) = figures(&mut publisher);
    shake_hands(&number);
    let (descriptors_after, memory_after, after) = figures(&mut publisher);
    println!("{number} handshakes: fds, kB, joined, broken: {before} -> {after}");
    assert_eq!(descriptors_after, descriptors);
    // What the allocator keeps for later differs a little.
    assert!(memory_after <= memory + 256, "{memory} kB before, {memory_after} kB after");
}
