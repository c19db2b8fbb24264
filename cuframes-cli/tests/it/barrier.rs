//! Starting together, with the program alone.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::stage::{Process, Stage, wait_until};

/// A port of loopback that is free.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Connects once somebody listens there.
fn connect(port: u16) -> TcpStream {
    let mut socket = None;
    wait_until("the listener", || {
        socket = TcpStream::connect(("127.0.0.1", port)).ok();
        socket.is_some()
    });
    socket.unwrap()
}

/// Bytes of memory that a process has.
fn resident(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn descriptors(process: &Process) -> usize {
    fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().count()
}

#[test]
fn two_subscribers_see_the_first_frame_of_a_publisher_that_waited_for_them() {
    let stage = Stage::new();
    let publisher = stage.start(
        "publish KEY --pattern seq --policy strict-wait --fps 0 --frames 50 --barrier ipc://DIR/b --expect 2",
    );
    let subscribers = [0, 1].map(|index| {
        stage.start(&format!(
            "subscribe KEY --mode strict --check-seq --json --barrier ipc://DIR/b --index {index}"
        ))
    });
    for subscriber in subscribers {
        assert_eq!(subscriber.end().succeeded().json()["frames"], 50);
    }
    assert!(publisher.end().succeeded().stdout.contains("50 frames"));
    assert!(stage.leftovers().is_empty());
    assert!(!stage.path("b").exists());
}

#[test]
fn processes_that_are_not_ours_can_wait_and_join() {
    let stage = Stage::new();
    let joins = [3, 4].map(|index| {
        stage.start(&format!("barrier join ipc://DIR/b --index {index} --name part{index} --json"))
    });
    let wait =
        stage.start("barrier wait ipc://DIR/b --expect 2 --first-index 3 --json").end().succeeded().json();
    assert_eq!(wait["participants"][1]["name"], "part4");
    assert_eq!((&wait["end"], &wait["missing"]), (&"started".into(), &serde_json::json!([])));
    for (index, join) in (3..).zip(joins) {
        let joined = join.end().succeeded().json();
        assert_eq!((&joined["index"], &joined["confirmed"]), (&index.into(), &true.into()));
    }
}

#[test]
fn who_is_missing_is_named_to_everybody() {
    let stage = Stage::new();
    let join = stage.start("barrier join ipc://DIR/b --index 1 --json");
    let wait = stage.run("barrier wait ipc://DIR/b --expect 3 --timeout 2 --json");
    let report = wait.json();
    assert_eq!((&report["end"], &report["missing"][0]["index"]), (&"failure".into(), &0.into()), "{report}");
    assert_eq!(wait.code(), Some(1));
    let line = wait.stderr.trim_end();
    assert!(line.contains("failed: no READY within 2s from 0 (nothing heard), 2 (nothing heard)"), "{line}");
    assert_eq!(line.lines().count(), 1);
    let join = join.end();
    assert_eq!(join.code(), Some(1));
    assert!(join.stderr.contains("the frontend cancelled the start: no READY within 2s from 0"), "{join:?}");
    let report = join.json();
    assert_eq!((&report["end"], &report["confirmed"]), (&"failure".into(), &false.into()), "{report}");
}

#[test]
fn a_signal_calls_the_start_off_and_everybody_hears_it() {
    let stage = Stage::new();
    let publisher = stage.start("publish KEY --pattern bars --barrier ipc://DIR/b --expect 2");
    let subscriber = stage.start("subscribe KEY --barrier ipc://DIR/b --index 0");
    let is_there = stage.start("subscribe KEY --frames 1");
    wait_until("the subscribers, and one of them at the barrier", || {
        let ls = stage.run("ls --json --window 0").succeeded().json();
        let is_connected = subscriber.sockets() > 1 && is_there.sockets() > 0;
        is_connected && ls["streams"][0]["subscribers"].as_u64() == Some(2)
    });
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
    let subscriber = subscriber.end();
    assert!(
        subscriber.stderr.contains("cancelled the start: cancelled: it was ended by a signal"),
        "{subscriber:?}"
    );
    assert_eq!(subscriber.code(), Some(1));
    is_there.end().succeeded();
}

/// Whether a process has gone so far that SIGTERM does not just end it.
fn handles_term(process: &Process) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << 14) != 0
}

