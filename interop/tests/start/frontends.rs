//! The frontends that are compared: the original, and ours.

use std::any::Any;
use std::path::Path;
use std::time::Duration;

use cuframes_interop::{thread, within};
use cuframes_mio::barrier::{Barrier, BarrierBuilder, BarrierError, Registered};
use cuframes_mio::net::Endpoint;
use tokio::task::JoinHandle;
use ts_client::{ClientConfig, ClientListener, EngineInfo, LoadBalance, Routing};

/// How a start ended: indices and registrations, or why not.
pub(crate) type End = Result<Vec<(u16, Vec<u8>)>, String>;

/// A frontend that waits.
pub(crate) struct Frontend {
    pub(crate) address: String,
    end: JoinHandle<(End, Kept)>,
    /// What has started goes on as long as this is there.
    kept: Kept,
}

type Kept = Option<Box<dyn Any + Send>>;

impl Frontend {
    /// The original, on free ports.
    pub(crate) async fn original(first: u16, count: u16, timeout: Duration) -> Self {
        let any = || "tcp://127.0.0.1:0".to_string();
        Self::original_at([any(), any(), any()], first, count, timeout).await
    }

    /// The original, on Unix sockets in this directory.
    pub(crate) async fn original_in(dir: &Path, first: u16, count: u16, timeout: Duration) -> Self {
        let at = |name| format!("ipc://{}", dir.join(name).display());
        Self::original_at([at("start"), at("input"), at("output")], first, count, timeout).await
    }

    async fn original_at(addresses: [String; 3], first: u16, count: u16, timeout: Duration) -> Self {
        let [handshake_address, input_address, output_address] = addresses;
        let listener = ClientListener::bind(ClientConfig {
            handshake_address,
            input_address,
            output_address,
            first_engine_index: first,
            num_engines: count,
            routing: Routing::Aggregated(LoadBalance::RoundRobin),
            handshake_timeout: timeout,
            send_timeout: timeout,
        });
        let listener = listener.await.unwrap();
        let address = listener.handshake_address().to_string();
        let end = tokio::spawn(async move {
            let told = |EngineInfo { index, ready }| (index, ts_wire::encode_frames(&ready)[0].to_vec());
            match listener.accept().await {
                Ok(client) => (Ok(client.engines().into_iter().map(told).collect()), kept(client)),
                Err(error) => (Err(error.to_string()), None),
            }
        });
        Self { address, end, kept: None }
    }

    /// Ours, with these settings.
    pub(crate) fn ours(settings: BarrierBuilder) -> Self {
        let mut barrier = settings.listen().unwrap();
        let address = barrier.endpoint().to_string();
        let wait = move || match barrier.wait(|_| {}) {
            Ok(participants) => (Ok(participants.into_iter().map(told).collect()), kept(barrier)),
            Err(BarrierError::Failed { fault, .. }) => (Err(fault.to_string()), None),
            Err(error) => panic!("{error}"),
        };
        Self { address, end: tokio::spawn(thread("the end of our start", wait)), kept: None }
    }

    /// Waits for the end.
    pub(crate) async fn end(&mut self) -> End {
        let (end, kept) = within("the end of the start", &mut self.end).await.unwrap();
        self.kept = kept;
        end
    }
}

/// Settings of ours, on free ports; as the original, or with all that is new.
pub(crate) fn barrier(first: u16, count: u16, timeout: Duration, is_new: bool) -> BarrierBuilder {
    let any = Endpoint::Tcp(([127, 0, 0, 1], 0).into());
    Barrier::builder(any, count).first_index(first).timeout(timeout).restarts(is_new).notices(is_new)
}

fn kept(what: impl Any + Send) -> Kept {
    Some(Box::new(what))
}

fn told(Registered { index, registration, .. }: Registered) -> (u16, Vec<u8>) {
    (index, registration.encode())
}
