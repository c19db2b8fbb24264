//! A Unix socket: connect, one question, and one answer that brings a descriptor.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use serde_json::Value;

use super::socket;
use crate::figures::Figure;
use crate::jobs::handshake::OVER;
use crate::numbers::{figure, now};
use crate::stage::Stage;
use crate::stats::Times;
use crate::system::Failure;
use crate::troupe::Post;

pub(crate) fn lead(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let file = File::open("/dev/null")?;
    let listener = UnixListener::bind(stage.brief.dir.join(SOCKET))?;
    let mut reader = stage.call("reader", 0)?;
    let mut times = Times::new()?;
    for number in 0..WARM_UP + stage.brief.choose(60, 3) {
        reader.say("connect")?;
        let (stream, _) = listener.accept()?;
        socket::receive(&stream)?;
        socket::send(&stream, &[file.as_fd()])?;
        let nanos: u64 = reader.hear()?.parse()?;
        if number >= WARM_UP {
            times.record(figure(nanos));
        }
    }
    reader.say(OVER)?;
    let _: Value = reader.result()?;
    Figure::of_times(&times, &["p50", "p90"])
}

pub(crate) fn support(post: &mut Post) -> Result<Value, Failure> {
    while post.hear()? != OVER {
        let start = now();
        let stream = UnixStream::connect(post.brief.dir.join(SOCKET))?;
        socket::send(&stream, &[])?;
        let fds = socket::receive(&stream)?;
        let time = now().saturating_sub(start);
        if fds.is_empty() {
            return Err("a descriptor is missing".into());
        }
        post.say(&time.to_string())?;
    }
    Ok(Value::Null)
}

const WARM_UP: u64 = 5;
const SOCKET: &str = "there";
