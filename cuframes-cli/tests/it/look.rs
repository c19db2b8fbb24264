//! `ls` and `inspect` tell how streams are, `gc` removes what is left of them, and `completions` and `man` how commands are called.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::stage::{Stage, wait_until};

/// The stream of this test in `ls`, which sees those of other tests, too.
fn listed(stage: &Stage) -> Option<Value> {
    let ended = stage.run("ls --window 0.3 --json");
    assert!(ended.status.success(), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let streams = report["streams"].as_array().unwrap();
    streams.iter().find(|stream| stream["key"] == *stage.key).cloned()
}

fn state(stage: &Stage) -> Option<String> {
    Some(listed(stage)?["state"].as_str()?.to_string())
}

#[test]
fn a_stream_is_listed_as_it_is_from_its_beginning_to_what_it_leaves() {
    let stage = Stage::new();
    assert_eq!(state(&stage), None);
    let mut publisher =
        stage.start("publish KEY --pattern seq --size 64x32 --fps 50 --ring 3 --policy strict-wait");
    wait_until("the stream to flow", || state(&stage).as_deref() == Some("live"));
    let facts = listed(&stage).unwrap();
    let expected = [
        ("format", Value::from("nv12")),
        ("width", 64.into()),
        ("height", 32.into()),
        ("ring_size", 3.into()),
        ("policy", "strict-wait".into()),
        ("backend", "host".into()),
        ("subscribers", 0.into()),
        ("publisher_pid", publisher.child().id().into()),
        ("publisher_name", "cuframes".into()),
    ];
    for (field, value) in expected {
        assert_eq!(facts[field], value, "{facts}");
    }
    assert!(facts["fps"].as_f64().unwrap() > 5.0, "{facts}");

    let ended = stage.run("ls --window 0.1");
    let line = ended.stdout.lines().find(|line| line.starts_with(&stage.key)).unwrap();
    assert!(line.contains("live") && line.contains("64x32") && line.contains("strict-wait"), "{line}");

    publisher.signal(rustix::process::Signal::STOP);
    wait_until("the stream to stall", || state(&stage).as_deref() == Some("stalled"));
    publisher.child().kill().unwrap();
    publisher.child().wait().unwrap();
    assert_eq!(state(&stage).as_deref(), Some("stale"));
}

#[test]
fn a_file_with_the_name_of_a_region_is_listed_with_what_is_wrong_with_it() {
    let stage = Stage::new();
    fs::write(format!("/dev/shm/cuframes-{}", stage.key), "junk!").unwrap();
    let facts = listed(&stage).unwrap();
    assert_eq!(
        (&facts["state"], &facts["problem"]),
        (&"foreign".into(), &"needs 7424 bytes, 5 are there".into())
    );
    let ended = stage.run("inspect KEY");
    assert_eq!(ended.status.code(), Some(1));
    let region = format!("/dev/shm/cuframes-{}", stage.key);
    assert_eq!(
        ended.stderr,
        format!("cuframes: {region} is no region of a stream: needs 7424 bytes, 5 are there\n")
    );
}

#[test]
fn a_stream_is_inspected_with_its_slots_subscribers_and_warnings() {
    let stage = Stage::new();
    let _publisher = stage.start("publish KEY --pattern seq --size 64x32 --fps 50 --ring 4 --wait-for 1");
    stage.wait_for_socket();
    let _subscriber = stage.start("subscribe KEY --name detector --delay 100");
    let inspect = || {
        let ended = stage.run("inspect KEY --json");
        assert!(ended.status.success(), "{}", ended.stderr);
        serde_json::from_str::<Value>(&ended.stdout).unwrap()
    };
    wait_until("a frame to be held", || {
        let report = inspect();
        report["subscribers"][0]["leases"] == 1 && report["slots"].as_array().unwrap().len() == 4
    });
    let report = inspect();
    let subscriber = &report["subscribers"][0];
    assert_eq!(
        (&subscriber["name"], &subscriber["state"]),
        (&"detector".into(), &"active".into()),
        "{report}"
    );
    assert_eq!(report["warnings"], Value::Array(vec![]), "{report}");
    assert_eq!(report["planes"][1]["rows"], 16);

    let text = stage.run("inspect KEY --hex").stdout;
    for part in
        ["nv12 64x32", "detector", "BIT", "SLOT", "0x00c0  ", "global_seq", "subscriber 1 consumer_pid"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }

    // Whoever may write the region may also write nonsense.
    let region = fs::OpenOptions::new().write(true).open(format!("/dev/shm/cuframes-{}", stage.key)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&region, &7_u64.to_le_bytes(), 0xF8).unwrap();
    let warnings = inspect()["warnings"].clone();
    assert_eq!(warnings, serde_json::json!(["reserved at 0x00f8 is 0x7: must be 0"]));
}

#[test]
fn a_stream_that_is_not_there_is_one_line_and_a_failure() {
    let stage = Stage::new();
    let ended = stage.run("inspect KEY");
    assert_eq!((ended.status.code(), ended.stdout), (Some(1), String::new()));
    let run_dir = stage.run_dir();
    let expected = format!(
        "cuframes: no stream {} in {} and no region of it in /dev/shm; see cuframes ls\n",
        stage.key,
        run_dir.display()
    );
    assert_eq!(ended.stderr, expected);
    fs::write(stage.path("file"), "").unwrap();
    let ended = stage.run("ls --window 0 --run-dir DIR/file");
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("not a directory"), "{}", ended.stderr);
}

