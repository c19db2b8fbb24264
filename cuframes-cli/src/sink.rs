//! Where the frames of `subscribe --y4m` go.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;

use cuframes_core::{Format, FrameMeta};
use y4m::{Colorspace, Encoder, Ratio};

use crate::args::Stream;
use crate::convert::read_picture;
use crate::error::{Failure, failed};
use crate::rate::Rate;

/// Writes frames as a y4m video, unbuffered: a reader of the pipe has every frame at once.
pub(crate) struct Y4mSink {
    encoder: Encoder<File>,
    name: String,
    picture: (Format, u32, u32),
    /// The frame that is written next.
    planes: [Vec<u8>; 3],
}

impl Y4mSink {
    /// Writes the header into what has this name. Answers `Break` if nobody reads it.
    pub(crate) fn create(
        file: File,
        stream: &Stream,
        meta: &FrameMeta,
        rate: Rate,
    ) -> Result<ControlFlow<(), Self>, Failure> {
        let colorspace = colorspace(meta)?;
        let name = match stream {
            Stream::File(path) => path.display().to_string(),
            Stream::Standard => "standard output".into(),
        };
        let [width, height, num, den] =
            [meta.width, meta.height, rate.num, rate.den].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let builder = y4m::encode(width, height, Ratio::new(num, den)).with_colorspace(colorspace);
        let header = unless_closed(&name, builder.write_header(file))?;
        let picture = picture(meta);
        Ok(header.map_continue(|encoder| Self { encoder, name, picture, planes: Default::default() }))
    }

    /// Whether frames with this geometry can go on in the same video.
    pub(crate) fn fits(&self, meta: &FrameMeta) -> bool {
        self.picture == picture(meta)
    }

    /// Copies a frame, so that it can be given back before it is written.
    pub(crate) fn load(&mut self, meta: &FrameMeta, frame: &[u8]) {
        read_picture(meta, frame, &mut self.planes);
    }

    /// Writes the frame that was loaded. Answers `Break` if nobody reads any more.
    pub(crate) fn write(&mut self) -> Result<ControlFlow<()>, Failure> {
        let picture = self.planes.each_ref().map(Vec::as_slice);
        unless_closed(&self.name, self.encoder.write_frame(&y4m::Frame::new(picture, None)))
    }
}

fn colorspace(meta: &FrameMeta) -> Result<Colorspace, Failure> {
    match meta.format {
        // What ffmpeg calls 4:2:0 if it knows no better.
        Format::I420 | Format::NV12 => Ok(Colorspace::C420jpeg),
        Format::I444 => Ok(Colorspace::C444),
        Format::GRAY8 => Ok(Colorspace::Cmono),
        other => Err(failed!(
            "can't write {other} frames as y4m: only i420, nv12, i444 and gray8 fit; publish one of these"
        )),
    }
}

/// What the header of a video says about all its frames.
const fn picture(meta: &FrameMeta) -> (Format, u32, u32) {
    (meta.format, meta.width, meta.height)
}

/// A closed pipe is not an error: the reader has all it wants.
fn unless_closed<T>(name: &str, result: Result<T, y4m::Error>) -> Result<ControlFlow<(), T>, Failure> {
    match result {
        Ok(value) => Ok(ControlFlow::Continue(value)),
        Err(y4m::Error::IoError(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(ControlFlow::Break(()))
        }
        Err(y4m::Error::IoError(error)) => {
            Err(failed!("can't write {name}: {error}; check the disk that it is on"))
        }
        Err(error) => Err(failed!("can't write {name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::convert::rows_mut;

    /// Writes one 3x3 frame whose planes hold the letters in order, and reads the file back.
    fn video(format: Format) -> String {
        let meta = FrameMeta::new(format, 3, 3).unwrap();
        let mut frame = vec![0xEE; usize::try_from(meta.frame_size_bytes).unwrap()];
        let mut letters = b'a'..=b'z';
        for plane in meta.planes() {
            rows_mut(&mut frame, &plane).flatten().for_each(|byte| *byte = letters.next().unwrap_or(b'.'));
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.y4m");
        let (file, stream) = (File::create(&path).unwrap(), Stream::File(path.clone()));
        let sink = Y4mSink::create(file, &stream, &meta, Rate { num: 30000, den: 1001 });
        let ControlFlow::Continue(mut sink) = sink.unwrap() else { panic!("closed") };
        sink.load(&meta, &frame);
        assert_eq!(sink.write(), Ok(ControlFlow::Continue(())));
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_video_has_the_header_of_its_format_and_the_planes_one_after_the_other() {
        let header = "YUV4MPEG2 W3 H3 F30000:1001";
        assert_eq!(video(Format::I420), format!("{header} C420jpeg\nFRAME\nabcdefghijklmnopq"));
        assert_eq!(video(Format::NV12), format!("{header} C420jpeg\nFRAME\nabcdefghijlnpkmoq"));
        assert_eq!(video(Format::I444), format!("{header} C444\nFRAME\nabcdefghijklmnopqrstuvwxyz."));
        assert_eq!(video(Format::GRAY8), format!("{header} Cmono\nFRAME\nabcdefghi"));
    }

    #[test]
    fn a_format_that_y4m_does_not_have_is_refused_with_those_it_has() {
        let meta = FrameMeta::new(Format::RGB24, 3, 3).unwrap();
        let file = tempfile::tempfile().unwrap();
        let Err(failure) = Y4mSink::create(file, &Stream::Standard, &meta, Rate::DEFAULT) else {
            panic!("accepted")
        };
        assert!(failure.to_string().contains("only i420, nv12, i444 and gray8"), "{failure}");
    }
}
