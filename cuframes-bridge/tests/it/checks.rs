//! What is checked of requests and results beyond their layout.

use cuframes_bridge::wire::{
    FrameType, Hop, Message, ResultKind, Route, Width, WireError, Work, WorkFlags, WorkResult, extend_hash,
};

use crate::bytes::{message, vector};

/// A request as in the vector, with a change.
fn work(change: impl FnOnce(&mut Work)) -> Work {
    let Message::Work(mut work) = message(&vector!("work")) else { panic!() };
    change(&mut work);
    *work
}

#[test]
fn a_request_that_makes_no_sense_is_refused_when_it_is_checked() {
    type Change = fn(&mut Work);
    const MORE: fn(u32, u32) -> Hop =
        |layer_start, layer_end| Hop { host: "h".into(), port: 1, layer_start, layer_end, flags: 0 };
    let faults: [(&str, u64, Change); 23] = [
        ("route_count", 0, |work| work.route.hops.clear()),
        ("route_index", 1, |work| work.route.index = 1),
        ("layer_end", 20, |work| work.layer_end = 20),
        ("flags", 23, |work| work.flags.0 |= 16),
        ("flags", 1 << 31 | 7, |work| work.flags.0 |= 1 << 31),
        ("n_tokens", 0, |work| work.tokens.clear()),
        ("flags", 6, |work| work.flags.0 &= !1),
        ("flags", 7, |work| work.layer_start = 0),
        ("input_hc_bytes", 0, |work| work.activations.clear()),
        ("input_hc_bits", 12, |work| work.activation_bits = 12),
        ("input_hc_bytes", 12, |work| work.activations.truncate(12)),
        ("input_hc_bytes", 15, |work| work.activations.truncate(15)),
        ("result_hash", 0, |work| work.result_hash = 0),
        ("result_hash", 0xb217_50ce_ed54_4b19, |work| work.tokens[0] += 1),
        ("result_hash", 0xb217_50ce_ed54_4b19, |work| work.prefix_hash += 1),
        ("route layer_start", 44, |work| {
            work.route.hops[0].flags = 0;
            work.route.hops.push(MORE(44, 50));
        }),
        ("route layer_end", 42, |work| {
            work.route.hops[0].flags = 0;
            work.route.hops.push(MORE(43, 42));
        }),
        ("route port", 0, |work| work.route.hops[0].port = 0),
        ("route port", 65_536, |work| work.route.hops[0].port = 65_536),
        ("route flags", 3, |work| work.route.hops[0].flags = 3),
        ("route flags", 1, |work| work.route.hops.push(MORE(43, 50))),
        ("route_index", 0, |work| work.layer_start = 22),
        ("flags", 7, |work| {
            work.route.hops[0].flags = 0;
            work.route.hops.push(MORE(43, 50));
        }),
    ];
    for (name, value, change) in faults {
        let error = WireError::Field { kind: FrameType::WORK, field: name, value };
        assert_eq!(work(change).check(), Err(error));
    }
}

#[test]
fn requests_that_make_sense_pass() {
    // The first layer, without activations; an acknowledgement is enough; on to another worker.
    let first = work(|work| {
        work.layer_start = 0;
        work.activations.clear();
        work.flags = WorkFlags::RESET.union(WorkFlags::ACK_ONLY);
        work.route.hops[0].layer_start = 0;
        work.route.hops[0].flags = 0;
        work.route.hops.push(Hop { host: "next".into(), port: 1, layer_start: 43, layer_end: 60, flags: 1 });
    });
    assert_eq!(first.check(), Ok(()));
    // One that is under way, with activations of eight bits.
    let second = work(|work| {
        work.route = Route { index: 1, ..first.route.clone() };
        (work.layer_start, work.layer_end) = (43, 60);
        work.activation_bits = 8;
        work.prefix_hash = work.result_hash;
        work.result_hash = extend_hash(work.prefix_hash, &work.tokens);
    });
    assert_eq!(second.check(), Ok(()));
    assert_eq!(work(|work| work.activation_bits = 0).check(), Ok(()));
}

#[test]
fn a_result_that_makes_no_sense_is_refused_when_it_is_checked() {
    let ok = |kind, bits, payload: &[u8]| WorkResult {
        result_hash: 1,
        kind,
        payload_bits: bits,
        payload: payload.to_vec(),
        ..WorkResult::default()
    };
    let failed = |change: fn(&mut WorkResult)| {
        let mut result = WorkResult::failed(1, "no");
        change(&mut result);
        result
    };
    for (result, field, value) in [
        (ok(ResultKind::ACK, 0, &[1]), "payload_bytes", 1),
        (ok(ResultKind::ACK, 32, &[]), "payload_bits", 32),
        (ok(ResultKind::HIDDEN, 12, &[0; 12]), "payload_bits", 12),
        (ok(ResultKind::HIDDEN, 16, &[0; 3]), "payload_bytes", 3),
        (ok(ResultKind::LOGITS, 16, &[0; 4]), "payload_bits", 16),
        (ok(ResultKind::LOGITS, 32, &[0; 6]), "payload_bytes", 6),
        (ok(ResultKind(3), 32, &[0; 4]), "result_kind", 3),
        (failed(|result| result.result_hash = 7), "result_hash", 7),
        (failed(|result| result.kind = ResultKind::LOGITS), "result_kind", 2),
        (failed(|result| result.payload_bits = 8), "payload_bits", 8),
    ] {
        assert_eq!(result.check(), Err(WireError::Field { kind: FrameType::RESULT, field, value }));
    }
    for width in [Width::F32, Width::BF16, Width::F8] {
        assert_eq!(ok(ResultKind::HIDDEN, width.bits(), &[0; 8]).check(), Ok(()));
    }
    assert_eq!(ok(ResultKind::LOGITS, 32, &[0; 8]).check(), Ok(()));
    assert_eq!(WorkResult::failed(1, "").check(), Ok(()));
}
