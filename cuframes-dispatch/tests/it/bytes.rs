//! What goes over the wire, put together by hand and not by the code under test. Blocks are those of one axis and ten
//! elements; a task has a name of one letter.

use cuframes_dispatch::wire::{Decoder, FrameError, Message, Version};

/// A vector of `vectors/`.
macro_rules! vector {
    ($name:literal) => {
        crate::bytes::unhex(include_str!(concat!("../../vectors/", $name, ".hex")))
    };
}
pub(crate) use vector;

pub(crate) const CREATED: u8 = 0;
pub(crate) const PROCESSING: u8 = 1;
pub(crate) const SUCCESS: u8 = 2;
pub(crate) const FAILED: u8 = 3;

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    let digits: Vec<u8> = digits.chars().map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A frame of these bytes, the version among them if there is one.
pub(crate) fn frame(payload: &[u8]) -> Vec<u8> {
    [&u32::try_from(payload.len()).unwrap().to_be_bytes(), payload].concat()
}

/// A frame of W2.
pub(crate) fn w2(payload: &[&[u8]]) -> Vec<u8> {
    frame(&[&[2], &payload.concat()[..]].concat())
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

/// A request of a worker without a number.
pub(crate) fn acquire(task: &str) -> Vec<u8> {
    w2(&[&[0], &text(task), &[0]])
}

/// A block below 12, as W0 has it.
pub(crate) fn block(task: &str, number: u8, status: u8) -> Vec<u8> {
    assert!(number <= 12, "its offset would not be a byte");
    let roi = [1, 20 * number, 1, 20];
    [&roi[..], &roi, &text(task), &[number, status]].concat()
}

/// A block for a worker, with the 600 s that a task has by default.
pub(crate) fn sent(task: &str, number: u8, status: u8) -> Vec<u8> {
    w2(&[&[1], &block(task, number, status), &[0, 1], &600_f64.to_le_bytes()])
}

pub(crate) fn released(task: &str, number: u8, status: u8) -> Vec<u8> {
    w2(&[&[2], &block(task, number, status), &[0]])
}

/// A block that is done.
pub(crate) fn done(task: &str, number: u8) -> Vec<u8> {
    released(task, number, SUCCESS)
}

pub(crate) fn failed(task: &str, number: u8, error: &str) -> Vec<u8> {
    w2(&[&[3], &block(task, number, FAILED), &[0], &text(error)])
}

pub(crate) fn shutdown() -> Vec<u8> {
    vector!("w2_shutdown")
}

pub(crate) fn disconnect() -> Vec<u8> {
    vector!("w2_disconnect")
}

/// What a stream has in pieces of these lengths, and why it can't go on.
pub(crate) fn decode(
    version: Version,
    mut stream: &[u8],
    pieces: &[usize],
) -> (Vec<Message>, Option<FrameError>) {
    let mut decoder = Decoder::new(version);
    let mut messages = Vec::new();
    let mut pieces = pieces.iter().cycle();
    while !stream.is_empty() {
        let (mut piece, rest) = stream.split_at(stream.len().min(*pieces.next().unwrap()));
        stream = rest;
        loop {
            match decoder.next(&mut piece) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
        assert!(piece.is_empty());
    }
    (messages, None)
}

/// Messages of a stream without a fault.
pub(crate) fn messages(stream: &[u8]) -> Vec<Message> {
    let (messages, error) = decode(Version::W2, stream, &[usize::MAX]);
    assert_eq!(error, None);
    messages
}

/// A stream of these messages.
pub(crate) fn encode(version: Version, messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| message.encode(version, &mut bytes));
    bytes
}
