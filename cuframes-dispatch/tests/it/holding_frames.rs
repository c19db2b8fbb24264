//! F1 to F3: frames do what a model of them does, whatever is done to them, their scheduler and its workers in any order.

use std::collections::{BTreeMap, BTreeSet};

use cuframes_core::Tiles;
use cuframes_dispatch::wire::BlockId;
use cuframes_dispatch::{BlockEvent, FrameCounts, Frames, NotAdded, Outcome, TaskError};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use crate::frames::tiles;
use crate::model::State;
use crate::properties::{Both, Step, cases};

/// What is done. Frames have the sequences 0 to 5.
#[derive(Clone, Debug)]
enum Move {
    Add(u64),
    DropOldest,
    GiveUp,
    /// So many events come to the frames.
    Tell(usize),
    /// Something happens to the scheduler.
    Other(Step),
}

fn any_move() -> impl Strategy<Value = Move> {
    let who = 0..3_u64;
    prop_oneof![
        8 => (0..6_u64).prop_map(Move::Add),
        2 => Just(Move::DropOldest),
        6 => (1..9_usize).prop_map(Move::Tell),
        12 => (who.clone(), 0..3_usize).prop_map(|(holder, task)| Move::Other(Step::Acquire(holder, task))),
        10 => (who.clone(), any::<Index>(), prop::bool::weighted(0.7))
            .prop_map(|(who, at, ok)| Move::Other(Step::Answer(who, at, ok))),
        2 => (who.clone(), any::<Index>(), any::<bool>())
            .prop_map(|(who, at, ok)| Move::Other(Step::AnswerLate(who, at, ok))),
        1 => who.prop_map(|who| Move::Other(Step::Gone(who))),
        2 => (0..100_u64).prop_map(|millis| Move::Other(Step::Wait(millis))),
        1 => prop_oneof![
            4 => Just(Move::GiveUp),
            1 => (0..3_usize).prop_map(|task| Move::Other(Step::Close(task))),
            1 => (0..3_usize).prop_map(|task| Move::Other(Step::AbandonTask(task))),
        ],
    ]
}

/// The frames, and what should be true of them.
struct Lender {
    both: Both,
    frames: Frames<u64>,
    tasks: Vec<String>,
    tiles: Tiles,
    limit: usize,
    /// The frames that are held: how each is called, which no other one is.
    held: BTreeMap<u64, u64>,
    /// Whose block of this name ends next, and so on.
    owners: BTreeMap<BlockId, Vec<u64>>,
    /// How the blocks of each frame have ended that were told of.
    outcomes: BTreeMap<u64, Vec<Outcome>>,
    given_back: BTreeSet<u64>,
    counts: [u64; 5],
}

impl Lender {
    fn new(tasks: &[&str], tiles: Tiles, limit: usize) -> Self {
        let tasks: Vec<String> = tasks.iter().map(|task| (*task).into()).collect();
        Self {
            both: Both::new(),
            frames: Frames::new(tasks.clone(), tiles, limit),
            tasks,
            tiles,
            limit,
            held: BTreeMap::new(),
            owners: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            given_back: BTreeSet::new(),
            counts: [0; 5],
        }
    }

    fn play(&mut self, a_move: &Move) -> Result<(), TestCaseError> {
        match a_move {
            Move::Add(seq) => self.add(*seq)?,
            Move::DropOldest => self.drop_oldest()?,
            Move::GiveUp => self.give_up(),
            Move::Tell(events) => (0..*events).try_for_each(|_| self.tell())?,
            Move::Other(step) => self.both.step(step)?,
        }
        self.both.look()?;
        prop_assert!(self.frames.len() <= self.limit);
        prop_assert_eq!(self.frames.len(), self.held.len());
        prop_assert_eq!(self.frames.is_empty(), self.held.is_empty());
        prop_assert_eq!(self.frames.is_full(), self.held.len() == self.limit);
        let FrameCounts { taken, done, failed, dropped, given_up, .. } = self.frames.counts();
        prop_assert_eq!([taken, done, failed, dropped, given_up], self.counts);
        prop_assert_eq!(taken, done + failed + dropped + given_up + u64::try_from(self.held.len()).unwrap());
        Ok(())
    }

    /// Its blocks, each with the one that it waits for.
    fn blocks(&self, seq: u64) -> Vec<(BlockId, Option<BlockId>)> {
        let tiles = self.tiles.len();
        let numbers = seq * tiles..(seq + 1) * tiles;
        let ids = numbers.flat_map(|number| {
            self.tasks.iter().enumerate().map(move |(at, task)| {
                let before = at.checked_sub(1).map(|before| BlockId::new(&self.tasks[before], number));
                (BlockId::new(task, number), before)
            })
        });
        ids.collect()
    }

