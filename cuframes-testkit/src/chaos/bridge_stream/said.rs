//! [`Said`]: what a sender has said to a receiver, put together once more, all of it in one go.

use std::collections::VecDeque;

use cuframes_bridge::stream::{FrameInfo, Greeting};
use cuframes_bridge::wire::{Begin, Decoded, Decoder, Hello, Message};
use cuframes_core::RingSize;

use super::frames::{FETCH, begin, limits, shown};

/// What has come, and what is to be made of it.
pub(super) struct Said {
    /// In this order; and how many bytes had come by then.
    pub(super) items: VecDeque<(Item, u64)>,
    /// All bytes that have come.
    pub(super) len: u64,
    decoder: Decoder,
    is_greeted: bool,
    coming: Option<Coming>,
    is_over: bool,
}

#[derive(PartialEq, Debug)]
pub(super) enum Item {
    Hello(Greeting),
    /// A frame begins.
    Begin(FrameInfo, u64),
    /// All of it is there, with the last byte.
    Whole(Vec<u8>, u8),
    /// A frame that was asked for does not come.
    No(u64, String),
    /// The last word about a frame that was asked for.
    Done(u64),
    /// Whatever ends the connection.
    Bad,
}

struct Coming {
    request: u64,
    bytes: Vec<u8>,
    len: u64,
}

impl Coming {
    fn left(&self) -> u64 {
        self.len - u64::try_from(self.bytes.len()).unwrap()
    }
}

impl Said {
    pub(super) fn new() -> Self {
        Self {
            items: VecDeque::new(),
            len: 0,
            decoder: Decoder::new(limits()),
            is_greeted: false,
            coming: None,
            is_over: false,
        }
    }

    pub(super) fn hear(&mut self, mut bytes: &[u8]) {
        self.len += u64::try_from(bytes.len()).unwrap();
        while !bytes.is_empty() && !self.is_over {
            let data = self.decoder.take_data(&mut bytes);
            let item = if data.is_empty() {
                match self.decoder.next(&mut bytes) {
                    Ok(Some(Decoded::Message(message))) => self.message(message),
                    // The bytes of a message that it does not know are not waited for.
                    Ok(None) => self.decoder.unknown().map(|_| Item::Bad),
                    _ => Some(Item::Bad),
                }
            } else {
                self.data(data)
            };
            if let Some(item) = item {
                self.is_over = item == Item::Bad;
                self.items.push_back((item, self.len - u64::try_from(bytes.len()).unwrap()));
            }
        }
    }

    fn data(&mut self, data: &[u8]) -> Option<Item> {
        let coming = self.coming.as_mut().unwrap();
        coming.bytes.extend(data);
        if coming.left() > 0 {
            return None;
        }
        let mut bytes = self.coming.take().unwrap().bytes;
        let verdict = bytes.pop().unwrap();
        Some(Item::Whole(bytes, verdict))
    }

    fn message(&mut self, message: Message) -> Option<Item> {
        match message {
            Message::Hello(hello) if !self.is_greeted => {
                self.is_greeted = true;
                Some(greeting(&hello).map_or(Item::Bad, Item::Hello))
            }
            _ if !self.is_greeted => Some(Item::Bad),
            Message::LoadBegin(begin) if begin.id.request & FETCH == 0 => Some(self.begin(&begin)),
            Message::Begin(begin) if begin.status != 0 => {
                Some(Item::No(begin.id.request, shown(&begin.message)))
            }
            Message::Begin(begin) if begin.id.request & FETCH != 0 => Some(self.begin(&begin)),
            Message::Chunk(chunk) => {
                let coming = self.coming.as_ref().filter(|coming| coming.request == chunk.request);
                let fits = coming.is_some_and(|coming| u64::from(chunk.bytes) <= coming.left());
                (!fits).then_some(Item::Bad)
            }
            Message::Done(done) => Some(Item::Done(done.request)),
            _ => Some(Item::Bad),
        }
    }

    fn begin(&mut self, said: &Begin) -> Item {
        let request = said.id.request;
        match FrameInfo::read(said) {
            Ok(info) if self.coming.is_none() => {
                assert!(info.written_bytes <= info.meta.frame_size_bytes && info.seq != 0);
                assert!(request == FETCH || request & !FETCH == info.seq);
                let mut again = begin(&info, request);
                // What is reserved in its geometry is not looked at.
                again.tokens.get_mut(9..17).unwrap().copy_from_slice(said.tokens.get(9..17).unwrap());
                assert_eq!((again.tokens, again.id.session), (said.tokens.clone(), said.id.session));
                let len = info.written_bytes.checked_add(1).unwrap();
                assert_eq!(said.payload_bytes, len);
                self.coming = Some(Coming { request, bytes: Vec::new(), len });
                Item::Begin(info, request)
            }
            _ => Item::Bad,
        }
    }
}

fn greeting(hello: &Hello) -> Option<Greeting> {
    let key = hello.model_name.parse().ok()?;
    let ring_size = RingSize::new(hello.ctx_size.into())?;
    Some(Greeting { key, ring_size, strict: hello.has_output != 0 })
}
