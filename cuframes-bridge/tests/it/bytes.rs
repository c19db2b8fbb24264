//! What goes over the wire, in pieces.

use cuframes_bridge::wire::{Decoded, Decoder, FrameType, Header, Limits, Message, WireError};

/// A vector of `vectors/`.
macro_rules! vector {
    ($name:literal) => {
        crate::bytes::unhex(include_str!(concat!("../../vectors/", $name, ".hex")))
    };
}
pub(crate) use vector;

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    let digits: Vec<u8> = digits.chars().map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All frames of `vectors/`, without the data of the chunk.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let mut chunk = vector!("chunk");
    chunk.truncate(24);
    vec![
        vector!("hello"),
        vector!("error"),
        vector!("work"),
        vector!("result_ack"),
        vector!("result_hidden"),
        vector!("result_error"),
        vector!("save_request"),
        vector!("begin"),
        vector!("begin_error"),
        chunk,
        vector!("done"),
        vector!("done_error"),
        vector!("load_begin"),
    ]
}

/// A header, and a payload of any length behind it.
pub(crate) fn frame(kind: FrameType, bytes: u32, payload: &[u8]) -> Vec<u8> {
    [&Header { kind, bytes }.encode(), payload].concat()
}

/// A frame of these bytes.
pub(crate) fn whole(kind: FrameType, payload: &[u8]) -> Vec<u8> {
    frame(kind, u32::try_from(payload.len()).unwrap(), payload)
}

/// Something that came.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Item {
    Message(Message),
    Data(Vec<u8>),
    Unknown(Header),
}

/// What a stream has in pieces of these lengths, and why it can't go on.
pub(crate) fn decode(stream: &[u8], pieces: &[usize]) -> (Vec<Item>, Option<WireError>) {
    let mut decoder = Decoder::new(Limits::default());
    let (items, error) = decode_with(&mut decoder, stream, pieces);
    if error.is_none() {
        assert!(decoder.buffered() <= stream.len());
    }
    (items, error)
}

/// The same with a decoder of the test.
pub(crate) fn decode_with(
    decoder: &mut Decoder,
    mut stream: &[u8],
    pieces: &[usize],
) -> (Vec<Item>, Option<WireError>) {
    let mut items = Vec::new();
    let mut pieces = pieces.iter().cycle();
    while !stream.is_empty() {
        let (mut piece, rest) = stream.split_at(stream.len().min(*pieces.next().unwrap()));
        stream = rest;
        loop {
            if decoder.data_left() > 0 {
                let before = piece.len();
                assert_eq!(decoder.next(&mut piece), Ok(None));
                assert_eq!(piece.len(), before, "data were taken for a frame");
                let data = decoder.take_data(&mut piece);
                match items.last_mut() {
                    Some(Item::Data(all)) => all.extend(data),
                    _ if data.is_empty() => {}
                    _ => items.push(Item::Data(data.to_vec())),
                }
            }
            match decoder.next(&mut piece) {
                Ok(Some(Decoded::Message(message))) => items.push(Item::Message(message)),
                Ok(Some(Decoded::Unknown(header))) => items.push(Item::Unknown(header)),
                Ok(Some(other)) => panic!("{other:?}"),
                Ok(None) if decoder.data_left() > 0 && !piece.is_empty() => {}
                Ok(None) => break,
                Err(error) => return (items, Some(error)),
            }
        }
        assert!(piece.is_empty());
    }
    (items, None)
}

/// The only message of a stream.
pub(crate) fn message(stream: &[u8]) -> Message {
    match decode(stream, &[usize::MAX]) {
        (items, None) => match &items[..] {
            [Item::Message(message)] => message.clone(),
            other => panic!("{other:?}"),
        },
        (_, Some(error)) => panic!("{error}"),
    }
}

/// Why a stream can't go on.
pub(crate) fn fault(stream: &[u8]) -> Option<WireError> {
    let (_, error) = decode(stream, &[usize::MAX]);
    for pieces in [1, 7] {
        assert_eq!(decode(stream, &[pieces]).1, error);
    }
    error
}

/// A stream of one message.
pub(crate) fn encode(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}
