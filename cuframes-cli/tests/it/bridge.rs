//! Frames go from one host to another; here both are this one, with two processes and a link over loopback between them.

use std::fs::{self, File};
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::errors::{FAILED, one_line};
use crate::stage::{Process, Stage, strict, wait_until};
use crate::terminal::Tmux;

/// A receiver that publishes under `far-KEY`, and where it listens.
struct Far {
    process: Process,
    address: String,
    log: PathBuf,
}

impl Far {
    fn start(stage: &Stage, name: &str, options: &str) -> Self {
        Self::listen(stage, name, "127.0.0.1:0", &format!("--prefix far- {options}"))
    }

    fn listen(stage: &Stage, name: &str, address: &str, options: &str) -> Self {
        let log = stage.path(name);
        let mut command = stage.cuframes(&format!("bridge recv --listen {address} {options}"));
        command.stderr(File::create(&log).unwrap());
        let process = Process::start(&mut command);
        let mut address = String::new();
        wait_until("the receiver", || {
            let text = fs::read_to_string(&log).unwrap();
            let line = text.lines().find_map(|line| Some(line.split_once(" --to ")?.1.to_string()));
            address = line.unwrap_or_default();
            !address.is_empty()
        });
        Self { process, address, log }
    }

    /// Waits until it has said so.
    fn wait_for(&self, words: &str) {
        wait_until(words, || self.told().contains(words));
    }

    fn told(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Ends it, and answers its report.
    fn stop(self) -> Value {
        self.process.signal(Signal::TERM);
        self.process.end().succeeded().json()
    }

    fn kill(self) {
        self.process.signal(Signal::KILL);
        self.process.end();
    }
}

/// A strict sender, whose publisher waits for it.
fn send(stage: &Stage, far: &Far, options: &str) -> Process {
    stage.start(&format!("bridge send KEY --to {} --wait 120 --json {options}", far.address))
}

pub(crate) fn publish(stage: &Stage, options: &str) -> Process {
    let publisher = stage.start(&format!("publish KEY --pattern seq {options}"));
    stage.wait_for_socket();
    publisher
}

/// Ends a publisher, and answers how many frames it has published.
pub(crate) fn stop(publisher: Process) -> u64 {
    publisher.signal(Signal::TERM);
    let ended = publisher.end().succeeded();
    let words = ended.stdout.split(' ').nth(1).and_then(|count| count.parse().ok());
    words.unwrap_or_else(|| panic!("{ended:?}"))
}

pub(crate) fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field}: {report}"))
}

/// The slots of a stream that have frames: sequence, time stamp and valid bytes.
fn slots(stage: &Stage, key: &str) -> Vec<(u64, i64, u64)> {
    let report = stage.run(&format!("inspect {key} --json")).succeeded().json();
    let slots = report["slots"].as_array().unwrap().iter();
    let told = slots.filter_map(|slot| {
        Some((slot["seq"].as_u64()?, slot["pts_ns"].as_i64()?, slot["written_bytes"].as_u64()?))
    });
    told.collect()
}

/// What `top` tells of the ways of a stream.
fn hops(stage: &Stage, key: &str) -> Vec<Value> {
    let ended = stage.run("top --json --count 1 --interval 0.1").succeeded();
    let streams = ended.json()["streams"].as_array().unwrap().clone();
    let stream = streams.into_iter().find(|stream| stream["key"] == key);
    stream.and_then(|stream| stream["hops"].as_array().cloned()).unwrap_or_default()
}

