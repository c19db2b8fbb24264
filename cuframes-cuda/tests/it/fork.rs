//! A child that was forked can't use the device of its parent, and harms nothing by trying (P-20).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::Arc;

use cuframes_core::Backend;
use cuframes_core::gpu::{Device as _, Export as _, Import as _};
use cuframes_cuda::{Cause, Cuda, CudaError, External};
use fork::Fork;
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::double::{PATIENCE, alone};
use crate::memory::{BACKENDS, ring};
use crate::remote::Exporter;

#[test]
fn a_forked_child_is_told_and_enters_no_driver() {
    for backend in BACKENDS {
        // The double tells of every call that a child makes.
        alone(|| {
            let (exporter, offer) = Exporter::new(0, backend);
            let cuda = Cuda::open_as(0, backend).unwrap();
            let stream = cuda.stream().unwrap();
            let (event, _) = cuda.create_event().unwrap();
            let mut pool = cuda.alloc_pool(ring(2), 100).unwrap();
            cuda.copy_in(&stream, &mut pool, 0, &[1; 100]).unwrap();
            cuda.synchronize(&stream, PATIENCE).unwrap();
            let mut ring_of = cuda.open_ring(backend, &offer.slots, 1000, &offer.fds).unwrap();
            let buffer = Arc::new(cuda.alloc(100).unwrap());
            let child = match fork::fork().unwrap() {
                Fork::Parent(pid) => pid,
                Fork::Child => {
                    let outcome = catch_unwind(AssertUnwindSafe(|| {
                        let mut out = [0; 10];
                        let external = External::new(Arc::clone(&buffer), 0);
                        let errors: [CudaError; 15] = [
                            cuda.stream().unwrap_err(),
                            cuda.alloc(10).unwrap_err(),
                            cuda.alloc_pool(ring(1), 10).unwrap_err(),
                            cuda.register_external(vec![external], 10).unwrap_err(),
                            cuda.create_event().unwrap_err(),
                            cuda.open_event(&offer.event).unwrap_err(),
                            cuda.record_event(&stream, &event).unwrap_err(),
                            cuda.wait_event(&stream, &event).unwrap_err(),
                            cuda.notify(&stream, Box::new(|| ())).unwrap_err(),
                            cuda.copy_in(&stream, &mut pool, 0, &[1]).unwrap_err(),
                            cuda.synchronize(&stream, PATIENCE).unwrap_err(),
                            cuda.copy_out(&stream, &ring_of[0], &mut out, PATIENCE).unwrap_err(),
                            cuda.open_mem(&offer.slots[0], 1000, &offer.fds).unwrap_err(),
                            cuda.close_mem(ring_of.remove(0)).unwrap_err(),
                            cuda.export_fds(&pool).unwrap_err(),
                        ];
                        for error in errors {
                            assert_eq!(error.cause(), &Cause::Forked, "{error}");
                        }
                        drop((ring_of, stream, event, pool, buffer, cuda));
                    }));
                    process::exit(i32::from(outcome.is_err()));
                }
            };
            let (_, status) = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(status.exit_status(), Some(0));
            // All of it is still ours.
            let mut out = [0; 1000];
            cuda.copy_out(&stream, &ring_of[2], &mut out, PATIENCE).unwrap();
            assert_eq!(out, [3; 1000]);
            cuda.copy_in(&stream, &mut pool, 0, &[2; 100]).unwrap();
            cuda.synchronize(&stream, PATIENCE).unwrap();
            ring_of.into_iter().for_each(|mapping| cuda.close_mem(mapping).unwrap());
            cuda.free_pool(pool).unwrap();
            drop((stream, event, buffer, cuda));
            exporter.end();
        });
    }
}

#[test]
fn a_child_can_start_where_its_parent_opened_nothing() {
    alone(|| {
        let child = match fork::fork().unwrap() {
            Fork::Parent(pid) => pid,
            Fork::Child => {
                let opened = catch_unwind(|| {
                    drop(Cuda::open_as(0, Backend::CUDA_VMM).unwrap().stream().unwrap());
                });
                process::exit(i32::from(opened.is_err()));
            }
        };
        let (_, status) = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
    });
}
