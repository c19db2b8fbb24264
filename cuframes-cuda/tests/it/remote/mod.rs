//! CUDA in other processes: [`Importer`] forwards every call of `Import` to one of its own, [`Exporter`] is one that has
//! memory to open.

mod client;
mod exporter;
mod server;
mod wire;

pub(crate) use client::{Importer, RemoteStream};
pub(crate) use exporter::{Exporter, Offer, offer, play_exporter};
pub(crate) use server::serve;
pub(crate) use wire::{receive, send};
