//! [`Iceoryx2`]: publish-subscribe of iceoryx2, and its events where readers sleep.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cuframes_bench::system::{Failure, Setup, System, Wait};
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::{event, publish_subscribe};
use self_cell::self_cell;

/// A service of byte slices that are made in the loaned memory, in the variant for one thread, which is the fastest.
///
/// Spinning readers call `receive`. A reader that sleeps has a listener of an event service of the same name, and the writer
/// notifies after each frame; a listener is made when its reader first has to sleep, so that nobody is notified who spins.
///
/// Strict means no safe overflow, and a publisher that retries until delivered. Frames are borrowed while they are looked at,
/// with `leases` or without: it has no other way.
#[derive(Debug)]
pub struct Iceoryx2;

impl System for Iceoryx2 {
    const NAME: &'static str = "iceoryx2";

    type Writer = IceoryxWriter;
    type Reader = IceoryxReader;

    fn writer(setup: &Setup) -> Result<IceoryxWriter, Failure> {
        let node = node(setup)?;
        let frames = frames(&node, setup)?;
        let publisher = frames
            .publisher_builder()
            .initial_max_slice_len(setup.frame_bytes)
            .max_loaned_samples(1)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            // Not what 31 readers might ask for if each held other frames, which fills /dev/shm with large ones: what is
            // queued is the same for all, each holds one more, one is being delivered and one is loaned.
            .override_sample_preallocation({
                let enough = usize::from(setup.ring_size) + setup.readers + 2;
                move |_| enough
            })
            .create()?;
        let notifier = events(&node, setup)?.notifier_builder().create()?;
        Ok(IceoryxWriter { publisher, notifier, frames, frame_bytes: setup.frame_bytes, _node: node })
    }

    fn wait_for_readers(writer: &mut IceoryxWriter, setup: &Setup, timeout: Duration) -> Result<(), Failure> {
        let until = Instant::now() + timeout;
        loop {
            let come = writer.frames.dynamic_config().number_of_subscribers();
            if come >= setup.readers {
                return Ok(writer.publisher.update_connections()?);
            }
            if Instant::now() >= until {
                return Err(format!("{come} of {} readers came", setup.readers).into());
            }
            sleep(Duration::from_millis(1));
        }
    }

    fn write(writer: &mut IceoryxWriter, fill: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        let sample = writer.publisher.loan_slice_uninit(writer.frame_bytes)?;
        // SAFETY: The payload is bytes, for which any value will do, of a mapping of shared memory, which the kernel gave out
        // as zeros and into which nothing but whole frames has been written since: they are initialised.
        let mut sample = unsafe { sample.assume_init() };
        fill(sample.payload_mut());
        sample.send()?;
        writer.notifier.notify()?;
        Ok(())
    }

    fn reader(setup: &Setup, _index: usize) -> Result<IceoryxReader, Failure> {
        let node = node(setup)?;
        let frames = frames(&node, setup)?;
        Ok(IceoryxReader {
            subscriber: frames.subscriber_builder().create()?,
            sleeper: None,
            events: events(&node, setup)?,
            frames,
            in_vain: 0,
            _node: node,
        })
    }

    fn read<T>(
        reader: &mut IceoryxReader,
        wait: Wait,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Failure> {
        if let Some(sample) = reader.subscriber.receive()? {
            return Ok(Some(look(sample.payload())));
        }
        let Wait::Block(limit) = wait else {
            reader.in_vain = reader.in_vain.wrapping_add(1);
            if reader.in_vain == 0 {
                reader.look_for_writer()?;
            }
            return Ok(None);
        };
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                reader.look_for_writer()?;
                return Ok(None);
            }
            if let Some(sleeper) = &reader.sleeper {
                sleeper.sleep(left)?;
            } else {
                // The writer has told nobody of what it sent before it knew the listener.
                reader.sleeper = Some(Sleeper::open(&reader.events)?);
            }
            if let Some(sample) = reader.subscriber.receive()? {
                return Ok(Some(look(sample.payload())));
            }
        }
    }
}

/// The writer's end.
#[derive(Debug)]
pub struct IceoryxWriter {
    publisher: Publisher<ipc::Service, [u8], ()>,
    notifier: Notifier<ipc::Service>,
    frames: Frames,
    frame_bytes: usize,
    _node: Node<ipc::Service>,
}

