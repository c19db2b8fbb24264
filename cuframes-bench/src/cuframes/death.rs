//! How long it takes until a reader knows that the writer was killed, and a writer that a reader was.

use std::thread::sleep;
use std::time::Duration;

use cuframes_mio::{Pollable, Publisher};
use serde_json::Value;

use super::{Cuframes, builder};
use crate::case::{Case, Side};
use crate::figures::Figure;
use crate::jobs::{Note, PATIENCE, Phase, SMALL, sleep_read};
use crate::numbers::{figure, now, saturating_nanos};
use crate::stage::{READY, Stage};
use crate::stats::Times;
use crate::system::{Failure, System, Wait};
use crate::troupe::{Actor, Post, troupe};

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

/// Until the writer has no member any more. It is driven by an event loop here, so that nobody has to look again and again,
/// on a CPU that others need.
fn of_a_reader(stage: &Stage) -> Result<u64, Failure> {
    let setup = stage.brief.setup(SMALL, 1);
    let mut writer = {
        // As `Stage::open`.
        let _troupe = troupe();
        Pollable::new(builder(&setup)?.create()?)?
    };
    let mut reader = stage.call("reader", 0)?;
    wait_for_members(&mut writer, 1)?;
    reader.expect(READY)?;
    let start = now();
    reader.kill()?;
    wait_for_members(&mut writer, 0)?;
    Ok(now().saturating_sub(start))
}

fn wait_for_members(writer: &mut Pollable<Publisher>, members: usize) -> Result<(), Failure> {
    let deadline = now().saturating_add(saturating_nanos(PATIENCE));
    while writer.get_ref().members().count() != members {
        if now() > deadline {
            return Err("the writer did not notice".into());
        }
        // `Again` is remembered by the writer itself.
        let _ = writer.wait(Some(PATIENCE))?;
    }
    Ok(())
}

/// Lives until it is killed.
pub(crate) fn support(post: &mut Post) -> Result<Value, Failure> {
    let setup = post.brief.setup(SMALL, 1);
    if post.role == "writer" {
        let mut writer = Cuframes::writer(&setup)?;
        post.say(READY)?;
        loop {
            Cuframes::write(&mut writer, |frame| Note { stamp: 0, phase: Phase::Measured }.write(frame))?;
            sleep(Duration::from_millis(1));
        }
    }
    let mut reader = Cuframes::reader(&setup, post.index)?;
    post.say(READY)?;
    loop {
        sleep_read::<Cuframes, _>(&mut reader, Note::read)?;
    }
}
