//! Where the fuzzing of a receiver starts.

type Seeds = Vec<(String, Vec<u8>)>;

const CONNECT: [u8; 1] = [0];
const SHUT_DOWN: [u8; 1] = [31 << 3];
const HANG_UP: [u8; 1] = [4];
const STRANGER: [u8; 1] = [4 | 31 << 3];
const READ: [u8; 2] = [5, 255];
/// All that was said arrives; in memory of the driver; also when it is not read; and after more than is kept.
const ARRIVE: [u8; 2] = [3, 255];
const ARRIVE_PLAIN: [u8; 2] = [3 | 16 << 3, 255];
const ARRIVE_ANYHOW: [u8; 2] = [3 | 4 << 3, 255];
const FLOOD: [u8; 2] = [3 | 4 << 3, 254];
/// So many milliseconds pass: 10, 150, and over a second.
const SOON: [u8; 1] = [7 | 4 << 3];
const LATE: [u8; 1] = [7 | 16 << 3];
const LATER: [u8; 1] = [7 | 28 << 3];
/// It is not told that as many pass.
const UNTOLD: [u8; 1] = [7 | 19 << 3];

const RECEIVE: u8 = 0;
const RECEIVE_SHORT: u8 = 4;
const SKIP: u8 = 7;
const SETTLE: u8 = 8;
const SETTLE_OTHER: u8 = 10;
const FETCH_NEWEST: u8 = 11;
const FETCH_THREE: u8 = 12 | 3 << 4;
const REFUSE: u8 = 13;
const SKIP_MANY: u8 = 15;

const HELLO: u8 = 0;
const LOAD: u8 = 1;
const WRONG: u8 = 2;
const PIECE: u8 = 3;
const REST: u8 = 4;
const BEGIN: u8 = 6;
const NO: u8 = 7;
const DONE: u8 = 8;
const FRAME: u8 = 10;
const ANSWER: u8 = 11;

/// The newest sender says something.
const fn say(kind: u8, number: u8) -> [u8; 3] {
    [1, kind, number]
}

/// And it arrives at once.
const fn tell(kind: u8, number: u8) -> [u8; 3] {
    [1 | 4 << 3, kind, number]
}

/// And the owner takes the frame at once, and settles it.
const fn take(kind: u8, number: u8) -> [u8; 3] {
    [1 | 12 << 3, kind, number]
}

/// The owner does something about the newest sender.
const fn own(how: u8) -> [u8; 2] {
    [6, how]
}