#[test]
fn frames_arrive_as_they_are_and_none_is_lost() {
    let stage = Stage::new();
    let far = Far::start(&stage, "far", "--json");
    let publisher = publish(&stage, &format!("--size 640x360 --fps 100 --patience 60 {}", strict(1)));
    let sender = send(&stage, &far, "--strict");
    let subscriber =
        stage.run("subscribe far-KEY --mode strict --check-seq --frames 100 --json --timeout 120");
    let got = subscriber.succeeded().json();
    assert_eq!((&got["frames"], &got["torn"], &got["dropped"]), (&100.into(), &0.into(), &0.into()), "{got}");
    let count = stop(publisher);
    let sent = sender.end().succeeded().json();
    for (field, expected) in [("sent", count), ("arrived", count), ("dropped", 0), ("lost_connections", 0)] {
        assert_eq!(sent[field], expected, "{sent}");
    }
    assert_eq!((&sent["end"], &sent["strict"]), (&"stream".into(), &true.into()), "{sent}");
    let received = far.stop();
    let stream = &received["streams"][0];
    for (field, expected) in [("frames", count), ("first_seq", 1), ("last_seq", count), ("publications", 1)] {
        assert_eq!(stream[field], expected, "{received}");
    }
    // Each frame has told where its time went, at both ends.
    for report in [&sent, stream] {
        for leg in ["before_ns", "wire_ns", "publish_ns"] {
            let (p50, p99) = (number(&report[leg], "p50"), number(&report[leg], "p99"));
            assert!(p50 > 0 && p50 <= p99, "{leg}: {report}");
        }
    }
    assert!(number(&sent["round_trip_ns"], "p50") >= number(&sent["wire_ns"], "p50") / 2, "{sent}");
    assert!(number(&sent, "cpu_ns_per_frame") > 0 && number(&received, "cpu_ns_per_frame") > 0);
    assert!(stage.leftovers().is_empty(), "{:?}", stage.leftovers());
}

#[test]
fn the_far_stream_has_the_geometry_and_the_time_stamps_of_the_near_one() {
    let stage = Stage::new();
    let far = Far::start(&stage, "far", "--json");
    let publisher = publish(&stage, "--size 70x46 --format i420 --fps 20 --ring 16");
    let sender = send(&stage, &far, "--strict");
    wait_until("frames in both rings", || {
        let frames = stage.run("inspect far-KEY --json");
        frames.status.success() && frames.json()["newest"].as_u64() >= Some(4)
    });
    let (near, distant) = (slots(&stage, "KEY"), slots(&stage, "far-KEY"));
    let both = distant.iter().filter(|slot| near.iter().any(|other| other.0 == slot.0));
    let same = both.clone().filter(|slot| near.contains(slot)).count();
    assert!(same > 0 && same == both.count(), "{near:?} {distant:?}");
    let [near, distant] = ["KEY", "far-KEY"].map(|key| stage.run(&format!("inspect {key} --json")).json());
    for field in ["format", "width", "height", "frame_bytes", "ring_size", "policy", "planes"] {
        assert_eq!(near[field], distant[field], "{field}");
    }
    stop(publisher);
    sender.end().succeeded();
    far.stop();
}

#[test]
fn what_the_link_is_too_slow_for_is_left_out_and_the_publisher_does_not_wait() {
    let stage = Stage::new();
    // The far stream waits for its subscriber, which is slow.
    let far = Far::start(&stage, "far", "--policy strict-wait --patience 60 --json");
    let publisher = publish(&stage, &format!("--size 64x64 --fps 400 {}", strict(1)));
    let sender = send(&stage, &far, "");
    let subscriber =
        stage.run("subscribe far-KEY --mode strict --check-seq --delay 20 --frames 30 --json --timeout 120");
    let got = subscriber.succeeded().json();
    assert_eq!((&got["frames"], &got["torn"]), (&30.into(), &0.into()));
    assert!(number(&got, "dropped") > 0, "{got}");
    stop(publisher);
    let sent = sender.end().succeeded().json();
    assert!(number(&sent, "dropped") > 0 && sent["given_up"] == 0, "{sent}");
    far.stop();
}

#[test]
fn a_strict_link_that_is_too_slow_holds_the_publisher_up() {
    let stage = Stage::new();
    let far = Far::start(&stage, "far", "--patience 60 --json");
    let publisher = publish(&stage, &format!("--size 64x64 --fps 0 --patience 60 {}", strict(1)));
    let sender = send(&stage, &far, "--strict --window 2");
    let subscriber =
        stage.run("subscribe far-KEY --mode strict --check-seq --delay 20 --frames 30 --json --timeout 120");
    let got = subscriber.succeeded().json();
    assert_eq!((&got["frames"], &got["torn"], &got["dropped"]), (&30.into(), &0.into(), &0.into()), "{got}");
    let count = stop(publisher);
    let sent = sender.end().succeeded().json();
    assert_eq!((&sent["arrived"], &sent["dropped"]), (&count.into(), &0.into()), "{sent}");
    far.stop();
}

