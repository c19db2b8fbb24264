//! [`IpcChannel`]: the ipc-channel crate, a channel of bytes to each reader.

use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cuframes_bench::system::{Failure, Setup, System, Wait};
use ipc_channel::TryRecvError;
use ipc_channel::ipc::{IpcBytesReceiver, IpcBytesSender, IpcOneShotServer, IpcSender, bytes_channel};

/// A channel of bytes to each reader, without serialization: one copy into its socket and one out of it, into a new buffer
/// each time, which is how the crate hands them out. Nothing is ever lost: with a full socket the writer waits, strict or not.
///
/// A channel of bytes cannot wait with a limit. Blocked readers wait until there is a frame or the writer has gone.
#[derive(Debug)]
pub struct IpcChannel;

impl System for IpcChannel {
    const NAME: &'static str = "ipc-channel";

    type Writer = IpcWriter;
    type Reader = IpcReader;

    fn writer(setup: &Setup) -> Result<IpcWriter, Failure> {
        let mut servers = Vec::with_capacity(setup.readers);
        for index in 0..setup.readers {
            let (server, name) = IpcOneShotServer::new()?;
            fs::write(file(setup, index, "server"), name)?;
            servers.push(server);
        }
        Ok(IpcWriter {
            servers,
            readers: Vec::with_capacity(setup.readers),
            frame: vec![0; setup.frame_bytes],
        })
    }

    fn wait_for_readers(writer: &mut IpcWriter, setup: &Setup, timeout: Duration) -> Result<(), Failure> {
        let until = Instant::now() + timeout;
        for (index, server) in writer.servers.drain(..).enumerate() {
            // Accepting would wait for ever.
            while !file(setup, index, "there").try_exists()? {
                if Instant::now() >= until {
                    return Err(format!("reader {index} did not come").into());
                }
                sleep(Duration::from_millis(1));
            }
            writer.readers.push(server.accept()?.1);
        }
        Ok(())
    }

    fn write(writer: &mut IpcWriter, fill: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        fill(&mut writer.frame);
        for reader in &writer.readers {
            reader.send(&writer.frame)?;
        }
        Ok(())
    }

    fn reader(setup: &Setup, index: usize) -> Result<IpcReader, Failure> {
        let server = IpcSender::connect(fs::read_to_string(file(setup, index, "server"))?)?;
        let (frames_in, frames) = bytes_channel()?;
        server.send(frames_in)?;
        File::create(file(setup, index, "there"))?;
        Ok(IpcReader { frames })
    }

    fn read<T>(
        reader: &mut IpcReader,
        wait: Wait,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Failure> {
        let frame = match wait {
            Wait::Spin => match reader.frames.try_recv() {
                Ok(frame) => frame,
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::IpcError(error)) => return Err(error.into()),
            },
            Wait::Block(_) => reader.frames.recv()?,
        };
        Ok(Some(look(&frame)))
    }
}

/// The writer's end: where readers have yet to come, a channel to each that has, and the buffer where frames are made.
pub struct IpcWriter {
    servers: Vec<IpcOneShotServer<IpcBytesSender>>,
    readers: Vec<IpcBytesSender>,
    frame: Vec<u8>,
}

impl fmt::Debug for IpcWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IpcWriter").field("readers", &self.readers).finish_non_exhaustive()
    }
}

/// A reader's end.
#[derive(Debug)]
pub struct IpcReader {
    frames: IpcBytesReceiver,
}

/// Reader `index` and the writer meet by this file.
fn file(setup: &Setup, index: usize, what: &str) -> PathBuf {
    setup.dir.join(format!("{}.{index}.{what}", setup.stream))
}
