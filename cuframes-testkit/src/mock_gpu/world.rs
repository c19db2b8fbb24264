//! [`World`]: processes, allocations, mappings and events, and the rules that hold for them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use cuframes_core::Backend;
use cuframes_core::gpu::Call;

use super::finding::{Finding, MockError, result};
use super::stream::Queue;

/// Everything that there is. Nothing is ever removed, so that a number means the same for ever.
#[derive(Debug)]
pub(super) struct World {
    pub(super) backend: Backend,
    /// Tells handles of this world from those of another.
    pub(super) nonce: u64,
    /// Bytes left on each device.
    capacity: Vec<u64>,
    processes: Vec<Process>,
    pub(super) allocations: Vec<Allocation>,
    pub(super) mappings: Vec<Mapped>,
    pub(super) sources: Vec<Source>,
    pub(super) events: Vec<Opened>,
    /// For each record whether the stream has come so far.
    pub(super) records: Vec<bool>,
    pub(super) queues: Vec<Queue>,
    /// What each descriptor was made of.
    pub(super) fds: Vec<usize>,
    calls: BTreeMap<Call, u64>,
    rules: Vec<Rule>,
    findings: Vec<Finding>,
}

#[derive(Debug)]
struct Process {
    device: usize,
    alive: bool,
}

/// Device memory.
#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) process: usize,
    pub(super) bytes: Vec<u8>,
    /// Of a memory pool, which can't be exported (C-1).
    pub(super) pooled: bool,
    pub(super) state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Live,
    /// Freed, but there as long as somebody has it open.
    Released,
    /// Freed, and whoever touches it does what CUDA does not define.
    Freed,
}

/// A part of an allocation that is open in another process.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) process: usize,
    pub(super) allocation: usize,
    pub(super) start: usize,
    pub(super) open: bool,
}

/// What an event is in the process that created it.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) process: usize,
    pub(super) latest: Option<usize>,
    pub(super) dropped: bool,
}

/// An event that a process has.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) process: usize,
    pub(super) source: usize,
    pub(super) open: bool,
}

/// Lets a call fail.
#[derive(Debug)]
struct Rule {
    call: Call,
    at: u64,
    result: i32,
}

impl World {
    pub(super) fn new(backend: Backend, devices: usize) -> Self {
        Self {
            backend,
            nonce: WORLDS.fetch_add(1, Ordering::Relaxed),
            capacity: vec![CAPACITY; devices],
            processes: Vec::new(),
            allocations: Vec::new(),
            mappings: Vec::new(),
            sources: Vec::new(),
            events: Vec::new(),
            records: Vec::new(),
            queues: Vec::new(),
            fds: Vec::new(),
            calls: BTreeMap::new(),
            rules: Vec::new(),
            findings: Vec::new(),
        }
    }

    pub(super) fn start_process(&mut self, device: usize) -> usize {
        assert!(device < self.capacity.len(), "no device {device}");
        add(&mut self.processes, Process { device, alive: true })
    }

    pub(super) fn device_of(&self, process: usize) -> usize {
        self.process(process).device
    }

    pub(super) fn is_alive(&self, process: usize) -> bool {
        self.process(process).alive
    }

    /// The process ends, as by SIGKILL: the driver closes what it had, and frees its memory when nobody else has it open.
    pub(super) fn kill(&mut self, process: usize) {
        self.processes.get_mut(process).unwrap().alive = false;
        for mapped in self.mappings.iter_mut().filter(|mapped| mapped.process == process) {
            mapped.open = false;
        }
        for event in self.events.iter_mut().filter(|event| event.process == process) {
            event.open = false;
        }
        for source in self.sources.iter_mut().filter(|source| source.process == process) {
            source.dropped = true;
        }
        let owned =
            |(id, of): (usize, &Allocation)| (of.process == process && of.state == State::Live).then_some(id);
        for id in self.allocations.iter().enumerate().filter_map(owned).collect::<Vec<_>>() {
            self.release(id, State::Released);
        }
        self.forget_work(process);
    }

    /// What every call begins with: counts it, and says whether it may go on.
    pub(super) fn enter(&mut self, process: usize, call: Call) -> Result<(), MockError> {
        let count = self.calls.entry(call).or_default();
        *count += 1;
        let count = *count;
        self.check_thread(process, call)?;
        if !self.is_alive(process) {
            return Err(MockError { call, result: result::CONTEXT_IS_DESTROYED, why: "the process is gone" });
        }
        match self.rules.iter().find(|rule| rule.call == call && rule.at == count) {
            Some(rule) => Err(MockError { call, result: rule.result, why: "as the test wants it" }),
            None => Ok(()),
        }
    }

