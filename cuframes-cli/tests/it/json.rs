//! What is printed with `--json` is what docs/json.md says.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::stage::{Stage, strict};

/// The words in backquotes before the first heading of the page, and under these.
fn documented(page: &str, headings: &[&str]) -> BTreeSet<String> {
    let mut sections = page.split("\n## ");
    let general = sections.next().unwrap();
    let found: Vec<&str> =
        sections.filter(|section| headings.contains(&section.lines().next().unwrap())).collect();
    assert_eq!(found.len(), headings.len(), "of {headings:?} some are not there");
    let words = found.into_iter().chain([general]).flat_map(|section| section.split('`').skip(1).step_by(2));
    words.map(String::from).collect()
}

/// All names of fields, also of objects in objects and lists.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            found.insert(name.clone());
            fields(value, found);
        }),
        Value::Array(all) => all.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[track_caller]
fn check(page: &str, value: &Value, headings: &[&str]) {
    let mut found = BTreeSet::new();
    fields(value, &mut found);
    let documented = documented(page, headings);
    let missing: Vec<_> = found.difference(&documented).collect();
    assert!(missing.is_empty(), "{headings:?}: {missing:?} of {value}");
    // The other way round: a field that is not there any more. What is in backquotes may be a value, too.
    let own =
        page.split("\n## ").find(|section| section.lines().next() == headings.first().copied()).unwrap();
    for row in own.lines().filter(|line| line.starts_with("| `")) {
        let names = row.split('|').nth(1).unwrap();
        for name in names.split('`').skip(1).step_by(2).filter(|name| *name != "has_pictures") {
            assert!(found.contains(name), "{headings:?}: {name} is not in {value}");
        }
    }
}

#[test]
fn each_field_is_documented_and_each_documented_field_is_there() {
    let stage = Stage::new();
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md")).unwrap();
    let check = |value: &Value, headings: &[&str]| check(&page, value, headings);

    let publisher =
        stage.start(&format!("publish KEY --pattern seq --size 64x32 --frames 4 {} --json", strict(2)));
    let subscriber = stage.start("subscribe KEY --json --timeout 120");
    let recorded = stage.run("record KEY DIR/in.mkv --json --timeout 120").succeeded().json();
    check(&recorded, &["record"]);
    check(&subscriber.end().succeeded().json(), &["subscribe"]);
    check(&publisher.end().succeeded().json(), &["publish"]);

    let replaying = stage.start("replay DIR/in.mkv KEY --loop --json");
    stage.wait_for_socket();
    let reader = stage.start("subscribe KEY --y4m DIR/out.y4m --mode strict --timeout 120");
    let json = |line: &str| stage.run(line).succeeded().json();
    check(&json("snapshot KEY DIR/out.png --json --timeout 120"), &["snapshot"]);
    check(&json("ls --json"), &["ls"]);
    check(&json("inspect KEY --json"), &["inspect", "ls"]);
    check(&json("top KEY --json --count 1"), &["top", "ls"]);
    check(&json("demo --frames 20 --size 64x32 --json"), &["demo", "publish", "subscribe"]);
    for process in [reader, replaying] {
        process.signal(Signal::KILL);
        process.end();
    }
    check(&json("gc --json"), &["gc"]);

    let replaying = stage.start("replay DIR/in.mkv KEY --json --fps 0");
    check(&replaying.end().succeeded().json(), &["replay", "publish"]);
    check(&serde_json::from_str(&stage.run("doctor --json").stdout).unwrap(), &["doctor"]);

    let waiting = stage.start("barrier wait ipc://DIR/start --expect 1 --timeout 120 --json");
    check(&json("barrier join ipc://DIR/start --index 0 --timeout 120 --json"), &["barrier join"]);
    check(&waiting.end().succeeded().json(), &["barrier wait"]);
}
