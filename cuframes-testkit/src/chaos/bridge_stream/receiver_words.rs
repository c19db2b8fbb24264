//! What senders say to a receiver.

use cuframes_bridge::stream::FrameInfo;
use cuframes_bridge::wire::{Begin, Chunk, Done, FrameType, Header, Hello, Message, SnapshotId};
use cuframes_core::FrameMeta;

use super::frames::{FETCH, begin, bytes, encoded, info, meta, other_words, reason};
use super::peer::Peer;

/// One of the things that senders say, right or wrong.
pub(super) fn word(peer: &mut Peer, kind: u8, number: u8) -> Vec<u8> {
    let small = u64::from(number);
    let asked = peer.asked;
    let message = match kind % 16 {
        0 => hello(number),
        1 => start(peer, number, None),
        2 => Message::LoadBegin(wrong(number)),
        3 => return piece(peer, number.into(), None),
        4 => return piece(peer, usize::MAX, Some(1)),
        5 => return piece(peer, usize::MAX, Some(if number == 255 { 7 } else { number % 2 })),
        6 => start(peer, number, Some(asked)),
        7 => no(asked, number),
        8 => done(asked),
        9 => Message::Error(reason(number)),
        10 => {
            let load = encoded(&start(peer, number, None));
            let verdict = u8::from(!number.is_multiple_of(4));
            let data = piece(peer, usize::MAX, None);
            return [load, data, piece(peer, 0, Some(verdict))].concat();
        }
        11 => {
            let begin = encoded(&start(peer, number, Some(asked)));
            let data = piece(peer, usize::MAX, Some(u8::from(!number.is_multiple_of(4))));
            return [begin, data, encoded(&done(asked))].concat();
        }
        12 if number >= 128 => no(FETCH | (small % 4), number),
        12 => Message::Begin(begin(&info(small % 8, small, 1), (FETCH | (small % 8)) ^ (small / 64 * FETCH))),
        13 => {
            let (request, left) = peer.begun.as_ref().map_or((small, 0), |(info, request, sent)| {
                (*request, info.written_bytes.wrapping_sub(u64::try_from(*sent).unwrap()))
            });
            let more = u32::try_from(left.wrapping_add(2)).unwrap_or(u32::MAX);
            Message::Chunk(match number % 3 {
                0 => Chunk { request: request ^ (1 << (number / 4)), bytes: 1 },
                1 => Chunk { request, bytes: more },
                _ => Chunk { request, bytes: 0 },
            })
        }
        14 => done(FETCH | (small % 8)),
        _ if number.is_multiple_of(2) => Message::SaveRequest(SnapshotId::default()),
        _ => {
            let header = Header { kind: FrameType(u32::from(number / 2)), bytes: u32::from(number % 4) };
            return [&header.encode()[..], &vec![0; usize::from(number % 4)]].concat();
        }
    };
    encoded(&message)
}

fn hello(number: u8) -> Message {
    let key = match number % 3 {
        _ if number >= 250 => "../x",
        0 => "a",
        1 => "b",
        _ => "c",
    };
    let ctx_size = if number >= 240 { u32::from(number % 2) * 17 } else { u32::from(number / 3 % 16) + 1 };
    Message::Hello(Hello {
        model_id: 9,
        quant_bits: 8,
        layer_start: 0,
        layer_end: 2,
        has_output: u32::from(number / 2 % 2),
        has_hidden: 0,
        ctx_size,
        n_layers: 3,
        listen_port: 0,
        model_name: key.into(),
    })
}

/// The next frame begins, or one that was asked for.
fn start(peer: &mut Peer, number: u8, asked: Option<u64>) -> Message {
    let seq = asked.map_or(0, |request| request & !FETCH);
    let seq = if seq == 0 { u64::from(number % 8) + 1 } else { seq };
    let info = info(seq, u64::from(number / 8) * 7, i64::from(number) - 5);
    let request = asked.unwrap_or(seq);
    peer.begun = Some((info, request, 0));
    let begin = begin(&info, request);
    if asked.is_some() { Message::Begin(begin) } else { Message::LoadBegin(begin) }
}

/// So many of the bytes of the frame that has begun, and whether they are one frame.
fn piece(peer: &mut Peer, most: usize, verdict: Option<u8>) -> Vec<u8> {
    let mut nothing = (info(1, 0, 0), 1, 0);
    let (info, request, sent) = peer.begun.as_mut().unwrap_or(&mut nothing);
    let all = bytes(info.seq, usize::try_from(info.written_bytes.min(4096)).unwrap());
    let data = all.get(*sent..).unwrap();
    let data = data.get(..most.min(data.len())).unwrap();
    *sent += data.len();
    let chunk = Chunk {
        request: *request,
        bytes: u32::try_from(data.len() + usize::from(verdict.is_some())).unwrap(),
    };
    [encoded(&Message::Chunk(chunk)), data.to_vec(), verdict.into_iter().collect()].concat()
}

fn no(request: u64, number: u8) -> Message {
    let id = SnapshotId { request, ..SnapshotId::default() };
    Message::Begin(Begin {
        id,
        status: u32::from(number % 2) + 1,
        message: reason(number),
        ..Begin::default()
    })
}

fn done(request: u64) -> Message {
    Message::Done(Done { request, status: 0, message: String::new() })
}

/// Words about a frame that do not hold together, but for the last.
fn wrong(number: u8) -> Begin {
    let right = begin(&info(1, 30, 1), 1);
    let id = right.id;
    let of = |frame_size_bytes: u64| {
        let meta = FrameMeta { frame_size_bytes, ..meta() };
        begin(&FrameInfo { meta, written_bytes: frame_size_bytes, ..info(1, 0, 1) }, 1)
    };
    let set = |at: usize, word| other_words(right.clone(), |words| *words.get_mut(at).unwrap() = word);
    match number % 13 {
        0 => other_words(right, |words| words.truncate(20)),
        1 => set(0, 2),
        2 => set(1, 99),
        3 => set(18, 0),
        4 => set(22, 1 << 30),
        5 => Begin { payload_bytes: right.payload_bytes + 1, ..right },
        6 => Begin { payload_bytes: u64::MAX, ..right },
        7 => Begin { id: SnapshotId { token_hash: 5, ..id }, ..right },
        8 => Begin { id: SnapshotId { request: 2, ..id }, ..right },
        9 => Begin { id: SnapshotId { request: FETCH | 1, ..id }, ..right },
        10 => of(u64::MAX),
        11 => of(u64::MAX - 1),
        _ => of(1 << 40),
    }
}
