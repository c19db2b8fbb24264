//! What is no fault, at the original's frontend and at ours; and what ours alone refuses.

use cuframes_barrier::message::Status;

use crate::cases::{Step, at_input, case, check, id, joins, ready, register, registers, say, word};

#[tokio::test]
async fn what_is_no_fault_starts_as_in_the_original() {
    let three_keys = b"\x83\xa6status\xa5HELLO\xa5local\xc3\xa8headless\xc3";
    let vllm = b"\x83\xaablock_size\x10\xb2data_parallel_size\x01\xb2data_parallel_rank\x00";
    check(vec![
        case("one after the other", 3, &[joins(2, 3), joins(0, 3), joins(1, 3)], "", ""),
        case("a registration before HELLO", 2, &[joins(1, 2), register(0, 2), ready(0)], "", ""),
        case(
            "the messages of vLLM",
            1,
            &[
                vec![Step::Connect(0, id(0))],
                say(0, &[three_keys]),
                vec![Step::Init(0)],
                say(0, &[b"\x82\xa6status\xa5READY\xaenum_gpu_blocks\x07"]),
                vec![Step::Input(0, id(0))],
                registers(0, &[vllm]),
            ],
            "",
            "",
        ),
        case(
            "a word that is repeated: the last one counts",
            1,
            &[
                vec![Step::Connect(0, id(0))],
                say(0, &[b"\x82\xa6status\xa5READY\xa6status\xa5HELLO"]),
                vec![Step::Init(0)],
                say(0, &[&word("READY")]),
                register(0, 1),
            ],
            "",
            "",
        ),
    ])
    .await;
}

/// What is bounded here and not there: the original keeps whatever it is sent.
#[tokio::test]
async fn what_is_too_much_is_refused_by_ours_alone() {
    let hash = |len: usize| {
        Status { parallel_config_hash: Some("x".repeat(len)), ..Status::new(Status::HELLO) }.encode()
    };
    let connect = || vec![Step::Connect(0, id(0))];
    let rest = || [vec![Step::Init(0)], say(0, &[&word("READY")]), register(0, 1)].concat();
    let events = |value: Vec<u8>| {
        [&b"\x83\xb2data_parallel_size\x01\xb2data_parallel_rank\x00\xb0kv_events_config"[..], &value]
            .concat()
    };
    let deep = [b"\x81\xa1x".repeat(40), vec![0xc0]].concat();
    let many = [&b"\x81\xa1x\xdc\x10\x00"[..], &[0; 4096]].concat();
    check(vec![
        case(
            "a megabyte, all but a little",
            1,
            &[connect(), say(0, &[&hash((1 << 20) - 100)]), rest()],
            "",
            "",
        ),
        case(
            "more than a megabyte, which ends the connection",
            1,
            &[connect(), say(0, &[&hash(1 << 20)]), rest()],
            "",
            "no READY within {after} from 0 (nothing heard)",
        ),
        case(
            "values within values",
            1,
            &[at_input(0, &id(0)), registers(0, &[&events(deep)])],
            "",
            "at registration: the message of participant 0 can't be read: it is nested too deeply \
             (field kv_events_config",
        ),
        case(
            "many values",
            1,
            &[at_input(0, &id(0)), registers(0, &[&events(many)])],
            "",
            "at registration: the message of participant 0 can't be read: it has too many values \
             (field kv_events_config",
        ),
    ])
    .await;
}
