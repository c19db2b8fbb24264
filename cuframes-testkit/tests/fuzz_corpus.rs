//! Every input of `fuzz/corpus` and of `fuzz/regressions` is replayed, so that what fuzzing found once stays found.

#![expect(clippy::unwrap_used, reason = "a failure ends the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, panic};

use cuframes_testkit::chaos::TARGETS;
use cuframes_testkit::chaos::seeds::{SEED, corpus, seeds};

/// The names in a directory, in order; none if it does not exist.
fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

#[test]
fn every_input_is_borne_by_its_target() {
    let mut failed = Vec::new();
    for (target, run) in TARGETS {
        let found = names(&corpus(target));
        assert!(!found.is_empty(), "{target} has no corpus");
        let regressions = fuzz().join("regressions").join(target);
        let paths = found.iter().map(|name| corpus(target).join(name));
        for path in paths.chain(names(&regressions).iter().map(|name| regressions.join(name))) {
            let bytes = fs::read(&path).unwrap();
            if panic::catch_unwind(|| run(&bytes)).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn corpora_regressions_and_targets_have_the_same_names() {
    let targets = TARGETS.map(|(target, _)| target.to_string());
    assert_eq!(names(&fuzz().join("corpus")), targets);
    assert_eq!(names(&fuzz().join("fuzz_targets")), targets.each_ref().map(|target| format!("{target}.rs")));
    for target in names(&fuzz().join("regressions")) {
        assert!(targets.contains(&target), "regressions of {target}, which is no target");
    }
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for target in targets {
        let source = fs::read_to_string(fuzz().join("fuzz_targets").join(format!("{target}.rs"))).unwrap();
        let function = target.strip_prefix("session_").unwrap_or(&target);
        assert!(source.contains(&format!("chaos::{function}(data)")), "{target} does something else");
        assert!(manifest.contains(&format!("name = {target:?}")), "{target} is not built");
    }
}

#[test]
fn the_seeds_are_what_the_generator_makes() {
    for (target, _) in TARGETS {
        let made: BTreeMap<String, Vec<u8>> =
            seeds(target).into_iter().map(|(name, bytes)| (format!("{SEED}{name}"), bytes)).collect();
        let found = names(&corpus(target)).into_iter().filter(|name| name.starts_with(SEED));
        let found: BTreeMap<String, Vec<u8>> =
            found.map(|name| (name.clone(), fs::read(corpus(target).join(name)).unwrap())).collect();
        let advice = "cargo run -p cuframes-testkit --example fuzz_seeds";
        assert!(made == found, "the seeds of {target} are old; run {advice}");
    }
}
