//! `view` in a real terminal: the picture fills it, and whatever the end is, the shell is there again.

use rustix::process::{Signal, kill_process};

use crate::errors::{FAILED, one_line};
use crate::stage::{Process, Stage, wait_until};
use crate::terminal::{Tmux, ends_with_its_terminal};

/// How many characters are part of the picture.
fn drawn(tmux: &Tmux<'_>) -> usize {
    tmux.screen().matches('▀').count()
}

/// Bars that move, which are wider than high by 16:9.
fn bars(stage: &Stage) -> Process {
    let publisher = stage.start("publish KEY --pattern bars --size 320x180 --fps 50");
    stage.wait_for_socket();
    publisher
}

#[test]
fn the_picture_fills_terminals_of_any_size_and_q_escape_and_control_c_end_it() {
    for ((columns, rows), cells, key) in
        [((80, 24), 80 * 23, "q"), ((200, 50), 174 * 49, "Escape"), ((60, 70), 60 * 17, "C-c")]
    {
        let stage = Stage::new();
        let _publisher = bars(&stage);
        let Some(tmux) = Tmux::start(&stage, columns, rows, "truecolor") else { return };
        tmux.run("view KEY --timeout 120");
        wait_until("the picture", || drawn(&tmux) == cells && tmux.screen().contains("  frame"));
        let colours = tmux.colours();
        for colour in ["191;191;191", "191;0;1", "0;1;192"] {
            assert!(colours.contains(&format!("48;2;{colour}m")), "{colour} is missing");
        }
        let screen = tmux.screen();
        let lines: Vec<_> = screen.lines().collect();
        let status = lines[usize::try_from(rows).unwrap() - 1];
        let start: String =
            format!("{}  frame ", stage.key).chars().take(columns.try_into().unwrap()).collect();
        assert!(status.starts_with(start.trim_end()), "{status}");
        tmux.keys(key);
        tmux.ended(0, " shown");
    }
}

#[test]
fn a_terminal_without_true_colours_gets_256() {
    let stage = Stage::new();
    let _publisher = bars(&stage);
    let Some(tmux) = Tmux::start(&stage, 80, 24, "") else { return };
    tmux.run("view KEY --timeout 120");
    wait_until("the picture", || drawn(&tmux) == 80 * 23);
    let colours = tmux.colours();
    assert!(colours.contains("48;5;") && !colours.contains("48;2;"), "24-bit colours");
    tmux.keys("q");
    tmux.ended(0, " shown");
}

#[test]
fn the_picture_follows_the_size_of_the_terminal() {
    let stage = Stage::new();
    // One frame only: what is there must do.
    let _publisher = stage.start("publish KEY --pattern bars --size 320x180 --fps 1/1000");
    stage.wait_for_socket();
    let Some(tmux) = Tmux::start(&stage, 80, 24, "24bit") else { return };
    tmux.run("view KEY --timeout 120");
    wait_until("the picture", || drawn(&tmux) == 80 * 23);
    for (columns, rows, cells) in [("160", "50", 160 * 45), ("40", "12", 39 * 11), ("80", "24", 80 * 23)] {
        tmux.ask(&["resize-window", "-x", columns, "-y", rows]);
        wait_until("the new size", || drawn(&tmux) == cells);
    }
    tmux.keys("q");
    tmux.ended(0, "1 frame shown");
}

#[test]
fn a_signal_the_last_frame_and_the_end_of_the_stream_give_the_terminal_back() {
    let stage = Stage::new();
    let publisher = bars(&stage);
    let Some(tmux) = Tmux::start(&stage, 80, 24, "truecolor") else { return };
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        tmux.run("view KEY --timeout 120");
        wait_until("the picture", || drawn(&tmux) == 80 * 23);
        kill_process(tmux.pid(), signal).unwrap();
        tmux.ended(0, "(stopped by a signal)");
    }
    tmux.run("view KEY --timeout 120 --frames 3 --fps 100");
    tmux.ended(0, "3 frames shown (all frames asked for)");
    tmux.run("view KEY --timeout 120");
    wait_until("the picture", || drawn(&tmux) == 80 * 23);
    publisher.signal(Signal::TERM);
    publisher.end().succeeded();
    tmux.ended(0, "(the stream ended)");
}

#[test]
fn an_error_is_one_line_after_the_terminal_is_given_back() {
    let stage = Stage::new();
    let publisher = bars(&stage);
    let Some(tmux) = Tmux::start(&stage, 100, 24, "truecolor") else { return };
    tmux.run("view KEY --timeout 120");
    wait_until("the picture", || drawn(&tmux) > 80 * 20);
    publisher.signal(Signal::KILL);
    publisher.end();
    tmux.ended(FAILED, "the connection ended");
    tmux.run("view KEY --timeout 0");
    tmux.ended(FAILED, "is its publisher running");
    let _bytes = stage.start("publish KEY --pattern seq --format bytes --size 100x1 --fps 100");
    tmux.run("view KEY --timeout 120");
    tmux.ended(FAILED, "its frames are bytes");
}

#[test]
fn a_publisher_that_waits_for_everybody_does_not_wait_for_a_viewer_that_shows_few_frames() {
    let stage = Stage::new();
    let line =
        "publish KEY --pattern bars --size 320x180 --fps 100 --frames 300 --ring 2 --policy strict-wait";
    let publisher = stage.start(&format!("{line} --wait-for 1 --wait-timeout 120 --verbose"));
    stage.wait_for_socket();
    let Some(tmux) = Tmux::start(&stage, 80, 24, "truecolor") else { return };
    tmux.run("view KEY --timeout 120 --fps 1");
    // Whoever keeps it waiting for a second is sent away, and that is an error.
    tmux.ended(0, "(the stream ended)");
    let publisher = publisher.end().succeeded();
    assert!(publisher.stdout.contains("300 frames"), "{publisher:?}");
    assert!(!publisher.stderr.contains("evicted"), "{publisher:?}");
}

#[test]
fn a_picture_is_not_written_to_a_terminal() {
    let stage = Stage::new();
    let Some(tmux) = Tmux::start(&stage, 100, 24, "truecolor") else { return };
    tmux.run("snapshot KEY -");
    tmux.ended(FAILED, "can't write a picture to the terminal");
    tmux.run("subscribe KEY --y4m -");
    tmux.ended(FAILED, "can't write a video to the terminal");
}

#[test]
fn without_a_terminal_there_is_one_clear_line() {
    let stage = Stage::new();
    let text = one_line(&stage.run("view KEY --timeout 1000"), FAILED);
    assert!(
        text.contains("view needs a terminal to draw on and to read keys from; use cuframes snapshot"),
        "{text}"
    );
    let Some(tmux) = Tmux::start(&stage, 150, 24, "truecolor") else { return };
    tmux.run("view KEY < /dev/null");
    tmux.ended(FAILED, "view needs a terminal to draw on and to read keys from; use cuframes snapshot");
    for (line, said) in [
        ("view KEY", "view can't draw on this terminal, which is one of TERM=dumb; use cuframes snapshot"),
        ("top", "top can't draw on this terminal, which is one of TERM=dumb; use --json, or cuframes ls"),
    ] {
        tmux.run_with("TERM=dumb", line);
        tmux.ended(FAILED, said);
    }
}

#[test]
fn who_watches_in_a_terminal_that_goes_away_ends() {
    let stage = Stage::new();
    let _publisher = bars(&stage);
    ends_with_its_terminal(&stage, "view KEY --timeout 120", |tmux| drawn(tmux) != 0);
}
