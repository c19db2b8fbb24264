//! Streams of one frame, whose bytes the test knows, and pictures of them.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use cuframes_core::FrameMeta;
use cuframes_mio::{HostMemory, Publisher, ServedPublisher};
use png::{ColorType, Decoder};

use crate::stage::Stage;

/// Publishes one frame, whose planes have these rows one after the other, without padding. It is there until the
/// publisher is dropped.
pub(crate) fn publish(stage: &Stage, meta: FrameMeta, planes: &[Vec<u8>]) -> ServedPublisher<HostMemory> {
    let publisher = Publisher::builder(stage.key.parse().unwrap(), meta).run_dir(stage.run_dir());
    let mut publisher = publisher.create().unwrap().serve().unwrap();
    let mut claim = publisher.claim().unwrap();
    let frame = claim.bytes_mut();
    // What is padding must not be seen.
    frame.fill(0x5A);
    for (plane, rows) in meta.planes().zip(planes) {
        let [offset, pitch, row] =
            [plane.offset, plane.pitch.into(), plane.row_bytes.into()].map(|n| usize::try_from(n).unwrap());
        for (n, bytes) in rows.chunks(row).enumerate() {
            frame[offset + n * pitch..][..row].copy_from_slice(bytes);
        }
    }
    claim.commit();
    publisher
}

/// A picture that was read from a file.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Picture {
    pub(crate) size: (u32, u32),
    pub(crate) colour: ColorType,
    pub(crate) bytes: Vec<u8>,
}

impl Picture {
    pub(crate) fn read(path: &Path) -> Self {
        Self::decode(fs::read(path).unwrap())
    }

    pub(crate) fn decode(file: Vec<u8>) -> Self {
        let mut reader = Decoder::new(Cursor::new(file)).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!(info.bit_depth, png::BitDepth::Eight);
        Self { size: (info.width, info.height), colour: info.color_type, bytes }
    }
}

/// A picture of the stream.
#[track_caller]
pub(crate) fn snapshot(stage: &Stage, options: &str) -> Picture {
    stage.run(&format!("snapshot KEY DIR/still.png --timeout 120 {options}")).succeeded();
    Picture::read(&stage.path("still.png"))
}
