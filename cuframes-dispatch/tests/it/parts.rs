//! The frames of a stream as blocks: what a task and a part of a frame look like.

use cuframes_core::{Format, FrameMeta, Tile};
use cuframes_dispatch::wire::{Block, BlockId, Roi};
use cuframes_dispatch::{NoPart, NoStreamTask, Part, StreamTask};
use proptest::prelude::*;

use crate::properties::cases;

fn task(name: &str, key: &str, epoch: u64) -> StreamTask {
    StreamTask { name: name.into(), key: key.parse().unwrap(), epoch }
}

#[test]
fn a_task_of_a_stream_is_its_name_its_key_and_the_epoch_in_16_digits() {
    for (text, expected) in [
        ("detect@cam-1@0123456789abcdef", task("detect", "cam-1", 0x0123_4567_89ab_cdef)),
        ("a b:c=%@k@0000000000000000", task("a b:c=%", "k", 0)),
        ("\u{e9}@k@ffffffffffffffff", task("\u{e9}", "k", u64::MAX)),
    ] {
        assert_eq!(expected.to_string(), text);
        assert_eq!(text.parse(), Ok(expected));
    }
}

#[test]
fn what_only_looks_like_a_task_of_a_stream_is_none() {
    for text in [
        "",
        "@",
        "@@",
        "t",
        "t@cam",
        "cam@0123456789abcdef",
        "@cam@0123456789abcdef",
        "t@@0123456789abcdef",
        "t@c.m@0123456789abcdef",
        "a@t@cam@0123456789abcdef",
        "t@cam@0123456789abcde",
        "t@cam@0123456789abcdef0",
        "t@cam@+123456789abcdef",
        "t@cam@0123456789ABCDEF",
        "t@cam@0123456789abcdeg",
        "t@cam@0x23456789abcdef",
        "t@cam@0123456789abcdef ",
        "t@cam@\u{660}\u{661}\u{662}\u{663}\u{664}\u{665}\u{666}\u{667}",
    ] {
        assert_eq!(text.parse::<StreamTask>(), Err(NoStreamTask), "{text:?}");
    }
}

#[test]
fn a_part_of_a_frame_is_a_box_of_three_axes_that_is_read_and_written() {
    let part = Part { seq: 7, tile: Tile { y: 270, x: 480, height: 135, width: 240 } };
    let block = part.block("t", 29);
    let roi = Roi::new(&[7, 270, 480], &[1, 135, 240]);
    let expected =
        Block { read_roi: roi.clone(), write_roi: roi, block_id: BlockId::new("t", 29), ..Block::default() };
    assert_eq!(block, expected);
    assert_eq!(Part::from_block(&block), Ok(part));
}

#[test]
fn the_numbers_of_a_frames_blocks_follow_those_of_the_frame_before() {
    assert_eq!(Part::number(7, 1, 0), Some(7));
    assert_eq!((0..4).map(|index| Part::number(7, 4, index)).collect::<Vec<_>>(), [28, 29, 30, 31].map(Some));
    assert_eq!(Part::number(8, 4, 0), Some(32));
    let most = u64::MAX >> 1;
    for (seq, tiles, index, expected) in [
        (7, 4, 4, None),
        (7, 0, 0, None),
        (most - 1, 1, 0, Some(most - 1)),
        (most - 1, 2, 1, Some(u64::MAX - 2)),
        // It is not an axis of a box any more.
        (most, 1, 0, None),
        (u64::MAX, 1, 0, None),
        (most - 1, 3, 0, None),
        (1, u64::MAX, 0, Some(u64::MAX)),
        (1, u64::MAX, 1, None),
    ] {
        assert_eq!(Part::number(seq, tiles, index), expected, "{seq} {tiles} {index}");
    }
    // What has no number is no part on the way back either.
    let part = Part { seq: most, tile: Tile { y: 0, x: 0, height: 1, width: 1 } };
    assert_eq!(Part::from_block(&part.block("t", 0)), Err(NoPart::Frame));
}

