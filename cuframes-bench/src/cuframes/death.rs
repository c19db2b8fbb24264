//! How long it takes until a reader knows that the writer was killed, and a writer that a reader was.

use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use super::Cuframes;
use crate::case::{Case, Side};
use crate::figures::Figure;
use crate::jobs::{Note, PATIENCE, Phase, SMALL, Spinning, sleep_read};
use crate::numbers::{figure, now};
use crate::stage::Stage;
use crate::stats::Times;
use crate::system::{Failure, System, Wait};
use crate::troupe::{Actor, Post};

pub(crate) fn lead(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let mut times = Times::new()?;
    for _ in 0..stage.brief.choose(20, 2) {
        times.record(figure(match stage.brief.case {
            Case::Death(Side::Writer) => of_the_writer(stage)?,
            Case::Death(Side::Reader) => of_a_reader(stage)?,
            other => return Err(format!("{other} is no case of death").into()),
        }));
    }
    Figure::of_times(&times, &["p50", "p90"])
}

/// Until the reader's call returns the error.
fn of_the_writer(stage: &Stage) -> Result<u64, Failure> {
    let writers = stage.call_all("writer", 1)?;
    let mut reader = Cuframes::reader(&stage.brief.setup(SMALL, 1), 0)?;
    sleep_read::<Cuframes, _>(&mut reader, Note::read)?;
    let start = now();
    writers.iter().try_for_each(Actor::kill)?;
    loop {
        match Cuframes::read(&mut reader, Wait::Block(PATIENCE), |_| ()) {
            Ok(Some(())) => {}
            Ok(None) => return Err("the reader did not notice".into()),
            Err(_) => return Ok(now().saturating_sub(start)),
        }
    }
}

/// Until the writer has no member any more.
fn of_a_reader(stage: &Stage) -> Result<u64, Failure> {
    let setup = stage.brief.setup(SMALL, 1);
    let mut writer = stage.open::<Cuframes>(&setup)?;
    let readers = stage.call_all("reader", 1)?;
    Cuframes::wait_for_readers(&mut writer, &setup, PATIENCE)?;
    Cuframes::write(&mut writer, |frame| Note { stamp: 0, phase: Phase::Measured }.write(frame))?;
    let start = now();
    readers.iter().try_for_each(Actor::kill)?;
    let mut spinning = Spinning::default();
    while !writer.members().is_empty() {
        spinning.go_on()?;
    }
    Ok(now().saturating_sub(start))
}

/// Lives until it is killed.
pub(crate) fn support(post: &mut Post) -> Result<Value, Failure> {
    let setup = post.brief.setup(SMALL, 1);
    if post.role == "writer" {
        let mut writer = Cuframes::writer(&setup)?;
        post.say(crate::stage::READY)?;
        loop {
            Cuframes::write(&mut writer, |frame| Note { stamp: 0, phase: Phase::Measured }.write(frame))?;
            sleep(Duration::from_millis(1));
        }
    }
    let mut reader = Cuframes::reader(&setup, post.index)?;
    post.say(crate::stage::READY)?;
    loop {
        sleep_read::<Cuframes, _>(&mut reader, Note::read)?;
    }
}
