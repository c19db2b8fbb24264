//! The end of a Unix socket whose process was killed.

use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};

use serde_json::Value;

use crate::figures::Figure;
use crate::numbers::{figure, now};
use crate::stage::{READY, Stage};
use crate::stats::Times;
use crate::system::Failure;
use crate::troupe::Post;

pub(crate) fn lead(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let listener = UnixListener::bind(stage.brief.dir.join(SOCKET))?;
    let mut times = Times::new()?;
    for _ in 0..stage.brief.choose(20, 2) {
        let mut peer = stage.call("peer", 0)?;
        let (mut stream, _) = listener.accept()?;
        peer.expect(READY)?;
        let start = now();
        peer.kill()?;
        if stream.read(&mut [0])? != 0 {
            return Err("the peer has said something".into());
        }
        times.record(figure(now().saturating_sub(start)));
    }
    Figure::of_times(&times, &["p50", "p90"])
}

/// Lives until it is killed.
pub(crate) fn support(post: &mut Post) -> Result<Value, Failure> {
    let mut stream = UnixStream::connect(post.brief.dir.join(SOCKET))?;
    post.say(READY)?;
    stream.read_exact(&mut [0])?;
    Ok(Value::Null)
}

const SOCKET: &str = "there";
