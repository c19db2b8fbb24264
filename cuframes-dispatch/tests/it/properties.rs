//! S1 to S4: a scheduler does what the model does, whatever is done to it in any order; and with real workers, every block
//! ends once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;
use std::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::ConnId;
use cuframes_dispatch::wire::{Block, BlockId, Status};
use cuframes_dispatch::{
    Acquired, BlockEvent, Cause, Counts, Outcome, PeerFault, Scheduler, ServerEvent, Stop, WorkerEvent,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::FileFailurePersistence;

use crate::model::{Model, State, tasks};
use crate::world::{TIMEOUT, World, id};

/// A case that fails is written beside this file, and belongs into the repository.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(persistence)), ..ProptestConfig::default() }
}

/// What is done to a scheduler. Holders are 0 to 3, tasks 0 to 2, blocks 0 to 5.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Add(BlockId, Vec<BlockId>),
    Acquire(u64, usize),
    Release(u64, BlockId, bool),
    /// One that it has.
    Answer(u64, Index, bool),
    /// One that was taken from it.
    AnswerLate(u64, Index, bool),
    Gone(u64),
    Wait(u64),
    AbandonBlock(BlockId),
    RevokeBlock(BlockId),
    AbandonTask(usize),
    Close(usize),
}

fn any_id() -> impl Strategy<Value = BlockId> {
    (0..3_usize, 0..6_u64).prop_map(|(task, number)| BlockId::new(["t", "u", "v"][task], number))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any_id(), vec(any_id(), 0..3)).prop_map(|(id, others)| Step::Add(id, others)),
        4 => any_id().prop_map(|id| Step::Add(id, Vec::new())),
        12 => (0..4_u64, 0..3_usize).prop_map(|(holder, task)| Step::Acquire(holder, task)),
        1 => (0..4_u64, any_id(), any::<bool>()).prop_map(|(holder, id, ok)| Step::Release(holder, id, ok)),
        8 => (0..4_u64, any::<Index>(), any::<bool>()).prop_map(|(who, at, ok)| Step::Answer(who, at, ok)),
        2 => (0..4_u64, any::<Index>(), any::<bool>()).prop_map(|(who, at, ok)| Step::AnswerLate(who, at, ok)),
        1 => (0..4_u64).prop_map(Step::Gone),
        3 => (0..150_u64).prop_map(Step::Wait),
        1 => any_id().prop_map(Step::AbandonBlock),
        1 => any_id().prop_map(Step::RevokeBlock),
        1 => prop_oneof![8 => Just(None), 1 => (0..3_usize).prop_map(Some)]
            .prop_map(|task| task.map_or(Step::Wait(1), Step::AbandonTask)),
        1 => prop_oneof![4 => Just(None), 1 => (0..3_usize).prop_map(Some)]
            .prop_map(|task| task.map_or(Step::Wait(1), Step::Close)),
    ]
}

pub(crate) struct Both {
    pub(crate) now: Instant,
    pub(crate) scheduler: Scheduler,
    pub(crate) model: Model,
    /// How often a block of this name was added, and ended.
    pub(crate) added: BTreeMap<BlockId, (u64, u64)>,
    /// What the scheduler has told.
    pub(crate) told: VecDeque<BlockEvent>,
}

impl Both {
    pub(crate) fn new() -> Self {
        let (mut scheduler, mut model) = (Scheduler::default(), Model::default());
        for config in tasks() {
            scheduler.add_task(config.clone()).unwrap();
            model.add_task(config);
        }
        Self { now: Instant::ZERO, scheduler, model, added: BTreeMap::new(), told: VecDeque::new() }
    }

