//! Messages of the socket (§3): each is put into a buffer that is there, and taken out of one with its framing.

use std::hint::black_box;

use bytes::BytesMut;
use cuframes_mio::core::wire::control::{EventFd, Ping, Pong, Shutdown};
use cuframes_mio::core::wire::fault::ErrorMessage;
use cuframes_mio::core::wire::framing::Decoder;
use cuframes_mio::core::wire::hello::{HelloReq, HelloResp};
use cuframes_mio::core::wire::subscribe::{SubscribeReq, SubscribeResp, Unsubscribe};
use cuframes_testkit::vectors::vector;

use crate::operation::Operation;

/// Reads the payload of a message.
type Decode<M> = fn(&[u8]) -> M;
/// Writes a message.
type Encode<M> = fn(&M, &mut BytesMut);

/// For each message: its name, the golden vector, how to read it, and how to write what was read.
macro_rules! both_ways {
    ($($name:literal, $vector:literal, $decode:expr, $encode:expr;)*) => {
        [$(both_ways($name, $vector, $decode, $encode)),*].into_iter().flatten().collect()
    };
}

pub(crate) fn operations() -> Vec<Operation> {
    both_ways!(
        "HELLO_REQ", "hello_req_features", |payload| HelloReq::decode(payload).unwrap(), HelloReq::encode;
        "HELLO_RESP", "hello_resp_features", |payload| HelloResp::decode(payload).unwrap(), HelloResp::encode;
        "SUBSCRIBE_REQ", "subscribe_req", |payload| SubscribeReq::decode(payload).unwrap(), SubscribeReq::encode;
        "SUBSCRIBE_RESP", "subscribe_resp", |payload| SubscribeResp::decode(payload).unwrap(), SubscribeResp::encode;
        "UNSUBSCRIBE", "unsubscribe", |_| Unsubscribe, |message, out| message.encode(out);
        "EVENT_FD", "event_fd_pool", |payload| EventFd::decode(payload).unwrap(), EventFd::encode;
        "SHUTDOWN", "shutdown_normal", |payload| Shutdown::decode(payload).unwrap(), Shutdown::encode;
        "PING", "ping", |_| Ping, |message, out| message.encode(out);
        "PONG", "pong", <[u8]>::len, |_, out| Pong { echo: b"12345678" }.encode(out);
        "ERROR", "error_protocol", |payload| ErrorMessage::decode(payload).unwrap(), ErrorMessage::encode;
    )
}

fn both_ways<M: 'static>(
    name: &str,
    vector_name: &'static str,
    decode: Decode<M>,
    encode: Encode<M>,
) -> [Operation; 2] {
    let encode = move || {
        let message = read(decode, &vector(vector_name));
        let mut out = BytesMut::with_capacity(4096);
        move || {
            out.clear();
            encode(black_box(&message), &mut out);
            black_box(&out);
        }
    };
    let decode = move || {
        let bytes = vector(vector_name);
        move || {
            black_box(read(decode, black_box(&bytes)));
        }
    };
    [
        Operation::single(format!("codec: encode {name}"), encode),
        Operation::single(format!("codec: decode {name}"), decode),
    ]
}

/// One message that came in one piece.
fn read<M>(decode: Decode<M>, mut bytes: &[u8]) -> M {
    decode(Decoder::new().next(&mut bytes).unwrap().unwrap().payload)
}
