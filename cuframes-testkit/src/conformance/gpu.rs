//! What every backend of frame memory must do (`cuframes_core::gpu`), generic over the backend.
//!
//! [`gpu_conformance!`](crate::gpu_conformance) makes one `#[test]` of each case. A [`Lab`] says how a backend is set up,
//! and declares what it can do: a backend without streams, or without external frames, is held to *that*, so nothing is
//! left out in silence.
//!
//! Exporter and importer exchange nothing but slot memories, event handles and descriptors. So a lab whose backend refuses
//! to open its own handles (legacy CUDA, C-3) can put the importer into another process, behind an `Import` that forwards
//! each call.

mod memory;
mod order;

use std::fmt::Debug;
use std::time::Duration;

use cuframes_core::RingSize;
use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, Device, Export, GpuError, Import};
use cuframes_core::shm::header::SlotMemory;

/// How a backend is set up for the suite.
pub trait Lab: Sized {
    /// The publisher's side.
    type Exporter: Export<Fd = Self::Fd>;
    /// A subscriber's side.
    type Importer: Import<Fd = Self::Fd>;
    /// What a descriptor is.
    type Fd: Debug;

    /// Whether work on a stream is done later than the call that enqueues it; then [`hold`](Self::hold) works.
    const HAS_STREAMS: bool;
    /// Whether frames of the caller's own can be registered; then [`externals`](Self::externals) gives some.
    const HAS_EXTERNAL: bool;

    /// A fresh one, with nothing open.
    fn new() -> Self;

    /// An exporter in a process of its own.
    fn exporter(&self) -> Self::Exporter;

    /// An importer, in a process of its own, on the exporter's device.
    fn importer(&self) -> Self::Importer;

    /// A new stream of an exporter.
    fn export_stream(&self, exporter: &Self::Exporter) -> <Self::Exporter as Device>::Stream;

    /// A new stream of an importer.
    fn import_stream(&self, importer: &Self::Importer) -> <Self::Importer as Device>::Stream;

    /// Keeps a stream of the exporter from doing what is enqueued from now on, until [`resume`](Self::resume). With CUDA a
    /// host function that blocks does it. There may be only one at a time that has begun: a case that holds two streams lets
    /// the second wait for the first.
    fn hold(&self, stream: &<Self::Exporter as Device>::Stream);

    /// Lets a stream go on.
    fn resume(&self, stream: &<Self::Exporter as Device>::Stream);

    /// Frames of the caller's own, all zero: at least two of them in one allocation, none of them at its start.
    fn externals(
        &self,
        exporter: &Self::Exporter,
        slots: usize,
        frame_size: u64,
    ) -> Vec<<Self::Exporter as Export>::External>;

    /// Checks that nothing is open any more: no pool, mapping, event or descriptor.
    ///
    /// # Panics
    /// If something is.
    fn check_nothing_is_left(&self);
}

/// Declares the cases: for each a function that runs it in a lab, and a test in every instantiation. `$d` is a dollar sign.
macro_rules! suite {
    ($d:tt $($group:ident: [$($case:ident),* $(,)?])*) => {
        $($(
            #[doc = concat!("The case `", stringify!($case), "`.")]
            pub fn $case<L: Lab>() {
                run::<L>($group::$case);
            }
        )*)*

        /// Makes a module `$name` with a test for each case of the [suite](crate::conformance::gpu), in labs of the type
        /// `$lab`. A function `$run` is given each case as a closure, and may call it in another process.
        #[macro_export]
        macro_rules! gpu_conformance {
            ($d name:ident, $d lab:ident) => {
                $d crate::gpu_conformance!($d name, $d lab, $d crate::conformance::gpu::here);
            };
            ($d name:ident, $d lab:ident, $d run:expr) => {
                mod $d name {
                    $($(
                        #[test]
                        fn $case() {
                            $d run(|| $d crate::conformance::gpu::$case::<super::$d lab>());
                        }
                    )*)*
                }
            };
        }
    };
}

suite! { $
    memory: [
        every_slot_reads_back_what_was_written,
        a_pool_is_all_zero_at_birth,
        a_write_changes_no_other_slot_and_nothing_behind_its_end,
        slot_memories_are_distinct_and_stable,
        descriptors_are_those_that_the_backend_sends,
        opened_twice_is_closed_twice,
        a_ring_is_opened_as_a_whole_or_not_at_all,
        every_frame_has_an_address_of_its_own,
        two_importers_see_the_same_frame,
        a_pool_is_freed_when_the_importers_have_closed_it,
        what_is_dropped_is_closed_too,
        a_copy_out_of_range_is_refused_and_changes_nothing,
        pools_that_no_memory_holds_are_refused,
        handles_that_mean_nothing_are_refused,
        external_frames_are_shared_where_they_are,
    ]
    order: [
        no_event_opens_as_one_that_was_never_recorded,
        waiting_for_an_event_that_was_never_recorded_is_over_at_once,
        who_waits_for_a_record_sees_what_was_written_before_it,
        a_second_record_replaces_the_first,
        a_wait_is_for_the_record_that_was_the_latest,
        a_notification_comes_when_the_work_before_it_is_done,
        synchronizing_with_a_stream_that_stands_still_times_out,
    ]
}

