//! The byte stream: framing and messages (§3).

use bytes::BytesMut;
use cuframes_core::error::Violation;
use cuframes_core::wire::MessageType;
use cuframes_core::wire::control::{EventFd, Shutdown};
use cuframes_core::wire::fault::ErrorMessage;
use cuframes_core::wire::framing::{Decoder, HEADER_LEN};
use cuframes_core::wire::hello::{HelloReq, HelloResp};
use cuframes_core::wire::subscribe::{SubscribeReq, SubscribeResp};

use crate::solo::encoded;

/// Cuts a stream into messages in chunks whose size is the first byte, and in one piece: both must find the same. Whatever
/// is understood of a message stays the same when it is sent again.
pub fn framing(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else { return };
    let (found, violation) = messages(stream, stream.len().max(1));
    for (message_type, payload) in &found {
        send_again(*message_type, payload);
    }
    assert_eq!(messages(stream, size.max(1).into()), (found, violation));
}

/// Messages as type and payload, and the violation that ended the stream.
type Messages = (Vec<(MessageType, Vec<u8>)>, Option<Violation>);

fn messages(stream: &[u8], chunk: usize) -> Messages {
    let mut decoder = Decoder::new();
    let mut found = Vec::new();
    for mut input in stream.chunks(chunk) {
        loop {
            match decoder.next(&mut input) {
                Ok(Some(message)) => found.push((message.message_type, message.payload.to_vec())),
                Ok(None) => break,
                Err(violation) => return (found, Some(violation)),
            }
        }
    }
    (found, None)
}

fn send_again(message_type: MessageType, payload: &[u8]) {
    match message_type {
        MessageType::HELLO_REQ => stays(payload, HelloReq::decode, HelloReq::encode),
        MessageType::HELLO_RESP => stays(payload, HelloResp::decode, HelloResp::encode),
        MessageType::SUBSCRIBE_REQ => stays(payload, SubscribeReq::decode, SubscribeReq::encode),
        MessageType::SUBSCRIBE_RESP => stays(payload, SubscribeResp::decode, SubscribeResp::encode),
        MessageType::EVENT_FD => stays(payload, EventFd::decode, EventFd::encode),
        MessageType::SHUTDOWN => stays(payload, Shutdown::decode, Shutdown::encode),
        MessageType::ERROR => stays(payload, ErrorMessage::decode, ErrorMessage::encode),
        _ => {}
    }
}

/// Reserved bytes are dropped, and the text of an ERROR may be cut; from then on nothing changes.
fn stays<T>(
    payload: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, Violation>,
    encode: impl Fn(&T, &mut BytesMut),
) {
    let Ok(message) = decode(payload) else { return };
    let sent = encoded(|out| encode(&message, out));
    let Some(Ok(message)) = sent.get(HEADER_LEN..).map(decode) else { panic!("our own message is refused") };
    assert_eq!(encoded(|out| encode(&message, out)), sent);
}
