//! `cuframes bridge recv --fetch`: one frame of another host, on demand.

use std::path::Path;
use std::time::Instant;

use cuframes_core::{FrameMeta, Key};
use cuframes_mio::bridge::{FrameInfo, IntakeEvent, StreamReceiver};

use super::{loop_failed, recv};
use crate::args::{BridgeRecvArgs, Fetch, Stream};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::output::REFRESH;
use crate::signals::Signals;
use crate::snapshot::{self, Report, Target};

pub(super) fn run(
    args: &BridgeRecvArgs,
    key: &Key,
    Fetch(seq): Fetch,
    output: &Stream,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    // First: nobody should have to wait for a frame to learn of a wrong path.
    let target = Target::find(output)?;
    let builder = recv::settings(args, None).on_demand();
    let mut receiver = builder.listen().map_err(|error| failed!("{error}"))?;
    recv::announce(args, &receiver, console);
    let Some((info, bytes)) = fetch(args, key, seq, &mut receiver, signals)? else {
        return Err(failed!("stream {key}: a signal came before the frame did; nothing was written"));
    };
    receiver.shut_down().map_err(loop_failed)?;
    let FrameInfo { seq, pts_ns, meta, .. } = info;
    let file = if is_picture(output) { snapshot::png(key, (seq, pts_ns), &meta, &bytes)? } else { bytes };
    let FrameMeta { format, width, height, .. } = meta;
    let report = Report {
        key: key.as_str(),
        seq,
        pts_ns,
        format: format.to_string(),
        width,
        height,
        file: output.to_string(),
        bytes: file.len(),
    };
    snapshot::keep((&target, output), &file, (&report, args.link.json), signals, console)
}

/// Waits for the sender, and for the frame. `None` if a signal came first.
fn fetch(
    args: &BridgeRecvArgs,
    key: &Key,
    seq: Option<u64>,
    receiver: &mut StreamReceiver,
    signals: &Signals,
) -> Result<Option<(FrameInfo, Vec<u8>)>, Failure> {
    let start = Instant::now();
    let which = seq.map_or_else(|| "the newest frame".into(), |seq| format!("frame {seq}"));
    // Its sender is there; and why somebody else is not there any more.
    let (mut is_asked, mut trouble) = (false, None);
    while !signals.raised() {
        match receiver.next_event(Some(REFRESH)).map_err(loop_failed)? {
            Some(IntakeEvent::Joined { .. }) => {
                is_asked = receiver.fetch(key, seq).map_err(loop_failed)?;
            }
            Some(IntakeEvent::Left { fault: Some(fault), .. }) => trouble = Some(fault),
            Some(IntakeEvent::Fetched { info, bytes, .. }) => return Ok(Some((info, bytes))),
            Some(IntakeEvent::NotFetched { why, .. }) => {
                receiver.shut_down().map_err(loop_failed)?;
                return Err(failed!("stream {key}: {which} does not come: {why}; nothing was written"));
            }
            _ => {}
        }
        if start.elapsed() >= args.wait {
            let (endpoint, wait) = (receiver.endpoint(), args.wait);
            return Err(match trouble {
                _ if is_asked => failed!(
                    "stream {key}: {which} has not come from its sender within {wait:?}; nothing was written; raise --wait"
                ),
                Some(fault) => failed!(
                    "stream {key}: no sender of it has come to {endpoint} within {wait:?}; somebody did, but {fault}; start cuframes \
                     bridge send {key} --on-demand there"
                ),
                None => failed!(
                    "stream {key}: no sender of it has come to {endpoint} within {wait:?}; start cuframes bridge send {key} \
                     --on-demand there, or raise --wait"
                ),
            });
        }
    }
    Ok(None)
}

fn is_picture(output: &Stream) -> bool {
    let ends_so = |path: &Path| path.extension().is_some_and(|end| end.eq_ignore_ascii_case("png"));
    matches!(output, Stream::File(path) if ends_so(path))
}
