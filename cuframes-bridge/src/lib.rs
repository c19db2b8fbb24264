//! Frames to another host: what goes over the wire, without I/O.
//!
//! On the wire it is the protocol between the coordinator and the workers of DS4 (`DS4D`, [`wire`]); a stream is announced by
//! HELLO, and each of its frames is a snapshot that is loaded. Beside it stands the hello of the pair protocol (`DS4T`,
//! [`pair`]), which is where two hosts agree on RDMA or on TCP.
//!
//! Everything here is pure: no system call, no clock, no thread, no `unsafe`.
//!
//! # Example
//!
//! A frame of ten bytes. The data of a chunk never go through the codec's memory.
//!
//! ```
//! use cuframes_bridge::wire::{Begin, Chunk, Decoded, Decoder, Limits, Message, SnapshotId, token_hash};
//!
//! let tokens = vec![1920, 1080];
//! let id = SnapshotId { request: 7, token_hash: token_hash(&tokens), ..SnapshotId::default() };
//! let mut stream = Vec::new();
//! Message::LoadBegin(Begin { id, payload_bytes: 10, tokens, ..Begin::default() }).encode(&mut stream);
//! Message::Chunk(Chunk { request: 7, bytes: 10 }).encode(&mut stream);
//! stream.extend(b"0123456789");
//!
//! let mut decoder = Decoder::new(Limits::default());
//! let mut bytes = &stream[..];
//! let Some(Decoded::Message(Message::LoadBegin(begin))) = decoder.next(&mut bytes)? else { return Err("a frame".into()) };
//! assert_eq!(begin.id.token_hash, token_hash(&begin.tokens));
//! let Some(Decoded::Message(Message::Chunk(_))) = decoder.next(&mut bytes)? else { return Err("its data".into()) };
//! assert_eq!(decoder.take_data(&mut bytes), b"0123456789");
//! assert!(decoder.may_end());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod layers;
pub mod pair;
pub mod stream;
pub mod wire;
