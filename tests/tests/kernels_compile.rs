//! Every GPU kernel for every architecture, with NVRTC and without a GPU: nothing fails, nothing spills.

use std::collections::BTreeSet;
use std::path::Path;

use ocellus::model::load::Model;
use ocellus::model::spec::ModelSpec;
use ocellus_kernels::KernelError;
use ocellus_kernels::cu::FILES;
use ocellus_kernels::cuda::lower::{Precision, Target};
use ocellus_kernels::cuda::preprocess::OutputFormat;
use ocellus_kernels::cuda::schedule::schedule;
use ocellus_kernels::jit::{Arch, CacheDir, Jit, KernelSpec};
use ocellus_kernels::plan::Plan;
use ocellus_kernels::tensor::{DType, Layout};
use tests::cases::{self, Case, Input};
use tests::gpu::compiler;

const HOPPER: Arch = Arch { major: 9, minor: 0 };

/// Bytes that registers were spilled to, by the lines of a compiler's log; `None` where it has no such line.
fn spilled_bytes(log: &str) -> Option<u32> {
    let number = |part: &str| part.split_whitespace().next()?.parse::<u32>().ok();
    let parts = log.lines().flat_map(|line| line.split(',')).filter(|part| part.contains("bytes spill"));
    parts.map(number).reduce(|sum, bytes| Some(sum? + bytes?)).flatten()
}

#[test]
fn spills_are_seen() {
    let log = "ptxas info    : Compiling entry function 'a' for 'sm_90a'\nptxas info    : Function properties for a\n    \
               0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 8 registers\n";
    assert_eq!(spilled_bytes(log), Some(0));
    assert_eq!(spilled_bytes(&log.replace("0 bytes spill l", "12 bytes spill l")), Some(12));
    assert_eq!(spilled_bytes(&format!("{log}{}", log.replace("0 bytes spill s", "4 bytes spill s"))), Some(4));
    assert_eq!(spilled_bytes("nothing of the kind"), None);
}

/// What is wrong with a kernel.
fn fault(jit: &Jit, spec: &KernelSpec) -> Option<String> {
    let compiled = match jit.compile_with_logs(std::slice::from_ref(spec)) {
        Ok(compiled) => compiled.into_iter().next()?,
        Err(error) => return Some(format!("{error}\n{}", error.log().unwrap_or_default())),
    };
    // The section of a kernel's code is named after it.
    let section = format!(".text.{}\0", spec.entry);
    if !compiled.cubin.windows(section.len()).any(|bytes| bytes == section.as_bytes()) {
        return Some(format!("{spec} for {}: there is no such entry", jit.arch()));
    }
    match spilled_bytes(&compiled.log) {
        Some(0) => None,
        _ => Some(format!("{spec} for {} spills registers, or it is not known:\n{}", jit.arch(), compiled.log)),
    }
}

/// The kernels of preprocessing into every type, of the sample networks and of cases of every operator in half precision, and of one network in the other
/// precisions on the architectures that have kernels of their own.
fn specs(arch: Arch) -> Vec<KernelSpec> {
    let mut specs: BTreeSet<KernelSpec> = KernelSpec::samples().into_iter().collect();
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I8] {
        for (layout, pitch) in [(Layout::Nchw, 3), (Layout::Nhwc, 4), (Layout::Nhwc, 8)] {
            specs.insert(OutputFormat { dtype, layout, pitch, step: 1.0 }.kernel());
        }
    }
    let mut add = |plan: &Plan, precision, portable| {
        let target = Target { portable, ..Target::typical(arch, precision) };
        match schedule(plan, &target) {
            Ok(schedule) => specs.extend(schedule.kernels()),
            // What a table of cases holds beyond what the GPU takes is refused by name.
            Err(error) => {
                assert!(matches!(error, KernelError::Unsupported { .. } | KernelError::TooLarge { .. }), "{error}");
            }
        }
    };
    for name in ["efficientnet-lite0", "squeezenet1.1"] {
        let file = tests::workspace_root().join(format!("samples/models/{name}.onnx"));
        let plan = Model::read(&ModelSpec::Onnx(file)).unwrap().plan(8).unwrap();
        add(&plan, Precision::Fp16, false);
        if arch == (Arch { major: 8, minor: 0 }) || arch == HOPPER {
            for precision in [Precision::Fp32, Precision::Tf32, Precision::Bf16] {
                add(&plan, precision, false);
            }
        }
    }
    let mut add_cases = |family: &[Case], precision| {
        for case in family.iter().step_by(CASE_STEP) {
            let ones = |input: &Input| input.constant.then(|| vec![1.0; input.dims.iter().product()]);
            let constants: Vec<_> = case.inputs.iter().map(ones).collect();
            add(&case.plan(&constants), precision, true);
        }
    };
    for family in cases::FAMILIES {
        add_cases(&family(), Precision::Fp16);
    }
    add_cases(&cases::convolutions(), Precision::Fp32);
    specs.into_iter().collect()
}

/// Of a family's cases every so many are compiled: a prime, so that all parameters are met.
const CASE_STEP: usize = 29;

#[test]
fn every_kernel_compiles_for_every_architecture() {
    // Kept between runs: what did not change need not be compiled again to be checked.
    let cache = CacheDir::At(Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels"));
    let mut faults = Vec::new();
    for arch in Arch::TESTED {
        let Some(jit) = compiler(arch, cache.clone()) else { return };
        let specs = specs(arch);
        println!("{arch}: {} kernels", specs.len());
        for source in FILES.iter().filter(|file| file.name.strip_suffix(".cu").is_some()) {
            let hopper_only = source.name == "conv_sm90.cu" && arch != HOPPER;
            assert!(
                hopper_only || specs.iter().any(|spec| spec.file == source.name),
                "nothing compiles {}",
                source.name
            );
        }
        // All at once on all cores; then one by one, from the cache, so that every fault is told and not only the first.
        let _ = jit.compile(&specs);
        faults.extend(specs.iter().filter_map(|spec| fault(&jit, spec)));
        assert!(jit.report().warnings.is_empty(), "{:?}", jit.report());
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
