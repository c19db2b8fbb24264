//! Two words in shared memory, each in a cache line of its own: one process counts in the first, the other in the second.

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use super::socket;
use crate::figures::Figure;
use crate::jobs::Spinning;
use crate::jobs::spin::{check, time_round_trips};
use crate::shared::SharedWords;
use crate::stage::{READY, Stage};
use crate::system::Failure;
use crate::troupe::Post;

pub(crate) fn lead(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let (memory, fd) = SharedWords::create(WORDS)?;
    let listener = UnixListener::bind(stage.brief.dir.join(SOCKET))?;
    let mut echo = stage.call("echo", 0)?;
    let (stream, _) = listener.accept()?;
    socket::send(&stream, &[fd.as_fd()])?;
    echo.expect(READY)?;
    stage.pin()?;
    let (there, back) = lines(&memory)?;
    let mut number = 0;
    let figures = time_round_trips(&stage.brief, || {
        number += 1;
        there.store(number, Ordering::Release);
        wait_for(back, number)
    })?;
    there.store(OVER, Ordering::Release);
    check(echo.result()?, number)?;
    Ok(figures)
}

pub(crate) fn support(post: &mut Post) -> Result<Value, Failure> {
    let stream = UnixStream::connect(post.brief.dir.join(SOCKET))?;
    let fd = socket::receive(&stream)?.into_iter().next().ok_or("a descriptor is missing")?;
    let memory = SharedWords::open(fd)?;
    post.pin()?;
    post.say(READY)?;
    let (there, back) = lines(&memory)?;
    let (mut last, mut spinning) = (0, Spinning::default());
    loop {
        match there.load(Ordering::Acquire) {
            OVER => return Ok(last.into()),
            number if number == last => spinning.go_on()?,
            number => {
                back.store(number, Ordering::Release);
                (last, spinning) = (number, Spinning::default());
            }
        }
    }
}

#[inline]
fn wait_for(word: &AtomicU64, number: u64) -> Result<(), Failure> {
    let mut spinning = Spinning::default();
    while word.load(Ordering::Acquire) != number {
        spinning.go_on()?;
    }
    Ok(())
}

/// Two words far enough from each other that no CPU fetches both at once.
fn lines(memory: &SharedWords) -> Result<(&AtomicU64, &AtomicU64), Failure> {
    let words = memory.words();
    words.first().zip(words.get(WORDS / 2)).ok_or_else(|| "memory is missing".into())
}

const WORDS: usize = 64;
const OVER: u64 = u64::MAX;
const SOCKET: &str = "there";