#[test]
fn a_stream_that_is_not_wanted_is_refused_and_the_sender_says_so() {
    let stage = Stage::new();
    let far = Far::start(&stage, "far", "--key other --json");
    let publisher = publish(&stage, "--size 64x64");
    let refused = send(&stage, &far, "").end();
    let report: Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!((&report["arrived"], &report["end"]), (&0.into(), &"failure".into()));
    let line = one_line(&refused, FAILED);
    assert!(line.contains(&format!("stream {} is not wanted here", stage.key)), "{line}");
    // A stream that needs more than there may be is refused with the first frame.
    let small = Far::start(&stage, "small", "--memory 10K --json");
    let sender = send(&stage, &small, "--frames 3").end();
    assert_eq!(sender.code(), Some(FAILED));
    // Each of its frames is, and both ends say why, once.
    let says = |text: &str, words: &str| text.matches(words).count();
    assert_eq!(says(&sender.stderr, "of 10240 that may be used"), 1, "{sender:?}");
    assert_eq!(says(&small.told(), "can't be published"), 1, "{}", small.told());
    assert_eq!(sender.json()["refused"], 3);
    stop(publisher);
    far.stop();
    small.stop();
    assert!(stage.leftovers().is_empty(), "{:?}", stage.leftovers());
}

#[test]
fn an_address_that_is_not_of_this_host_is_warned_of_with_the_way_around() {
    let stage = Stage::new();
    let far = Far::listen(&stage, "far", "0.0.0.0:0", "");
    let told = far.told();
    assert!(told.contains("no authentication and no encryption, whoever can connect can publish"), "{told}");
    assert!(told.contains("WireGuard") && told.contains("ssh -N -L "), "{told}");
    assert!(far.address.starts_with("HOST:"), "{told}");
    far.process.signal(Signal::TERM);
    far.process.end().succeeded();
    // It is of no network.
    let sender = stage.run("bridge send KEY --to 192.0.2.1:7447 --wait 0");
    assert!(sender.stderr.contains("ssh -N -L 7447:127.0.0.1:7447 HOST"), "{sender:?}");
    assert!(!stage.run("bridge send KEY --to 127.0.0.1:7447 --wait 0").stderr.contains("ssh"));
}

#[test]
fn rdma_is_not_in_this_build() {
    let stage = Stage::new();
    for line in ["bridge recv --transport rdma", "bridge send KEY --to 7447 --transport rdma"] {
        let text = one_line(&stage.run(line), FAILED);
        assert!(text.contains("RDMA is wanted") && text.contains("use --transport tcp"), "{text}");
    }
}

#[test]
fn a_receiver_that_is_killed_loses_no_frame_of_a_strict_sender() {
    let stage = Stage::new();
    let first = Far::start(&stage, "first", "--json");
    let address = first.address.clone();
    let publisher = publish(&stage, &format!("--size 640x360 --fps 200 --patience 120 {}", strict(1)));
    let sender = send(&stage, &first, "--strict");
    let subscriber = stage.start("subscribe far-KEY --mode strict --check-seq --reconnect --json");
    first.wait_for("published from frame 1 on");
    first.kill();
    let second = Far::listen(&stage, "second", &address, "--prefix far- --json");
    second.wait_for("published from frame");
    wait_until("frames", || {
        let frames = stage.run("inspect far-KEY --json");
        frames.status.success() && frames.json()["newest"].as_u64() > Some(100)
    });
    let count = stop(publisher);
    let sent = sender.end().succeeded().json();
    for (field, expected) in [("sent", count), ("arrived", count), ("dropped", 0), ("lost_connections", 1)] {
        assert_eq!(sent[field], expected, "{sent}");
    }
    let received = second.stop();
    let stream = &received["streams"][0];
    let (from, to) = (number(stream, "first_seq"), number(stream, "last_seq"));
    assert_eq!((to, to - from + 1), (count, number(stream, "frames")), "{received}");
    subscriber.signal(Signal::TERM);
    assert_eq!(subscriber.end().succeeded().json()["torn"], 0);
    // What the killed one has left is gone but for what it told `top`.
    stage.run("gc KEY far-KEY").succeeded();
    assert!(stage.leftovers().is_empty(), "{:?}", stage.leftovers());
}