/// Calls a case in this process.
#[doc(hidden)]
pub fn here(case: impl FnOnce()) {
    case();
}

/// Runs a case, and looks for what it left open unless it failed.
fn run<L: Lab>(case: impl FnOnce(&Bench<'_, L>)) {
    let lab = &L::new();
    let exporter = lab.exporter();
    let stream = lab.export_stream(&exporter);
    case(&Bench { lab, exporter, stream });
    lab.check_nothing_is_left();
}

/// A lab with its exporter.
struct Bench<'a, L: Lab> {
    lab: &'a L,
    exporter: L::Exporter,
    stream: <L::Exporter as Device>::Stream,
}

/// A pool, and what subscribers need to open it.
struct Exported<L: Lab> {
    pool: <L::Exporter as Export>::Pool,
    frame_size: u64,
    memories: Vec<SlotMemory>,
    fds: Vec<L::Fd>,
}

/// An importer with every slot of a pool open.
struct Reader<L: Lab> {
    importer: L::Importer,
    stream: <L::Importer as Device>::Stream,
    mappings: Vec<<L::Importer as Import>::Mapping>,
}

impl<L: Lab> Bench<'_, L> {
    fn pool(&self, slots: u8, frame_size: u64) -> Exported<L> {
        self.export(self.exporter.alloc_pool(ring(slots), frame_size).unwrap(), slots, frame_size)
    }

    fn export(&self, pool: <L::Exporter as Export>::Pool, slots: u8, frame_size: u64) -> Exported<L> {
        let export = |slot| self.exporter.export_mem(&pool, slot).unwrap();
        let memories = (0..slots.into()).map(export).collect();
        let fds = self.exporter.export_fds(&pool).unwrap().into_iter().map(|(_, fd)| fd).collect();
        Exported { pool, frame_size, memories, fds }
    }

    fn write(&self, exported: &mut Exported<L>, slot: usize, bytes: &[u8]) {
        self.exporter.copy_in(&self.stream, &mut exported.pool, slot, bytes).unwrap();
    }

    /// Waits for everything that was written.
    fn finish(&self) {
        self.exporter.synchronize(&self.stream, PATIENCE).unwrap();
    }

    /// Holds a stream, where there are any.
    fn hold(&self, stream: &<L::Exporter as Device>::Stream) {
        if L::HAS_STREAMS {
            self.lab.hold(stream);
        }
    }

    /// Ends [`hold`](Self::hold).
    fn resume(&self, stream: &<L::Exporter as Device>::Stream) {
        if L::HAS_STREAMS {
            self.lab.resume(stream);
        }
    }

    fn free(&self, exported: Exported<L>) {
        self.exporter.free_pool(exported.pool).unwrap();
    }

    fn reader(&self, exported: &Exported<L>) -> Reader<L> {
        let importer = self.lab.importer();
        let stream = self.lab.import_stream(&importer);
        let open = |memory| importer.open_mem(memory, exported.frame_size, &exported.fds).unwrap();
        let mappings = exported.memories.iter().map(open).collect();
        Reader { importer, stream, mappings }
    }
}

impl<L: Lab> Reader<L> {
    fn read(&self, slot: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xEE; len];
        let mapping = self.mappings.get(slot).unwrap();
        self.importer.copy_out(&self.stream, mapping, &mut bytes, PATIENCE).unwrap();
        bytes
    }

    fn close(self) {
        self.mappings.into_iter().for_each(|mapping| self.importer.close_mem(mapping).unwrap());
    }
}

/// Asserts that a call failed with one of `codes`, and that its error says which call it was, in one line.
fn refused<T, E: GpuError>(result: Result<T, E>, call: Call, codes: &[ErrorCode]) {
    let Err(error) = result else { panic!("{call} was not refused") };
    let text = error.to_string();
    assert_eq!(error.call(), call, "{text}");
    assert!(codes.contains(&error.code()), "{}: {text}", error.code());
    assert!(text.contains(call.name()) && !text.contains('\n'), "{text}");
}

fn ring(slots: u8) -> RingSize {
    RingSize::new(slots.into()).unwrap()
}

const INVALID: [ErrorCode; 1] = [ErrorCode::INVALID_ARGUMENT];
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);
