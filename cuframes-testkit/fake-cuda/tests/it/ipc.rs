//! Legacy IPC of memory.

use std::process::{Command, Stdio};

use fake_cuda::{Code, EntryPoint as E, FREED_MEMORY, GRANULE, MemHandle};

use crate::common::{Gate, Machine, until};

#[test]
fn what_one_process_writes_the_other_reads() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let theirs = exporter.alloc(2 * GRANULE);
    let ours = importer.open(&exporter.export(theirs).unwrap()).unwrap();
    assert_ne!(ours, theirs);
    exporter.write(theirs + GRANULE, b"hello").unwrap();
    assert_eq!(importer.read(ours + GRANULE, 5).unwrap(), b"hello");
    importer.write(ours, b"reply").unwrap();
    assert_eq!(exporter.read(theirs, 5).unwrap(), b"reply");
    let range = importer.call(E::cuMemGetAddressRange_v2).mem_address_range(ours + 3);
    assert_eq!(range, Ok((ours, 2 * GRANULE)));
    importer.close(ours).unwrap();
    assert_eq!(importer.read(ours, 1), Err(Code::INVALID_VALUE));
    exporter.free(theirs).unwrap();
    assert!(exporter.report().violations.is_empty());
}

#[test]
fn a_handle_is_of_the_whole_block_and_opens_at_its_base() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let [first, second] = [600, 600].map(|size| exporter.alloc(size));
    let handle = exporter.export(second).unwrap();
    assert_eq!(exporter.export(first), Ok(handle), "the same block");
    assert_eq!(exporter.export(second + 17), Ok(handle), "an address inside does as well");
    exporter.write(first, b"first").unwrap();
    exporter.write(second, b"second").unwrap();
    let base = importer.open(&handle).unwrap();
    assert_eq!(importer.read(base, 5).unwrap(), b"first", "not what was exported");
    assert_eq!(importer.read(base + (second - first), 6).unwrap(), b"second");
    assert_eq!(importer.call(E::cuMemGetAddressRange_v2).mem_address_range(base), Ok((base, GRANULE)));
}

#[test]
fn only_memory_of_cu_mem_alloc_has_a_handle() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let plain = exporter.alloc(1);
    let imported = importer.open(&exporter.export(plain).unwrap()).unwrap();
    let pool = importer.call(E::cuMemAllocAsync).mem_alloc_async(1, 0).unwrap();
    let managed = importer.call(E::cuMemAllocManaged).mem_alloc_managed(1, 1).unwrap();
    for address in [imported, pool, managed, 12] {
        assert_eq!(importer.export(address), Err(Code::INVALID_VALUE));
    }
}

#[test]
fn a_process_cannot_open_its_own_handle() {
    let process = Machine::new().process();
    let handle = process.export(process.alloc(1)).unwrap();
    assert_eq!(process.open(&handle), Err(Code::INVALID_CONTEXT));
}

#[test]
fn a_handle_that_is_opened_twice_gives_the_same_address_and_is_closed_twice() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let handle = exporter.export(exporter.alloc(1)).unwrap();
    let address = importer.open(&handle).unwrap();
    assert_eq!(importer.open(&handle), Ok(address));
    assert_eq!(importer.report().open.ipc_imports, 1);
    importer.close(address).unwrap();
    importer.read(address, 1).unwrap();
    importer.close(address).unwrap();
    assert_eq!(importer.read(address, 1), Err(Code::INVALID_VALUE));
    assert_eq!(importer.close(address), Err(Code::INVALID_VALUE));
    assert_ne!(importer.open(&handle), Ok(address), "an address is not used twice");
}

#[test]
fn before_cuda_11_a_handle_was_opened_only_once() {
    let machine = Machine::new();
    let exporter = machine.process();
    let importer = machine.process_with(|config| config.ipc_reopen_fails = true);
    let handle = exporter.export(exporter.alloc(1)).unwrap();
    let address = importer.open(&handle).unwrap();
    assert_eq!(importer.open(&handle), Err(Code::ALREADY_MAPPED));
    importer.close(address).unwrap();
    importer.open(&handle).unwrap();
}

#[test]
fn an_exporter_that_cannot_be_seen_is_an_invalid_context() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let handle = MemHandle::from_bytes(&exporter.export(exporter.alloc(1)).unwrap()).unwrap();
    // Somebody else has its pid: it is dead, or in another pid namespace.
    let mut other = handle;
    other.owner.start += 1;
    assert_eq!(importer.open(&other.to_bytes()), Err(Code::INVALID_CONTEXT));
    // Nobody has its pid.
    other.owner.pid = u32::MAX;
    assert_eq!(importer.open(&other.to_bytes()), Err(Code::INVALID_CONTEXT));
    importer.open(&handle.to_bytes()).unwrap();
}

#[test]
fn an_exporter_that_ended_but_was_not_waited_for_is_dead() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let mut handle = MemHandle::from_bytes(&exporter.export(exporter.alloc(1)).unwrap()).unwrap();
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    handle.owner.pid = child.id();
    handle.owner.start = stat.split(' ').nth(21).unwrap().parse().unwrap();
    assert_eq!(importer.open(&handle.to_bytes()), Err(Code::INVALID_VALUE), "alive, but without memory");
    drop(child.stdin.take());
    until(|| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.contains(" Z ")
    });
    assert_eq!(importer.open(&handle.to_bytes()), Err(Code::INVALID_CONTEXT));
    child.wait().unwrap();
}

