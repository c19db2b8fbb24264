//! The hello of a pair, and what two sides agree on.

use std::error::Error as _;

use cuframes_bridge::pair::{Bulk, NoRdma, NoTransport, PairError, PairHello, Transport, choose};
use proptest::prelude::*;

use crate::any::{cases, pair_hello};
use crate::bytes::vector;

fn leader() -> PairHello {
    let hello = PairHello::decode(&vector!("pair_hello").try_into().unwrap()).unwrap();
    PairHello { gates_per_token: 3, mask: [1 << 63, 0, 5], ..hello }
}

fn worker() -> PairHello {
    PairHello { role: PairHello::WORKER, ..leader() }
}

#[test]
fn a_leader_and_a_worker_of_one_model_are_a_pair() {
    assert_eq!(leader().check(&worker()), Ok(()));
    assert_eq!(worker().check(&leader()), Ok(()));
    // These may differ.
    let other = PairHello { ctx_size: 1, rdma_ok: 1, pad: 7, ..worker() };
    assert_eq!(leader().check(&other), Ok(()));
}

#[test]
fn another_version_or_role_is_refused() {
    for version in [0, 9, 11, 13] {
        let other = PairHello { version, role: PairHello::LEADER, ..worker() };
        assert_eq!(leader().check(&other), Err(PairError::Version(version)));
    }
    assert_eq!(leader().check(&leader()), Err(PairError::Role(1)));
    assert_eq!(worker().check(&worker()), Err(PairError::Role(2)));
    for role in [0, 3] {
        assert_eq!(leader().check(&PairHello { role, ..worker() }), Err(PairError::Role(role)));
    }
}

#[test]
fn each_field_of_the_model_and_of_the_schedule_must_be_the_same() {
    type Change = fn(&mut PairHello);
    let changes: [(&str, Change); 9] = [
        ("gguf_bytes", |hello| hello.gguf_bytes += 1 << 40),
        ("model_id", |hello| hello.model_id += 1),
        ("n_layer", |hello| hello.n_layer += 1),
        ("n_embd", |hello| hello.n_embd += 1),
        ("n_vocab", |hello| hello.n_vocab += 1),
        ("quant_bits", |hello| hello.quant_bits += 1),
        ("gate_slot_start", |hello| hello.gate_slot_start += 1),
        ("gate_slot_step", |hello| hello.gate_slot_step += 1),
        ("gates_per_token", |hello| hello.gates_per_token += 1),
    ];
    for (name, change) in changes {
        let mut peer = worker();
        change(&mut peer);
        let Err(PairError::Field { field, own, peer }) = leader().check(&peer) else { panic!("{name}") };
        assert_eq!(field, name);
        assert!(peer > own);
    }
    for word in 0..3 {
        let mut peer = worker();
        peer.mask[word] ^= 1 << 1;
        assert!(matches!(leader().check(&peer), Err(PairError::Field { field: "mask", .. })));
    }
}

#[test]
fn the_mask_has_as_many_bits_as_a_token_has_gates() {
    let (own, peer) =
        (PairHello { gates_per_token: 4, ..leader() }, PairHello { gates_per_token: 4, ..worker() });
    assert_eq!(own.check(&peer), Err(PairError::Gates { bits: 3, gates: 4 }));
    let all = |role| PairHello { role, gates_per_token: 192, mask: [u64::MAX; 3], ..leader() };
    assert_eq!(all(1).check(&all(2)), Ok(()));
}

#[test]
fn what_starts_otherwise_is_no_hello() {
    let mut bytes = leader().encode();
    // As a host of the other byte order writes it.
    bytes[..4].reverse();
    assert_eq!(PairHello::decode(&bytes), Err(PairError::Magic(0x5434_5344)));
    // As DS4D does, which is another protocol.
    bytes[..4].copy_from_slice(&0x4453_3444_u32.to_le_bytes());
    assert_eq!(PairHello::decode(&bytes), Err(PairError::Magic(0x4453_3444)));
}

#[test]
fn what_is_wanted_and_what_both_have_decides() {
    use Transport::{Auto, Rdma, Tcp};
    let no = |own, peer| Err(NoRdma { own, peer });
    for (wanted, own, peer, expected) in [
        (Auto, false, false, Ok(Bulk::Tcp)),
        (Auto, false, true, Ok(Bulk::Tcp)),
        (Auto, true, false, Ok(Bulk::Tcp)),
        (Auto, true, true, Ok(Bulk::Rdma)),
        (Tcp, false, false, Ok(Bulk::Tcp)),
        (Tcp, false, true, Ok(Bulk::Tcp)),
        (Tcp, true, false, Ok(Bulk::Tcp)),
        (Tcp, true, true, Ok(Bulk::Tcp)),
        (Rdma, false, false, no(false, false)),
        (Rdma, false, true, no(false, true)),
        (Rdma, true, false, no(true, false)),
        (Rdma, true, true, Ok(Bulk::Rdma)),
    ] {
        assert_eq!(choose(wanted, own, peer), expected, "{wanted} {own} {peer}");
    }
}

#[test]
fn transports_have_names() {
    for transport in [Transport::Auto, Transport::Tcp, Transport::Rdma] {
        assert_eq!(transport.to_string().parse(), Ok(transport));
    }
    assert_eq!(Transport::default(), Transport::Auto);
    for name in ["", "RDMA", "ib", "tcp "] {
        assert_eq!(name.parse::<Transport>(), Err(NoTransport(name.into())));
    }
}

#[test]
fn faults_say_what_differs() {
    let text = |error: PairError| error.to_string();
    assert_eq!(text(PairError::Magic(1)), "it is no hello: it starts with 0x00000001");
    assert_eq!(text(PairError::Version(13)), "it speaks version 13 of the protocol");
    assert_eq!(text(PairError::Role(1)), "it has role 1, which is not the other one of a pair");
    let field = PairError::Field { field: "n_layer", own: 43, peer: 61 };
    assert_eq!(text(field), "n_layer differs: 43 here, 61 there");
    assert_eq!(text(PairError::Gates { bits: 3, gates: 4 }), "the mask has 3 bits for 4 gates");
    assert!(field.source().is_none());
    let no = |own, peer| NoRdma { own, peer }.to_string();
    assert_eq!(no(false, false), "RDMA is wanted, and neither side has it");
    assert_eq!(no(false, true), "RDMA is wanted, and this side does not have it");
    assert_eq!(no(true, false), "RDMA is wanted, and the other side does not have it");
    let unknown = "ib".parse::<Transport>().unwrap_err();
    assert_eq!(unknown.to_string(), "there is no transport \"ib\"; there are auto, tcp and rdma");
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn any_hello_comes_back(hello in pair_hello()) {
        prop_assert_eq!(PairHello::decode(&hello.encode()), Ok(hello));
    }

    #[test]
    fn any_bytes_behind_the_first_word_are_a_hello(mut bytes in proptest::collection::vec(any::<u8>(), 88)) {
        bytes[..4].copy_from_slice(b"T4SD");
        let bytes = bytes.try_into().unwrap();
        prop_assert_eq!(PairHello::decode(&bytes).unwrap().encode(), bytes);
    }
}
