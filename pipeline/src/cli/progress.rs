//! The progress bar on stderr.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::source::{Input, Skipped, Walk};
use crate::stage::Cancel;

const COUNTED: &str = "{bar:30} {human_pos} of {human_len}  {rate}{left}{msg}";
const UNCOUNTED: &str = "{spinner} {human_pos} images  {rate}  {elapsed}{msg}";

/// A bar with rate and remaining time; a counter as long as the number of images is not known.
#[derive(Clone)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Hidden where nobody looks: `quiet`, or stderr is no terminal.
    pub(super) fn new(quiet: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style(UNCOUNTED));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Counts the inputs by a walk of its own while the job runs. A list on standard input can only be read once.
    pub(super) fn count(&self, inputs: &[Input], done: u64, cancel: &Cancel) {
        if self.0.is_hidden() || inputs.iter().any(|input| matches!(input, Input::Stdin)) {
            return;
        }
        let (bar, cancel) = (self.0.clone(), cancel.clone());
        let walk = Walk::new(inputs.to_vec(), Skipped::default(), cancel.clone());
        // Without the thread the bar stays a counter.
        let _ = std::thread::Builder::new().name("count".into()).spawn(move || {
            let total = walk.take_while(|_| !cancel.is_set()).count() as u64;
            bar.set_length(total.saturating_sub(done));
            bar.set_style(style(COUNTED));
        });
    }

    /// One more row; `failed` of all so far are errors.
    pub(super) fn row(&self, failed: u64) {
        if failed > 0 {
            self.0.set_message(format!("  {failed} failed"));
        }
        self.0.inc(1);
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }

    /// A writer that takes the bar away while it writes: both may share a terminal.
    pub(super) fn around<W: Write>(&self, writer: W) -> Around<W> {
        Around { bar: self.0.clone(), writer }
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let style = style.with_key("rate", |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        let _ = write!(text, "{:.1}/s", state.per_sec());
    });
    style.with_key("left", |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        // Nothing is known before the first row.
        if state.pos() > 0 {
            let _ = write!(text, "  {:#} left", HumanDuration(state.eta()));
        }
    })
}

/// See [`Progress::around`].
pub(super) struct Around<W> {
    bar: ProgressBar,
    writer: W,
}

impl<W: Write> Write for Around<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bar.suspend(|| self.writer.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_valid() {
        for template in [COUNTED, UNCOUNTED] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
