//! HELLO_RESP (§3.4), and everything that a subscriber derives from it.

use cuframes_core::error::{ErrorCode, Refused, Violation};
use cuframes_core::session::{Closed, Session, SubscriberEvent, SubscriberSession};
use cuframes_core::wire::control::EventFd;
use cuframes_core::wire::framing::{HEADER_LEN, MAX_PAYLOAD};
use cuframes_core::wire::hello::{HelloResp, Stream};
use cuframes_core::wire::{FdPurpose, MessageType, PROTO_VERSION};
use cuframes_core::{Features, Format, FrameMeta, Instant};

use super::{Script, check_geometry};
use crate::pair::hello;
use crate::solo::{encoded, events, feed, sent};
use crate::vectors::vector;

/// Reads `data` as the features that a subscriber asks for, and an answer: a payload as it is, or one put together from
/// fields. What the decoder says of it must hold together, and the session must do what follows from it.
pub fn hello_resp(data: &[u8]) {
    let mut script = Script(data);
    let asked = Features(u32::from(script.byte()));
    let payload = if script.byte() % 2 == 0 { script.0.to_vec() } else { answer(&mut script) };
    if payload.len() > MAX_PAYLOAD {
        return;
    }
    let mut session = SubscriberSession::<u32>::new(Instant::ZERO, hello(asked));
    sent(&mut session);
    feed(&mut session, &message(&payload), &[]);
    match HelloResp::decode(&payload) {
        Err(violation) => ends(&mut session, violation),
        Ok(HelloResp::Refused(code)) => {
            assert!(code < ErrorCode::OK);
            assert_eq!(sent(&mut session).0, [], "a refusal is not answered");
            let closed = Closed::Refused(Refused { code, message: String::new() });
            assert_eq!(events(&mut session), [SubscriberEvent::Closed(closed)]);
            assert!(session.is_closed());
            stays(&HelloResp::Refused(code));
        }
        Ok(HelloResp::Ok(stream)) => {
            check_geometry(&stream.meta);
            assert!((1..=16).contains(&stream.ring_size.get()));
            stays(&HelloResp::Ok(stream.clone()));
            // It is all there was, but for the reserved bytes of the geometry and those at the end.
            let again = encoded(|out| HelloResp::Ok(stream.clone()).encode(out)).split_off(HEADER_LEN);
            let is_reserved = |at| (48..80).contains(&at) || at >= payload.len() - 8;
            let kept = payload.iter().enumerate().map(|(at, byte)| if is_reserved(at) { 0 } else { *byte });
            assert!(again.into_iter().eq(kept));
            if stream.proto_version != PROTO_VERSION {
                ends_at(&mut session, "proto_version_actual");
            } else if !asked.contains(stream.features) {
                ends_at(&mut session, "features");
            } else {
                goes_on(&mut session, stream);
            }
        }
        Ok(answer) => panic!("{answer:?} is unheard of"),
    }
}

/// An answer put together from fields, most of which hold together.
fn answer(script: &mut Script<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |value: u32| out.extend(value.to_le_bytes());
    put(if script.byte() < 240 { 0 } else { low(script.word()) });
    put(if script.byte() < 240 { PROTO_VERSION } else { low(script.word()) });
    put(match script.byte() {
        slots @ 0..240 => u32::from(1 + slots % 16),
        _ => low(script.word()),
    });
    put(low(script.word()));
    out.extend(geometry(script).to_bytes());
    let path = script.byte();
    let path = script.take(path).repeat(1 + usize::from(script.byte() % 32));
    let len = u32::try_from(path.len()).unwrap();
    let len = if script.byte() < 240 { len } else { len.wrapping_add(low(script.word())) };
    out.extend(len.to_le_bytes());
    out.extend(path);
    out.extend(low(script.word()).to_le_bytes());
    out.extend([script.byte(); 8]);
    match script.byte() {
        0..192 => {}
        less @ 192..224 => out.truncate(out.len() - usize::from(less - 191)),
        more => out.extend([more].repeat(usize::from(more - 223))),
    }
    out
}

