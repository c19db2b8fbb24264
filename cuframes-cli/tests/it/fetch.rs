//! One frame of another host, on demand.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::bridge::{number, publish, stop};
use crate::errors::FAILED;
use crate::stage::{Ended, Stage, wait_until};

#[test]
fn one_frame_is_fetched_when_it_is_asked_for() {
    let stage = Stage::new();
    let publisher = publish(&stage, "--size 320x240 --format gray8 --fps 20");
    let sender = stage.start("bridge send KEY --to ipc://DIR/link --on-demand --json");
    let fetch = |what: &str, file: &str| -> Ended {
        stage.run(&format!(
            "bridge recv --listen ipc://DIR/link --key KEY --fetch {what} --output DIR/{file} --json --wait 120"
        ))
    };
    let mut told = Value::Null;
    wait_until("a frame", || {
        // There may be none yet.
        let ended = fetch("newest", "frame");
        told = if ended.status.success() { ended.json() } else { Value::Null };
        told.is_object()
    });
    let bytes = fs::read(stage.path("frame")).unwrap();
    assert_eq!(
        (&told["format"], &told["width"], &told["bytes"]),
        (&"gray8".into(), &320.into(), &bytes.len().into())
    );
    let seq = number(&told, "seq");
    assert!(bytes.chunks(8).all(|word| word == &seq.to_le_bytes()[..word.len()]), "frame {seq}");

    fetch("newest", "frame.png").succeeded();
    assert!(fs::read(stage.path("frame.png")).unwrap().starts_with(b"\x89PNG"));

    let missing = fetch("999999999", "missing");
    assert_eq!(missing.code(), Some(FAILED));
    assert!(missing.stderr.contains("frame 999999999 is not there"), "{missing:?}");
    assert!(!stage.path("missing").exists());
    stop(publisher);
    let sent = sender.end().succeeded().json();
    assert!(number(&sent, "fetched") >= 2 && sent["sent"] == 0, "{sent}");
    let nobody = stage
        .run("bridge recv --listen ipc://DIR/link --key KEY --fetch newest --output DIR/none --wait 0.1");
    assert_eq!(nobody.code(), Some(FAILED));
    assert!(nobody.stderr.contains("no sender of it has come"), "{nobody:?}");
}

#[test]
fn who_asks_for_a_frame_learns_why_it_does_not_come() {
    let stage = Stage::new();
    for (key, words) in [
        ("other", "somebody did, but it was refused: stream other is not wanted here"),
        (&*stage.key, "the newest frame has not come from its sender"),
    ] {
        let mut told = String::new();
        // It may be too late for one of them.
        wait_until(words, || {
            let line =
                "bridge recv --listen ipc://DIR/link --key KEY --fetch newest --output DIR/none --wait 1";
            let asking = stage.start(line);
            let mut found = Err(ErrorKind::NotFound.into());
            wait_until("the receiver", || {
                found = UnixStream::connect(stage.path("link"));
                found.is_ok()
            });
            let mut sender = found.unwrap();
            // It says which stream it has, and nothing more.
            let _ = sender.write_all(&hello(key));
            let ended = asking.end();
            assert_eq!(ended.code(), Some(FAILED), "{ended:?}");
            told = ended.stderr;
            told.contains(words)
        });
    }
    assert!(!stage.path("none").exists());
}

/// What a sender says first (docs/span.md).
fn hello(key: &str) -> Vec<u8> {
    let len = |bytes: usize| u32::try_from(bytes).unwrap();
    let head = [0x4453_3444, 1, 40 + len(key.len())];
    let words = [1, 12, 0, 63, 0, 0, 4, 64, 0, len(key.len())];
    let numbers = head.into_iter().chain(words).flat_map(u32::to_be_bytes);
    numbers.chain(key.bytes()).collect()
}
