//! The ring (§5) in ordinary memory, of 16 slots. All members are awake, and say so.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cuframes_mio::core::ring::{Frame, Outside, RingReader, RingWriter, Seat, Standing, Testimony};
use cuframes_mio::core::roster::Roster;
use cuframes_mio::core::shm::layout::{INVALID_SEQ, SLOTS};
use cuframes_mio::core::shm::{Region, RegionWords};
use cuframes_mio::core::{Features, Instant, Policy, RingSize, SubscriberBit, SubscriberMode};
use cuframes_testkit::heap::{HeapRegion, PID, QUARANTINE, request};

use crate::operation::Operation;

pub(crate) fn operations() -> Vec<Operation> {
    let mut operations = Vec::new();
    for (members, features) in
        [(0, LEASE), (1, PLAIN), (1, LEASE), (8, LEASE), (31, PLAIN), (31, LEASE), (31, WITNESS)]
    {
        let of = of(members, features);
        let begin = move |policy| move || Ring::new(policy, members, features);
        operations.push(Operation::single(format!("ring: claim and commit, DROP_OLDEST, {of}"), move || {
            let mut ring = begin(Policy::DROP_OLDEST)();
            move || ring.publish()
        }));
        operations.push(Operation::several(
            format!("ring: claim and commit, STRICT_WAIT, {of}"),
            SLOTS,
            begin(Policy::STRICT_WAIT),
            Ring::catch_up,
            Ring::fill,
        ));
    }
    for features in [PLAIN, LEASE, WITNESS] {
        let of = of(1, features);
        let begin = move || Ring::new(Policy::DROP_OLDEST, 1, features);
        operations.push(Operation::several(
            format!("ring: take a frame, {of}"),
            SLOTS,
            begin,
            |ring| {
                ring.held.clear();
                ring.fill();
            },
            Ring::take,
        ));
        operations.push(Operation::several(
            format!("ring: release a frame, {of}"),
            SLOTS,
            begin,
            |ring| {
                ring.fill();
                ring.take();
            },
            |ring| ring.held.clear(),
        ));
    }
    operations.push(Operation::single("ring: look for a frame where none is, WITNESS", || {
        let mut ring = Ring::new(Policy::DROP_OLDEST, 1, WITNESS);
        move || assert!(ring.readers.iter_mut().all(|reader| reader.next().is_none()))
    }));
    operations.push(Operation::single("ring: claim and commit, DROP_OLDEST, 15 of 16 slots leased", || {
        let mut ring = Ring::new(Policy::DROP_OLDEST, 1, LEASE);
        ring.fill();
        ring.take();
        ring.held.truncate(SLOTS - 1);
        move || ring.publish()
    }));
    operations.push(Operation::single("ring: claim that fails, DROP_OLDEST, every slot leased", || {
        let mut ring = Ring::new(Policy::DROP_OLDEST, 1, LEASE);
        ring.fill();
        ring.take();
        move || ring.claim_in_vain()
    }));
    for members in [1, 31] {
        let name = format!("ring: claim that fails, STRICT_WAIT, {} behind", of(members, LEASE));
        operations.push(Operation::single(name, move || {
            let mut ring = Ring::new(Policy::STRICT_WAIT, members, LEASE);
            ring.fill();
            move || ring.claim_in_vain()
        }));
    }
    operations
}

fn of(members: usize, features: Features) -> String {
    let kind = match features {
        _ if members == 0 => "",
        PLAIN => " without LEASE",
        WITNESS => " with LEASE and WITNESS",
        _ => " with LEASE",
    };
    format!("{members} member{}{kind}", if members == 1 { "" } else { "s" })
}

/// Both sides of a ring.
struct Ring {
    writer: RingWriter<HeapRegion>,
    readers: Vec<RingReader<HeapRegion, Member>>,
    held: Vec<Frame<HeapRegion, Member>>,
    _roster: Roster<HeapRegion>,
}

impl Ring {
    fn new(policy: Policy, members: usize, features: Features) -> Self {
        let (region, witness) = (fresh_region(), fresh_region());
        let mut roster = Roster::new(Arc::clone(&region), QUARANTINE);
        let membership = Arc::clone(roster.membership());
        let mut writer = RingWriter::new(Arc::clone(&region), membership, RING_SIZE, policy);
        let is_witnessed = features.contains(Features::WITNESS);
        if is_witnessed {
            roster = roster.with_witness(Arc::clone(&witness));
            writer = writer.with_witness(Arc::clone(&witness));
        }
        let readers = (0..members).map(|_| {
            let subscribed = roster.admit(PID, request(MODE, features)).unwrap();
            let member = Member(is_witnessed.then(|| Arc::clone(&witness)));
            let (region, initial_seq) = (Arc::clone(&region), subscribed.initial_seq.resolve(0));
            let seat = Seat::new(region, member, RING_SIZE, subscribed.bit, initial_seq, features, false);
            RingReader::new(seat, MODE)
        });
        let readers = readers.collect();
        Self { writer, readers, held: Vec::with_capacity(SLOTS), _roster: roster }
    }

    fn publish(&mut self) {
        let committed = self.writer.claim().unwrap().commit(black_box(1), black_box(2));
        assert_eq!(black_box(committed).wake, 0);
    }

    fn fill(&mut self) {
        (0..SLOTS).for_each(|_| self.publish());
    }

    fn claim_in_vain(&mut self) {
        black_box(self.writer.claim().map(|_| ()).unwrap_err());
    }

    /// The first reader takes everything, and holds it.
    fn take(&mut self) {
        let Some(reader) = self.readers.first_mut() else { return };
        self.held.extend((0..SLOTS).map_while(|_| reader.next()));
    }

    /// Everybody is done with everything.
    fn catch_up(&mut self) {
        for reader in &mut self.readers {
            while let Some(frame) = reader.next() {
                frame.release().unwrap();
            }
        }
    }
}

/// What a member's driver does, without a driver.
#[derive(Debug)]
struct Member(Option<HeapRegion>);

impl Outside for Member {
    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn wake_publisher(&self) {}

    fn testimony(&self, slot: usize) -> Option<Testimony> {
        let words = self.0.as_ref()?.slot(slot);
        let [seq, pts_ns, written_bytes] =
            [&words.seq, &words.pts_ns, &words.written_bytes].map(|word| word.load(Relaxed));
        Some(Testimony { seq, pts_ns, written_bytes })
    }

    fn standing(&self, bit: SubscriberBit) -> Option<Standing> {
        let words = self.0.as_ref()?.subscriber(bit.get().into());
        Some(Standing { state: words.state.load(Relaxed), term: words.term.load(Relaxed) })
    }
}

fn fresh_region() -> HeapRegion {
    let region: HeapRegion = Arc::new(RegionWords::zeroed());
    for slot in &region.slots {
        slot.seq.store(INVALID_SEQ, Relaxed);
    }
    region
}

const RING_SIZE: RingSize = RingSize::new(16).unwrap();
const MODE: SubscriberMode = SubscriberMode::STRICT_ORDER;
const PLAIN: Features = Features::WAKE_HINT;
const LEASE: Features = PLAIN.union(Features::LEASE);
const WITNESS: Features = LEASE.union(Features::WITNESS);