#[test]
fn memory_is_opened_on_its_own_device_whatever_its_ordinal() {
    let machine = Machine::new();
    let exporter = machine.process_with(|config| config.devices = 2);
    let importer = machine.process_with(|config| (config.devices, config.visible) = (2, Some(vec![1, 0])));
    let handle = exporter.export(exporter.alloc(1)).unwrap();
    assert_eq!(importer.open(&handle), Err(Code::INVALID_VALUE), "ordinal 0 is another device here");
    importer.enter(1);
    importer.open(&handle).unwrap();
}

#[test]
fn what_is_no_handle_is_refused() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let handle = exporter.export(exporter.alloc(1)).unwrap();
    let open =
        |bytes: &[u8; 64], flags| importer.call(E::cuIpcOpenMemHandle_v2).ipc_open_mem_handle(bytes, flags);
    assert_eq!(open(&[0; 64], 1), Err(Code::INVALID_VALUE));
    assert_eq!(open(&handle, 0), Err(Code::INVALID_VALUE), "the flag must be given");
    for byte in [0, 63] {
        let mut broken = handle;
        broken[byte] ^= 1;
        assert_eq!(open(&broken, 1), Err(Code::INVALID_VALUE));
    }
    let event = exporter.event(6);
    let event = exporter.call(E::cuIpcGetEventHandle).ipc_get_event_handle(event).unwrap();
    assert_eq!(open(&event, 1), Err(Code::INVALID_VALUE));
}

#[test]
fn memory_of_another_process_is_closed_and_not_freed() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let theirs = exporter.alloc(1);
    let ours = importer.open(&exporter.export(theirs).unwrap()).unwrap();
    assert_eq!(importer.free(ours), Err(Code::INVALID_VALUE));
    assert!(importer.violation().contains("of memory of another process"));
    assert_eq!(exporter.close(theirs), Err(Code::INVALID_VALUE));
    assert!(exporter.violation().contains("is not open"));
}

#[test]
fn exported_memory_must_not_be_freed_while_another_process_has_it_open() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let [theirs, bystander] = [100, 100].map(|size| exporter.alloc(size));
    let handle = exporter.export(theirs).unwrap();
    let ours = importer.open(&handle).unwrap();
    exporter.free(bystander).unwrap();
    assert!(exporter.report().violations.is_empty(), "only what was exported counts");
    exporter.free(theirs).unwrap();
    assert!(exporter.violation().contains("while another process has it open"));
    // Whoever still reads it sees that, and nobody can open it any more.
    assert_eq!(importer.read(ours, 100), Ok(vec![FREED_MEMORY; 100]));
    assert_eq!(machine.process().open(&handle), Err(Code::INVALID_VALUE));
}

#[test]
fn memory_that_a_dead_process_had_open_may_be_freed() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    let address = exporter.alloc(1);
    importer.open(&exporter.export(address).unwrap()).unwrap();
    drop(importer);
    exporter.free(address).unwrap();
    assert!(exporter.report().violations.is_empty());
}

#[test]
fn memory_must_not_be_closed_while_a_stream_uses_it() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.impatient_process()];
    let ours = importer.open(&exporter.export(exporter.alloc(4)).unwrap()).unwrap();
    let stream = importer.stream();
    let gate = Gate::in_stream(&importer, stream);
    importer.write_in(stream, ours, &[1; 4]);
    importer.is_stuck(importer.close(ours));
    drop(gate);
    importer.finish(stream);
    importer.close(ours).unwrap();
}

#[test]
fn ipc_can_be_refused_though_the_attributes_promise_it() {
    let machine = Machine::new();
    let good = machine.process();
    let memory = good.export(good.alloc(1)).unwrap();
    let event = good.call(E::cuIpcGetEventHandle).ipc_get_event_handle(good.event(6)).unwrap();

    let refused = machine.process_with(|config| config.ipc_refused = true);
    assert_eq!(refused.call(E::cuDeviceGetAttribute).device_attribute(125, 0), Ok(1));
    let address = refused.alloc(1);
    assert_eq!(refused.export(address), Err(Code::NOT_SUPPORTED));
    assert_eq!(refused.open(&memory), Err(Code::NOT_SUPPORTED));
    let own = refused.event(6);
    let call = refused.call(E::cuIpcGetEventHandle);
    assert_eq!(call.ipc_get_event_handle(own), Err(Code::NOT_SUPPORTED));
    assert_eq!(call.ipc_open_event_handle(&event), Err(Code::NOT_SUPPORTED));
}

#[test]
fn nothing_is_left_when_all_have_ended() {
    let machine = Machine::new();
    let [exporter, importer] = [machine.process(), machine.process()];
    exporter.event(6);
    importer.open(&exporter.export(exporter.alloc(1)).unwrap()).unwrap();
    assert_eq!(machine.files(), 2);
    drop(exporter);
    drop(importer);
    assert_eq!(machine.files(), 0);
}
