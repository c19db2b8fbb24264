//! How long it takes to become a reader: until the call returns after which no frame is missed.

use serde_json::Value;

use super::{Note, PATIENCE, Phase, SMALL, sleep_read};
use crate::figures::Figure;
use crate::numbers::{figure, now};
use crate::stage::{Brief, Stage};
use crate::stats::Times;
use crate::system::{Failure, Setup, System};
use crate::troupe::Post;

/// Each time with a stream of its own: not every system lets a reader come back.
pub(crate) fn lead<S: System>(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let mut reader = stage.call("reader", 0)?;
    let mut times = Times::new()?;
    for number in 0..WARM_UP + stage.brief.choose(60, 3) {
        let setup = setup(&stage.brief, number);
        let mut writer = stage.open::<S>(&setup)?;
        reader.say(&number.to_string())?;
        let nanos: u64 = reader.hear()?.parse()?;
        S::wait_for_readers(&mut writer, &setup, PATIENCE)?;
        S::write(&mut writer, |frame| Note { stamp: number, phase: Phase::Measured }.write(frame))?;
        reader.expect(DONE)?;
        if number >= WARM_UP {
            times.record(figure(nanos));
        }
    }
    reader.say(OVER)?;
    let _: Value = reader.result()?;
    Figure::of_times(&times, &["p50", "p90"])
}

pub(crate) fn support<S: System>(post: &mut Post) -> Result<Value, Failure> {
    loop {
        let told = post.hear()?;
        if told == OVER {
            return Ok(Value::Null);
        }
        let number = told.parse()?;
        let setup = setup(&post.brief, number);
        let start = now();
        let mut reader = S::reader(&setup, 0)?;
        post.say(&now().saturating_sub(start).to_string())?;
        let note = sleep_read::<S, _>(&mut reader, Note::read)?;
        if note.stamp != number {
            return Err(format!("frame {} came, not {number}", note.stamp).into());
        }
        drop(reader);
        post.say(DONE)?;
    }
}

fn setup(brief: &Brief, number: u64) -> Setup {
    Setup { stream: format!("s{number}"), ..brief.setup(SMALL, 1) }
}

/// The first ones load code, and make what is made once.
const WARM_UP: u64 = 5;
const DONE: &str = "done";
pub(crate) const OVER: &str = "over";
