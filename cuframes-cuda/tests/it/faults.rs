//! Every call of the driver fails, at its first time, its last, and one in between: the error names the call and has its code,
//! nothing stays open, nothing hangs.

use std::collections::BTreeSet;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use cuframes_core::Backend;
use cuframes_core::gpu::{Device as _, Export as _, GpuError as _, Import as _};
use cuframes_cuda::{Cuda, CudaError, External, Stream};
use fake_cuda::{Report, StillOpen};
use serde::{Deserialize, Serialize};

use crate::double::{PATIENCE, alone, finish};
use crate::memory::ring;
use crate::remote::{self, Offer};
use crate::roles::{Role, start};

/// What a story ended with, if it did not end well.
type Outcome = Option<Told>;

/// An error.
#[derive(Serialize, Deserialize, Debug)]
struct Told {
    native: Option<i32>,
    text: String,
}

/// Everything that a publisher does.
fn export(backend: Backend) -> Result<(), CudaError> {
    let cuda = Cuda::open_as(0, backend)?;
    let stream = cuda.stream()?;
    let mut pool = cuda.alloc_pool(ring(2), 100)?;
    let (event, _) = cuda.create_event()?;
    let mut share = |slot| {
        cuda.export_mem(&pool, slot)?;
        cuda.export_fds(&pool)?;
        cuda.copy_in(&stream, &mut pool, slot, &[1; 100])?;
        cuda.record_event(&stream, &event)?;
        cuda.notify(&stream, Box::new(|| ()))?;
        cuda.wait_event(&stream, &event)?;
        cuda.synchronize(&stream, PATIENCE)
    };
    finished(&cuda, &stream, share(0).and_then(|()| share(1)))?;
    if backend == Backend::CUDA_IPC {
        let buffer = Arc::new(cuda.alloc(100)?);
        let at = |offset| External::new(Arc::clone(&buffer), offset);
        let external = cuda.register_external(vec![at(0), at(50)], 50)?;
        cuda.free_pool(external)?;
    }
    drop(event);
    cuda.free_pool(pool)
}

/// Everything that a subscriber does.
fn import(backend: Backend, offer: &Offer) -> Result<(), CudaError> {
    let cuda = Cuda::open_as(0, backend)?;
    let stream = cuda.stream()?;
    let event = cuda.open_event(&offer.event)?;
    let ring = cuda.open_ring(backend, &offer.slots, 100, &offer.fds)?;
    let again = cuda.open_mem(&offer.slots[0], 100, &offer.fds)?;
    let read = |(mapping, value)| {
        cuda.wait_event(&stream, &event)?;
        let mut out = [0; 100];
        cuda.copy_out(&stream, mapping, &mut out, PATIENCE)?;
        assert_eq!(out, [value; 100]);
        cuda.notify(&stream, Box::new(|| ()))?;
        cuda.synchronize(&stream, PATIENCE)
    };
    finished(&cuda, &stream, ring.iter().zip(1..).try_for_each(read))?;
    drop(event);
    // All of them, whatever the first says.
    let closed: Vec<_> = ring.into_iter().chain([again]).map(|mapping| cuda.close_mem(mapping)).collect();
    closed.into_iter().collect()
}

/// Whoever gives up lets its stream finish before it closes and frees what that uses.
fn finished(cuda: &Cuda, stream: &Stream, done: Result<(), CudaError>) -> Result<(), CudaError> {
    if done.is_err() {
        cuda.synchronize(stream, PATIENCE).unwrap();
    }
    done
}

/// Plays a story that it is told of over the socket.
pub(crate) fn play(socket: &UnixStream) {
    let (backend, _) = remote::receive::<u64>(socket).unwrap().unwrap();
    let played = match remote::receive::<bool>(socket).unwrap().unwrap().0 {
        true => import(Backend(backend), &Offer::receive(socket)),
        false => export(Backend(backend)),
    };
    let outcome = played.err().map(|error| Told { native: error.native(), text: error.to_string() });
    remote::send(socket, &outcome, &[]).unwrap();
}

/// Has a story played in a process of its own, in which a call fails.
fn run(backend: Backend, offer: Option<&Offer>, fault: &str) -> (Outcome, Report) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report");
    let variables = [("FAKE_CUDA_FAIL", fault), ("FAKE_CUDA_REPORT", path.to_str().unwrap())];
    let (socket, child) = start(Role::Story, &variables);
    remote::send(&socket, &backend.0, &[]).unwrap();
    remote::send(&socket, &offer.is_some(), &[]).unwrap();
    if let Some(offer) = offer {
        remote::offer(&socket, offer);
    }
    let received = remote::receive::<Outcome>(&socket).unwrap();
    socket.shutdown(Shutdown::Both).unwrap();
    let output = finish(child);
    assert!(output.status.success(), "{fault}: {}", output.status);
    let [report] = <[Report; 1]>::try_from(Report::read_all(&path).unwrap()).unwrap();
    (received.unwrap().0, report)
}

