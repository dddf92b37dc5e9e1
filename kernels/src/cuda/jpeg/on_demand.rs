//! Decoders that are made for the first file that needs them.

use std::sync::atomic::Ordering::Relaxed;

use tracing::warn;

use super::{Jpeg, JpegFile, JpegPath, Path};
use crate::cuda::clock::Span;
use crate::cuda::stream::{Stream, Waiting};
use crate::error::KernelError;

/// Where one thread's decoders work.
pub(super) struct Place {
    pub(super) stream: Stream,
    /// How the thread waits for them.
    pub(super) waiting: Waiting,
    /// They say when they were at work.
    pub(super) is_timed: bool,
    // Last: its context is that of the stream.
    pub(super) jpeg: Jpeg,
}

/// A way to decode, if need be. Making one takes the driver a tenth of a second or more, while which it makes no other.
pub(super) enum OnDemand<P> {
    /// Nothing needs it, or it was let go of.
    NotMade,
    /// There was no memory for it when it was needed last.
    Short,
    /// There it is.
    Made(P),
}

impl<P: Path> OnDemand<P> {
    /// The decoder, which is made here where there is none yet; `None` where there is none to have.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], or where the driver lost the GPU. Whatever else nvJPEG fails at the next decoder does.
    pub(super) fn made(&mut self, place: &Place) -> Result<Option<&mut P>, KernelError> {
        if matches!(self, Self::NotMade | Self::Short) {
            match Self::make(place) {
                Ok(made) => *self = made.map_or(Self::NotMade, Self::Made),
                Err(short @ KernelError::OutOfMemory { .. }) => {
                    *self = Self::Short;
                    return Err(short);
                }
                Err(error) => {
                    // A GPU that is lost is not one that lacks a decoder.
                    place.stream.device().memory_bytes()?;
                    if !P::is_given_up(&place.jpeg).swap(true, Relaxed) {
                        warn!(%error, "a decoder of nvJPEG cannot be made; from here on the next one does its work");
                    }
                }
            }
        }
        Ok(if let Self::Made(path) = self { Some(path) } else { None })
    }

    fn make(place: &Place) -> Result<Option<P>, KernelError> {
        let mut made = P::make(place)?;
        if let Some(path) = made.as_mut().filter(|_| place.is_timed) {
            path.spans().start(place.stream.device())?;
        }
        Ok(made)
    }

    /// [`Path::decode`] where a file needs it. Too little memory for the decoder is as too little for its work.
    pub(super) fn decode(
        &mut self,
        place: &Place,
        files: &[JpegFile<'_>],
        served: &mut [Option<JpegPath>],
    ) -> Result<(), KernelError> {
        let is_needed = files.iter().zip(&*served).any(|(file, served)| served.is_none() && P::takes(file));
        if !is_needed || P::is_given_up(&place.jpeg).load(Relaxed) {
            return Ok(());
        }
        match self.made(place) {
            Ok(Some(path)) => path.decode(files, served),
            Ok(None) => Ok(()),
            Err(KernelError::OutOfMemory { .. }) if files.len() == 1 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// True where there was no memory for it since this was asked before.
    pub(super) fn take_short(&mut self) -> bool {
        let is_short = matches!(self, Self::Short);
        if is_short {
            *self = Self::NotMade;
        }
        is_short
    }

    /// The decoder and all its memory go, until it is needed again.
    pub(super) fn let_go(&mut self) {
        if matches!(self, Self::Made(_)) {
            *self = Self::NotMade;
        }
    }

    /// A decoder that there is already says from now on when it was at work.
    pub(super) fn record_spans(&mut self, place: &Place) -> Result<(), KernelError> {
        if let Self::Made(path) = self { path.spans().start(place.stream.device()) } else { Ok(()) }
    }

    /// Forgets when it was at work.
    pub(super) fn restart(&mut self) -> Result<(), KernelError> {
        if let Self::Made(path) = self { path.spans().restart() } else { Ok(()) }
    }

    /// When it was at work since then.
    pub(super) fn spans(&mut self) -> impl Iterator<Item = Result<Span, KernelError>> {
        let path = if let Self::Made(path) = self { Some(path) } else { None };
        path.into_iter().flat_map(|path| path.spans().taken())
    }
}
