//! The bridge: frames of arbitrary bytes.

use cuframes_bridge::wire::{Chunk, Decoded, Decoder, Header, Limits, Message, Width, WireError};

use super::Script;

/// A stream is cut into the same messages, data and faults and meets the same end however it arrives; what was understood reads
/// the same when it is written again; and nothing is kept but bytes that came. The first byte says how long the pieces are.
pub fn bridge_frame(data: &[u8]) {
    let mut script = Script(data);
    let piece = usize::from(script.byte().max(1));
    let stream = script.0;

    let (mut whole, mut cut) = (Decoder::new(Limits::default()), Decoder::new(Limits::default()));
    let (items, error) = receive(&mut whole, stream.chunks(usize::MAX), stream.len());
    assert_eq!((&items, error), (&receive(&mut cut, stream.chunks(piece), stream.len()).0, error));
    if error.is_none() {
        let state = |decoder: &Decoder| (decoder.may_end(), decoder.buffered(), decoder.data_left());
        assert_eq!(state(&whole), state(&cut));
    }

    let understood: Vec<Item> = items.into_iter().filter(|item| !matches!(item, Item::Fault(_))).collect();
    let mut written = Vec::new();
    understood.iter().for_each(|item| item.write(&mut written));
    let mut again = Decoder::new(Limits::default());
    let found = receive(&mut again, written.chunks(piece), written.len());
    assert_eq!(found, (understood, None));
    found.0.iter().for_each(Item::check);
}

/// Something that came.
#[derive(Clone, PartialEq, Debug)]
enum Item {
    Message(Message),
    Data(Vec<u8>),
    Unknown(Header),
    /// Behind which the stream goes on.
    Fault(WireError),
}

impl Item {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Message(message) => message.encode(out),
            Self::Data(data) => out.extend(data),
            Self::Unknown(header) => {
                out.extend(header.encode());
                out.resize(out.len() + usize::try_from(header.bytes).unwrap(), 0x44);
            }
            Self::Fault(_) => {}
        }
    }

    /// Values can be judged, whatever they are, and their activations lose nothing when they are written again.
    fn check(&self) {
        let (bits, bytes, check) = match self {
            Self::Message(Message::Work(work)) => (work.activation_bits, &work.activations, work.check()),
            Self::Message(Message::Result(result)) => (result.payload_bits, &result.payload, result.check()),
            _ => return,
        };
        assert!(check.is_ok() || check.is_err_and(|fault| fault.is_within_frame()));
        let Some(width) = Width::from_bits(bits) else { return };
        let write = |values: &[f32]| {
            let mut bytes = Vec::new();
            width.encode(values, &mut bytes);
            bytes
        };
        let once = write(&width.decode(bytes));
        assert_eq!(once.len(), bytes.len() / width.bytes() * width.bytes());
        assert_eq!(write(&width.decode(&once)), once);
    }
}

/// Everything that a decoder finds in pieces of a stream of `len` bytes, and why it can't go on.
fn receive<'a>(
    decoder: &mut Decoder,
    pieces: impl Iterator<Item = &'a [u8]>,
    len: usize,
) -> (Vec<Item>, Option<WireError>) {
    let mut items: Vec<Item> = Vec::new();
    for mut piece in pieces {
        loop {
            let data = decoder.take_data(&mut piece);
            match items.last_mut() {
                Some(Item::Data(all)) => all.extend(data),
                _ if data.is_empty() => {}
                _ => items.push(Item::Data(data.to_vec())),
            }
            let is_within_data = decoder.data_left() > 0;
            assert!(!is_within_data || piece.is_empty());
            match decoder.next(&mut piece) {
                Ok(Some(Decoded::Message(message))) => items.push(Item::Message(message)),
                Ok(Some(Decoded::Unknown(header))) => items.push(Item::Unknown(header)),
                Ok(Some(other)) => panic!("{other:?}"),
                Ok(None) => break,
                Err(fault) if fault.is_within_frame() => items.push(Item::Fault(fault)),
                Err(error) => return (items, Some(error)),
            }
            if let Some(Item::Message(Message::Chunk(Chunk { bytes, .. }))) = items.last() {
                assert_eq!(Ok(decoder.data_left()), usize::try_from(*bytes));
            }
        }
        assert!(piece.is_empty() && decoder.buffered() <= len);
    }
    (items, None)
}
