//! Any messages in any pieces, and any texts.

use cuframes_bridge::wire::{Begin, Chunk, Decoded, Decoder, Done, Hello, Hop, Limits, Message, Route, Work};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::any::{cases, message};
use crate::bytes::{Item, decode, decode_with, encode, frames, message as decoded};

/// A stream of these messages, with data behind the chunks, and what it has.
fn stream(messages: &[Message]) -> (Vec<u8>, Vec<Item>) {
    let (mut bytes, mut items) = (Vec::new(), Vec::new());
    for message in messages {
        message.encode(&mut bytes);
        items.push(Item::Message(message.clone()));
        if let Message::Chunk(Chunk { bytes: n @ 1.., .. }) = message {
            let data: Vec<u8> = (0..*n).map(|i| i.to_le_bytes()[0]).collect();
            bytes.extend(&data);
            items.push(Item::Data(data));
        }
    }
    (bytes, items)
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn messages_are_the_same_behind_any_cuts(
        messages in vec(message(), 0..8),
        pieces in vec(prop_oneof![1..4_usize, 1..400_usize], 1..6),
    ) {
        let (bytes, items) = stream(&messages);
        let mut decoder = Decoder::new(Limits::default());
        prop_assert_eq!(decode_with(&mut decoder, &bytes, &pieces), (items, None));
        prop_assert!(decoder.may_end());
        prop_assert_eq!((decoder.buffered(), decoder.data_left()), (0, 0));
    }

    #[test]
    fn a_stream_that_ends_anywhere_is_incomplete_and_nothing_else(
        messages in vec(message(), 1..4),
        at in any::<Index>(),
    ) {
        let (bytes, items) = stream(&messages);
        let cut = at.index(bytes.len());
        let (mut found, error) = decode(&bytes[..cut], &[usize::MAX]);
        prop_assert_eq!(error, None);
        // Of the last chunk some data may be missing.
        if let Some(Item::Data(part)) = found.last() {
            let Some(Item::Data(all)) = items.get(found.len() - 1) else { panic!("{found:?}") };
            prop_assert!(all.starts_with(part));
            found.pop();
        }
        prop_assert_eq!(&found[..], &items[..found.len()]);
    }

    #[test]
    fn data_that_are_read_elsewhere_are_not_looked_for(bytes in 1..5000_u32, read in any::<Index>()) {
        let mut decoder = Decoder::new(Limits::default());
        let chunk = encode(&Message::Chunk(Chunk { request: 1, bytes }));
        prop_assert!(matches!(decoder.next(&mut &chunk[..]), Ok(Some(Decoded::Message(Message::Chunk(_))))));
        let bytes = usize::try_from(bytes).unwrap();
        let elsewhere = read.index(bytes + 1);
        decoder.data_received(elsewhere);
        prop_assert_eq!(decoder.data_left(), bytes - elsewhere);
        let rest = [&vec![7; bytes - elsewhere][..], &encode(&Message::Error("e".into()))].concat();
        let (items, error) = decode_with(&mut decoder, &rest, &[usize::MAX]);
        let last = Item::Message(Message::Error("e".into()));
        prop_assert_eq!((items.last(), error), (Some(&last), None));
        prop_assert_eq!(items.len(), if elsewhere < bytes { 2 } else { 1 });
    }

    #[test]
    fn a_frame_with_any_changes_is_refused_or_reads_the_same_when_it_is_written_again(
        number in 0..13_usize,
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = frames().swap_remove(number);
        changes.iter().for_each(|(at, byte)| *at.get_mut(&mut bytes) = *byte);
        let (items, error) = decode(&bytes, &[usize::MAX]);
        prop_assert_eq!(&decode(&bytes, &[1]), &(items.clone(), error));
        for item in items {
            if let Item::Message(message) = item {
                prop_assert_eq!(decoded(&encode(&message)), message);
            }
        }
    }

    #[test]
    fn texts_end_where_the_wire_has_no_more_room_for_them(text in "\\PC{0,600}(\0.{0,9})?") {
        let until_nul = text.split('\0').next().unwrap();
        let sent = |most: usize| {
            let end = (0..=until_nul.len().min(most)).rev().find(|end| until_nul.is_char_boundary(*end));
            until_nul[..end.unwrap()].to_owned()
        };
        let hello = Hello { model_name: text.clone(), ..Hello::default() };
        let expected = Hello { model_name: sent(127), ..Hello::default() };
        prop_assert_eq!(decoded(&encode(&Message::Hello(hello))), Message::Hello(expected));
        prop_assert_eq!(decoded(&encode(&Message::Error(text.clone()))), Message::Error(sent(511)));
        let done = |message| Message::Done(Done { message, ..Done::default() });
        prop_assert_eq!(decoded(&encode(&done(text.clone()))), done(sent(65_536)));
        let begin = |message| Message::Begin(Begin { message, status: 1, ..Begin::default() });
        prop_assert_eq!(decoded(&encode(&begin(text.clone()))), begin(sent(65_536)));
        let work = |host| {
            let hops = vec![Hop { host, ..Hop::default() }];
            Message::Work(Box::new(Work { route: Route { index: 0, hops }, ..Work::default() }))
        };
        let host = format!("h{text}");
        let end = sent(1023);
        prop_assert_eq!(decoded(&encode(&work(host))), work(format!("h{end}")));
    }
}
