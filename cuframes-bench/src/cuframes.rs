//! cuframes as a [`System`]: what a program does that uses it.

pub(crate) mod death;

use std::time::Duration;

use cuframes_mio::core::{Features, Format, FrameMeta, Key, Policy, RingSize, SubscriberMode, Timeouts};
use cuframes_mio::{Publisher, PublisherBuilder, ServedPublisher, Subscriber};

use crate::jobs::PATIENCE;
use crate::system::{Failure, Setup, System, Wait};

/// cuframes, with its control plane in a thread.
#[derive(Debug)]
pub(crate) struct Cuframes;

/// A subscriber, and where it copies frames to without leases.
#[derive(Debug)]
pub(crate) struct Reader {
    subscriber: Subscriber,
    copy: Option<Vec<u8>>,
}

impl System for Cuframes {
    const NAME: &'static str = "cuframes";

    type Writer = ServedPublisher;
    type Reader = Reader;

    fn writer(setup: &Setup) -> Result<ServedPublisher, Failure> {
        Ok(builder(setup)?.create()?.serve()?)
    }

    fn wait_for_readers(
        writer: &mut ServedPublisher,
        setup: &Setup,
        timeout: Duration,
    ) -> Result<(), Failure> {
        Ok(writer.wait_for(setup.readers, timeout)?)
    }

    #[inline]
    fn write(writer: &mut ServedPublisher, fill: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        let mut claim = writer.claim()?;
        fill(claim.bytes_mut());
        claim.commit();
        Ok(())
    }

    fn reader(setup: &Setup, _index: usize) -> Result<Reader, Failure> {
        let mut builder =
            Subscriber::builder(key(setup)?).run_dir(&setup.dir).mode(SubscriberMode::STRICT_ORDER);
        if !setup.leases {
            builder = builder.features(WITHOUT_LEASES);
        }
        let copy = (!setup.leases).then(|| vec![0; setup.frame_bytes]);
        Ok(Reader { subscriber: builder.connect()?, copy })
    }

    #[inline]
    fn read<T>(reader: &mut Reader, wait: Wait, look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Failure> {
        let Reader { subscriber, copy } = reader;
        let frame = match wait {
            Wait::Spin => subscriber.try_next()?,
            Wait::Block(timeout) => subscriber.next(timeout)?,
        };
        let Some(frame) = frame else { return Ok(None) };
        match copy {
            None => Ok(frame.bytes().map(look)),
            // One that was overwritten is as good as none.
            Some(copy) => Ok(frame.copy_to(copy).ok().map(|_| look(copy))),
        }
    }
}

fn builder(setup: &Setup) -> Result<PublisherBuilder, Failure> {
    let meta = FrameMeta::new(Format::BYTES, u32::try_from(setup.frame_bytes)?, 1)?;
    let ring_size = RingSize::new(setup.ring_size.into()).ok_or("a ring has 1 to 16 frames")?;
    let policy = if setup.strict { Policy::STRICT_WAIT } else { Policy::DROP_OLDEST };
    // A machine that is busy with something else makes the figures bad enough.
    let mut timeouts = Timeouts::default();
    timeouts.consumer_ack = PATIENCE;
    timeouts.lease = PATIENCE;
    let builder = Publisher::builder(key(setup)?, meta).run_dir(&setup.dir).ring_size(ring_size);
    Ok(builder.policy(policy).timeouts(timeouts))
}

fn key(setup: &Setup) -> Result<Key, Failure> {
    let name = setup.dir.file_name().and_then(|name| name.to_str()).ok_or("a directory without a name")?;
    Ok(format!("{name}-{}", setup.stream).parse()?)
}

const WITHOUT_LEASES: Features = Features::FD_PASSING.union(Features::WAKE_HINT).union(Features::WITNESS);