/// A geometry that often holds together.
fn geometry(script: &mut Script<'_>) -> FrameMeta {
    let format = Format(u32::from(script.byte() % 16));
    let (width, height) = (low(script.word()), low(script.word()));
    let fitting = if script.byte() < 128 {
        FrameMeta::new(format, width, height)
    } else {
        FrameMeta::with_pitches(format, width, height, low(script.word()), low(script.word()))
    };
    let mut meta = fitting.unwrap_or_else(|_| FrameMeta {
        format,
        width,
        height,
        pitch_y: low(script.word()),
        pitch_uv: low(script.word()),
        bits_per_pixel: low(script.word()),
        frame_size_bytes: script.word(),
    });
    match script.byte() {
        0..160 => {}
        less @ 160..200 => meta.frame_size_bytes = meta.frame_size_bytes.wrapping_sub(u64::from(less) - 159),
        more @ 200..240 => meta.frame_size_bytes = meta.frame_size_bytes.wrapping_add(u64::from(more)),
        _ => meta.frame_size_bytes = script.word(),
    }
    meta
}

/// The session goes through the rest of the handshake, and takes each descriptor that the features allow, once.
fn goes_on(session: &mut SubscriberSession<u32>, stream: Stream) {
    let Stream { features, ring_size, .. } = stream;
    assert_eq!(events(session), [SubscriberEvent::Stream(stream)]);
    assert_eq!(sent(session).0, vector("subscribe_req"));
    feed(session, &vector("subscribe_resp"), &[]);
    assert!(matches!(events(session)[..], [SubscriberEvent::Subscribed(_)]));
    let with = |needed: Features, message: EventFd| features.contains(needed).then_some(message);
    let slots = u32::from(ring_size.get());
    let vmm = Features::FD_PASSING.union(Features::CUDA_VMM);
    let allowed = [
        with(Features::NONE, EventFd::single(FdPurpose::WAKE_UP)),
        with(Features::FD_PASSING, EventFd::single(FdPurpose::REGION)),
        with(Features::FD_PASSING, EventFd::single(FdPurpose::HOST_POOL)),
        with(Features::WAKE_HINT, EventFd::single(FdPurpose::PUBLISHER_WAKE_UP)),
    ];
    let of_slots = (0..slots)
        .filter_map(|index| with(vmm, EventFd { purpose: FdPurpose::CUDA_VMM, index, count: slots }));
    let allowed: Vec<EventFd> = allowed.into_iter().flatten().chain(of_slots).collect();
    for (number, message) in (0..).zip(&allowed) {
        feed(session, &encoded(|out| message.encode(out)), &[number]);
        let EventFd { purpose, index, count } = *message;
        assert_eq!(events(session), [SubscriberEvent::Fd { purpose, index, count, fd: number }]);
    }
    session.attached(Instant::ZERO).unwrap();
    let again = if features.contains(vmm) {
        EventFd { purpose: FdPurpose::CUDA_VMM, index: slots, count: slots }
    } else {
        EventFd { purpose: FdPurpose::CUDA_VMM, index: 0, count: slots }
    };
    feed(session, &encoded(|out| again.encode(out)), &[0]);
    ends_at(session, if features.contains(vmm) { "index" } else { "fd_purpose" });
}

/// The session ended with this violation and says so to the publisher (D-11).
fn ends(session: &mut SubscriberSession<u32>, violation: Violation) {
    assert!(violation.code() < ErrorCode::OK && !violation.to_string().is_empty());
    assert_eq!(events(session), [SubscriberEvent::Closed(Closed::Violation(violation))]);
    let (bytes, fds) = sent(session);
    assert_eq!(bytes.first_chunk().copied().map(u32::from_le_bytes), Some(MessageType::ERROR.0));
    assert!(fds.is_empty() && session.is_closed());
}

/// The session ended with a violation of this field.
fn ends_at(session: &mut SubscriberSession<u32>, field: &str) {
    let events = events(session);
    let [SubscriberEvent::Closed(Closed::Violation(violation))] = &events[..] else {
        panic!("{events:?}, expected a violation of {field}")
    };
    assert_eq!(violation.field, field);
    sent(session);
    assert!(session.is_closed());
}

/// Sent again it reads the same.
fn stays(answer: &HelloResp) {
    let sent = encoded(|out| answer.encode(out));
    assert_eq!(sent.get(HEADER_LEN..).map(HelloResp::decode).as_ref(), Some(&Ok(answer.clone())));
}

/// The message with this payload.
fn message(payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap();
    [&MessageType::HELLO_RESP.0.to_le_bytes()[..], &len.to_le_bytes()[..], payload].concat()
}

/// The low half of a word.
fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap()
}
