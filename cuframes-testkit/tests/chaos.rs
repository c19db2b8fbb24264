//! The checks of the fuzz targets, on random input.

use cuframes_testkit::chaos;
use cuframes_testkit::chaos::seeds::seeds;
use cuframes_testkit::strategies::config;
use cuframes_testkit::vectors::{names, vector};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn a_stream_is_cut_into_the_same_messages_in_chunks_of_any_size(
        chunk in 1..=255_u8,
        messages in vec((select(names().collect::<Vec<_>>()), any::<Index>(), any::<u8>()), 0..20),
    ) {
        let mut stream = vec![chunk];
        for (name, at, value) in messages {
            let mut message = vector(name);
            *at.get_mut(&mut message) = value;
            stream.extend(message);
        }
        chaos::framing(&stream);
    }

    #[test]
    fn a_hello_resp_of_any_bytes_is_refused_or_acted_upon(data in vec(any::<u8>(), 0..200)) {
        chaos::hello_resp(&data);
    }

    #[test]
    fn a_subscriber_bears_any_region_and_whoever_writes_it(data in vec(any::<u8>(), 0..2000)) {
        chaos::region_header(&data);
    }

    #[test]
    fn a_ring_bears_any_publisher_and_any_subscribers(data in vec(any::<u8>(), 0..1000)) {
        chaos::ring_script(&data);
    }

    #[test]
    fn a_publisher_bears_any_input_in_any_order(data in vec(any::<u8>(), 0..2000)) {
        chaos::publisher(&data);
    }

    #[test]
    fn a_subscriber_bears_any_input_in_any_order(data in vec(any::<u8>(), 0..2000)) {
        chaos::subscriber(&data);
    }

    #[test]
    fn a_zmtp_stream_is_cut_into_the_same_messages_in_chunks_of_any_size(
        start in select(seeds("zmtp")),
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
        rest in vec(any::<u8>(), 0..100),
    ) {
        let mut data = [start.1, rest].concat();
        changes.iter().for_each(|(at, byte)| *at.get_mut(&mut data) = *byte);
        chaos::zmtp(&data);
    }

    #[test]
    fn a_message_of_the_start_is_refused_or_reads_the_same_again(
        start in select(seeds("start_message")),
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
    ) {
        let mut data = start.1;
        changes.iter().for_each(|(at, byte)| *at.get_mut(&mut data) = *byte);
        chaos::start_message(&data);
    }

    #[test]
    fn a_stream_of_blocks_is_cut_into_the_same_messages_in_chunks_of_any_size(
        start in select(seeds("blocks_frame")),
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
        rest in vec(any::<u8>(), 0..100),
    ) {
        let mut data = [start.1, rest].concat();
        changes.iter().for_each(|(at, byte)| *at.get_mut(&mut data) = *byte);
        chaos::blocks_frame(&data);
    }

    #[test]
    fn a_stream_of_the_bridge_is_cut_into_the_same_messages_in_chunks_of_any_size(
        start in select(seeds("bridge_frame")),
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
        rest in vec(any::<u8>(), 0..100),
    ) {
        let mut data = [start.1, rest].concat();
        changes.iter().for_each(|(at, byte)| *at.get_mut(&mut data) = *byte);
        chaos::bridge_frame(&data);
    }

    #[test]
    fn a_work_queue_bears_any_workers(data in vec(any::<u8>(), 0..1000)) {
        chaos::blocks_server(&data);
    }

    #[test]
    fn a_worker_of_the_bridge_bears_any_peers_and_any_owner(data in vec(any::<u8>(), 0..1000)) {
        chaos::bridge_machine(&data);
    }

    #[test]
    fn a_receiver_of_the_bridge_bears_any_senders_and_any_owner(data in vec(any::<u8>(), 0..1000)) {
        chaos::bridge_receiver(&data);
    }

    #[test]
    fn a_sender_of_the_bridge_bears_any_receiver_and_any_owner(data in vec(any::<u8>(), 0..1000)) {
        chaos::bridge_sender(&data);
    }

    #[test]
    fn a_frontend_bears_any_peers(data in vec(any::<u8>(), 0..1000)) {
        chaos::start_frontend(&data);
    }
}
