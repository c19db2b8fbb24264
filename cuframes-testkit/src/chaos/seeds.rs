//! Where fuzzing starts: inputs that go deep, made from the golden vectors and from short stories. `fuzz/corpus` holds them
//! as files.

use std::iter;
use std::path::{Path, PathBuf};

use cuframes_core::Format;
use cuframes_core::wire::framing::HEADER_LEN;

use super::session::MESSAGES;
use super::{blocks_seeds, bridge_machine_seeds, bridge_seeds, bridge_stream, start_seeds};
use crate::vectors::{names, vector};

/// The seeds of a fuzz target by their names.
///
/// # Panics
/// If there is no such target.
#[must_use]
pub fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    match target {
        "blocks_frame" => blocks_seeds::blocks_frame(),
        "blocks_server" => blocks_seeds::blocks_server(),
        "bridge_frame" => bridge_seeds::bridge_frame(),
        "bridge_machine" => bridge_machine_seeds::bridge_machine(),
        "bridge_receiver" => bridge_stream::receiver_seeds(),
        "bridge_sender" => bridge_stream::sender_seeds(),
        "framing" => framing(),
        "hello_resp" => hello_resp(),
        "region_header" => region_header(),
        "ring_script" => ring_script(),
        "session_publisher" => {
            session(&[message("hello_req_features"), message("subscribe_req"), command(0), command(3)])
        }
        "session_subscriber" => session(&[
            message("hello_resp_features"),
            message("subscribe_resp"),
            command(0),
            message("shutdown_normal"),
        ]),
        "start_frontend" => start_seeds::start_frontend(),
        "start_message" => start_seeds::start_message(),
        "zmtp" => start_seeds::zmtp(),
        _ => panic!("no target {target:?}"),
    }
}

/// Where the inputs of a fuzz target lie.
#[must_use]
pub fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

/// What the names of seeds start with in a corpus; all other files there were found by fuzzing.
pub const SEED: &str = "seed-";

/// Each message in chunks of three bytes, and all of them as one stream.
fn framing() -> Vec<(String, Vec<u8>)> {
    let messages = || names().filter(|name| *name != "region_empty");
    let mut seeds: Vec<_> =
        messages().map(|name| (name.to_string(), [vec![3], vector(name)].concat())).collect();
    let legal = messages().filter(|name| *name != "oversize");
    seeds.push(("all".into(), legal.fold(vec![13], |stream, name| [stream, vector(name)].concat())));
    seeds
}

/// The golden payloads, and one of each format put together from fields.
fn hello_resp() -> Vec<(String, Vec<u8>)> {
    const ALL_FEATURES: u8 = 255;
    let payload = |name| vector(name).split_off(HEADER_LEN);
    let golden = ["hello_resp_ok", "hello_resp_features", "hello_resp_refused"]
        .map(|name| (name.to_string(), [vec![ALL_FEATURES, 0], payload(name)].concat()));
    // Result, version; slots, ownership; format, width, height, our pitches, the right size; path, its length, features,
    // reserved bytes, what is behind them.
    let fields = |slots: &[u8], format: Format, last: u8| {
        let height = if format == Format::BYTES { 1 } else { 3 };
        let meta = [0, u8::try_from(format.0).unwrap(), 5, height, 0, 0];
        [&[ALL_FEATURES, 1, 0, 0], slots, &meta, &[1, b'/', 0, 0, 15, 0, last]].concat()
    };
    let good = Format::ALL.map(|format| (format!("fields-{format}"), fields(&[7], format, 0)));
    let bad = [
        ("features-not-asked-for".into(), [vec![0, 0], payload("hello_resp_features")].concat()),
        ("ring-of-17".into(), fields(&[255, 17], Format::NV12, 0)),
        ("truncated".into(), fields(&[7], Format::NV12, 192)),
        ("trailing".into(), fields(&[7], Format::NV12, 224)),
    ];
    golden.into_iter().chain(good).chain(bad).collect()
}

/// The golden region, as it is and with a publisher that goes on, for each kind of subscriber.
fn region_header() -> Vec<(String, Vec<u8>)> {
    const PUBLISH: u8 = 0;
    const NEXT: u8 = 3;
    const RELEASE: u8 = 5;
    const ARE_INTACT: u8 = 6;
    const SLEEP: u8 = 7;
    /// In the upper bits: how many changes the other side makes meanwhile, each of a waiting time and a value.
    const TWO_CHANGES: u8 = 2 << 5;
    let quiet = [PUBLISH, NEXT, ARE_INTACT, RELEASE, 0, SLEEP, PUBLISH, PUBLISH, NEXT, RELEASE, 0];
    let start = [PUBLISH, PUBLISH, NEXT | TWO_CHANGES, 2, 255, 3, 1, NEXT, ARE_INTACT];
    let busy = [&start[..], &[RELEASE | TWO_CHANGES, 0, 1, 0, 2, 5]].concat();
    let mut seeds = Vec::new();
    for (name, steps) in [("quiet", &quiet[..]), ("busy", &busy)] {
        for (kind, features, mode) in [
            ("newest", 0, 0),
            ("strict", 0, 1),
            ("plain", 0, 2),
            ("lease", 2, 0),
            ("lease-strict", 6, 1),
            ("short", 6, 5),
        ] {
            let start = [1, 0, features, mode, 0, u8::try_from(steps.len()).unwrap()];
            // Bit 1 is active: the word at 0x0D80.
            let patches = [0xB0, 0x01, 2];
            seeds.push((format!("{name}-{kind}"), [&start, steps, &patches].concat()));
        }
    }
    for slots in [0, 17] {
        seeds.push((format!("ring-of-{slots}"), vec![1, 0, 6, 0, 0, 2, PUBLISH, NEXT, 4, 0, slots]));
    }
    for (kind, features) in [("plain", 0), ("lease", 2)] {
        // The number that says "no frame", in slot 0 and as the newest.
        let steps = [1, 255, NEXT, PUBLISH, NEXT];
        seeds.push((format!("no-frame-{kind}"), [&[1, 0, features, 0, 0, 5], &steps[..]].concat()));
    }
    seeds.push(("image".into(), [vec![0, 0, 6, 0, 0, 2, PUBLISH, NEXT], vector("region_empty")].concat()));
    seeds
}

