//! The benchmark as a program: every figure there, and nothing left behind, however it ends.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::errors::{FAILED, one_line};
use crate::stage::{Process, Stage, wait_until};

/// A measurement whose directory is in the place of this test.
fn bench(stage: &Stage, options: &str) -> Command {
    let mut command = stage.cuframes(&format!("bench {options}"));
    fs::create_dir_all(stage.path("tmp")).unwrap();
    command.env("TMPDIR", stage.path("tmp"));
    command
}

fn places(stage: &Stage) -> Vec<PathBuf> {
    fs::read_dir(stage.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// What everything outside of the directory has in its name.
fn unique(stage: &Stage) -> Option<String> {
    let place = places(stage).pop()?;
    let name = place.file_name()?.to_str()?.strip_prefix("cuframes-bench-")?;
    Some(format!("b{name}-"))
}

fn shared_files(unique: &str) -> Vec<PathBuf> {
    let files = fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.to_string_lossy().contains(unique)).collect()
}

/// Processes that were told of the directory.
fn processes(unique: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let lines = processes.filter_map(|process| fs::read_to_string(process.join("cmdline")).ok());
    lines.filter(|line| line.contains(unique)).collect()
}

fn has_both_kinds(processes: &[String]) -> bool {
    ["__bench-cell", "__bench-support"].iter().all(|kind| processes.iter().any(|line| line.contains(kind)))
}

#[test]
fn a_quick_measurement_has_every_figure_and_leaves_nothing_behind() {
    let stage = Stage::new();
    let plot = stage.path("latency.svg");
    let options = format!("--quick --rounds 2 --json --plot {}", plot.display());
    let bench = Process::start(&mut bench(&stage, &options));
    wait_until("the directory", || unique(&stage).is_some());
    let unique = unique(&stage).unwrap();
    let report = bench.end().succeeded().json();
    assert_eq!((processes(&unique), shared_files(&unique), places(&stage)), (vec![], vec![], vec![]));

    assert_eq!(
        (&report["version"], &report["quick"], &report["rounds"]),
        (&1.into(), &true.into(), &2.into())
    );
    assert_eq!((&report["interrupted"], &report["failures"]), (&false.into(), &Value::Array(vec![])));
    let rows = report["rows"].as_array().unwrap();
    let mut figures = 0;
    for row in rows {
        for entry in row["systems"].as_array().unwrap() {
            let [median, min, max] =
                ["median", "min", "max"].map(|name| entry["figure"][name].as_f64().unwrap());
            assert!(0.0 < min && min <= median && median <= max, "{row}");
            assert_eq!(entry["rounds"].as_array().unwrap().len(), 2, "{row}");
            figures += 1;
        }
        let systems: Vec<_> =
            row["systems"].as_array().unwrap().iter().map(|entry| &entry["system"]).collect();
        let expected: &[&str] = if row["job"] == "policies" { &["cuframes"] } else { &["floor", "cuframes"] };
        assert_eq!(systems, expected, "{row}");
    }
    let rows_of = |job: &str| rows.iter().filter(|row| row["job"] == job).count();
    let counts = ["spin", "wake", "publish", "flow", "handshake", "death", "policies"].map(rows_of);
    assert_eq!((counts, figures), ([2, 2, 14, 18, 2, 4, 8], 42 * 2 + 8));

    let svg = fs::read_to_string(plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("cuframes") && svg.contains("99.99 %"), "{svg}");
}

#[test]
fn a_measurement_that_is_ended_ends_all_its_processes_and_leaves_nothing_behind() {
    for stop in [Signal::INT, Signal::TERM, Signal::KILL] {
        let stage = Stage::new();
        let bench = Process::start(&mut bench(&stage, "--jobs wake,spin --rounds 1000 --json"));
        let unique = || unique(&stage).unwrap_or_else(|| "not yet".into());
        // Both of cuframes, whose publisher has files.
        wait_until("a publisher and a reader", || {
            !shared_files(&unique()).is_empty() && has_both_kinds(&processes(&unique()))
        });
        let unique = unique();
        bench.signal(stop);
        let bench = bench.end();
        if stop != Signal::KILL {
            assert_eq!(bench.code(), Some(FAILED), "{bench:?}");
            assert_eq!(bench.json()["interrupted"], true);
            assert!(one_line(&bench, FAILED).starts_with("interrupted"), "{bench:?}");
        }
        wait_until("the end of all processes", || processes(&unique).is_empty());
        assert_eq!((shared_files(&unique), places(&stage)), (vec![], vec![]), "{stop:?}");
    }
}

#[test]
fn what_can_not_be_measured_is_reported_and_the_rest_is_measured() {
    let stage = Stage::new();
    // Too long for a socket. The floor of this job needs none.
    let long = stage.path(&"long".repeat(25));
    fs::create_dir(&long).unwrap();
    for json in ["--json", ""] {
        let mut bench = bench(&stage, &format!("--quick --rounds 1 --jobs flow {json}"));
        let bench = Process::start(bench.env("TMPDIR", &long)).end();
        assert_eq!(one_line(&bench, FAILED), "6 measurements failed; the report says which, and why");
        if json.is_empty() {
            let failed =
                bench.stdout.lines().filter(|line| line.starts_with("failed: cuframes, flow ")).count();
            assert_eq!(failed, 6, "{bench:?}");
            continue;
        }
        let report = bench.json();
        let failures = report["failures"].as_array().unwrap();
        assert!(failures.iter().all(|failure| failure["system"] == "cuframes"), "{report}");
        assert!(failures[0]["reason"].as_str().is_some_and(|reason| reason.contains(".sock")), "{report}");
        for row in report["rows"].as_array().unwrap() {
            let [floor, cuframes] = [0, 1].map(|system| &row["systems"][system]);
            assert!(floor["figure"]["median"].as_f64().is_some_and(|figure| figure > 0.0), "{row}");
            assert_eq!((&cuframes["figure"], &cuframes["ratio"]), (&Value::Null, &Value::Null));
        }
    }
}

#[test]
fn a_process_of_a_measurement_that_nobody_has_started_says_that_it_can_do_nothing() {
    let stage = Stage::new();
    for mode in ["__bench-cell", "__bench-support"] {
        let mut command = stage.cuframes("");
        let ended = Process::start(command.arg(mode).arg("{}")).end();
        assert!(ended.code() == Some(FAILED) && ended.stdout.contains("Failed"), "{ended:?}");
    }
}

#[test]
fn a_plot_of_nothing_is_a_failure_and_keeps_the_old_one() {
    let stage = Stage::new();
    let plot = stage.path("latency.svg");
    fs::write(&plot, "old").unwrap();
    // No socket has room for such a path, so that every cell fails.
    let long = stage.path(&"y".repeat(100));
    fs::create_dir(&long).unwrap();
    let mut command = stage.cuframes("bench --quick --rounds 1 --jobs spin --plot DIR/latency.svg");
    let ended = Process::start(command.env("TMPDIR", &long)).end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let expected =
        "cuframes: there is nothing to plot: it takes the job spin or wake, measured at least once\n";
    assert_eq!(ended.stderr, expected);
    assert_eq!(fs::read_to_string(&plot).unwrap(), "old");
}

#[test]
fn where_nothing_can_be_plotted_nothing_is_measured() {
    let stage = Stage::new();
    fs::create_dir(stage.path("dir.svg")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, stage.path("fifo.svg"), rustix::fs::Mode::RUSR).unwrap();
    for (plot, why) in [
        ("dir.svg", "there is something else than a file; choose another name"),
        ("fifo.svg", "there is something else than a file; choose another name"),
        ("missing/x.svg", "No such file or directory (os error 2)"),
        ("x.png", "only SVG can be written; give it a name in .svg"),
    ] {
        let ended = stage.run(&format!("bench --jobs spin --plot DIR/{plot}"));
        assert_eq!((ended.status.code(), &*ended.stdout), (Some(2), ""), "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
    let ended = stage.run("bench --rounds 10001");
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
}