    pub(crate) fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let Self { now, scheduler, model, .. } = self;
        let task = |task: usize| ["t", "u", "v"][task];
        let cause = |ok: &bool| (!ok).then(|| Cause::Reported("why".into()));
        match step {
            Step::Add(id, others) => {
                let block = Block { block_id: id.clone(), status: Status::Success, ..Block::default() };
                let result = scheduler.add_block(block, others);
                if result.is_ok() {
                    self.added.entry(id.clone()).or_default().0 += 1;
                }
                prop_assert_eq!(result, model.add_block(id, others));
            }
            Step::Acquire(holder, number) => {
                let (holder, name) = (ConnId::new(*holder), task(*number));
                let candidates = model.next(holder, name);
                let timeout = tasks()[*number].timeout;
                match scheduler.acquire(*now, holder, name).unwrap() {
                    Acquired::Block(block, time) => {
                        prop_assert!(candidates.contains(&block.block_id), "{block:?} of {candidates:?}");
                        prop_assert_eq!(time, timeout);
                        model.hand_out(*now, holder, &block.block_id);
                    }
                    Acquired::Nothing => prop_assert!(candidates.is_empty() && !model.is_over(name)),
                    Acquired::Ended => prop_assert!(model.is_over(name)),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            Step::Release(holder, id, ok) => {
                let holder = ConnId::new(*holder);
                prop_assert_eq!(
                    scheduler.release(holder, id, cause(ok)),
                    model.release(holder, id, cause(ok))
                );
            }
            Step::Answer(holder, at, ok) => {
                let holder = ConnId::new(*holder);
                let held = model.held(holder);
                if !held.is_empty() {
                    let id = at.get(&held);
                    prop_assert_eq!(
                        scheduler.release(holder, id, cause(ok)),
                        model.release(holder, id, cause(ok))
                    );
                }
            }
            Step::AnswerLate(holder, at, ok) => {
                let holder = ConnId::new(*holder);
                let owed = model.owed.keys().filter(|(who, _)| *who == holder).map(|(_, id)| id.clone());
                let owed: Vec<BlockId> = owed.collect();
                if !owed.is_empty() {
                    let id = at.get(&owed);
                    prop_assert_eq!(
                        scheduler.release(holder, id, cause(ok)),
                        model.release(holder, id, cause(ok))
                    );
                }
            }
            Step::Gone(holder) => {
                scheduler.holder_gone(ConnId::new(*holder));
                model.holder_gone(ConnId::new(*holder));
            }
            Step::Wait(millis) => {
                *now = *now + Duration::from_millis(*millis);
                scheduler.handle_timeout(*now);
                model.pass(*now);
            }
            Step::AbandonBlock(id) => {
                prop_assert_eq!(scheduler.abandon_block(id), model.abandon_block(id));
            }
            Step::RevokeBlock(id) => {
                prop_assert_eq!(scheduler.revoke_block(id), model.revoke_block(id));
            }
            Step::AbandonTask(number) => {
                scheduler.abandon_task(task(*number)).unwrap();
                model.abandon_task(task(*number));
            }
            Step::Close(number) => {
                scheduler.close_task(task(*number)).unwrap();
                model.tasks.get_mut(task(*number)).unwrap().is_closed = true;
            }
        }
        self.look()
    }

    /// What holds after every step.
    pub(crate) fn look(&mut self) -> Result<(), TestCaseError> {
        let Self { scheduler, model, added, told, .. } = self;
        let mut events: Vec<BlockEvent> = iter::from_fn(|| scheduler.poll_event()).collect();
        for event in &events {
            if let BlockEvent::Ended { block_id, .. } = event {
                let (adds, ends) = added.get_mut(block_id).unwrap();
                *ends += 1;
                prop_assert!(ends <= adds, "{block_id:?} ended twice");
            }
        }
        told.extend(events.iter().cloned());
        events.sort_by_key(|event| format!("{event:?}"));
        model.events.sort_by_key(|event| format!("{event:?}"));
        prop_assert_eq!(events, std::mem::take(&mut model.events));
        // Each is told of once, with one of its blocks.
        let expected = std::mem::take(&mut model.silent);
        let silent: Vec<_> = iter::from_fn(|| scheduler.poll_silent()).collect();
        prop_assert!(silent.iter().all(|told| expected.contains(told)), "{silent:?} of {expected:?}");
        let who = expected.into_iter().map(|(who, _)| who).collect::<BTreeSet<_>>();
        prop_assert_eq!(silent.into_iter().map(|(who, _)| who).collect::<Vec<_>>(), Vec::from_iter(who));
        for (name, task) in &model.tasks {
            let Counts { total, waiting, ready, processing, succeeded, failed, orphaned, retried, .. } =
                scheduler.counts(name).unwrap();
            prop_assert_eq!([waiting, ready, processing], model.counts(name));
            let ended = |outcome| task.ended.get(&outcome).copied().unwrap_or_default();
            prop_assert_eq!(succeeded, ended(Outcome::Success));
            prop_assert_eq!(failed, ended(Outcome::Failed));
            prop_assert_eq!(orphaned, ended(Outcome::Orphaned));
            prop_assert_eq!((total, retried), (task.total, task.retried));
            prop_assert_eq!(total, waiting + ready + processing + succeeded + failed + orphaned);
        }
        for (id, block) in &model.blocks {
            prop_assert_eq!(scheduler.is_out(id), matches!(block.state, State::Out(..)));
        }
        prop_assert_eq!(scheduler.poll_timeout(), model.next_deadline());
        prop_assert!(scheduler.poll_timeout().is_none_or(|at| at >= self.now));
        prop_assert_eq!(scheduler.is_finished(), model.tasks.keys().all(|task| model.is_over(task)));
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(2048))]

    #[test]
    fn a_scheduler_does_what_the_model_does(steps in vec(step(), 0..120)) {
        let mut both = Both::new();
        for step in &steps {
            both.step(step)?;
        }
        // In the end all have ended, each as often as it was added.
        for task in 0..3 {
            both.step(&Step::AbandonTask(task))?;
        }
        prop_assert!(both.scheduler.is_finished());
        prop_assert!(both.added.values().all(|(adds, ends)| adds == ends), "{:?}", both.added);
    }
}