#[test]
fn exit_code_0_is_for_a_start_alone_and_not_for_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let stage = Stage::new();
        let wait = stage.start("barrier wait ipc://DIR/b --expect 2 --json");
        wait_until("the listener", || stage.path("b").exists());
        let join = stage.start("barrier join ipc://DIR/b --index 0 --json");
        let alone = stage.start("barrier join ipc://DIR/nobody --index 0 --json");
        let output = stage.path("b.output").display().to_string();
        // One line is the listener's.
        wait_until("the registration", || {
            fs::read_to_string("/proc/net/unix").unwrap().matches(&output).count() > 1
        });
        wait_until("what handles its signals", || handles_term(&alone));
        let ends = [(alone, "ipc://", "signal"), (wait, "ipc://", "signal"), (join, "cancelled", "failure")];
        for (process, words, end) in ends {
            process.signal(signal);
            let ended = process.end();
            assert_eq!(ended.code(), Some(1), "{ended:?}");
            assert!(ended.stderr.contains(words) && ended.stderr.lines().count() == 1, "{ended:?}");
            assert_eq!(ended.json()["end"], end, "{ended:?}");
        }
    }
}

#[test]
fn a_subscriber_that_looks_for_its_stream_hears_that_the_start_is_off() {
    // It would look for it for a minute.
    let subscribe = "subscribe KEY --barrier ipc://DIR/b --index 0 --timeout 60 --barrier-timeout";
    let is_looking = |stage: &Stage| {
        let line = stage.path("b").display().to_string();
        // One line is the listener's.
        wait_until("INIT", || {
            fs::read_to_string("/proc/net/unix").unwrap().matches(&format!("{line}\n")).count() > 1
        });
    };
    // Its own deadline, that of the other side, and a signal.
    for (own, theirs, words) in [("1", "60", "waited 1s for"), ("60", "2", "cancelled the start")] {
        let stage = Stage::new();
        let wait = stage.start(&format!("barrier wait ipc://DIR/b --expect 2 --timeout {theirs}"));
        let subscriber = stage.start(&format!("{subscribe} {own}")).end();
        assert_eq!(subscriber.code(), Some(1), "{subscriber:?}");
        assert!(subscriber.stderr.contains(words), "{subscriber:?}");
        drop(wait);
    }
    // Nothing shows from outside that it has INIT, so a slow machine gets more time.
    let is_told = [200, 2000, 10_000].into_iter().any(|patience| {
        let stage = Stage::new();
        let wait = stage.start("barrier wait ipc://DIR/b --expect 2 --timeout 15");
        let subscriber = stage.start(&format!("{subscribe} 60"));
        is_looking(&stage);
        std::thread::sleep(Duration::from_millis(patience));
        subscriber.signal(Signal::TERM);
        assert_eq!(subscriber.end().code(), Some(0));
        wait.end().stderr.contains("participant 0 cancelled: it was ended by a signal")
    });
    assert!(is_told);
}

#[test]
fn a_relative_path_is_told_to_those_in_other_directories_as_an_absolute_one() {
    let stage = Stage::new();
    let wait = Process::start(stage.cuframes("barrier wait ipc://b --expect 1").current_dir(stage.path(".")));
    stage.run("barrier join ipc://DIR/b --index 0").succeeded();
    wait.end().succeeded();
}

#[test]
fn who_starts_again_begins_anew_or_fails_the_start_if_that_is_wanted() {
    for (option, code) in [("", 0), ("--no-restarts", 1)] {
        // Nobody can see from outside when the first registration has arrived.
        let is_so = [50, 500, 3000, 10_000].into_iter().any(|patience| {
            let stage = Stage::new();
            let wait = stage.start(&format!("barrier wait ipc://DIR/b --expect 2 {option}"));
            let first = stage.start("barrier join ipc://DIR/b --index 0");
            let output = stage.path("b.output").display().to_string();
            // One line is the listener's.
            wait_until("the connection", || {
                fs::read_to_string("/proc/net/unix").unwrap().matches(&output).count() > 1
            });
            std::thread::sleep(Duration::from_millis(patience));
            first.signal(Signal::KILL);
            let _ = first.end();
            let again = stage.start("barrier join ipc://DIR/b --index 0");
            // Where the start has failed, it may find nobody.
            let other = stage.start("barrier join ipc://DIR/b --index 1 --timeout 3");
            [wait.end(), again.end(), other.end()].iter().all(|ended| ended.code() == Some(code))
        });
        assert!(is_so, "{option}");
    }
}