/// A reader's end.
#[derive(Debug)]
pub struct IceoryxReader {
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    /// Made when this reader first has to sleep.
    sleeper: Option<Sleeper>,
    events: event::PortFactory<ipc::Service>,
    frames: Frames,
    /// How often a spinning reader has found nothing.
    in_vain: u16,
    _node: Node<ipc::Service>,
}

impl IceoryxReader {
    /// A subscriber is not told that its publisher has gone.
    fn look_for_writer(&self) -> Result<(), Failure> {
        if self.frames.dynamic_config().number_of_publishers() == 0 {
            return Err("the stream has ended".into());
        }
        Ok(())
    }
}

self_cell! {
    /// A listener in a wait set. Its own `timed_wait` does the same with eight system calls instead of three.
    struct Sleeper {
        owner: Ear,
        #[not_covariant]
        dependent: Attached,
    }
}

struct Ear {
    set: WaitSet<ipc::Service>,
    listener: Listener<ipc::Service>,
}

type Attached<'a> = WaitSetGuard<'a, 'a, ipc::Service>;

impl Sleeper {
    fn open(events: &event::PortFactory<ipc::Service>) -> Result<Self, Failure> {
        let set = WaitSetBuilder::new().signal_handling_mode(SignalHandlingMode::Disabled).create()?;
        let ear = Ear { set, listener: events.listener_builder().create()? };
        Ok(Self::try_new(ear, |ear| ear.set.attach_notification(&ear.listener))?)
    }

    fn sleep(&self, limit: Duration) -> Result<(), Failure> {
        let Ear { set, listener } = self.borrow_owner();
        let mut heard = Ok(0);
        set.wait_and_process_once_with_timeout(
            |_| {
                heard = listener.try_wait(|_| {});
                CallbackProgression::Continue
            },
            limit,
        )?;
        heard?;
        Ok(())
    }
}

impl fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleeper").field("listener", &self.borrow_owner().listener).finish_non_exhaustive()
    }
}

type Frames = publish_subscribe::PortFactory<ipc::Service, [u8], ()>;

/// A node whose files lie in `setup.dir`, and whose shared memory bears its name: one segment of it outlives all nodes.
fn node(setup: &Setup) -> Result<Node<ipc::Service>, Failure> {
    set_log_level(LogLevel::Error);
    let mut config = Config::default();
    let name = setup.dir.file_name().ok_or("the directory of a measurement has no name")?;
    config.global.prefix = FileName::new(name.as_bytes())?;
    config.global.set_root_path(&Path::new(setup.dir.as_os_str().as_bytes())?);
    Ok(NodeBuilder::new().config(&config).signal_handling_mode(SignalHandlingMode::Disabled).create()?)
}

fn frames(node: &Node<ipc::Service>, setup: &Setup) -> Result<Frames, Failure> {
    Ok(node
        .service_builder(&ServiceName::new(&setup.stream)?)
        .publish_subscribe::<[u8]>()
        .payload_alignment(Alignment::new(PAYLOAD_ALIGNMENT).ok_or("not a power of two")?)
        .max_publishers(1)
        .max_subscribers(MAX_READERS)
        .max_nodes(MAX_READERS + 1)
        .history_size(0)
        .subscriber_max_buffer_size(setup.ring_size.into())
        .subscriber_max_borrowed_samples(1)
        .enable_safe_overflow(!setup.strict)
        .open_or_create()?)
}

fn events(node: &Node<ipc::Service>, setup: &Setup) -> Result<event::PortFactory<ipc::Service>, Failure> {
    Ok(node
        .service_builder(&ServiceName::new(&setup.stream)?)
        .event()
        .max_notifiers(1)
        .max_listeners(MAX_READERS)
        .max_nodes(MAX_READERS + 1)
        .event_id_max_value(0)
        .open_or_create()?)
}

/// As many as cuframes takes, and one.
const MAX_READERS: usize = 32;
/// A cache line: unaligned copies are slower than cuframes's, whose frames begin at a page.
const PAYLOAD_ALIGNMENT: usize = 64;
