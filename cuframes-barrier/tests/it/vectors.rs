//! The golden bytes of `vectors/`: those of the messages were written by msgspec and by the original alike, those of the
//! stream by libzmq.

use cuframes_barrier::message::{Addresses, Init, Registration, Status};
use cuframes_barrier::zmtp::{Link, SocketType};

use crate::bytes::{INPUT, OUTPUT, dealer, vector};

#[test]
fn hello_and_ready() {
    for (word, bytes) in [(Status::HELLO, vector!("hello")), (Status::READY, vector!("ready"))] {
        assert_eq!(Status::new(word).encode(), bytes);
        let expected = Status {
            status: Some(word.into()),
            local: Some(true),
            headless: Some(true),
            parallel_config_hash: None,
        };
        assert_eq!(Status::decode(&bytes), Ok(expected));
    }
}

#[test]
fn a_hello_of_three_keys_is_read_as_one_of_four() {
    assert_eq!(Status::decode(&vector!("hello_three_keys")), Ok(Status::new("HELLO")));
}

#[test]
fn init_with_an_input_and_an_output_address() {
    let addresses =
        Addresses { inputs: vec![INPUT.into()], outputs: vec![OUTPUT.into()], ..Addresses::default() };
    let init = Init { addresses, ..Init::default() };
    assert_eq!(init.encode(), vector!("init"));
    assert_eq!(Init::decode(&vector!("init")), Ok(init));
}

#[test]
fn the_registration_of_rank_1_of_2() {
    let registration = Registration { max_model_len: 4096, ..Registration::new(1, 2) };
    assert_eq!(registration.encode(), vector!("registration"));
    assert_eq!(Registration::decode(&vector!("registration")), Ok(registration));
}

#[test]
fn an_id_is_an_index_in_two_bytes_little_endian() {
    for (index, id) in [(0_u16, vector!("id_0")), (258, vector!("id_258"))] {
        let mut link = Link::new(SocketType::Router, &[]);
        assert_eq!(link.receive(&mut &dealer(index)[..]), Ok(None));
        assert_eq!(link.peer(), id);
        let mut ours = Link::new(SocketType::Dealer, &index.to_le_bytes());
        assert!(open(&mut ours, SocketType::Router).ends_with(&id));
    }
}

#[test]
fn a_dealer_sends_the_stream_of_libzmq_but_for_the_filler_of_the_signature() {
    let mut link = Link::new(SocketType::Dealer, &[5, 0]);
    let mut sent = open(&mut link, SocketType::Router);
    link.send(&vector!("hello"));
    sent.extend(drain(&mut link));
    let expected = vector!("dealer_stream");
    // Bytes 1 to 8 are ignored by whoever reads them; libzmq has the length of the id, and one more, in the last.
    assert_eq!(sent[1..9], [0; 8]);
    assert_eq!(expected[1..9], [0, 0, 0, 0, 0, 0, 0, 3]);
    sent[1..9].copy_from_slice(&expected[1..9]);
    // All else is the same, the minor version (1) and the message included.
    assert_eq!(sent, expected);
}

#[test]
fn a_router_reads_that_stream_and_answers_with_these_bytes() {
    let mut link = Link::new(SocketType::Router, &[]);
    let stream = vector!("dealer_stream");
    let message = link.receive(&mut &stream[..]).unwrap().unwrap();
    assert_eq!((message.payload, message.frames), (vector!("hello"), 1));
    assert_eq!(link.peer(), [5, 0]);
    let sent = drain(&mut link);
    assert_eq!(sent[64..], vector!("router_ready"));
    link.send(&vector!("init"));
    assert_eq!(drain(&mut link), vector!("router_init"));
}

#[test]
fn a_push_has_no_id() {
    let mut link = Link::new(SocketType::Push, &[]);
    let sent = open(&mut link, SocketType::Pull);
    assert_eq!(sent[64..], crate::bytes::ready_command("PUSH", None));
}

/// Lets a link greet a peer of this type; what it has sent.
fn open(link: &mut Link, peer: SocketType) -> Vec<u8> {
    let stream = crate::bytes::opening(&peer.to_string(), None);
    assert_eq!(link.receive(&mut &stream[..]), Ok(None));
    assert!(link.is_open());
    drain(link)
}

fn drain(link: &mut Link) -> Vec<u8> {
    let sent = link.poll_transmit().unwrap_or_default().to_vec();
    link.transmitted(sent.len());
    sent
}
