//! `exporter` serves the streams to Prometheus and to people, and writes nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::errors::{FAILED, one_line};
use crate::stage::{Process, Stage, wait_until};

/// An exporter, and where it listens.
struct Exporter {
    process: Process,
    address: SocketAddr,
}

/// What was answered.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Exporter {
    fn start(stage: &Stage, options: &str) -> Self {
        let mut process = stage.start(&format!("exporter --listen 127.0.0.1:0 --interval 0.1 {options}"));
        let mut lines = BufReader::new(process.child().stderr.as_mut().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on http://").unwrap().split('/').next().unwrap();
        Self { address: address.parse().unwrap(), process }
    }

    fn ask(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: answer.split_off(end + 4) }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"))
    }

    fn metrics(&self) -> String {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("text/plain; version=0.0.4"), "{}", answer.head);
        String::from_utf8(answer.body).unwrap()
    }
}

/// The figure of a metric that has these labels.
fn figure(metrics: &str, name: &str, labels: &str) -> Option<f64> {
    let start = format!("{name}{{{labels}}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&start))?.parse().ok()
}

#[test]
fn prometheus_gets_every_stream_and_subscriber() {
    let stage = Stage::new();
    let exporter = Exporter::start(&stage, "");
    let _publisher = stage.start("publish KEY --pattern seq --size 64x32 --fps 50 --ring 4");
    stage.wait_for_socket();
    let _subscriber = stage.start("subscribe KEY --name detector --mode strict --delay 200");
    let (stream, subscriber) =
        (format!("key=\"{}\"", stage.key), format!("key=\"{}\",bit=\"1\",name=\"detector\"", stage.key));
    wait_until("losses", || {
        figure(&exporter.metrics(), "cuframes_subscriber_lost_frames_total", &subscriber) > Some(0.0)
    });
    let metrics = exporter.metrics();
    let of_stream =
        |name| figure(&metrics, name, &stream).unwrap_or_else(|| panic!("no {name} in\n{metrics}"));
    assert_eq!(of_stream("cuframes_stream_up"), 1.0);
    assert_eq!(of_stream("cuframes_stream_subscribers"), 1.0);
    assert_eq!(of_stream("cuframes_stream_ring_slots"), 4.0);
    assert!(of_stream("cuframes_stream_sequence_total") > 4.0);
    assert!(of_stream("cuframes_stream_frames_per_second") > 1.0);
    assert!(figure(&metrics, "cuframes_subscriber_lag_frames", &subscriber) > Some(0.0), "{metrics}");
    let info = format!("cuframes_stream_info{{{stream},state=\"live\",format=\"nv12\",size=\"64x32\"");
    assert!(metrics.lines().any(|line| line.starts_with(&info)), "{metrics}");

    // Every family has its help and its type, once, before its figures.
    let mut families = BTreeSet::new();
    let mut family = "";
    for line in metrics.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["#", "HELP", name, ..] => {
                assert!(families.insert(name), "{name} is there twice");
                family = name;
            }
            ["#", "TYPE", name, kind] => {
                assert!(name == family && ["gauge", "counter"].contains(&kind), "{line}");
            }
            _ => assert_eq!(line.split('{').next(), Some(family), "{line}"),
        }
    }
    for name in families {
        assert_eq!(metrics.contains(&format!("# TYPE {name} counter")), name.ends_with("_total"), "{name}");
    }
    exporter.process.signal(Signal::TERM);
    exporter.process.end().succeeded();
}

#[test]
fn looking_writes_nothing_and_no_picture_is_taken_unless_it_is_asked_for() {
    let stage = Stage::new();
    let _publisher = stage.start("publish KEY --pattern bars --size 64x32 --fps 1/1000");
    stage.wait_for_socket();
    let exporter = Exporter::start(&stage, "");
    let region = format!("/dev/shm/cuframes-{}", stage.key);
    let newest = || fs::read(&region).unwrap()[0xC0];
    wait_until("the frame", || newest() == 1);
    let before = fs::read(&region).unwrap();
    for path in ["/metrics", "/streams.json", "/"] {
        assert_eq!(exporter.get(path).status, 200);
    }
    assert_eq!(exporter.get(&format!("/frame/{}.png", stage.key)).status, 404);
    assert_eq!(fs::read(&region).unwrap(), before);
}