#[test]
fn a_sender_that_is_killed_is_followed_by_the_next_one_on_the_same_far_stream() {
    let stage = Stage::new();
    let far = Far::start(&stage, "far", "--linger 600 --json");
    let publisher = publish(&stage, "--size 640x360 --fps 100");
    let killed = send(&stage, &far, "--strict");
    far.wait_for("published from frame");
    let subscriber = stage.start("subscribe far-KEY --mode strict --check-seq --frames 200 --json");
    wait_until("the subscriber", || {
        let seen = stage.run("inspect far-KEY --json").json();
        seen["subscribers"].as_array().is_some_and(|all| all.iter().any(|one| one["state"] == "active"))
    });
    killed.signal(Signal::KILL);
    killed.end();
    far.wait_for("its sender is gone");
    let next = send(&stage, &far, "--strict");
    let got = subscriber.end().succeeded().json();
    assert_eq!((&got["torn"], &got["reconnects"]), (&0.into(), &0.into()), "{got}");
    stop(publisher);
    next.end().succeeded();
    let received = far.stop();
    assert_eq!(received["streams"][0]["publications"], 1, "{received}");
    stage.run("gc KEY far-KEY").succeeded();
    assert!(stage.leftovers().is_empty(), "{:?}", stage.leftovers());
}

#[test]
fn another_format_is_another_publisher_at_the_far_end() {
    let stage = Stage::new();
    let far = Far::start(&stage, "far", "--json");
    let sender = send(&stage, &far, "--strict --reconnect");
    let subscriber = stage.start("subscribe far-KEY --reconnect --check-seq --json");
    let first = publish(&stage, "--size 64x32 --format gray8 --fps 50");
    far.wait_for(": gray8 64x32");
    wait_until("frames", || stage.run("inspect far-KEY --json").json()["newest"].as_u64() > Some(3));
    stop(first);
    let second = publish(&stage, "--size 32x16 --format rgb24 --fps 50");
    far.wait_for(": rgb24 32x16");
    wait_until("frames", || {
        let seen = stage.run("inspect far-KEY --json");
        seen.status.success() && seen.json()["newest"].as_u64() > Some(3)
    });
    stop(second);
    subscriber.signal(Signal::TERM);
    let subscriber = subscriber.end().succeeded();
    assert!(subscriber.stderr.contains("rgb24 32x16, which is another format than before"), "{subscriber:?}");
    assert_eq!(subscriber.json()["torn"], 0);
    sender.signal(Signal::TERM);
    let sender = sender.end().succeeded();
    assert!(sender.stderr.contains("attached to a publisher again: rgb24 32x16"), "{sender:?}");
    assert_eq!(sender.json()["end"], "signal");
    let received = far.stop();
    assert_eq!(received["streams"][0]["publications"], 2, "{received}");
    assert!(stage.leftovers().is_empty(), "{:?}", stage.leftovers());
}

#[test]
fn top_shows_the_ways_of_a_stream_and_nothing_is_left_of_them() {
    let stage = Stage::new();
    let far = Far::start(&stage, "far", "--json");
    let _publisher = publish(&stage, "--size 64x64 --fps 50");
    let sender = send(&stage, &far, "");
    let key = stage.key.clone();
    let [near, distant] = [key.clone(), format!("far-{key}")].map(|key| {
        let mut seen = Vec::new();
        wait_until("the hop", || {
            seen = hops(&stage, &key);
            seen.first().is_some_and(|hop| hop["wire_ns"].is_u64())
        });
        seen.remove(0)
    });
    assert_eq!((&near["direction"], &distant["direction"]), (&"send".into(), &"recv".into()));
    assert_eq!(near["peer"], format!("tcp://{}", far.address));
    assert_eq!((&near["pid"], &near["is_connected"]), (&sender.id().into(), &true.into()), "{near}");
    assert!(number(&near, "before_ns") > 0 && number(&distant, "publish_ns") > 0, "{near} {distant}");
    if let Some(tmux) = Tmux::start(&stage, 110, 24, "truecolor") {
        tmux.run("top KEY --interval 0.2");
        wait_until("the hop on the screen", || {
            let screen = tmux.screen();
            screen.contains(&format!("-> tcp://{}", far.address)) && screen.contains("cuframes-bridge")
        });
        tmux.keys("q");
        tmux.ended(0, "");
    }
    // Neither a dead process nor a stranger's words count.
    fs::write(stage.run_dir().join(format!("{key}.bridge-1-1.json")), "[]").unwrap();
    sender.signal(Signal::KILL);
    sender.end();
    assert_eq!(hops(&stage, &key).len(), 0);
    let namespace = near["pid_namespace"].as_str().unwrap().replace(|c: char| !c.is_ascii_digit(), "");
    let file = stage.run_dir().join(format!("{key}.bridge-{}-{namespace}.json", near["pid"]));
    assert!(file.exists());
    stage.run("gc KEY --dry-run").succeeded();
    assert!(file.exists());
    stage.run("gc KEY").succeeded();
    assert!(!file.exists());
    far.stop();
    assert!(!stage.leftovers().iter().any(|path| path.to_str().unwrap().contains("far-")));
}

