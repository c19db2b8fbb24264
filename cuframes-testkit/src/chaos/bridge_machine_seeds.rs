//! Where the fuzzing of a worker of the bridge starts.

type Seeds = Vec<(String, Vec<u8>)>;

const CONNECT: [u8; 1] = [0];
const SHUT_DOWN: [u8; 1] = [31 << 3];
const HANG_UP: [u8; 1] = [3];
const READ: [u8; 2] = [4, 255];
const WAIT: [u8; 1] = [5 | 31 << 3];
const DONE: [u8; 2] = [6, 9];
const FAILED: [u8; 2] = [6, 0];
/// The oldest attempt to connect works, or not.
const REACHED: [u8; 1] = [7];
const UNREACHED: [u8; 1] = [7 | 1 << 3];

/// The newest peer says something.
const fn say(kind: u8, number: u8) -> [u8; 3] {
    [1, kind, number]
}

/// The one before.
const fn other(kind: u8, number: u8) -> [u8; 3] {
    [1 | 1 << 3, kind, number]
}

/// Stories of a worker, with one and with three requests that are read ahead; and each word to a worker that has a task.
pub(super) fn bridge_machine() -> Seeds {
    // A session of no tokens, one of one token, the same with a reset.
    const START: u8 = 1;
    const NEXT: u8 = 1 + 4;
    const AGAIN: u8 = 1 + 128;
    let start = [&REACHED[..], &READ, &CONNECT].concat();
    let two = [&start[..], &say(0, START), &say(0, NEXT)].concat();
    let on = [&start[..], &say(4, START), &DONE, &REACHED, &READ].concat();
    let loading = [&start[..], &say(8, 5 + 64)].concat();
    let stories: [(&str, Vec<u8>); 16] = [
        ("done", [&two[..], &DONE, &DONE, &READ].concat()),
        ("failed", [&two[..], &FAILED, &DONE, &say(0, AGAIN), &DONE, &READ].concat()),
        (
            "sessions",
            [&start[..], &say(0, 0), &say(0, 1), &say(0, 2), &[6 | 2 << 3, 9], &DONE, &DONE, &READ].concat(),
        ),
        ("abandoned", [&two[..], &HANG_UP, &CONNECT, &say(0, NEXT), &DONE, &DONE, &READ].concat()),
        ("forwarded", [&on[..], &say(10, 0), &[4 | 1 << 3, 255]].concat()),
        ("refused-on", [&on[..], &say(11, 0), &other(4, 2), &DONE, &READ, &say(10, 0)].concat()),
        ("wrong-on", [&on[..], &say(12, 0), &READ].concat()),
        ("lost-on", [&on[..], &HANG_UP, &READ].concat()),
        ("silent-on", [&on[..], &WAIT, &READ].concat()),
        ("unreached-on", [&start[..], &say(4, START), &DONE, &UNREACHED, &READ].concat()),
        ("saved", [&two[..], &DONE, &say(7, NEXT), &DONE, &READ, &READ, &READ].concat()),
        ("loaded", [&loading[..], &say(9, 5 + 64), &DONE, &READ, &say(0, NEXT), &DONE].concat()),
        ("bad-chunk", [&loading[..], &say(9, 5 + 32), &say(9, 5 + 48), &READ].concat()),
        ("flood", [&start[..], &say(224, START), &DONE, &say(227, 2), &READ].concat()),
        ("lost", [&two[..], &[3 | 1 << 3], &DONE, &WAIT, &REACHED, &READ, &other(0, NEXT)].concat()),
        ("shut-down", [&two[..], &SHUT_DOWN, &CONNECT, &DONE, &WAIT].concat()),
    ];
    let mut seeds = Seeds::new();
    for (name, steps) in stories {
        for prefetch in [1, 3] {
            seeds.push((format!("{name}-{prefetch}"), [&[prefetch], &steps[..]].concat()));
        }
    }
    for kind in 0..16 {
        let word = [&say(kind, 2)[..], &DONE, &READ, &DONE, &READ].concat();
        seeds.push((format!("word-{kind}"), [&[2], &two[..], &word].concat()));
    }
    let noise =
        [&start[..], &[2, 8, b'D', b'S', b'4', b'D', 0, 0, 0, 3], &[2, 6, 0, 0, 0, 20, 1, 1]].concat();
    seeds.push(("noise".into(), [&[1], &noise[..]].concat()));
    seeds
}