#[test]
fn strangers_do_not_keep_anybody_out() {
    let stage = Stage::new();
    let port = free_port();
    let limit = getrlimit(Resource::Nofile);
    let wanted = 10_500;
    if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }).is_err() {
        eprintln!("SKIPPED: 10000 silent connections: the limit of open files is lower");
        return;
    }
    let wait = stage.start(&format!("barrier wait {port} --expect 1"));
    drop(connect(port));
    let before = resident(&wait);
    let mut most = 0;
    let mut silent = Vec::new();
    for n in 0..10_000 {
        silent.push(connect(port));
        if n % 500 == 0 {
            most = most.max(descriptors(&wait));
        }
    }
    // 64 strangers, six for the one who is expected, and what the program has itself.
    assert!(most < 110, "{most} descriptors");
    let after = resident(&wait);
    assert!(after < before + (8 << 20), "{before} bytes before, {after} after");
    stage.run(&format!("barrier join {port} --index 0")).succeeded();
    wait.end().succeeded();
}

#[test]
fn a_length_of_2_to_the_62_costs_nothing_and_a_dribble_does_not_move_the_deadline() {
    let stage = Stage::new();
    let port = free_port();
    let wait = stage.start(&format!("barrier wait {port} --expect 2 --timeout 5"));
    let greeting = {
        let mut bytes = [0; 64];
        [bytes[0], bytes[9], bytes[10]] = [0xff, 0x7f, 3];
        bytes[12..16].copy_from_slice(b"NULL");
        bytes
    };
    let ready = b"\x04\x2b\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\x02\0\0";
    let mut huge = connect(port);
    huge.write_all(&greeting).unwrap();
    huge.write_all(ready).unwrap();
    huge.write_all(b"\x02\x40\0\0\0\0\0\0\0").unwrap();
    let before = resident(&wait);
    // What it said is an end of its connection alone. The system may call that a reset.
    let end = huge.read_to_end(&mut Vec::new());
    assert!(
        end.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true),
        "{end:?}"
    );
    assert!(resident(&wait) < before + (8 << 20));
    let mut slow = connect(port);
    slow.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut dribble = greeting.iter().chain(ready).copied();
    let mut wait = wait;
    while wait.child().try_wait().unwrap().is_none() {
        if let Some(byte) = dribble.next() {
            let _ = slow.write_all(&[byte]);
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    let wait = wait.end();
    assert_eq!(wait.code(), Some(1));
    assert!(wait.stderr.contains("no READY within 5s from 0 (nothing heard), 1 (nothing heard)"), "{wait:?}");
}

#[test]
fn wrong_usage_says_what_would_be_right() {
    let stage = Stage::new();
    for (line, words) in [
        ("barrier wait", "--expect"),
        ("barrier wait --expect 0", "1..=300"),
        ("barrier wait udp://1:2 --expect 1", "tcp://HOST:PORT or ipc://PATH"),
        ("barrier join", "--index"),
        ("barrier join --index 70000", "0..=65535"),
        ("barrier join --index 5 --of 2", "none of 2 participants from index 0 on"),
        ("barrier join --index 1 --of 2 --first-index 2", "none of 2 participants from index 2 on"),
        ("publish KEY --pattern bars --barrier 5555", "--expect"),
        ("publish KEY --pattern bars --expect 2", "--barrier"),
        ("subscribe KEY --barrier 5555", "--index"),
        ("subscribe KEY --barrier 5555 --index 0 --reconnect", "--reconnect"),
    ] {
        let ended = stage.run(line);
        assert_eq!(ended.code(), Some(2), "{line}: {ended:?}");
        assert!(ended.stderr.contains(words) && ended.stderr.lines().count() == 1, "{line}: {ended:?}");
    }
    let ended = stage.run(&format!("barrier wait ipc:///tmp/{} --expect 1", "a".repeat(100)));
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("longer than 107 bytes; choose a shorter one"), "{ended:?}");
    let ended = stage.run("barrier wait tcp://0.0.0.0:0 --expect 1");
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("name the address of one interface"), "{ended:?}");
}