#[test]
fn what_a_killed_publisher_left_is_removed_and_what_lives_is_not() {
    let stage = Stage::new();
    let mut publisher = stage.start("publish KEY --pattern seq --size 64x32 --fps 50");
    wait_until("the stream to flow", || state(&stage).as_deref() == Some("live"));
    assert_eq!(stage.run("gc KEY").stdout, "nothing is left of streams that ended\n");
    assert_eq!(state(&stage).as_deref(), Some("live"));
    publisher.child().kill().unwrap();
    publisher.child().wait().unwrap();

    let socket = stage.run_dir().join(format!("{}.sock", stage.key));
    let region = format!("/dev/shm/cuframes-{}", stage.key);
    let ended = stage.run("gc --dry-run KEY");
    let key = &stage.key;
    let files = [socket.to_str().unwrap(), &region, &format!("{region}.lock")];
    let would: String = files.iter().map(|file| format!("{key}: would remove {file}\n")).collect();
    assert_eq!((ended.status.code(), ended.stdout), (Some(0), would));
    assert_eq!(stage.leftovers().len(), 3);

    let ended = stage.run("gc KEY --json");
    assert!(ended.status.success(), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let expected = serde_json::json!([{"key": key, "files": files, "is_certain": true, "error": null}]);
    assert_eq!(report["streams"], expected);
    assert_eq!(stage.leftovers(), [""; 0].map(std::path::PathBuf::from));
    assert_eq!(state(&stage), None);
}

#[test]
fn where_other_processes_are_not_seen_the_locks_tell_what_is_left() {
    let stage = Stage::new();
    // A pid namespace of its own, in which /proc/locks has nothing of the publisher.
    let apart = |line: &str| {
        let cuframes = stage.cuframes(line);
        let mut command = Command::new("unshare");
        command.args(["-Urpf", "--"]).arg(cuframes.get_program()).args(cuframes.get_args());
        command.env("CUFRAMES_RUN_DIR", stage.run_dir());
        command
    };
    if !Command::new("unshare").args(["-Urpf", "true"]).status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no namespaces can be made");
    }
    let run = |line: &str| {
        let output = apart(line).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let mut publisher = stage.start("publish KEY --pattern seq --size 64x32 --fps 50");
    wait_until("the stream to flow", || state(&stage).as_deref() == Some("live"));
    publisher.signal(rustix::process::Signal::STOP);
    assert_eq!(run("gc KEY"), "nothing is left of streams that ended\n");
    assert_eq!(stage.leftovers().len(), 3, "it lives");
    publisher.child().kill().unwrap();
    publisher.child().wait().unwrap();
    let would = run("gc KEY --dry-run");
    assert_eq!(would.matches(", if its locks show that its publisher is dead\n").count(), 3, "{would}");
    assert_eq!(stage.leftovers().len(), 3, "a dry run");
    assert_eq!(run("gc KEY").matches(": removed ").count(), 3);
    assert_eq!(stage.leftovers(), [""; 0].map(std::path::PathBuf::from));
}

#[test]
fn what_a_publisher_left_that_was_killed_while_it_started_is_removed() {
    let stage = Stage::new();
    let region = format!("/dev/shm/cuframes-{}", stage.key);
    let files = [format!("{region}.lock"), format!("{region}.new0")];
    for file in &files {
        fs::write(file, "").unwrap();
    }
    let would = stage.run("gc KEY --dry-run").succeeded().stdout;
    assert!(files.iter().all(|file| would.contains(&format!("would remove {file}"))), "{would}");
    assert_eq!(stage.leftovers().len(), 2);
    let removed = stage.run("gc KEY").succeeded().stdout;
    assert!(files.iter().all(|file| removed.contains(&format!("removed {file}"))), "{removed}");
    assert_eq!(stage.leftovers(), [""; 0].map(std::path::PathBuf::from));
}

#[test]
fn every_shell_gets_its_completions_and_every_command_its_page() {
    let stage = Stage::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = stage.run(&format!("completions {shell}"));
        assert!(ended.status.success() && ended.stdout.contains("subscribe"), "{shell}: {}", ended.stderr);
    }
    let ended = stage.run("man");
    assert!(ended.stdout.contains(".TH cuframes") && ended.stdout.contains("publish"), "{}", ended.stdout);
    assert!(stage.run("man --dir DIR/man").status.success());
    for page in ["cuframes", "cuframes-publish", "cuframes-ls"] {
        let text = fs::read_to_string(stage.path(&format!("man/{page}.1"))).unwrap();
        assert!(text.contains("EXAMPLES"), "{page}: {text}");
    }
}
