//! [`RawEnd`]: an end of a link that says what the test wants.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use cuframes_bridge::wire::{Begin, Chunk, Decoded, Decoder, Hello, Limits, Message, SnapshotId, token_hash};
use cuframes_mio::core::{FrameMeta, Policy};
use cuframes_mio::net::Endpoint;

/// Sends as fast as the other end takes it, and keeps what it hears.
pub(crate) struct RawEnd {
    socket: TcpStream,
    /// What is still to be sent.
    pub(crate) out: Vec<u8>,
    sent: usize,
    decoder: Decoder,
    pub(crate) heard: Vec<Message>,
    /// Nothing is read.
    pub(crate) is_deaf: bool,
    /// The other end has closed the connection.
    pub(crate) is_over: bool,
}

impl RawEnd {
    pub(crate) fn connect(to: &Endpoint) -> Self {
        let Endpoint::Tcp(to) = *to else { panic!("{to:?} is not over TCP") };
        Self::new(TcpStream::connect(to).unwrap())
    }

    /// Who has connected, if anybody has.
    pub(crate) fn accept(listener: &TcpListener) -> Option<Self> {
        listener.set_nonblocking(true).unwrap();
        match listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            accepted => Some(Self::new(accepted.unwrap().0)),
        }
    }

    fn new(socket: TcpStream) -> Self {
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            out: Vec::new(),
            sent: 0,
            decoder: Decoder::new(Limits::default()),
            heard: Vec::new(),
            is_deaf: false,
            is_over: false,
        }
    }

    pub(crate) fn say(&mut self, message: &Message) {
        message.encode(&mut self.out);
    }

    /// A frame with these bytes, which are one.
    pub(crate) fn frame(&mut self, begin: &Begin, bytes: &[u8]) {
        self.say(&Message::LoadBegin(begin.clone()));
        chunk(&mut self.out, begin.id.request, bytes);
        chunk(&mut self.out, begin.id.request, &[1]);
    }

    /// Sends and reads what goes without waiting.
    pub(crate) fn turn(&mut self) {
        while !self.is_over && self.sent < self.out.len() {
            match self.socket.write(&self.out[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) if self.is_deaf => self.is_over = true,
                // What it said before comes first.
                Err(_) => break,
            }
        }
        self.out.drain(..std::mem::take(&mut self.sent));
        let mut buffer = vec![0; 64 << 10];
        while !self.is_over && !self.is_deaf {
            match self.socket.read(&mut buffer) {
                Ok(0) => self.is_over = true,
                Ok(n) => self.hear(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_over = true,
            }
        }
    }

    /// Reads a little of what is there.
    pub(crate) fn read_some(&mut self) {
        let mut buffer = vec![0; 16 << 10];
        if let Ok(n) = self.socket.read(&mut buffer) {
            self.hear(&buffer[..n]);
        }
    }

    fn hear(&mut self, mut bytes: &[u8]) {
        loop {
            self.decoder.take_data(&mut bytes);
            match self.decoder.next(&mut bytes).unwrap() {
                Some(Decoded::Message(message)) => self.heard.push(message),
                Some(other) => panic!("{other:?}"),
                None if bytes.is_empty() => return,
                None => {}
            }
        }
    }

    /// What became of the frames, by their numbers: whether all is well, and the text.
    pub(crate) fn answers(&self) -> Vec<(u64, u32, String)> {
        let answer = |message: &Message| match message {
            Message::Done(done) => Some((done.request, done.status, done.message.clone())),
            _ => None,
        };
        self.heard.iter().filter_map(answer).collect()
    }

    /// What it was told before the end.
    pub(crate) fn last_word(&self) -> Option<&str> {
        match self.heard.last() {
            Some(Message::Error(text)) => Some(text),
            _ => None,
        }
    }
}

pub(crate) fn encode(messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| message.encode(&mut bytes));
    bytes
}

/// Data of a frame.
pub(crate) fn chunk(out: &mut Vec<u8>, request: u64, bytes: &[u8]) {
    for part in bytes.chunks(1 << 20) {
        Message::Chunk(Chunk { request, bytes: part.len().try_into().unwrap() }).encode(out);
        out.extend_from_slice(part);
    }
}

pub(crate) fn hello(name: &str) -> Message {
    Message::Hello(Hello {
        model_id: 1,
        quant_bits: 8,
        layer_end: 1,
        has_output: 1,
        ctx_size: 4,
        n_layers: 2,
        model_name: name.into(),
        ..Hello::default()
    })
}

/// What a frame begins with, of which so many bytes are valid.
pub(crate) fn begin(epoch: u64, seq: u64, meta: &FrameMeta, written: u64) -> Begin {
    let halves =
        |number: u64| [(number >> 32), number & 0xffff_ffff].map(|half| u32::try_from(half).unwrap());
    let mut tokens = vec![1];
    tokens.extend(meta.to_bytes().as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)));
    tokens.extend(halves(seq));
    tokens.extend(halves(seq * 1000));
    tokens.extend(halves(written));
    tokens.push(Policy::DROP_OLDEST.0.try_into().unwrap());
    tokens.extend(halves(0));
    let id = SnapshotId {
        session: epoch,
        request: seq,
        token_hash: token_hash(&tokens),
        token_count: tokens.len().try_into().unwrap(),
        ..SnapshotId::default()
    };
    Begin { id, payload_bytes: written + 1, tokens, ..Begin::default() }
}

/// Longer than a sender that is told to be impatient waits.
pub(crate) const STALL: Duration = Duration::from_millis(300);
