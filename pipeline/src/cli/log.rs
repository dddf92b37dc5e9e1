//! Events of the library as lines on stderr.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{format::FmtSpan, time::uptime};
use tracing_subscriber::prelude::*;

use super::progress::Progress;
use crate::error::{JobError, printable};

/// Environment variables that say what is logged; the first one that is set counts.
const VARIABLES: [&str; 2] = ["OCELLUS_LOG", "RUST_LOG"];

/// What the switches `-v`, `-vv` and `-vvv` stand for.
const LEVELS: [&str; 3] = ["ocellus=info,ocellus_kernels=info", "ocellus=debug,ocellus_kernels=debug", "trace"];

/// The log of this process. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<OnceLock<Progress>>);

impl Log {
    /// Starts it where an environment variable or `verbose`, the number of `-v`, asks for it.
    ///
    /// # Errors
    /// Where the variable cannot be understood.
    pub(super) fn start(verbose: u8) -> Result<Self, JobError> {
        let log = Self::default();
        if let Some(filter) = filter(verbose, |name| std::env::var(name).ok())? {
            let writer = log.clone();
            let lines = tracing_subscriber::fmt::layer()
                .with_timer(uptime())
                .with_span_events(FmtSpan::NONE)
                .with_writer(move || Lines(writer.clone()));
            // Fails only where there is one already.
            let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
        }
        Ok(log)
    }

    /// From now on this bar is taken away while a line is written.
    pub(super) fn around(&self, progress: &Progress) {
        let _ = self.0.set(progress.clone());
    }
}

fn filter(verbose: u8, env: impl Fn(&str) -> Option<String>) -> Result<Option<Targets>, JobError> {
    for name in VARIABLES {
        if let Some(text) = env(name).filter(|text| !text.is_empty()) {
            let usage = |e| JobError::Usage(format!("{name}: {e}; write a level, or parts and levels: gpu=debug,info"));
            return text.parse().map(Some).map_err(usage);
        }
    }
    let level = usize::from(verbose).checked_sub(1).map(|n| LEVELS[n.min(LEVELS.len() - 1)]);
    Ok(level.and_then(|level| level.parse().ok()))
}

/// Takes whole lines.
struct Lines(Log);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = format!("{}\n", printable(text.trim_end()));
        match self.0.0.get() {
            Some(progress) => progress.around(io::stderr()).write_all(line.as_bytes())?,
            None => io::stderr().write_all(line.as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::filter::LevelFilter;

    fn level(verbose: u8, variables: &[(&str, &str)], target: &str) -> Option<LevelFilter> {
        let env = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let filter = filter(verbose, env).unwrap()?;
        let levels = [LevelFilter::TRACE, LevelFilter::DEBUG, LevelFilter::INFO, LevelFilter::WARN, LevelFilter::ERROR];
        levels.into_iter().find(|level| filter.would_enable(target, &level.into_level().unwrap()))
    }

    #[test]
    fn switches_and_variables_say_what_is_logged() {
        let (gpu, jit, other) = ("ocellus::gpu::load", "ocellus_kernels::jit", "image");
        assert_eq!(level(0, &[], gpu), None);
        assert_eq!(level(0, &[("RUST_LOG", "")], gpu), None);
        assert_eq!(level(1, &[], gpu), Some(LevelFilter::INFO));
        assert_eq!((level(2, &[], jit), level(2, &[], other)), (Some(LevelFilter::DEBUG), None));
        assert_eq!((level(3, &[], jit), level(9, &[], other)), (Some(LevelFilter::TRACE), Some(LevelFilter::TRACE)));
        let both = [("OCELLUS_LOG", "ocellus::gpu=debug,warn"), ("RUST_LOG", "trace")];
        assert_eq!((level(1, &both, gpu), level(1, &both, jit)), (Some(LevelFilter::DEBUG), Some(LevelFilter::WARN)));
        assert_eq!(level(0, &[("RUST_LOG", "error")], jit), Some(LevelFilter::ERROR));
    }

    #[test]
    fn what_cannot_be_understood_is_wrong_usage() {
        for bad in ["ocellus=loud", "a=b=c"] {
            let error = filter(0, |name| (name == "OCELLUS_LOG").then(|| bad.into())).unwrap_err();
            assert!(matches!(&error, JobError::Usage(text) if text.starts_with("OCELLUS_LOG: ")), "{bad}: {error}");
        }
    }
}
