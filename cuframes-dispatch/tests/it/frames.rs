//! Frames of a stream: what they are given back for, and what is left of them.

use cuframes_core::streams::ConnId;
use cuframes_core::{Format, FrameMeta, Instant, Tiles};
use cuframes_dispatch::wire::BlockId;
use cuframes_dispatch::{
    Acquired, Cause, FrameCounts, FrameEnd, Frames, NotAdded, Outcome, Part, Released, Scheduler, TaskConfig,
    TaskError,
};

const A: ConnId = ConnId::new(1);

/// A frame of 4 x 8 pixels that is cut into this many columns.
pub(crate) fn tiles(columns: u32) -> Tiles {
    FrameMeta::new(Format::GRAY8, 8, 4).unwrap().tiles(4, 8 / columns).unwrap()
}

struct Story {
    scheduler: Scheduler,
    frames: Frames<&'static str>,
}

impl Story {
    fn new(tasks: &[&str], columns: u32, limit: usize) -> Self {
        let mut scheduler = Scheduler::default();
        for task in ["t", "u"] {
            let mut config = TaskConfig::new(task);
            config.max_retries = 1;
            scheduler.add_task(config).unwrap();
        }
        let tasks = tasks.iter().map(|task| (*task).into()).collect();
        Self { scheduler, frames: Frames::new(tasks, tiles(columns), limit) }
    }

    fn add(&mut self, seq: u64, frame: &'static str) {
        self.frames.add(&mut self.scheduler, seq, frame).unwrap();
    }

    fn take(&mut self, task: &str) -> u64 {
        let Acquired::Block(block, _) = self.scheduler.acquire(Instant::ZERO, A, task).unwrap() else {
            panic!("nothing is ready in {task}");
        };
        block.block_id.spatial_id
    }

    fn release(&mut self, task: &str, number: u64, ok: bool) -> Vec<FrameEnd<&'static str>> {
        let cause = (!ok).then(|| Cause::Reported("no".into()));
        assert_eq!(self.scheduler.release(A, &BlockId::new(task, number), cause), Released::Accepted);
        self.ends()
    }

    /// Frames that have been given back.
    fn ends(&mut self) -> Vec<FrameEnd<&'static str>> {
        let Self { scheduler, frames } = self;
        std::iter::from_fn(|| scheduler.poll_event()).filter_map(|event| frames.ended(&event)).collect()
    }

    fn counts(&self) -> [u64; 5] {
        let FrameCounts { taken, done, failed, dropped, given_up, .. } = self.frames.counts();
        [taken, done, failed, dropped, given_up]
    }

    fn unfinished(&self, task: &str) -> u64 {
        self.scheduler.counts(task).unwrap().unfinished()
    }
}