#[test]
fn a_block_that_is_no_rectangle_of_one_frame_is_no_part() {
    let (min, max) = (i64::MIN, i64::MAX);
    let beyond = 1 << 32;
    let boxes: &[(&[i64], &[i64], NoPart)] = &[
        (&[], &[], NoPart::Axes),
        (&[1, 0], &[1, 8], NoPart::Axes),
        (&[1, 0, 0], &[1, 8], NoPart::Axes),
        (&[1, 0], &[1, 8, 8], NoPart::Axes),
        (&[1, 0, 0, 0], &[1, 8, 8, 8], NoPart::Axes),
        (&[1, 0, 0], &[0, 8, 8], NoPart::Frame),
        (&[1, 0, 0], &[2, 8, 8], NoPart::Frame),
        (&[1, 0, 0], &[-1, 8, 8], NoPart::Frame),
        (&[-1, 0, 0], &[1, 8, 8], NoPart::Frame),
        (&[min, 0, 0], &[1, 8, 8], NoPart::Frame),
        (&[max, 0, 0], &[1, 8, 8], NoPart::Frame),
        (&[1, -1, 0], &[1, 8, 8], NoPart::Pixels),
        (&[1, 0, -1], &[1, 8, 8], NoPart::Pixels),
        (&[1, 0, 0], &[1, 0, 8], NoPart::Pixels),
        (&[1, 0, 0], &[1, 8, 0], NoPart::Pixels),
        (&[1, 0, 0], &[1, -8, 8], NoPart::Pixels),
        (&[1, beyond, 0], &[1, 8, 8], NoPart::Pixels),
        (&[1, 0, max], &[1, 8, 8], NoPart::Pixels),
        (&[1, 0, 0], &[1, 8, beyond], NoPart::Pixels),
    ];
    for (offset, shape, reason) in boxes {
        let roi = Roi::new(offset, shape);
        let block = Block { read_roi: roi.clone(), write_roi: roi, ..Block::default() };
        assert_eq!(Part::from_block(&block), Err(*reason), "{offset:?} {shape:?}");
    }
    let (read_roi, write_roi) = (Roi::new(&[1, 0, 0], &[1, 8, 8]), Roi::new(&[1, 0, 0], &[1, 8, 4]));
    let block = Block { read_roi, write_roi, ..Block::default() };
    assert_eq!(Part::from_block(&block), Err(NoPart::Differs));
}

#[test]
fn a_worker_finds_the_bytes_of_its_part_in_the_frame() {
    let meta = FrameMeta::new(Format::NV12, 1920, 1080).unwrap();
    let tiles = meta.tiles(270, 480).unwrap();
    let number = Part::number(5, tiles.len(), 6).unwrap();
    let block = Part { seq: 5, tile: tiles.get(6).unwrap() }.block("t", number);
    let part = Part::from_block(&block).unwrap();
    let offsets = meta.tile_planes(&part.tile).unwrap().map(|plane| plane.offset);
    assert_eq!(offsets.collect::<Vec<_>>(), [270 * 2048 + 960, (1080 + 135) * 2048 + 960]);
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn every_task_of_a_stream_is_read_as_it_was_written(
        name in "[^@]{1,9}", key in "[a-zA-Z0-9_-]{1,63}", epoch: u64,
    ) {
        let task = task(&name, &key, epoch);
        prop_assert_eq!(task.to_string().parse(), Ok(task));
    }

    #[test]
    fn a_text_that_is_read_as_a_task_of_a_stream_is_the_only_one_for_it(text in "[t@]{1,2}@k?@[0-9a-fA-F+]{15,17}") {
        if let Ok(task) = text.parse::<StreamTask>() {
            prop_assert_eq!(task.to_string(), text);
        }
    }

    #[test]
    fn every_part_is_read_as_it_was_written(
        seq in prop_oneof![0..9_u64, 0..u64::MAX >> 1], number: u64, y: u32, x: u32,
        height in 1..=u32::MAX, width in 1..=u32::MAX,
    ) {
        let part = Part { seq, tile: Tile { y, x, height, width } };
        prop_assert_eq!(Part::from_block(&part.block("t", number)), Ok(part));
    }

    #[test]
    fn whatever_a_block_is_it_is_a_part_or_none(
        offset in prop::collection::vec(any::<i64>(), 0..5), shape in prop::collection::vec(-1..3_i64, 0..5), number: u64,
    ) {
        let roi = Roi { offset, shape };
        let block_id = BlockId::new("t", number);
        let block = Block { read_roi: roi.clone(), write_roi: roi, block_id, ..Block::default() };
        if let Ok(part) = Part::from_block(&block) {
            prop_assert_eq!(part.block("t", number), block);
        }
    }
}
