//! `ocellus cache`, and the process that compiles kernels.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use ocellus_kernels::cuda::lower::{Precision, Target};
use ocellus_kernels::cuda::schedule::schedule;
use ocellus_kernels::jit::cache::{Contents, Total, clear, list};
use ocellus_kernels::jit::{Arch, CacheDir, Jit, KernelSpec, Stop, worker};

use super::args::{CacheArgs, CacheCommand, WarmArgs};
use super::device::{GPU_BATCH, jit_options};
use super::job::find;
use super::{Exit, say, signals};
use crate::error::JobError;
use crate::gpu;
use crate::model::load::Model;
use crate::stage::Cancel;

/// Lists, fills or empties the folder of compiled kernels.
pub(super) fn run(args: &CacheArgs) -> Result<Exit, JobError> {
    if let CacheCommand::Warm(args) = &args.command {
        return warm(args);
    }
    let folder = CacheDir::Default
        .folder()
        .ok_or_else(|| JobError::Usage("there is no folder for compiled kernels; set OCELLUS_CACHE_DIR".to_owned()))?;
    let failed = |error| JobError::io(folder.display().to_string(), error);
    let text = match args.command {
        CacheCommand::Clear => {
            format!("removed {} from {}", counted(clear(&folder).map_err(failed)?, "file"), folder.display())
        }
        _ => table(&folder, &list(&folder).map_err(failed)?),
    };
    print(&text)
}

/// Answers requests to compile on the standard streams; the program starts itself for this.
pub(super) fn work() -> Result<Exit, JobError> {
    worker::run().map(|()| Exit::Done).map_err(|error| JobError::io("compiling kernels", error))
}

/// Compiles what the model needs for each architecture.
fn warm(args: &WarmArgs) -> Result<Exit, JobError> {
    let spec = find(&args.model)?;
    let model = Model::open(&spec)?;
    let (cancel, compiling) = (Cancel::default(), Stop::default());
    // Compilers and what they have not finished must not stay behind.
    signals::watch(cancel.clone(), compiling.clone())?;
    for &arch in &args.arch {
        let warmed = warm_specs(&specs_of(&model, arch)?, arch, &compiling);
        // Whatever was stopped has an error of its own.
        if cancel.is_set() {
            return Err(JobError::Interrupted);
        }
        warmed?;
    }
    Ok(Exit::Done)
}

/// The kernels of a model in half precision, from pictures to the best classes, for the batch sizes of a job whose user asks for
/// none. With another size those few differ that take other tiles for one image than for many.
fn specs_of(model: &Model, arch: Arch) -> Result<Vec<KernelSpec>, JobError> {
    specs_for(model, arch, &gpu::network_batches(GPU_BATCH))
}

fn specs_for(model: &Model, arch: Arch, batches: &[usize]) -> Result<Vec<KernelSpec>, JobError> {
    let target = Target::typical(arch, Precision::Fp16);
    let mut specs = BTreeSet::new();
    for &batch in batches {
        let schedule = schedule(&model.plan(batch)?, &target)?;
        specs.extend(schedule.kernels());
        specs.extend(gpu::kernels_around(model, &schedule));
    }
    Ok(specs.into_iter().collect())
}

/// Sees to it that the kernels are in the cache.
fn warm_specs(specs: &[KernelSpec], arch: Arch, compiling: &Stop) -> Result<(), JobError> {
    let jit = Jit::new(arch, jit_options(CacheDir::Default, compiling.clone())?)?;
    jit.compile(specs)?;
    let report = jit.report();
    if let Some(warning) = report.warnings.first() {
        return Err(JobError::io("keeping kernels", io::Error::other(warning.clone())));
    }
    say(format_args!(
        "{arch}: {} kernels were there, {} compiled in {:.1} s",
        report.hits,
        report.compiled,
        report.compile_ms / 1e3
    ));
    Ok(())
}

fn table(folder: &Path, contents: &Contents) -> String {
    let mut text = format!("{}\n", folder.display());
    if !contents.kernels.is_empty() {
        text += "\narch     file                       kernels        kB\n";
    }
    let mut all = Total::default();
    for ((arch, file), total) in &contents.kernels {
        let _ = writeln!(text, "{arch:8} {file:24} {:9} {:9.1}", total.files, total.bytes as f64 / 1e3);
        all.add(*total);
    }
    let _ = write!(text, "\n{}", counted(all, "kernel"));
    for (total, what) in [(contents.damaged, "unusable file"), (contents.unfinished, "unfinished file")] {
        if total.files > 0 {
            let _ = write!(text, ", {}", counted(total, what));
        }
    }
    text
}

/// As in `2 files (3.1 kB)`.
fn counted(total: Total, what: &str) -> String {
    let plural = if total.files == 1 { "" } else { "s" };
    format!("{} {what}{plural} ({:.1} kB)", total.files, total.bytes as f64 / 1e3)
}

fn print(text: &str) -> Result<Exit, JobError> {
    writeln!(io::stdout(), "{text}").map_err(|error| JobError::output("writing to the standard output", error))?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::DEFAULT_MODEL;
    use crate::model::spec::ModelSpec;

    /// A start compiles, or loads, each of them.
    #[test]
    fn the_batch_sizes_between_need_few_kernels_of_their_own() {
        let model = Model::read(&ModelSpec::resolve(DEFAULT_MODEL).unwrap()).unwrap();
        for arch in ["8.0", "9.0"] {
            let kernels = |batches: &[usize]| specs_for(&model, arch.parse().unwrap(), batches).unwrap().len();
            let (ends, all) = (kernels(&[1, GPU_BATCH]), kernels(&gpu::network_batches(GPU_BATCH)));
            println!("{arch}: {ends} kernels for batches of 1 and {GPU_BATCH}, {all} for all sizes");
            assert!(all <= ends + ends / 2, "{arch}: {all} instead of {ends}");
        }
    }

    #[test]
    fn the_table_adds_up() {
        let total = |files, bytes| Total { files, bytes };
        let mut contents = Contents { unfinished: total(1, 100), ..Contents::default() };
        assert_eq!(table(Path::new("/c"), &Contents::default()), "/c\n\n0 kernels (0.0 kB)");
        contents.kernels.insert(("sm_80".into(), "a.cu".into()), total(2, 2000));
        contents.kernels.insert(("sm_90a".into(), "a.cu".into()), total(1, 1500));
        let expected = "\
/c

arch     file                       kernels        kB
sm_80    a.cu                             2       2.0
sm_90a   a.cu                             1       1.5

3 kernels (3.5 kB), 1 unfinished file (0.1 kB)";
        assert_eq!(table(Path::new("/c"), &contents), expected);
    }
}
