//! Participants in Python, over libzmq and msgspec, at our frontend.

use std::path::Path;
use std::time::Duration;

use cuframes_barrier::message::{Init, Registration};
use cuframes_barrier::msgpack::Value;
use cuframes_interop::{LIMIT, Process, chance, python};

use crate::frontends::{Frontend, barrier};

/// A participant in Python.
pub(crate) struct Participant {
    pub(crate) process: Process,
    index: u16,
    joined: Option<(Init, Vec<u8>)>,
}

impl Participant {
    /// Starts one, with or without the words of our extension.
    pub(crate) fn start(
        python: &Path,
        address: &str,
        index: u16,
        [rank, count]: [u16; 2],
        words: bool,
    ) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/participant.py");
        let numbers = [index, rank, count].map(|number| number.to_string());
        let numbers = numbers.iter().map(String::as_str);
        let flag = words.then_some("--words");
        let arguments: Vec<&str> = [script, address].into_iter().chain(numbers).chain(flag).collect();
        Self { process: Process::start(python, &arguments), index, joined: None }
    }

    /// Waits until it has registered: the INIT that it heard, and the bytes that it sent.
    pub(crate) async fn joined(&mut self) -> &(Init, Vec<u8>) {
        if self.joined.is_none() {
            let init = Init::decode(&unhex(&self.process.says("INIT").await)).unwrap();
            self.process.says("READY").await;
            self.joined = Some((init, unhex(&self.process.says("REGISTERED").await)));
        }
        self.joined.as_ref().unwrap()
    }
}

/// Python, unless it can't be had.
pub(crate) fn interpreter() -> Option<&'static Path> {
    python(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

fn unhex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[tokio::test]
async fn one_two_and_eight_in_python_start_with_our_frontend_in_any_order() {
    let Some(python) = interpreter() else { return };
    let mut rng = chance();
    for (count, is_new) in [(1, false), (1, true), (2, false), (2, true), (8, false), (8, true)] {
        let first = *rng.choice(&[0, 258, u16::MAX - 7]).unwrap();
        let mut frontend = Frontend::ours(barrier(first, count, LIMIT, is_new));
        let mut order: Vec<u16> = (0..count).map(|rank| first + rank).collect();
        rng.shuffle(&mut order);
        eprintln!("in the order {order:?}");
        let mut all: Vec<Participant> = Vec::new();
        for index in order {
            // Some come when the others are in.
            if rng.bool() {
                for earlier in &mut all {
                    earlier.joined().await;
                }
            }
            all.push(Participant::start(python, &frontend.address, index, [index - first, count], false));
        }
        let end = frontend.end().await.unwrap();

        all.sort_by_key(|participant| participant.index);
        for (participant, (index, registration)) in all.iter_mut().zip(&end) {
            let expected = participant.index;
            let (init, sent) = participant.joined().await;
            assert_eq!((index, registration), (&expected, sent));
            let size = init.parallel_config.get("data_parallel_size").and_then(Value::as_int);
            assert_eq!(size, is_new.then_some(count.into()), "the original says nothing");
            let read = Registration::decode(registration).unwrap();
            assert_eq!((read.instance_id, read.max_num_batched_tokens), (format!("python {index}"), -1));
        }
        assert_eq!(end.len(), all.len());
        for participant in all {
            assert!(participant.process.end().await.is_empty());
        }
    }
}

#[tokio::test]
async fn one_in_python_that_is_killed_and_comes_again_is_let_in_if_restarts_are_let() {
    let Some(python) = interpreter() else { return };
    for is_new in [true, false] {
        let mut frontend = Frontend::ours(barrier(0, 2, LIMIT, is_new));
        let start = |index| Participant::start(python, &frontend.address, index, [index, 2], false);
        let mut first = start(0);
        first.joined().await;
        drop(first);
        let mut second = start(0);
        let _third = if is_new {
            second.joined().await;
            Some(start(1))
        } else {
            None
        };
        match frontend.end().await {
            Ok(all) => assert!(is_new && all.len() == 2),
            Err(error) => {
                assert!(!is_new, "{error}");
                assert_eq!(error, "at READY: participant 0 said HELLO twice");
            }
        }
    }
}

#[tokio::test]
async fn those_in_python_that_know_our_words_are_told_that_all_are_there() {
    let Some(python) = interpreter() else { return };
    let mut frontend = Frontend::ours(barrier(0, 3, LIMIT, true));
    let start = |index, words| Participant::start(python, &frontend.address, index, [index, 3], words);
    let mut all = [start(0, true), start(1, false), start(2, true)];
    frontend.end().await.unwrap();
    for participant in &mut all {
        participant.joined().await;
    }
    for participant in &mut [all[0].process.says("GO").await, all[2].process.says("GO").await] {
        assert_eq!(participant, "");
    }
}

#[tokio::test]
async fn those_in_python_that_know_our_words_are_told_why_a_start_failed() {
    let Some(python) = interpreter() else { return };
    // Python alone may take a second to start.
    let mut told = None;
    for seconds in [3, 12, 48] {
        let mut frontend = Frontend::ours(barrier(0, 2, Duration::from_secs(seconds), true));
        let mut participant = Participant::start(python, &frontend.address, 0, [0, 2], true);
        let error = frontend.end().await.unwrap_err();
        if error == format!("no READY within {seconds}s from 1 (nothing heard)") {
            participant.joined().await;
            told = Some((participant.process.says("CANCEL").await, error));
            break;
        }
    }
    let (told, error) = told.unwrap();
    assert_eq!(told, error);
}