/// What happens to a server and its workers.
#[derive(Clone, Debug)]
enum Turn {
    Add(u8, Option<u8>),
    Join(usize),
    /// A worker is done with one of its blocks, or not.
    Work(Index, Index, bool),
    Kill(Index),
    Leave(Index),
    Wait(u64),
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        4 => (0..12_u8, any::<Option<u8>>()).prop_map(|(number, other)| Turn::Add(number, other.map(|n| n % 12))),
        2 => (1..4_usize).prop_map(Turn::Join),
        8 => (any::<Index>(), any::<Index>(), prop::bool::weighted(0.7))
            .prop_map(|(who, at, ok)| Turn::Work(who, at, ok)),
        1 => any::<Index>().prop_map(Turn::Kill),
        1 => any::<Index>().prop_map(Turn::Leave),
        1 => (0..400_u64).prop_map(Turn::Wait),
    ]
}

/// Which blocks each worker that lives has been told of and has not answered about; and how many were sent away.
#[derive(Default)]
struct Crew(BTreeMap<usize, Vec<BlockId>>, usize);

impl Crew {
    fn listen(&mut self, world: &mut World) -> Result<(), TestCaseError> {
        for (worker, joiner) in world.workers.iter_mut().enumerate() {
            for event in joiner.events.drain(..) {
                match event {
                    WorkerEvent::Block { block, .. } => {
                        if let Some(has) = self.0.get_mut(&worker) {
                            prop_assert!(!has.contains(&block.block_id));
                            has.push(block.block_id);
                        }
                    }
                    WorkerEvent::Stopped(stop) => {
                        prop_assert!(
                            matches!(stop, Stop::Shutdown | Stop::Left | Stop::Closed { .. }),
                            "{stop:?}"
                        );
                        self.1 += usize::from(matches!(stop, Stop::Closed { .. }));
                        self.0.remove(&worker);
                    }
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
        Ok(())
    }

    fn work(&mut self, world: &mut World, worker: usize, at: usize, ok: bool) {
        let Some(has) = self.0.get_mut(&worker).filter(|has| at < has.len()) else { return };
        let block_id = has.remove(at);
        let machine = &mut world.workers[worker].machine;
        assert!(if ok {
            machine.done(world.now, &block_id, None)
        } else {
            machine.failed(world.now, &block_id, "no")
        });
        world.run();
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn every_block_ends_once_whatever_happens_to_workers(
        turns in vec(turn(), 0..60),
        width in prop_oneof![1..40_usize, Just(usize::MAX)],
    ) {
        let mut world = World::open([]);
        world.width = width;
        let mut crew = Crew::default();
        let mut added = 0;
        for turn in turns {
            match turn {
                Turn::Add(number, other) => {
                    let others: Vec<BlockId> = other.map(|other| id("t", other)).into_iter().collect();
                    let block = crate::world::block("t", number);
                    // Some are there already, or wait for what is not.
                    added += u64::from(world.schedule(|scheduler| scheduler.add_block(block, &others)).is_ok());
                }
                Turn::Join(depth) => {
                    let worker = world.join(depth);
                    crew.0.insert(worker, Vec::new());
                }
                Turn::Wait(seconds) => world.pass(Duration::from_secs(seconds)),
                Turn::Work(who, at, ok) if !crew.0.is_empty() => {
                    let worker = *who.get(&crew.0.keys().copied().collect::<Vec<_>>());
                    let at = at.index(crew.0[&worker].len().max(1));
                    crew.work(&mut world, worker, at, ok);
                }
                Turn::Kill(who) | Turn::Leave(who) if !crew.0.is_empty() => {
                    let worker = *who.get(&crew.0.keys().copied().collect::<Vec<_>>());
                    crew.0.remove(&worker);
                    if matches!(turn, Turn::Kill(_)) {
                        world.kill(worker);
                    } else {
                        world.workers[worker].machine.leave(world.now);
                        world.run();
                    }
                }
                _ => {}
            }
            crew.listen(&mut world)?;
        }
        // Somebody comes who does what is left, and the others answer at last, too.
        world.close("t");
        crew.listen(&mut world)?;
        let last = world.join(2);
        crew.0.insert(last, Vec::new());
        crew.listen(&mut world)?;
        while let Some((worker, _)) = crew.0.iter().find(|(_, has)| !has.is_empty()) {
            crew.work(&mut world, *worker, 0, true);
            crew.listen(&mut world)?;
        }
        prop_assert!(world.server.scheduler().is_finished(), "{:?}", world.counts("t"));
        prop_assert!(crew.0.is_empty(), "{:?} were not sent home", crew.0.keys());
        let ends = world.events.iter().filter(|event| matches!(event, ServerEvent::Block(BlockEvent::Ended { .. })));
        prop_assert_eq!(u64::try_from(ends.count()).unwrap(), added);
        // Nobody was sent away but for its silence.
        let faults: Vec<_> = world
            .events
            .iter()
            .filter_map(|event| if let ServerEvent::Left { fault, .. } = event { fault.as_ref() } else { None })
            .collect();
        prop_assert!(faults.iter().all(|fault| matches!(fault, PeerFault::Silent(_))), "{faults:?}");
        prop_assert_eq!(faults.len(), crew.1);
        world.pass(TIMEOUT);
        prop_assert_eq!(world.server_timeout(), None);
    }
}