#[test]
fn the_page_has_all_that_it_needs_and_pictures_if_they_are_wanted() {
    let stage = Stage::new();
    let _publisher = stage.start("publish KEY --pattern bars --size 64x32 --fps 30");
    stage.wait_for_socket();
    let exporter = Exporter::start(&stage, "--pictures");
    let page = exporter.get("/");
    let text = String::from_utf8(page.body).unwrap();
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    assert!(
        !text.contains("http://") && !text.contains("https://") && text.contains("streams.json"),
        "{text}"
    );
    let report = || serde_json::from_slice::<Value>(&exporter.get("/streams.json").body).unwrap();
    let stream =
        || report()["streams"].as_array().unwrap().iter().find(|one| one["key"] == *stage.key).cloned();
    wait_until("the stream", || stream().is_some_and(|stream| stream["state"] == "live"));
    assert_eq!(report()["has_pictures"], true);
    let picture = exporter.get(&format!("/frame/{}.png", stage.key));
    assert_eq!(picture.status, 200);
    let mut decoder = png::Decoder::new(std::io::Cursor::new(picture.body)).read_info().unwrap();
    let mut pixels = vec![0; decoder.output_buffer_size().unwrap()];
    let frame = decoder.next_frame(&mut pixels).unwrap();
    assert_eq!((frame.width, frame.height), (64, 32));
    for path in ["/frame/nobody-has-this.png", "/frame/../etc/passwd.png", "/frame/.png", "/nothing"] {
        assert_eq!(exporter.get(path).status, 404, "{path}");
    }
}

#[test]
fn nonsense_and_silence_keep_nobody_from_being_answered() {
    let stage = Stage::new();
    let exporter = Exporter::start(&stage, "");
    assert_eq!(exporter.ask("POST /metrics").status, 405);
    assert_eq!(exporter.ask("HEAD /metrics").body, b"");
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(exporter.address).unwrap()).collect();
    for nonsense in [&b"\0\0\0\0\r\n\r\n"[..], b"GET", &[b'x'; 100_000]] {
        let mut stream = TcpStream::connect(exporter.address).unwrap();
        let _ = stream.write_all(nonsense);
    }
    assert!(exporter.metrics().contains("cuframes_exporter_info"));
    drop(silent);
    exporter.process.signal(Signal::INT);
    exporter.process.end().succeeded();
}

#[test]
fn those_who_connect_and_ask_nothing_make_room_for_one_who_asks() {
    let stage = Stage::new();
    let exporter = Exporter::start(&stage, "");
    // More than are served at a time.
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(exporter.address).unwrap()).collect();
    assert!(exporter.metrics().contains("cuframes_exporter_info"));
    let mut byte = [0];
    silent[0].set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let end = (&silent[0]).read(&mut byte);
    assert!(
        end.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |n| *n == 0),
        "{end:?}"
    );
    // Nobody had to wait until it was over for all of them.
    silent[60].set_nonblocking(true).unwrap();
    assert_eq!((&silent[60]).read(&mut byte).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn an_address_that_is_taken_is_one_clear_line() {
    let stage = Stage::new();
    let exporter = Exporter::start(&stage, "");
    let text = one_line(&stage.run(&format!("exporter --listen {}", exporter.address)), FAILED);
    assert!(text.contains("can't listen on 127.0.0.1:") && text.contains("--listen"), "{text}");
}

#[test]
fn the_page_shows_the_streams_in_a_browser() {
    let found = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|program| Command::new(program).arg("--version").output().is_ok());
    let Some(browser) = found else {
        eprintln!("skipped: there is no Chromium");
        return;
    };
    let stage = Stage::new();
    let _publisher = stage.start("publish KEY --pattern bars --size 64x32 --fps 30");
    stage.wait_for_socket();
    let exporter = Exporter::start(&stage, "--pictures");
    wait_until("the stream", || {
        exporter.metrics().contains(&format!("cuframes_stream_up{{key=\"{}\"}} 1", stage.key))
    });
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", stage.path("browser").display()));
    command.arg(format!("http://{}/", exporter.address));
    let output = command.output().unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    for part in [
        format!("<td class=\"\">{}</td>", stage.key),
        "<td class=\"live\">live</td>".into(),
        "nv12 64x32".into(),
    ] {
        assert!(dom.contains(&part), "{part} is not in\n{dom}");
    }
    assert!(dom.contains(&format!("alt=\"the last frame of {}\"", stage.key)), "{dom}");
}