/// Stories of a receiver; each word, to one that waits for a frame and to one in the middle of a frame; and all words about a
/// frame that do not hold together.
pub(in super::super) fn bridge_receiver() -> Seeds {
    let start = [&CONNECT[..], &tell(HELLO, 0)].concat();
    let other = [&CONNECT[..], &tell(HELLO, 1)].concat();
    let offered = [&start[..], &tell(LOAD, 81)].concat();
    let coming = [&offered[..], &own(RECEIVE), &tell(PIECE, 30)].concat();
    let complete = [&coming[..], &tell(REST, 0)].concat();
    let asked = [&start[..], &own(FETCH_THREE), &READ].concat();
    let stories: [(&str, Vec<u8>); 34] = [
        ("frames", [&start[..], &take(FRAME, 81), &take(FRAME, 82), &take(FRAME, 3), &READ].concat()),
        ("torn", [&start[..], &take(FRAME, 84), &take(FRAME, 85), &READ].concat()),
        ("complete", [&complete[..], &SOON, &own(SETTLE), &READ, &take(FRAME, 5)].concat()),
        ("settled-otherwise", [&complete[..], &own(SETTLE_OTHER), &own(SETTLE), &READ].concat()),
        (
            "all-at-once",
            [
                &CONNECT[..],
                &say(HELLO, 0),
                &say(FRAME, 81),
                &say(FRAME, 250),
                &say(FRAME, 82),
                &ARRIVE,
                &own(RECEIVE),
                &own(SETTLE),
                &own(SKIP),
                &own(RECEIVE),
                &READ,
            ]
            .concat(),
        ),
        (
            "plain",
            [&offered[..], &say(REST, 0), &ARRIVE_PLAIN, &own(RECEIVE), &ARRIVE_PLAIN, &own(SETTLE), &READ]
                .concat(),
        ),
        (
            "in-bits",
            [
                &offered[..],
                &own(RECEIVE),
                &say(PIECE, 20),
                &say(REST, 0),
                &[3, 20],
                &[3, 30],
                &ARRIVE,
                &own(SETTLE),
            ]
            .concat(),
        ),
        ("skipped", [&offered[..], &own(SKIP), &tell(PIECE, 20), &tell(REST, 0), &READ].concat()),
        (
            "too-small",
            [&offered[..], &own(RECEIVE_SHORT), &own(RECEIVE), &tell(REST, 0), &own(SETTLE)].concat(),
        ),
        ("held", [&offered[..], &say(FRAME, 82), &ARRIVE_ANYHOW, &own(SKIP), &ARRIVE].concat()),
        ("flood", [&offered[..], &FLOOD, &FLOOD, &FLOOD, &FLOOD, &READ].concat()),
        (
            "unread",
            [
                &start[..],
                &tell(FRAME | 224, 9),
                &own(SKIP_MANY),
                &tell(FRAME | 224, 9),
                &own(SKIP_MANY),
                &tell(FRAME | 224, 9),
                &own(SKIP_MANY),
                &tell(FRAME | 224, 9),
                &own(SKIP_MANY),
            ]
            .concat(),
        ),
        ("long-reason", [&complete[..], &own(SETTLE_OTHER | 240), &READ].concat()),
        ("hung-up", [&coming[..], &HANG_UP, &STRANGER].concat()),
        ("hung-up-complete", [&complete[..], &HANG_UP].concat()),
        (
            "replaced",
            [
                &coming[..],
                &CONNECT,
                &tell(HELLO, 0),
                &[6 | 1 << 3, SETTLE],
                &take(FRAME, 8),
                &[5 | 1 << 3, 255],
            ]
            .concat(),
        ),
        ("two", [&start[..], &other, &take(FRAME, 9), &[1 | 13 << 3, FRAME, 9], &READ].concat()),
        (
            "crowded",
            [&start[..], &CONNECT, &CONNECT, &CONNECT, &tell(HELLO, 1), &CONNECT, &tell(HELLO, 2), &CONNECT]
                .concat(),
        ),
        ("silent", [&CONNECT[..], &LATE].concat()),
        ("silent-untold", [&CONNECT[..], &UNTOLD, &tell(HELLO, 0), &LATE].concat()),
        ("stalled", [&coming[..], &SOON, &tell(PIECE, 5), &LATE].concat()),
        ("refused", [&offered[..], &own(REFUSE), &own(REFUSE), &own(FETCH_NEWEST), &READ].concat()),
        (
            "refused-unread",
            [&coming[..], &own(REFUSE), &tell(FRAME, 3), &SOON, &CONNECT, &own(REFUSE), &LATER].concat(),
        ),
        (
            "asked",
            [&asked[..], &take(ANSWER, 81), &own(FETCH_NEWEST), &READ, &take(ANSWER, 82), &READ].concat(),
        ),
        ("asked-torn", [&asked[..], &take(ANSWER, 84)].concat()),
        (
            "asked-twice",
            [&asked[..], &own(FETCH_NEWEST), &take(BEGIN, 81), &take(REST, 0), &take(BEGIN, 81), &READ]
                .concat(),
        ),
        ("asked-no", [&asked[..], &tell(NO, 5), &own(FETCH_NEWEST), &READ, &tell(NO, 254)].concat()),
        (
            "asked-between",
            [
                &asked[..],
                &take(FRAME, 81),
                &take(BEGIN, 82),
                &take(REST, 0),
                &take(FRAME, 82),
                &tell(DONE, 0),
                &READ,
            ]
            .concat(),
        ),
        ("asked-within", [&coming[..], &own(FETCH_NEWEST), &READ, &tell(BEGIN, 82), &READ].concat()),
        ("asked-no-within", [&coming[..], &own(FETCH_NEWEST), &READ, &tell(NO, 82), &tell(REST, 0)].concat()),
        ("asked-late", [&asked[..], &LATE, &take(FRAME, 81), &LATE, &LATER].concat()),
        (
            "asked-many-before",
            [&asked[..], &take(FRAME | 224, 9), &take(FRAME | 224, 9), &take(FRAME | 224, 9), &LATE, &LATE]
                .concat(),
        ),
        ("asked-and-gone", [&asked[..], &tell(BEGIN, 81), &HANG_UP].concat()),
        ("shut-down", [&coming[..], &other, &own(REFUSE), &SHUT_DOWN, &CONNECT, &READ].concat()),
    ];
    let mut seeds: Seeds = stories.into_iter().map(|(name, steps)| (name.into(), steps)).collect();
    for kind in 0..16 {
        let word = [&take(kind, 81)[..], &READ, &take(REST, 0), &READ].concat();
        for (name, start) in [("word", &asked), ("word-within", &coming)] {
            seeds.push((format!("{name}-{kind}"), [&start[..], &word].concat()));
        }
    }
    for number in 0..13 {
        seeds.push((
            format!("wrong-{number}"),
            [&start[..], &take(WRONG, number), &own(SKIP), &READ].concat(),
        ));
    }
    let noise = [2 | 4 << 3, 12, b'D', b'S', b'4', b'D', 0, 0, 0, 8, 0, 0, 0, 17];
    seeds.push(("noise".into(), [&asked[..], &noise, &READ].concat()));
    seeds
}
