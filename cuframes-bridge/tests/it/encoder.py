"""A second encoder of the same bytes, written from the layouts and sharing nothing with the crate.

Reads one description a line, as JSON, and writes the bytes of each as hex. Bytes in a description are hex, too, and floats
are given by their bits.
"""

import json
import struct
import sys

HASH_START = 1469598103934665603


def frame(kind, payload, behind=0):
    return struct.pack(">4sII", b"DS4D", kind, len(payload) + behind) + payload


def halves(*values):
    return [half for value in values for half in (value >> 32, value & 0xFFFFFFFF)]


def words(values):
    return struct.pack(f">{len(values)}I", *values)


def hello(d):
    name = d["model_name"].encode()
    fields = ("model_id", "quant_bits", "layer_start", "layer_end", "has_output", "has_hidden", "ctx_size", "n_layers")
    return frame(1, words([d[f] for f in fields] + [d["listen_port"], len(name)]) + name)


def error(d):
    return frame(2, d["text"].encode())


def work(d):
    route = b""
    for hop in d["hops"]:
        host = hop["host"].encode()
        route += struct.pack(">5I", len(host), hop["port"], hop["layer_start"], hop["layer_end"], hop["flags"]) + host
    route += struct.pack(">3I", 1, 0, 0)
    activations = bytes.fromhex(d["activations"])
    fixed = [d["model_id"]]
    fixed += halves(d["session"], d["request"], d["prefix_hash"], d["result_hash"])
    fixed += [d["pos0"], len(d["tokens"]), d["layer_start"], d["layer_end"], d["flags"], 4 * len(d["tokens"])]
    fixed += [len(activations), d["activation_bits"], len(d["hops"]), d["route_index"], len(route)]
    assert len(fixed) == 20
    return frame(3, words(fixed) + words(d["tokens"]) + activations + route)


def result(d):
    payload = bytes.fromhex(d["payload"])
    records = b"".join(words(record) for record in d["telemetry"])
    fixed = halves(d["request"], d["result_hash"]) + [d["status"], d["result_kind"]]
    fixed += [len(d["telemetry"]), len(records), len(payload), d["payload_bits"]]
    assert len(fixed) == 10
    return frame(4, words(fixed) + records + payload)


def snapshot(d):
    ids = [d["model_id"]] + halves(d["session"], d["request"], d["token_hash"])
    return ids + [d["token_count"], d["layer_start"], d["layer_end"]]


def save_request(d):
    return frame(5, words(snapshot(d)))


def begin(d, kind=6):
    message = d["message"].encode()
    fixed = snapshot(d) + halves(d["payload_bytes"]) + [d["status"], 4 * len(d["tokens"]), len(message)]
    assert len(fixed) == 15
    return frame(kind, words(fixed) + words(d["tokens"]) + message)


def chunk(d):
    return frame(7, words(halves(d["request"]) + [d["bytes"]]), behind=d["bytes"])


def done(d):
    message = d["message"].encode()
    return frame(8, words(halves(d["request"]) + [d["status"], len(message)]) + message)


def load_begin(d):
    return begin(d, kind=9)


def pair(d):
    fields = ("model_id", "n_layer", "n_embd", "n_vocab", "quant_bits", "ctx_size", "gate_slot_start", "gate_slot_step")
    numbers = [d[f] for f in fields] + [d["gates_per_token"], d["pad"]]
    start = struct.pack("<4sIII", b"T4SD", d["version"], d["role"], d["rdma_ok"])
    return start + struct.pack("<Q10I3Q", d["gguf_bytes"], *numbers, *d["mask"])


def token_hash(d):
    value = HASH_START
    for byte in struct.pack(f"<{len(d['tokens'])}I", *d["tokens"]):
        value = (value ^ byte) * 1099511628211 % 2**64
    return struct.pack(">Q", value)


def to_float(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bf16(d):
    def convert(bits):
        value = to_float(bits)
        lower, rest = divmod(bits, 0x10000)
        if value != value:
            return lower | 0x40
        return lower + (rest > 0x8000 or (rest == 0x8000 and lower % 2 == 1))

    return b"".join(struct.pack("<H", convert(bits)) for bits in d["values"])


# Everything that eight bits can be, in steps of 1/512: seven numbers below the first exponent, eight of each of 14.
F8 = [step / 512 for step in range(8)] + [(8 + m) / 8 * 2.0 ** (e - 7) for e in range(1, 15) for m in range(8)]


def f8(d):
    def convert(bits):
        value, sign = to_float(bits & 0x7FFFFFFF), bits >> 24 & 0x80
        if not value < 240:
            return sign | 0x77
        if value < 2**-6:
            # A sum of floats, which is rounded.
            total = to_float(struct.unpack("<I", struct.pack("<f", value * 512 + 0.5))[0])
            return sign | min(int(total), 7)
        above = next(code for code, number in enumerate(F8) if number >= value)
        is_nearer = value - F8[above - 1] < F8[above] - value
        return sign | (above - is_nearer)

    return bytes(convert(bits) for bits in d["values"])


def from_f8(d):
    values = F8 + [240.0] * 8
    return b"".join(struct.pack("<f", -values[b & 127] if b & 128 else values[b]) for b in bytes.fromhex(d["bytes"]))


KINDS = (hello, error, work, result, save_request, begin, chunk, done, load_begin, pair, token_hash, bf16, f8, from_f8)
ENCODERS = {encoder.__name__: encoder for encoder in KINDS}

assert len(F8) == 120 and F8[0x77] == 240 and F8[0x38] == 1
for line in sys.stdin:
    description = json.loads(line)
    print(ENCODERS[description["kind"]](description).hex())
