//! [`Message`]: one of the nine things that can be said.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::decoder::Limits;
use super::error::WireError;
use super::header::{FrameType, Header};
use super::hello::Hello;
use super::reader::{Reader, Writer, writable};
use super::result::WorkResult;
use super::snapshot::{Begin, Chunk, Done, SnapshotId};
use super::work::Work;

/// One message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Message {
    /// A worker says who it is.
    Hello(Hello),
    /// Either side gives up. Up to a NUL and 511 bytes are sent; 511 bytes are kept of what comes.
    Error(String),
    /// Tokens to process.
    Work(Box<Work>),
    /// What became of them.
    Result(Box<WorkResult>),
    /// A snapshot is wanted.
    SaveRequest(SnapshotId),
    /// It starts, or there is none.
    Begin(Begin),
    /// Data of a snapshot follow on the stream.
    Chunk(Chunk),
    /// A snapshot is over.
    Done(Done),
    /// A snapshot to load starts.
    LoadBegin(Begin),
}

impl Message {
    /// Appends the message as a frame. The data of a [`Chunk`] are to be sent after it.
    ///
    /// What is written can be decoded with the default limits if it fits them, no host of a route is empty and no chunk is
    /// longer than [`MAX_CHUNK`](super::MAX_CHUNK): texts end at a NUL, or where the wire has no more room for whole
    /// characters.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let behind = match self {
            Self::Chunk(chunk) => chunk.bytes,
            _ => 0,
        };
        Writer::frame(out, self.kind(), behind, |out| match self {
            Self::Hello(hello) => hello.write(out),
            Self::Error(text) => out.bytes(writable(text, MAX_ERROR).as_bytes()),
            Self::Work(work) => work.write(out),
            Self::Result(result) => result.write(out),
            Self::SaveRequest(id) => id.write(out),
            Self::Begin(begin) | Self::LoadBegin(begin) => begin.write(self.kind(), out),
            Self::Chunk(chunk) => chunk.write(out),
            Self::Done(done) => done.write(out),
        });
    }

    /// The type of its frame.
    #[must_use]
    pub const fn kind(&self) -> FrameType {
        match self {
            Self::Hello(_) => FrameType::HELLO,
            Self::Error(_) => FrameType::ERROR,
            Self::Work(_) => FrameType::WORK,
            Self::Result(_) => FrameType::RESULT,
            Self::SaveRequest(_) => FrameType::SAVE_REQUEST,
            Self::Begin(_) => FrameType::SNAPSHOT_BEGIN,
            Self::Chunk(_) => FrameType::CHUNK,
            Self::Done(_) => FrameType::DONE,
            Self::LoadBegin(_) => FrameType::LOAD_BEGIN,
        }
    }

    /// Reads the payload of a frame, of a chunk only its fixed part; `None` if the type is unknown.
    pub(super) fn read(header: Header, payload: &[u8], limits: &Limits) -> Result<Option<Self>, WireError> {
        let mut reader = Reader::new(header.kind, payload);
        let reader = &mut reader;
        Ok(Some(match header.kind {
            FrameType::HELLO => Self::Hello(Hello::read(reader)?),
            FrameType::ERROR => Self::Error(reader.text("text", header.bytes, MAX_ERROR_LEN)?),
            FrameType::WORK => Self::Work(Box::new(Work::read(reader)?)),
            FrameType::RESULT => Self::Result(Box::new(WorkResult::read(reader)?)),
            FrameType::SAVE_REQUEST => Self::SaveRequest(SnapshotId::read(reader)?),
            FrameType::SNAPSHOT_BEGIN => Self::Begin(Begin::read(header.kind, reader, limits)?),
            FrameType::CHUNK => Self::Chunk(Chunk::read(header.bytes, reader)?),
            FrameType::DONE => Self::Done(Done::read(reader, limits)?),
            FrameType::LOAD_BEGIN => Self::LoadBegin(Begin::read(header.kind, reader, limits)?),
            _ => return Ok(None),
        }))
    }
}

/// Bytes of an ERROR that are kept.
const MAX_ERROR: usize = 511;
const MAX_ERROR_LEN: u32 = 511;