/// Stories of a publisher and its subscribers, under both policies and all kinds of honesty. Each is written as what is done,
/// in single letters, see [`ring_step`].
fn ring_script() -> Vec<(String, Vec<u8>)> {
    let stories = [
        ("read", 2, 0, "js p n r p p n n r r d p"),
        ("lease", 2, 0, "jl jls p n n1 p p p r p"),
        ("sleep", 2, 0, "jh n z p n k r p Z p"),
        ("plain", 2, 0, "jp jps p p n n1 v l p r p"),
        ("evict", 2, 0, "jl p n p p w60 p j w250 o p"),
        ("next-holder-of-the-bit", 1, 0, "jl jl p n n1 p w20 q jl n1 w20 p p"),
        ("late", 2, 0, "jls p n v e p w250 o jl n p n"),
        ("by-number", 2, 0, "jlp js p n1 g4 g4 p p r r1 p n1 g8 p"),
        ("given-number", 3, 0, "js jlp k p a1 n n1 a3 r n c0 A2 a249 n r n1 p p A254 n n1 p a0"),
        ("meanwhile", 3, 0, "jl m j n n1 m n r q p"),
        ("scribble-own", 2, 4, "jl js p x 6 0 1 x 0 0 255 n n1 p r p"),
        ("scribble-any", 2, 6, "jl js p x 24 0 255 n n1 p x 48 0 2 p"),
        ("scribble-number", 2, 6, "js p p x 56 0 255 p"),
    ];
    let mut seeds = Vec::new();
    for (name, slots, honesty, story) in stories {
        for (policy, bit) in [("drop-oldest", 0), ("strict-wait", 16)] {
            let start = (slots - 1) | bit | honesty << 5;
            let script = iter::once(start).chain(story.split(' ').flat_map(ring_step)).collect();
            seeds.push((format!("{name}-{policy}"), script));
        }
    }
    seeds
}

/// A step of a story: publish, drop a claim, publish with three steps meanwhile, publish under a number that is so much above
/// the next one (a) or Absolute, claim and drop such a one (c), parK, Join with its wants (strict, lease,
/// hint, plain, or lp for a lease and NO_ACK), quit, vanish, next, get by number, release, sleep or wake up (Z), wait so many times 50 ms; of somebody who left: look
/// late (e), release late, release when the quarantine is over; scribble (x). A number behind it says which subscriber.
fn ring_step(step: &str) -> Vec<u8> {
    if let Ok(byte) = step.parse() {
        return vec![byte];
    }
    let (what, rest) = step.split_at(1);
    let number: u8 = rest.parse().unwrap_or(0);
    let wants = "slhp".bytes().zip([1, 2, 4, 8]).filter(|(letter, _)| rest.as_bytes().contains(letter));
    match what {
        "p" => vec![0],
        "m" => vec![3 << 6],
        "d" => vec![3],
        "k" => vec![4],
        "a" => vec![4 | 8 << 4, number],
        "c" => vec![4 | 9 << 4, number],
        "A" => vec![4 | 10 << 4, number],
        "j" => vec![5 | wants.fold(0, |wants, (_, bit)| wants | bit << 4)],
        "q" => vec![6 | number << 4],
        "v" => vec![7 | number << 4],
        "n" => vec![8 | number << 4],
        "g" => vec![9 | number << 4],
        "r" => vec![11 | number << 4],
        "z" => vec![12],
        "Z" => vec![12 | 1 << 4],
        "w" => vec![13, number],
        "e" => vec![14 | 1 << 4],
        "o" => vec![14 | 2 << 4],
        "l" => vec![14 | 3 << 4],
        "x" => vec![15],
        _ => panic!("no step {step:?}"),
    }
}

/// A flood of pings and one of unknown messages in each state, and each message in the state in which frames flow.
fn session(steps: &[Vec<u8>; 4]) -> Vec<(String, Vec<u8>)> {
    let ping = u8::try_from(MESSAGES.iter().position(|name| *name == "ping").unwrap()).unwrap();
    let mut seeds = Vec::new();
    for number in 0..=steps.len() {
        let before: Vec<u8> = steps.iter().take(number).flatten().copied().collect();
        // The same message 255 times 16: as it is, or with another type.
        for (kind, flood) in [("pings", [7, ping, 255, 0, 255]), ("unknown", [7, ping, 0, 0x77, 255])] {
            seeds.push((format!("flood-{kind}-{number}"), [&before[..], &flood.repeat(3)].concat()));
        }
    }
    let active: Vec<u8> = steps.iter().take(3).flatten().copied().collect();
    for name in MESSAGES {
        // Two descriptors are there for whoever wants one.
        seeds.push((format!("active-{name}"), [&active[..], &[2 | 2 << 3], &message(name)].concat()));
    }
    seeds
}

/// The step that sends a golden message.
fn message(name: &str) -> Vec<u8> {
    let number = MESSAGES.iter().position(|known| *known == name).unwrap();
    vec![1, u8::try_from(number).unwrap(), 255, 0]
}

/// The step that gives the session command `number`.
fn command(number: u8) -> Vec<u8> {
    vec![6 | number << 3, 0]
}
