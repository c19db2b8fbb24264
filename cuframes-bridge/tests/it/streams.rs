//! Streams of several frames: in pieces, with data, with frames that nobody knows, and with ends.

use cuframes_bridge::wire::{Chunk, Decoded, Decoder, FrameType, HEADER_BYTES, Header, Limits, Message};

use crate::bytes::{Item, decode, decode_with, encode, frame, frames, message, vector, whole};

#[test]
fn all_vectors_in_a_row_are_cut_at_the_same_places_in_pieces_of_any_size() {
    let data = b"hello".to_vec();
    let mut stream = Vec::new();
    let mut items = Vec::new();
    for frame in frames() {
        stream.extend(&frame);
        let message = message(&frame);
        if let Message::Chunk(_) = message {
            stream.extend(&data);
            items.extend([Item::Message(message), Item::Data(data.clone())]);
        } else {
            items.push(Item::Message(message));
        }
    }
    for piece in 1..=stream.len() {
        assert_eq!(decode(&stream, &[piece]), (items.clone(), None));
    }
}

#[test]
fn every_truncation_of_every_vector_is_incomplete_and_only_a_header_may_be_missing() {
    for frame in frames() {
        for len in 0..frame.len() {
            let mut decoder = Decoder::new(Limits::default());
            let mut bytes = &frame[..len];
            assert_eq!(decoder.next(&mut bytes), Ok(None));
            assert!(bytes.is_empty());
            assert_eq!(decoder.may_end(), len < HEADER_BYTES);
            let in_frame = if len < HEADER_BYTES { len } else { len - HEADER_BYTES };
            assert_eq!(decoder.buffered(), in_frame);
            // And the rest completes it.
            let mut rest = &frame[len..];
            assert_eq!(decoder.next(&mut rest), Ok(Some(Decoded::Message(message(&frame)))));
            assert_eq!((rest.len(), decoder.buffered()), (0, 0));
        }
    }
}

#[test]
fn a_chunk_without_data_is_complete() {
    let chunk = Message::Chunk(Chunk { request: 5, bytes: 0 });
    let stream = [encode(&chunk), vector!("done")].concat();
    let items = vec![Item::Message(chunk), Item::Message(message(&vector!("done")))];
    for pieces in [1, 24, usize::MAX] {
        assert_eq!(decode(&stream, &[pieces]), (items.clone(), None));
    }
}

#[test]
fn nothing_is_taken_while_data_are_to_come_and_the_stream_may_not_end_there() {
    let stream = vector!("chunk");
    let mut decoder = Decoder::new(Limits::default());
    let mut bytes = &stream[..];
    let chunk = Message::Chunk(Chunk { request: 1 << 63, bytes: 5 });
    assert_eq!(decoder.next(&mut bytes), Ok(Some(Decoded::Message(chunk))));
    for left in (1..=5).rev() {
        assert_eq!((decoder.data_left(), decoder.may_end(), decoder.buffered()), (left, false, 0));
        assert_eq!(decoder.next(&mut bytes), Ok(None));
        assert_eq!(bytes.len(), left);
        let (mut one, rest) = bytes.split_at(1);
        assert_eq!(decoder.take_data(&mut one), &bytes[..1]);
        bytes = rest;
    }
    assert_eq!((decoder.data_left(), decoder.may_end()), (0, true));
    // There are no data outside of a chunk.
    let mut more = &b"more"[..];
    assert_eq!((decoder.take_data(&mut more), more), (&b""[..], &b"more"[..]));
    decoder.data_received(3);
    assert_eq!(decoder.data_left(), 0);
}

#[test]
fn a_chunk_of_eight_mib_is_the_largest() {
    let bytes = 8 << 20;
    let mut stream = encode(&Message::Chunk(Chunk { request: 1, bytes }));
    stream.resize(24 + (8 << 20), 7);
    stream.extend(vector!("done"));
    let (items, error) = decode(&stream, &[1 << 16]);
    assert_eq!(error, None);
    let [Item::Message(Message::Chunk(_)), Item::Data(data), Item::Message(Message::Done(_))] = &items[..]
    else {
        panic!("{} items", items.len())
    };
    assert_eq!(data.len(), 8 << 20);
}

#[test]
fn a_frame_of_an_unknown_type_is_taken_and_named() {
    for kind in [0, 10, 77, u32::MAX].map(FrameType) {
        for len in [0, 1, 12, 5000_u32] {
            let payload = vec![0x44; usize::try_from(len).unwrap()];
            let stream = [whole(kind, &payload), vector!("done")].concat();
            let items =
                vec![Item::Unknown(Header { kind, bytes: len }), Item::Message(message(&vector!("done")))];
            for pieces in [1, 13, usize::MAX] {
                assert_eq!(decode(&stream, &[pieces]), (items.clone(), None));
            }
        }
    }
    let mut decoder = Decoder::new(Limits::default());
    let part = frame(FrameType(10), 100, &[1; 60]);
    assert_eq!(decode_with(&mut decoder, &part, &[7]), (vec![], None));
    assert_eq!((decoder.may_end(), decoder.buffered()), (false, 0));
}

#[test]
fn a_header_is_the_same_when_it_is_read_again() {
    for (kind, bytes) in [(FrameType::HELLO, 55), (FrameType(u32::MAX), u32::MAX), (FrameType(0), 0)] {
        let header = Header { kind, bytes };
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
    assert_eq!(Header { kind: FrameType::HELLO, bytes: 55 }.encode()[..], vector!("hello")[..12]);
}