/// What is told about a frame that was given back.
fn brief(ends: &[FrameEnd<&'static str>]) -> Vec<(u64, &'static str, Outcome)> {
    ends.iter().map(|FrameEnd { seq, frame, outcome, .. }| (*seq, *frame, *outcome)).collect()
}

#[test]
fn a_frame_is_given_back_when_the_last_of_its_blocks_has_ended() {
    let mut story = Story::new(&["t"], 2, 2);
    story.add(7, "seven");
    story.add(9, "nine");
    assert!(story.frames.is_full());
    assert_eq!([story.take("t"), story.take("t"), story.take("t")], [14, 15, 18]);
    assert!(story.scheduler.is_out(&BlockId::new("t", 15)));
    assert!(!story.scheduler.is_out(&BlockId::new("t", 19)));
    assert_eq!(story.release("t", 15, true), []);
    assert!(!story.scheduler.is_out(&BlockId::new("t", 15)));
    assert_eq!(story.release("t", 18, true), []);
    assert_eq!(brief(&story.release("t", 14, true)), [(7, "seven", Outcome::Success)]);
    assert_eq!((story.frames.len(), story.counts()), (1, [2, 1, 0, 0, 0]));
    assert_eq!(story.take("t"), 19);
    assert_eq!(brief(&story.release("t", 19, true)), [(9, "nine", Outcome::Success)]);
    assert!(story.frames.is_empty() && !story.frames.is_full());
}

#[test]
fn a_block_of_a_task_waits_for_the_same_tile_of_the_task_before() {
    let mut story = Story::new(&["t", "u", "t"], 2, 1);
    story.add(1, "one");
    assert_eq!([story.take("t"), story.take("t")], [2, 3]);
    assert_eq!(story.scheduler.acquire(Instant::ZERO, A, "u"), Ok(Acquired::Nothing));
    assert_eq!(story.release("t", 3, true), []);
    assert_eq!(story.take("u"), 3);
    assert_eq!(story.release("u", 3, true), []);
    assert_eq!(story.release("t", 2, true), []);
    assert_eq!(story.take("u"), 2);
    assert_eq!(brief(&story.release("u", 2, true)), [(1, "one", Outcome::Success)]);
}

#[test]
fn a_frame_of_which_a_block_failed_for_good_has_failed_though_others_were_orphaned_or_done() {
    let mut story = Story::new(&["t", "u"], 2, 1);
    story.add(0, "zero");
    assert_eq!([story.take("t"), story.take("t")], [0, 1]);
    assert_eq!(story.release("t", 0, false), []);
    assert_eq!(story.release("t", 1, true), []);
    assert_eq!([story.take("t"), story.take("u")], [0, 1]);
    assert_eq!(story.release("t", 0, false), []);
    assert_eq!(story.unfinished("u"), 1);
    assert_eq!(brief(&story.release("u", 1, true)), [(0, "zero", Outcome::Failed)]);
    assert_eq!(story.counts(), [1, 0, 1, 0, 0]);
}

#[test]
fn the_oldest_frame_that_nobody_works_on_is_dropped_and_can_come_again() {
    let mut story = Story::new(&["t", "u"], 2, 3);
    for (seq, frame) in [(3, "three"), (4, "four"), (5, "five")] {
        story.add(seq, frame);
    }
    assert_eq!(story.take("t"), 6);
    let Story { scheduler, frames } = &mut story;
    assert_eq!(frames.drop_oldest(scheduler), Some((4, "four")));
    // Before anybody has told that its blocks are orphaned.
    story.add(4, "four again");
    assert_eq!(story.ends(), []);
    assert_eq!((story.counts(), story.unfinished("t"), story.unfinished("u")), ([4, 0, 0, 1, 0], 6, 6));
    // Not while one of its blocks has ended, also if that was not told; nor while one is out.
    let done = BlockId::new("t", 6);
    assert_eq!(story.scheduler.release(A, &done, None), Released::Accepted);
    let Story { scheduler, frames } = &mut story;
    assert_eq!(frames.drop_oldest(scheduler), Some((4, "four again")));
    assert_eq!(frames.drop_oldest(scheduler), Some((5, "five")));
    assert_eq!(frames.drop_oldest(scheduler), None);
    assert_eq!(story.ends(), []);
    assert_eq!((story.frames.len(), story.counts()), (1, [4, 0, 0, 3, 0]));
}

#[test]
fn a_frame_that_was_lost_and_is_to_be_tried_again_is_not_dropped() {
    let mut story = Story::new(&["t"], 1, 1);
    story.add(3, "three");
    assert_eq!(story.take("t"), 3);
    let Story { scheduler, frames } = &mut story;
    assert_eq!(frames.drop_oldest(scheduler), None);
    assert_eq!(story.release("t", 3, false), []);
    let Story { scheduler, frames } = &mut story;
    assert_eq!(frames.drop_oldest(scheduler), None);
    assert_eq!(story.take("t"), 3);
    assert_eq!(brief(&story.release("t", 3, true)), [(3, "three", Outcome::Success)]);
}

#[test]
fn when_all_is_given_up_frames_come_back_also_those_that_are_worked_on() {
    let mut story = Story::new(&["t", "u"], 2, 3);
    (1..4).zip(["one", "two", "three"]).for_each(|(seq, frame)| story.add(seq, frame));
    // Of the first a block has failed, of the second one is out, the third is untouched.
    for _ in 0..2 {
        let mut mine = vec![story.take("t")];
        while mine.last() != Some(&2) {
            mine.push(story.take("t"));
        }
        mine.into_iter().for_each(|number| {
            let ok = number != 2;
            assert_eq!(story.release("t", number, ok), []);
        });
    }
    story.frames.give_up(&mut story.scheduler);
    let expected =
        [(1, "one", Outcome::Failed), (2, "two", Outcome::Orphaned), (3, "three", Outcome::Orphaned)];
    assert_eq!(brief(&story.ends()), expected);
    assert_eq!(story.counts(), [3, 0, 1, 0, 2]);
    assert_eq!((story.unfinished("t"), story.unfinished("u"), story.frames.len()), (0, 0, 0));
    // A second time there is nothing.
    story.frames.give_up(&mut story.scheduler);
    assert_eq!(story.ends(), []);
    assert_eq!(story.scheduler.poll_timeout(), None);
}

#[test]
fn who_worked_on_a_frame_that_was_given_up_may_answer_late() {
    let mut story = Story::new(&["t"], 1, 1);
    story.add(3, "three");
    assert_eq!(story.take("t"), 3);
    story.frames.give_up(&mut story.scheduler);
    assert_eq!(brief(&story.ends()), [(3, "three", Outcome::Orphaned)]);
    assert_eq!(story.scheduler.release(A, &BlockId::new("t", 3), None), Released::Late);
}

#[test]
fn a_frame_that_is_not_added_comes_back_and_leaves_nothing() {
    let refused = |story: &mut Story, seq| {
        let before = [story.unfinished("t"), story.unfinished("u")];
        let (len, counts) = (story.frames.len(), story.counts());
        let error = story.frames.add(&mut story.scheduler, seq, "back").unwrap_err();
        assert_eq!(error.frame, "back");
        assert_eq!(error.to_string(), error.reason.to_string());
        assert_eq!((story.frames.len(), story.counts()), (len, counts));
        assert_eq!([story.unfinished("t"), story.unfinished("u")], before);
        assert_eq!(story.scheduler.poll_event(), None);
        error.reason
    };
    let mut story = Story::new(&["t", "u"], 2, 2);
    story.add(1, "one");
    assert_eq!(refused(&mut story, 1), NotAdded::Exists);
    assert_eq!(refused(&mut story, u64::MAX / 2), NotAdded::Number);
    assert_eq!(refused(&mut story, u64::MAX), NotAdded::Number);
    // Somebody else's block is in the way: the last of all that would be added.
    let other = Part { seq: 2, tile: tiles(2).get(1).unwrap() }.block("u", 5);
    story.scheduler.add_block(other, &[]).unwrap();
    assert_eq!(refused(&mut story, 2), NotAdded::Task(TaskError::BlockExists(BlockId::new("u", 5))));
    story.add(3, "three");
    assert_eq!(refused(&mut story, 4), NotAdded::Full);
    let mut story = Story::new(&["t", "u"], 2, 2);
    story.scheduler.close_task("u").unwrap();
    assert_eq!(refused(&mut story, 1), NotAdded::Task(TaskError::TaskClosed("u".into())));
    let mut story = Story::new(&["t", "x"], 2, 2);
    assert_eq!(refused(&mut story, 1), NotAdded::Task(TaskError::UnknownTask("x".into())));
    assert_eq!(refused(&mut Story::new(&[], 2, 2), 1), NotAdded::NoBlocks);
    assert_eq!(refused(&mut Story::new(&["t"], 2, 0), 1), NotAdded::Full);
    let none = FrameMeta { width: 0, ..FrameMeta::new(Format::GRAY8, 8, 4).unwrap() };
    let mut story = Story::new(&["t"], 1, 1);
    story.frames = Frames::new(vec!["t".into()], none.tiles(1, 1).unwrap(), 1);
    assert_eq!(refused(&mut story, 1), NotAdded::NoBlocks);
}

#[test]
fn what_happens_to_blocks_of_others_is_not_looked_at() {
    let mut story = Story::new(&["u"], 1, 1);
    story.add(3, "three");
    for number in [3, 4] {
        story.scheduler.add_block(crate::world::block("t", number), &[]).unwrap();
        assert!(story.scheduler.abandon_block(&crate::world::id("t", number)));
    }
    assert_eq!((story.ends(), story.frames.len()), (vec![], 1));
}
