//! Where the fuzzing of a sender starts.

type Seeds = Vec<(String, Vec<u8>)>;

const CONNECT: [u8; 1] = [0];
/// Hangs up, or says that it can't be connected to.
const LOSE: [u8; 1] = [1 << 3];
const OTHER_CONNECTION: [u8; 1] = [4 << 3];
/// Reads all that there is, in two parts at a time, a few times.
const READ: [u8; 2] = [3 | 30 << 3, 255];
const READ_A_BIT: [u8; 2] = [3 | 1 << 3, 100];
/// A second and more passes, or 10 ms.
const LATE: [u8; 1] = [4 | 28 << 3];
const LATER: [u8; 1] = [4 | 4 << 3];
const ANSWER: [u8; 2] = [6, 20];
const ANSWER_NO: [u8; 2] = [6 | 1 << 3, 5];
const ANSWER_OTHER: [u8; 2] = [6 | 2 << 3, 5];
/// Another ring, and the first one again.
const OTHER_RING: [u8; 2] = [6 | 3 << 3, 5];
const RING: [u8; 2] = [6 | 3 << 3, 4];
const OVERWRITE: [u8; 2] = [6 | 4 << 3, 0];
const FINISH: [u8; 2] = [6 | 31 << 3, 50];

const PUBLISHED: u8 = 0;
const ASK: u8 = 7;
const REFUSE: u8 = 11;

/// The receiver says something, all at once.
const fn say(kind: u8, number: u8) -> [u8; 3] {
    [1, kind, number]
}

/// A frame of so many times eight bytes.
const fn give(len: u8) -> [u8; 2] {
    [5 | len << 3, 6]
}

/// Stories of a sender for the newest and of a strict one; and each word to one that has sent a frame, and another one half.
pub(in super::super) fn bridge_sender() -> Seeds {
    const STRICT: u8 = 1;
    const THREE: u8 = 3 << 1;
    let done = say(PUBLISHED, 9);
    let start = [&CONNECT[..], &READ, &give(10)].concat();
    let half = [&start[..], &READ, &give(20), &READ_A_BIT].concat();
    let asked = [&CONNECT[..], &READ, &say(ASK, 3), &say(ASK, 0)].concat();
    let stories: [(&str, Vec<u8>); 20] = [
        ("sent", [&start[..], &READ, &done, &give(0), &READ, &done, &FINISH].concat()),
        ("in-bits", [&CONNECT[..], &READ_A_BIT, &give(5), &READ_A_BIT, &READ_A_BIT, &READ, &done].concat()),
        ("before", [&give(3)[..], &give(4), &LOSE, &CONNECT, &READ, &done, &done, &FINISH].concat()),
        ("overwritten", [&start[..], &READ_A_BIT, &OVERWRITE, &READ, &done].concat()),
        ("lost", [&half[..], &LOSE, &LATER, &CONNECT, &READ, &done, &done].concat()),
        ("both", [&start[..], &give(1), &READ, &say(5, 1), &give(2)].concat()),
        ("asked", [&asked[..], &ANSWER, &READ, &ANSWER_NO, &READ].concat()),
        (
            "asked-and-sent",
            [&start[..], &READ_A_BIT, &say(ASK, 1), &ANSWER, &READ, &done, &give(3), &READ].concat(),
        ),
        ("asked-and-lost", [&asked[..], &ANSWER, &READ_A_BIT, &LOSE, &CONNECT, &ANSWER, &READ].concat()),
        ("asked-too-often", [&CONNECT[..], &READ, &say(9, 17), &ANSWER_NO, &say(9, 31), &READ].concat()),
        ("answer-other", [&asked[..], &ANSWER_OTHER, &READ].concat()),
        ("long-answer", [&asked[..], &[6 | 1 << 3, 255], &READ].concat()),
        ("refused", [&half[..], &say(REFUSE, 3), &give(3), &CONNECT].concat()),
        ("stalled", [&half[..], &LATE, &CONNECT, &READ, &LATE, &LOSE, &LATE, &CONNECT].concat()),
        ("announced", [&start[..], &OTHER_RING, &LOSE, &CONNECT, &READ, &OTHER_CONNECTION, &READ].concat()),
        (
            "other-ring",
            [&start[..], &READ, &OTHER_RING, &give(3), &READ, &done, &CONNECT, &READ, &done].concat(),
        ),
        (
            "other-ring-asked",
            [&asked[..], &OTHER_RING, &give(3), &ANSWER, &READ, &ANSWER_NO, &READ, &CONNECT].concat(),
        ),
        (
            "ring-again",
            [&start[..], &READ, &OTHER_RING, &give(3), &RING, &READ, &give(4), &done, &READ].concat(),
        ),
        ("finished", [&half[..], &FINISH, &done, &READ, &done].concat()),
        ("patience", [&half[..], &FINISH, &LOSE, &LATE].concat()),
    ];
    let mut seeds = Seeds::new();
    for (name, steps) in stories {
        for (how, options) in [("newest", THREE), ("strict", THREE | STRICT)] {
            seeds.push((format!("{name}-{how}"), [&[options], &steps[..]].concat()));
        }
    }
    for kind in 0..16 {
        let word = [&say(kind, 1)[..], &READ, &say(PUBLISHED, 1), &CONNECT, &READ].concat();
        seeds.push((format!("word-{kind}"), [&[THREE | STRICT], &half[..], &word].concat()));
    }
    // DONE of frame 1 in pieces.
    let slowly = [&[1 | 5 << 3, PUBLISHED, 9][..], &[7 | 8 << 3, 7 | 31 << 3, 7 | 31 << 3]].concat();
    seeds.push(("slowly".into(), [&[THREE], &half[..], &slowly].concat()));
    let noise = [2, 12, b'D', b'S', b'4', b'D', 0, 0, 0, 8, 0, 0, 0, 17];
    seeds.push(("noise".into(), [&[THREE], &half[..], &noise].concat()));
    seeds
}