    /// A host function may not call the driver.
    pub(super) fn check_thread(&mut self, process: usize, call: Call) -> Result<(), MockError> {
        if !IN_HOST_FUNCTION.get() {
            return Ok(());
        }
        self.find(Finding::CalledFromHostFunction { process, call });
        Err(MockError { call, result: result::NOT_PERMITTED, why: "called in a host function" })
    }

    /// `owner` made what `process` uses now.
    pub(super) fn check_owner(&mut self, call: Call, process: usize, owner: usize) -> Result<(), MockError> {
        if process == owner {
            return Ok(());
        }
        self.find(Finding::OtherContext { process, call });
        Err(MockError { call, result: result::INVALID_CONTEXT, why: "it belongs to another process" })
    }

    pub(super) fn fail(&mut self, call: Call, nth: u64, result: i32) {
        let at = self.calls(call) + nth;
        self.rules.push(Rule { call, at, result });
    }

    pub(super) fn calls(&self, call: Call) -> u64 {
        self.calls.get(&call).copied().unwrap_or(0)
    }

    pub(super) fn allocate(&mut self, process: usize, len: u64, pooled: bool) -> Option<usize> {
        let device = self.device_of(process);
        let left = self.capacity.get_mut(device).unwrap();
        *left = left.checked_sub(len)?;
        let bytes = vec![0; usize::try_from(len).ok()?];
        Some(add(&mut self.allocations, Allocation { process, bytes, pooled, state: State::Live }))
    }

    pub(super) fn allocation(&mut self, id: usize) -> &mut Allocation {
        self.allocations.get_mut(id).unwrap()
    }

    /// Frees an allocation, once.
    pub(super) fn free(&mut self, id: usize) {
        if self.allocation(id).state != State::Live {
            return;
        }
        if self.backend == Backend::CUDA_VMM {
            // The memory itself is counted: whoever has it mapped keeps it.
            return self.release(id, State::Released);
        }
        let holders = self.mappings.iter().filter(|mapped| mapped.allocation == id && mapped.open);
        let found = holders.map(|of| Finding::FreedWhileMapped { process: of.process, allocation: id });
        let found: Vec<_> = found.collect();
        found.into_iter().for_each(|finding| self.find(finding));
        self.release(id, State::Freed);
    }

    fn release(&mut self, id: usize, state: State) {
        let allocation = self.allocation(id);
        allocation.state = state;
        let (process, len) = (allocation.process, allocation.bytes.len());
        let device = self.device_of(process);
        *self.capacity.get_mut(device).unwrap() += u64::try_from(len).unwrap();
    }

    pub(super) fn add_source(&mut self, process: usize) -> usize {
        add(&mut self.sources, Source { process, latest: None, dropped: false })
    }

    pub(super) fn add_event(&mut self, process: usize, source: usize) -> usize {
        add(&mut self.events, Opened { process, source, open: true })
    }

    pub(super) fn event_source(&mut self, event: usize) -> (usize, &mut Source) {
        let id = self.events.get(event).unwrap().source;
        (id, self.sources.get_mut(id).unwrap())
    }

    /// The event is dropped by whoever has it.
    pub(super) fn close_event(&mut self, event: usize) {
        let opened = self.events.get_mut(event).unwrap();
        opened.open = false;
        let process = opened.process;
        let (_, source) = self.event_source(event);
        source.dropped |= source.process == process;
    }

    pub(super) fn find(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// What was found, and what is open now.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let allocated = self.allocations.iter().enumerate().filter(|(_, of)| of.state == State::Live);
        let mapped = self.mappings.iter().filter(|mapped| mapped.open);
        let events = self.events.iter().filter(|event| event.open);
        let found = self.findings.iter().copied();
        found
            .chain(allocated.map(|(allocation, of)| Finding::Allocated { process: of.process, allocation }))
            .chain(mapped.map(|of| Finding::Mapped { process: of.process, allocation: of.allocation }))
            .chain(events.map(|of| Finding::Event { process: of.process }))
            .collect()
    }

    fn process(&self, id: usize) -> &Process {
        self.processes.get(id).unwrap()
    }
}

/// Puts a thing at the end, and says where that is.
pub(super) fn add<T>(all: &mut Vec<T>, one: T) -> usize {
    all.push(one);
    all.len() - 1
}

/// Calls a host function.
pub(super) fn call_host_function(call: Box<dyn FnOnce() + Send>) {
    struct Leave;

    impl Drop for Leave {
        fn drop(&mut self) {
            IN_HOST_FUNCTION.set(false);
        }
    }

    IN_HOST_FUNCTION.set(true);
    let _leave = Leave;
    call();
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

static WORLDS: AtomicU64 = AtomicU64::new(1);

/// Bytes of a device.
const CAPACITY: u64 = 1 << 30;
