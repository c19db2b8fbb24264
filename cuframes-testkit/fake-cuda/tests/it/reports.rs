//! What a process says at its end.

use fake_cuda::{AllocationProp, EntryPoint as E, GRANULE, Report, StillOpen};

use crate::common::Machine;

#[test]
fn a_report_counts_all_that_is_open_and_survives_the_file() {
    let machine = Machine::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    let exporter = machine.process();
    let process = machine.process_with(|config| config.report = Some(file.path().to_owned()));
    process.alloc(1);
    process.call(E::cuMemAllocAsync).mem_alloc_async(1, 0).unwrap();
    process.call(E::cuMemAllocHost_v2).mem_alloc_host(1).unwrap();
    process.open(&exporter.export(exporter.alloc(1)).unwrap()).unwrap();
    process.event(0);
    process.stream();
    let handle = process.call(E::cuMemCreate).mem_create(GRANULE, &AllocationProp::on(0, 1), 0).unwrap();
    let base = process.call(E::cuMemAddressReserve).mem_address_reserve(2 * GRANULE, 0, 0).unwrap();
    process.call(E::cuMemMap).mem_map(base, GRANULE, 0, handle, 0).unwrap();
    process.free(1).unwrap_err();
    let expected = StillOpen {
        allocations: 2,
        pinned_host_memory: 1,
        ipc_imports: 1,
        events: 1,
        streams: 1,
        vmm_handles: 1,
        reservations: 1,
        mappings: 1,
        primary_retains: 1,
        context_stack: 1,
    };
    process.driver.finish();
    let reports = Report::read_all(file.path()).unwrap();
    assert_eq!(reports, [process.report()]);
    assert_eq!(reports[0].open, expected);
    assert_eq!(reports[0].violations, ["cuMemFree_v2: 0x1 where no allocation begins"]);
    assert_eq!(reports[0].count(E::cuMemAlloc_v2), 1);
    assert!(!reports[0].calls.contains_key("cuMemMapArrayAsync") && !reports[0].is_clean());
}

#[test]
fn a_process_that_closed_everything_is_clean() {
    let machine = Machine::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    for _ in 0..2 {
        let process = machine.process_with(|config| config.report = Some(file.path().to_owned()));
        let (address, stream, event) = (process.alloc(1), process.stream(), process.event(6));
        process.call(E::cuEventDestroy_v2).event_destroy(event).unwrap();
        process.call(E::cuStreamDestroy_v2).stream_destroy(stream).unwrap();
        process.free(address).unwrap();
        process.call(E::cuCtxSetCurrent).ctx_set(0).unwrap();
        process.call(E::cuDevicePrimaryCtxRelease_v2).primary_ctx_release(0).unwrap();
        process.driver.finish();
    }
    let reports = Report::read_all(file.path()).unwrap();
    assert_eq!(reports.len(), 2);
    assert!(reports.iter().all(Report::is_clean), "{reports:?}");
}

#[test]
fn without_a_file_there_are_no_reports() {
    let reports = Report::read_all(std::path::Path::new("/nonexistent/reports"));
    assert_eq!(reports.unwrap(), []);
}
