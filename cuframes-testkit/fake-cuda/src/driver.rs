//! One process's driver: [`Driver`], and the prologue that every call passes: [`Call`].

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::code::{Code, Result};
use crate::config::Config;
use crate::device::Device;
use crate::entry_point::{EntryPoint, Needs};
use crate::event::Event;
use crate::fault::Fault;
use crate::memory::Memory;
use crate::pinned::Pinned;
use crate::report::{Report, StillOpen};
use crate::session::{Identity, Session};
use crate::stream::{Streams, is_in_host_function};
use crate::vmm::Virtual;

/// The driver of one process. The library has one; a test in this crate may have several, which are processes to each
/// other.
#[derive(Debug)]
pub struct Driver {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    pub(crate) session: Arc<Session>,
    pub(crate) devices: Vec<Device>,
    pub(crate) violations: Violations,
    /// What a host function holds, if one runs at a time.
    pub(crate) host_functions: Arc<Mutex<()>>,
    /// Whether the configuration can't be understood.
    misconfigured: bool,
    calls: Mutex<BTreeMap<EntryPoint, u64>>,
    state: Mutex<State>,
}

impl Driver {
    /// A driver that behaves like this.
    ///
    /// # Errors
    /// The session's directory can't be made.
    pub fn new(config: Config) -> io::Result<Self> {
        let identity = Identity::of_this_process();
        let session = Session::open(config.dir.as_deref(), &identity, config.devices)?;
        let devices = Device::all(&config);
        let state = State {
            initialised: false,
            retains: vec![0; devices.len()],
            stacks: HashMap::new(),
            memory: Memory::new(&identity),
            pinned: BTreeMap::new(),
            events: BTreeMap::new(),
            streams: Streams::default(),
            virtual_memory: Virtual::default(),
            last_id: 0,
        };
        Ok(Self {
            identity,
            session: Arc::new(session),
            devices,
            violations: Violations::default(),
            host_functions: Arc::default(),
            misconfigured: false,
            calls: Mutex::default(),
            state: Mutex::new(state),
            config,
        })
    }

    /// The driver that the environment asks for. If that can't be understood every call fails, and the report says why.
    ///
    /// # Errors
    /// As [`Driver::new`].
    pub fn from_env() -> io::Result<Self> {
        let (config, complaint) = match Config::from_env() {
            Ok(config) => (config, None),
            Err(complaint) => {
                let report = std::env::var_os("FAKE_CUDA_REPORT").map(Into::into);
                (Config { report, ..Config::default() }, Some(complaint))
            }
        };
        let mut driver = Self::new(config)?;
        if let Some(complaint) = complaint {
            complain(&complaint);
            driver.violations.add(format!("configuration: {complaint}"));
            driver.misconfigured = true;
        }
        Ok(driver)
    }

