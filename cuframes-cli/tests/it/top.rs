//! `top` in a real terminal: what it shows at both sizes, what its keys do, and that the shell is there again.

use std::io::{BufRead as _, BufReader};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::errors::{FAILED, one_line};
use crate::stage::{Process, Stage, wait_until};
use crate::terminal::{Tmux, ends_with_its_terminal};

/// A stream with a subscriber that is slow.
fn flow(stage: &Stage) -> [Process; 2] {
    let publisher = stage.start("publish KEY --pattern seq --size 64x32 --fps 50 --ring 4");
    stage.wait_for_socket();
    [publisher, stage.start("subscribe KEY --name detector --mode strict --delay 200")]
}

#[test]
fn streams_and_their_subscribers_are_shown_in_terminals_of_any_size() {
    for (columns, rows) in [(80, 24), (200, 50)] {
        let stage = Stage::new();
        let _flow = flow(&stage);
        let Some(tmux) = Tmux::start(&stage, columns, rows, "truecolor") else { return };
        tmux.run("top --filter KEY --interval 0.2");
        let shows = |parts: &[&str]| {
            let screen = tmux.screen();
            parts.iter().all(|part| screen.contains(part))
        };
        wait_until("the stream", || {
            shows(&[&stage.key, "live", "detector", "████", "up/down select", "KEY*"])
        });
        assert_eq!(shows(&["64x32", "PUBLISHER"]), columns == 200, "{}", tmux.screen());
        tmux.keys("s");
        wait_until("the other order", || shows(&["FPS*"]));
        tmux.keys("Enter");
        wait_until("the open stream", || {
            shows(&["nv12 64x32", "4 slots, drop-oldest, host memory", "detector"])
        });
        tmux.keys("Escape");
        wait_until("the list", || shows(&["LATENCY", "up/down select"]));
        tmux.keys("/");
        tmux.keys("?");
        wait_until("the filter", || shows(&["filter: ", "?_", "no streams", "Enter keep"]));
        tmux.keys("Escape");
        wait_until("all streams", || shows(&[&stage.key, "up/down select"]));
        tmux.keys("q");
        tmux.ended(0, "");
    }
}

#[test]
fn a_signal_control_c_and_the_last_look_give_the_terminal_back() {
    let stage = Stage::new();
    let _flow = flow(&stage);
    let Some(tmux) = Tmux::start(&stage, 80, 24, "truecolor") else { return };
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        tmux.run("top KEY --interval 0.2");
        wait_until("the stream", || tmux.screen().contains("detector"));
        kill_process(tmux.pid(), signal).unwrap();
        tmux.ended(0, "");
    }
    tmux.run("top KEY");
    wait_until("the stream", || tmux.screen().contains("detector"));
    tmux.keys("C-c");
    tmux.ended(0, "");
    tmux.run("top --count 2 --interval 0.2");
    tmux.ended(0, "");
}

#[test]
fn who_looks_in_a_terminal_that_goes_away_ends() {
    let stage = Stage::new();
    let _flow = flow(&stage);
    ends_with_its_terminal(&stage, "top KEY --interval 0.2", |tmux| tmux.screen().contains("detector"));
}

#[test]
fn a_program_gets_every_look_as_json() {
    let stage = Stage::new();
    let _flow = flow(&stage);
    wait_until("losses", || {
        let ended = stage.run("top KEY --json --count 2 --interval 0.5");
        assert!(ended.status.success(), "{}", ended.stderr);
        let looks: Vec<Value> =
            ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(looks.len(), 2);
        let stream = &looks[1]["streams"][0];
        assert_eq!(stream["key"], *stage.key, "{stream}");
        let subscriber = &stream["subscribers_seen"][0];
        // It holds a frame for ten that are published, and those are more than the ring has.
        subscriber["name"] == "detector"
            && subscriber["lost"].as_u64() > Some(0)
            && stream["lost"] == subscriber["lost"]
    });
}

#[test]
fn a_time_that_no_clock_has_is_as_good_as_for_ever() {
    let stage = Stage::new();
    let Some(tmux) = Tmux::start(&stage, 80, 24, "truecolor") else { return };
    tmux.run("top --interval 1e19");
    wait_until("the screen", || tmux.screen().contains("up/down select"));
    tmux.keys("q");
    tmux.ended(0, "");
}

#[test]
fn looks_that_nobody_reads_any_more_end() {
    let stage = Stage::new();
    let mut top = stage.start("top --json --interval 0.1");
    let mut line = String::new();
    BufReader::new(top.child().stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    assert_eq!(top.end().succeeded().stderr, "");
}

#[test]
fn without_a_terminal_there_is_one_clear_line() {
    let stage = Stage::new();
    let text = one_line(&stage.run("top"), FAILED);
    assert!(text.contains("top needs a terminal to draw on and to read keys from; use --json"), "{text}");
}