    fn add(&mut self, seq: u64) -> Result<(), TestCaseError> {
        let name = self.counts[0] + 1000;
        let blocks = self.blocks(seq);
        let result = self.frames.add(&mut self.both.scheduler, seq, name);
        let model = &mut self.both.model;
        let error = if self.held.len() == self.limit {
            Some(NotAdded::Full)
        } else if self.held.contains_key(&seq) {
            Some(NotAdded::Exists)
        } else {
            let closed = self.tasks.iter().find(|task| model.tasks[*task].is_closed);
            closed.map(|task| NotAdded::Task(TaskError::TaskClosed(task.clone())))
        };
        if let Err(refused) = result {
            prop_assert_eq!((refused.frame, Some(refused.reason)), (name, error));
            return Ok(());
        }
        prop_assert_eq!(error, None);
        for (id, before) in blocks {
            prop_assert_eq!(model.add_block(&id, before.as_slice()), Ok(()));
            self.both.added.entry(id.clone()).or_default().0 += 1;
            self.owners.entry(id).or_default().push(name);
        }
        self.held.insert(seq, name);
        self.counts[0] += 1;
        Ok(())
    }

    fn drop_oldest(&mut self) -> Result<(), TestCaseError> {
        let blocks = &self.both.model.blocks;
        let is_untouched = |id: &BlockId| {
            blocks.get(id).is_some_and(|block| block.failures == 0 && !matches!(block.state, State::Out(..)))
        };
        let is_untouched = |seq: u64| self.blocks(seq).iter().all(|(id, _)| is_untouched(id));
        let expected = self.held.iter().find(|(seq, _)| is_untouched(**seq)).map(|(seq, name)| (*seq, *name));
        prop_assert_eq!(self.frames.drop_oldest(&mut self.both.scheduler), expected);
        if let Some((seq, name)) = expected {
            for (id, _) in self.blocks(seq) {
                self.both.model.abandon_block(&id);
            }
            self.held.remove(&seq);
            self.counts[3] += 1;
            prop_assert!(self.given_back.insert(name));
        }
        Ok(())
    }

    fn give_up(&mut self) {
        self.frames.give_up(&mut self.both.scheduler);
        let ids = self.held.keys().flat_map(|seq| self.blocks(*seq)).map(|(id, _)| id);
        for id in ids.collect::<Vec<_>>() {
            self.both.model.revoke_block(&id);
        }
    }

    fn tell(&mut self) -> Result<(), TestCaseError> {
        let Some(event) = self.both.told.pop_front() else { return Ok(()) };
        let end = self.frames.ended(&event);
        let BlockEvent::Ended { block_id, outcome, .. } = event else {
            prop_assert_eq!(end, None);
            return Ok(());
        };
        let name = self.owners.get_mut(&block_id).unwrap().remove(0);
        let outcomes = self.outcomes.entry(name).or_default();
        outcomes.push(outcome);
        let is_last = outcomes.len() == self.tasks.len() * usize::try_from(self.tiles.len()).unwrap();
        if !is_last || self.given_back.contains(&name) {
            prop_assert_eq!(end, None);
            return Ok(());
        }
        let worst = [Outcome::Failed, Outcome::Orphaned, Outcome::Success]
            .into_iter()
            .position(|worst| outcomes.contains(&worst));
        let seq = block_id.spatial_id / self.tiles.len();
        let end = end.unwrap();
        let outcome = [Outcome::Failed, Outcome::Orphaned, Outcome::Success][worst.unwrap()];
        prop_assert_eq!((end.seq, end.frame, end.outcome), (seq, name, outcome));
        prop_assert_eq!(self.held.remove(&seq), Some(name));
        self.counts[[2, 4, 1][worst.unwrap()]] += 1;
        prop_assert!(self.given_back.insert(name));
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn every_frame_is_given_back_once_whatever_happens(
        tasks in subsequence(vec!["t", "u", "v"], 1..=3).prop_shuffle(),
        columns in prop_oneof![Just(1_u32), Just(2), Just(4)],
        limit in 1..5_usize,
        moves in vec(any_move(), 0..120),
    ) {
        let mut lender = Lender::new(&tasks, tiles(columns), limit);
        for a_move in &moves {
            lender.play(a_move)?;
        }
        // In the end all frames come back, and nothing is left to be told about.
        lender.play(&Move::GiveUp)?;
        while !lender.both.told.is_empty() {
            lender.play(&Move::Tell(1))?;
        }
        prop_assert!(lender.frames.is_empty());
        prop_assert_eq!(u64::try_from(lender.given_back.len()).unwrap(), lender.counts[0]);
        prop_assert!(lender.both.model.blocks.is_empty());
    }
}