    /// Enters a call: counts it, lets it fail if it shall, and checks what it needs.
    ///
    /// # Errors
    /// What was injected, or what CUDA says before `cuInit`, without a context, and in a host function.
    pub fn call(&self, entry_point: EntryPoint) -> Result<Call<'_>> {
        let needs = entry_point.needs();
        let occurrence = self.count(entry_point);
        if needs != Needs::Nothing {
            // The driver of a process does not come with its child.
            if process::id() != self.identity.pid {
                if !matches!(entry_point, EntryPoint::cuInit | EntryPoint::cuDriverGetVersion) {
                    self.report_child(entry_point);
                }
                return Err(Code::NOT_INITIALIZED);
            }
            if is_in_host_function() {
                self.violations.add(format!("{entry_point} was called from a host function"));
                return Err(Code::NOT_PERMITTED);
            }
            if self.misconfigured {
                return Err(Code::SYSTEM_NOT_READY);
            }
        }
        let rule = self.config.faults.iter().find(|rule| rule.is_about(entry_point, occurrence));
        let hangs = match rule.map(|rule| rule.fault) {
            Some(Fault::Code(code)) => return Err(code),
            Some(Fault::Hang) => true,
            None => false,
        };
        let state = self.state();
        if matches!(needs, Needs::Init | Needs::Context) && !state.initialised {
            return Err(Code::NOT_INITIALIZED);
        }
        let current = state.current();
        if needs == Needs::Context {
            let retains = current.and_then(|device| state.retains.get(device));
            match retains {
                None => return Err(Code::INVALID_CONTEXT),
                Some(0) => return Err(Code::CONTEXT_IS_DESTROYED),
                Some(_) => {}
            }
        }
        drop(state);
        Ok(Call { driver: self, entry_point, current: current.unwrap_or_default(), hangs })
    }

    /// What is open, was violated and was called until now.
    #[must_use]
    pub fn report(&self) -> Report {
        let state = self.state();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let open = StillOpen {
            allocations: state.memory.count_allocations(),
            ipc_imports: state.memory.count_imports(),
            mappings: state.memory.count_mappings(),
            pinned_host_memory: count(state.pinned.len()),
            events: count(state.events.len()),
            streams: state.streams.count(),
            vmm_handles: state.virtual_memory.count_handles(),
            reservations: state.virtual_memory.count_reservations(),
            primary_retains: state.retains.iter().copied().map(u64::from).sum(),
            context_stack: state.stacks.values().map(|stack| count(stack.len())).sum(),
        };
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        Report {
            pid: self.identity.pid,
            open,
            violations: self.violations.all(),
            calls: calls.iter().map(|(entry_point, times)| (entry_point.name().to_owned(), *times)).collect(),
        }
    }

    /// The end of the process: writes the report, if one is wanted, and takes away what others could find. Does nothing
    /// in a child of the process.
    pub fn finish(&self) {
        if process::id() != self.identity.pid {
            return;
        }
        let report = self.report();
        if let Some(path) = &self.config.report
            && let Err(error) = report.append_to(path)
        {
            complain(&format!("can't write the report to {}: {error}", path.display()));
        }
        self.session.remove();
    }

    /// A child of the process writes no report when it ends, so what it does wrong is told at once.
    fn report_child(&self, entry_point: EntryPoint) {
        let violations = vec![format!("{entry_point} was called in a child of fork")];
        let report = Report { pid: process::id(), violations, ..Report::default() };
        let written = self.config.report.as_deref().map_or(Ok(()), |path| report.append_to(path));
        written.unwrap_or_else(|error| complain(&format!("can't write a report: {error}")));
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, entry_point: EntryPoint) -> u64 {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let times = calls.entry(entry_point).or_default();
        *times += 1;
        *times
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.state().streams.abandon();
        if process::id() == self.identity.pid {
            self.session.remove();
        }
    }
}

/// A call that passed the prologue. What each call does is a method of this, beside what it is about.
#[derive(Debug)]
pub struct Call<'d> {
    pub(crate) driver: &'d Driver,
    pub(crate) entry_point: EntryPoint,
    /// The device of the current context; of no meaning for calls that need none.
    pub(crate) current: usize,
    /// Whether what this puts into a stream is never done.
    pub(crate) hangs: bool,
}

impl Call<'_> {
    /// `cuInit`.
    ///
    /// # Errors
    /// Flags must be 0, and there must be a device.
    pub fn init(&self, flags: u32) -> Result<()> {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if self.driver.devices.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        self.driver.state().initialised = true;
        Ok(())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.driver.state()
    }

    /// Notes that the caller broke a rule.
    pub(crate) fn violation(&self, what: &str) {
        self.driver.violations.add(format!("{}: {what}", self.entry_point));
    }

    /// The current device. Every context is of a device that there is.
    pub(crate) fn device(&self) -> Result<&Device> {
        self.driver.devices.get(self.current).ok_or(Code::INVALID_CONTEXT)
    }
}

/// What the process has.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) initialised: bool,
    /// How often each device's primary context was retained.
    pub(crate) retains: Vec<u32>,
    /// Each thread's stack of current contexts, as ordinals of their devices.
    pub(crate) stacks: HashMap<ThreadId, Vec<usize>>,
    pub(crate) memory: Memory,
    /// Pinned host memory, by its address.
    pub(crate) pinned: BTreeMap<u64, Pinned>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) streams: Streams,
    pub(crate) virtual_memory: Virtual,
    last_id: u64,
}

impl State {
    /// The ordinal of the device whose context is current in this thread.
    pub(crate) fn current(&self) -> Option<usize> {
        self.stacks.get(&thread::current().id())?.last().copied()
    }

    /// A number that nothing else in this process has.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// Rules that the process broke. Streams note them too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations(Arc<Mutex<Vec<String>>>);

impl Violations {
    pub(crate) fn add(&self, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Says what nobody else could hear.
#[expect(clippy::print_stderr, reason = "a library that another program loaded has no other place for it")]
pub(crate) fn complain(text: &str) {
    eprintln!("fake CUDA driver: {text}");
}