#[test]
fn a_sender_that_is_ended_before_there_is_a_stream_reports_that() {
    let stage = Stage::new();
    for options in ["--wait 100000", "--reconnect"] {
        let sender = stage.start(&format!("bridge send KEY --to 127.0.0.1:7447 --json {options}"));
        sender.wait_for_handlers();
        sender.signal(Signal::TERM);
        let report = sender.end().succeeded().json();
        assert_eq!((&report["sent"], &report["end"]), (&0.into(), &"signal".into()), "{report}");
    }
}

#[test]
fn a_receiver_that_is_not_there_is_told_once_and_looked_for() {
    let stage = Stage::new();
    let publisher = publish(&stage, "--size 64x64 --fps 50");
    let sender = stage.start("bridge send KEY --to ipc://DIR/link --patience 0.5 --json");
    // Nobody ever comes.
    wait_until("the sender", || {
        let seen = stage.run("inspect KEY --json").json();
        seen["subscribers"].as_array().is_some_and(|all| !all.is_empty())
    });
    stop(publisher);
    let ended = sender.end();
    assert_eq!(ended.code(), Some(FAILED));
    let lines: Vec<_> = ended.stderr.lines().collect();
    let [trouble, end] = lines[..] else { panic!("{ended:?}") };
    assert!(
        trouble.contains("can't reach ipc://") && trouble.contains("start cuframes bridge recv"),
        "{trouble}"
    );
    assert!(end.contains("could not be reached until the end"), "{end}");
    assert_eq!(ended.json()["end"], "stream");

    // Somebody comes late.
    let publisher = publish(&stage, "--size 64x64 --fps 50");
    let sender = stage.start("bridge send KEY --to ipc://DIR/link --frames 5 --json");
    let far = Far::listen(&stage, "far", "ipc://DIR/link", "--prefix far- --json");
    assert_eq!(sender.end().succeeded().json()["arrived"], 5);
    far.stop();
    stop(publisher);
}

#[test]
fn a_signal_ends_a_sender_whose_receiver_stands_still_and_a_second_one_at_once() {
    let stage = Stage::new();
    let far = Far::start(&stage, "far", "--json");
    let publisher = publish(&stage, "--size 640x360 --fps 100");
    let mut sender = send(&stage, &far, "--strict --patience 600");
    far.wait_for("published from frame");
    far.process.signal(Signal::STOP);
    wait_until("a full window", || {
        let seen = stage.run("inspect KEY --json").json();
        seen["subscribers"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["leases"].as_u64() >= Some(6)))
    });
    // One that comes at once counts as the first one.
    wait_until("the end", || {
        sender.signal(Signal::TERM);
        sender.child().try_wait().unwrap().is_some()
    });
    let ended = sender.end();
    let report = ended.json();
    assert_eq!(report["end"], "signal", "{ended:?}");
    // What was on its way has not arrived, and is not passed over in silence.
    let given_up = number(&report, "given_up");
    assert!(given_up >= 6, "{ended:?}");
    assert_eq!(number(&report, "sent"), number(&report, "arrived") + given_up, "{ended:?}");
    assert_eq!(ended.code(), Some(FAILED), "{ended:?}");
    assert!(ended.stderr.contains(&format!("{given_up} given up here")), "{ended:?}");
    far.process.signal(Signal::CONT);
    far.stop();
    stop(publisher);
    assert!(stage.leftovers().is_empty(), "{:?}", stage.leftovers());
}
