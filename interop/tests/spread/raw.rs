//! A connection by hand.

use cuframes_dispatch::wire::{Block, Decoder, Message, Version};
use cuframes_interop::within;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection that sends anything.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn connect(port: u16) -> Self {
        Self(within("a connection", TcpStream::connect(("127.0.0.1", port))).await.unwrap())
    }

    /// Sends bytes. That the peer has closed already is seen by who reads.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = within("bytes that are taken", self.0.write_all(bytes)).await;
    }

    pub(crate) async fn say(&mut self, message: &Message) {
        self.send(&encoded(message)).await;
    }

    /// The bytes of the next frame; `None` at the end of the connection.
    pub(crate) async fn frame(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 4];
        within("a frame, or the end", self.0.read_exact(&mut frame)).await.ok()?;
        let len = u32::from_be_bytes(frame[..4].try_into().unwrap());
        frame.resize(4 + usize::try_from(len).unwrap(), 0);
        within("the rest of a frame", self.0.read_exact(&mut frame[4..])).await.unwrap();
        Some(frame)
    }

    /// The next message, which must have the bytes that we would give it.
    pub(crate) async fn message(&mut self) -> Option<Message> {
        let frame = self.frame().await?;
        let message = decoded(&frame);
        assert_eq!(encoded(&message), frame, "{message:?}");
        Some(message)
    }

    /// Asks for a block of task `task_id`, and gets one.
    pub(crate) async fn acquire(&mut self, task_id: &str) -> Block {
        self.say(&Message::AcquireBlock { task_id: task_id.into(), worker_id: None }).await;
        match self.message().await {
            Some(Message::SendBlock { block, .. }) => block,
            other => panic!("it was to send a block, not {other:?}"),
        }
    }
}

pub(crate) fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(Version::W2, &mut bytes);
    bytes
}

pub(crate) fn decoded(frame: &[u8]) -> Message {
    let mut bytes = frame;
    let message = Decoder::new(Version::W2).next(&mut bytes).unwrap().unwrap();
    assert!(bytes.is_empty());
    message
}
