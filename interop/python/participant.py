"""A participant of the start-up handshake, in the steps of a vLLM or TokenSpeed engine, over libzmq and msgspec.

participant.py ADDRESS INDEX RANK SIZE [--words]

What happens is printed as it happens, a line each: `INIT <hex>`, `READY`, `REGISTERED <hex>`. Then it stays, as an engine
does, until its standard input ends. With --words it knows the extension of cuframes: it says KNOWS, and prints `GO` or
`CANCEL <reason>` when that comes.
"""

import sys
from typing import Any

import msgspec
import zmq


class ReadyMessage(msgspec.Struct):
    status: str | None = None
    local: bool | None = None
    headless: bool | None = None
    parallel_config_hash: str | None = None


class Addresses(msgspec.Struct):
    inputs: list[str] = []
    outputs: list[str] = []
    coordinator_input: str | None = None
    coordinator_output: str | None = None
    frontend_stats_publish_address: str | None = None


class Init(msgspec.Struct):
    addresses: Addresses
    parallel_config: dict[Any, Any] = {}


class Registration(msgspec.Struct):
    max_model_len: int = 0
    num_gpu_blocks: int = 0
    prefix_granularity: int = 0
    dp_stats_address: str | None = None
    dtype: str = "bfloat16"
    multimodal_encoder_dtype: str | None = None
    vllm_version: str = ""
    world_size: int = 1
    data_parallel_size: int = 1
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    data_parallel_rank: int = 0
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    instance_id: str = ""
    kv_cache_size_tokens: int | None = None
    kv_cache_max_concurrency: float | None = None
    kv_events_config: dict[Any, Any] | None = None


class Notice(msgspec.Struct):
    status: str
    reason: str | None = None


ENCODE = msgspec.msgpack.Encoder().encode


def say(*words):
    print(*words, flush=True)


def dealer(context, identity, address):
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, identity)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(address)
    return socket


def main(address, index, rank, size, *flags):
    knows = "--words" in flags
    context = zmq.Context()
    identity = int(index).to_bytes(2, "little")
    handshake = dealer(context, identity, address)
    handshake.send(ENCODE(ReadyMessage("HELLO", local=True, headless=True)))
    [payload] = handshake.recv_multipart()
    init = msgspec.msgpack.decode(payload, type=Init)
    assert ENCODE(init) == payload, "INIT is not written as msgspec writes it"
    say("INIT", payload.hex())
    if knows:
        assert init.parallel_config.get("cuframes"), "the frontend does not know the extension"
        handshake.send(ENCODE(Notice("KNOWS")))
    handshake.send(ENCODE(ReadyMessage("READY", local=True, headless=True)))
    say("READY")
    registration = Registration(
        max_model_len=4096,
        num_gpu_blocks=2**40,
        vllm_version="interop",
        data_parallel_rank=int(rank),
        data_parallel_size=int(size),
        max_num_seqs=1,
        max_num_batched_tokens=-1,
        instance_id=f"python {index}",
        kv_cache_max_concurrency=6.4,
        kv_events_config={"publisher": "zmq", 7: [None, b"\xff", -(2**63), 2**64 - 1], "deep": {"x": 1.5}},
    )
    inputs = dealer(context, identity, init.addresses.inputs[0])
    inputs.send(ENCODE(registration))
    outputs = context.socket(zmq.PUSH)
    outputs.setsockopt(zmq.LINGER, 0)
    outputs.connect(init.addresses.outputs[0])
    outputs.send_multipart([b"the output of a participant"])
    say("REGISTERED", ENCODE(registration).hex())
    if knows:
        [payload] = handshake.recv_multipart()
        notice = msgspec.msgpack.decode(payload, type=Notice)
        say(notice.status, notice.reason or "")
    else:
        handshake.close()
    sys.stdin.read()
    context.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:])