/// Lets every call of a story fail.
fn let_every_call_fail(backend: Backend, offer: Option<&Offer>) {
    let (outcome, calm) = run(backend, offer, "");
    assert!(outcome.is_none() && calm.is_clean(), "{outcome:?} {calm:?}");
    for (symbol, count) in &calm.calls {
        let name = symbol.strip_suffix("_v2").unwrap_or(symbol);
        let mut is_told = false;
        // What makes the context current stands before everything else, so it fails everywhere.
        let times = match name {
            "cuCtxPushCurrent" => (1..=*count).collect(),
            _ => BTreeSet::from([1, count.div_ceil(2), *count]),
        };
        for nth in times {
            let fault = format!("{symbol}@{nth}=999");
            let (outcome, report) = run(backend, offer, &fault);
            if let Some(Told { native, text }) = &outcome {
                assert_eq!(*native, Some(999), "{fault}: {text}");
                assert!(
                    text.contains(&format!("{name} failed: CUDA_ERROR_UNKNOWN (999)")),
                    "{fault}: {text}"
                );
                assert!(!text.contains('\n'), "{text}");
                is_told = true;
            }
            let kept = what_it_keeps_open(symbol);
            // The context ends with what could not be closed in it.
            let expected = |text: &String| kept != StillOpen::default() && text.contains("ends with");
            assert!(report.violations.iter().all(expected), "{fault}: {report:?}");
            assert!([StillOpen::default(), kept].contains(&report.open), "{fault}: {report:?}");
        }
        // How often that is asked depends on the time; there is a test of its own for it.
        if name != "cuEventQuery" {
            assert_eq!(is_told, !NOBODY_IS_TOLD.contains(&name), "{symbol}, which is called {count} times");
        }
    }
}

/// What can't be closed where the call that closes fails.
fn what_it_keeps_open(symbol: &str) -> StillOpen {
    let nothing = StillOpen::default();
    match symbol {
        "cuMemFree_v2" => StillOpen { allocations: 1, ..nothing },
        "cuMemFreeHost" => StillOpen { pinned_host_memory: 1, ..nothing },
        "cuIpcCloseMemHandle" => StillOpen { ipc_imports: 1, ..nothing },
        "cuEventDestroy_v2" => StillOpen { events: 1, ..nothing },
        "cuStreamDestroy_v2" => StillOpen { streams: 1, ..nothing },
        "cuMemRelease" => StillOpen { vmm_handles: 1, ..nothing },
        "cuMemAddressFree" => StillOpen { reservations: 1, ..nothing },
        "cuMemUnmap" => StillOpen { mappings: 1, reservations: 1, ..nothing },
        "cuDevicePrimaryCtxRelease_v2" => StillOpen { primary_retains: 1, ..nothing },
        "cuCtxPopCurrent_v2" => StillOpen { context_stack: 1, ..nothing },
        _ => nothing,
    }
}

#[test]
fn any_call_of_a_publisher_may_fail_over_handles() {
    alone(|| beside_another(Backend::CUDA_IPC));
}

#[test]
fn any_call_of_a_publisher_may_fail_over_descriptors() {
    alone(|| beside_another(Backend::CUDA_VMM));
}

#[test]
fn any_call_of_a_subscriber_may_fail_over_handles() {
    alone(|| with_an_offer(Backend::CUDA_IPC));
}

#[test]
fn any_call_of_a_subscriber_may_fail_over_descriptors() {
    alone(|| with_an_offer(Backend::CUDA_VMM));
}

/// Publishers come and fail, one after the other, and another one on the same device goes on.
fn beside_another(backend: Backend) {
    let cuda = Cuda::open_as(0, backend).unwrap();
    let stream = cuda.stream().unwrap();
    let mut pool = cuda.alloc_pool(ring(1), 100).unwrap();
    let_every_call_fail(backend, None);
    cuda.copy_in(&stream, &mut pool, 0, &[1; 100]).unwrap();
    cuda.synchronize(&stream, PATIENCE).unwrap();
    cuda.free_pool(pool).unwrap();
}

/// Subscribers come and fail, one after the other, and the publisher goes on.
fn with_an_offer(backend: Backend) {
    let cuda = Cuda::open_as(0, backend).unwrap();
    let stream = cuda.stream().unwrap();
    let mut pool = cuda.alloc_pool(ring(2), 100).unwrap();
    let (event, handle) = cuda.create_event().unwrap();
    for (slot, value) in (0..2).zip(1..) {
        cuda.copy_in(&stream, &mut pool, slot, &[value; 100]).unwrap();
    }
    cuda.record_event(&stream, &event).unwrap();
    cuda.synchronize(&stream, PATIENCE).unwrap();
    let slots = (0..2).map(|slot| cuda.export_mem(&pool, slot).unwrap()).collect();
    let fds = cuda.export_fds(&pool).unwrap().into_iter().map(|(_, fd)| fd).collect();
    let_every_call_fail(backend, Some(&Offer { slots, event: handle, fds }));
    drop(event);
    cuda.free_pool(pool).unwrap();
}

/// Calls that only destructors make, which have nobody to tell; and what ends a call that did what it was asked.
const NOBODY_IS_TOLD: [&str; 7] = [
    "cuCtxPopCurrent",
    "cuDevicePrimaryCtxRelease",
    "cuEventDestroy",
    "cuMemFreeHost",
    "cuMemRelease",
    "cuStreamDestroy",
    "cuGetErrorName",
];
