//! Compiling GPU kernels at run time: the cache on disk, the worker processes, and, where NVRTC is installed, every kernel
//! for every architecture.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use ocellus_kernels::jit::cache::{Total, list};
use ocellus_kernels::jit::{Arch, CacheDir, Jit, JitError, JitOptions, JitReport, KernelSpec, Stop};
use tempfile::TempDir;
use tests::gpu::compiler;
use tests::{ocellus, skip};

/// Longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

const HOPPER: Arch = Arch { major: 9, minor: 0 };

fn fake_worker() -> PathBuf {
    env!("CARGO_BIN_EXE_fake_jit_worker").into()
}

fn jit_with(cache: CacheDir, worker: Option<PathBuf>) -> Result<Jit, JitError> {
    Jit::new(HOPPER, JitOptions { cache, workers: 2, worker, stop: Stop::default() })
}

/// A compiler with workers that make up their cubins.
fn fake(cache: CacheDir) -> Jit {
    jit_with(cache, Some(fake_worker())).unwrap()
}

fn at(folder: &TempDir) -> CacheDir {
    CacheDir::At(folder.path().to_path_buf())
}

fn spec(defines: &[(&'static str, &str)]) -> KernelSpec {
    KernelSpec::new("self_test.cu", "self_test", defines.iter().map(|&(name, value)| (name, value.to_owned())))
}

fn factors(count: u32) -> Vec<KernelSpec> {
    (0..count).map(|factor| spec(&[("FACTOR", &factor.to_string())])).collect()
}

/// The made-up cubin tells what it was made of.
fn assert_made_of(cubin: &[u8], spec: &KernelSpec) {
    let text = String::from_utf8_lossy(cubin);
    assert!(text.contains("--gpu-architecture=sm_90a") && text.contains("ptx.cuh"), "{text}");
    for (name, value) in &spec.defines {
        assert!(text.contains(&format!("\"-D{name}={value}\"")), "{name}={value}: {text}");
    }
}

fn counts(report: &JitReport) -> (usize, usize, usize) {
    (report.hits, report.compiled, report.damaged)
}

fn entries(folder: &TempDir) -> Vec<PathBuf> {
    let kernels = CacheDir::folder(&at(folder)).unwrap();
    let mut files: Vec<_> = fs::read_dir(kernels).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(10));
    }
}

fn kill(pid: &str) {
    assert!(Command::new("kill").args(["-9", pid]).status().unwrap().success());
}

#[test]
fn cubins_come_in_order_and_from_the_cache_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut specs = factors(20);
    // The same once more, and another entry point of the same program.
    specs.push(specs[7].clone());
    specs.push(KernelSpec { entry: "other", ..specs[7].clone() });
    let cold = fake(at(&folder));
    let made = cold.compile(&specs).unwrap();
    for (cubin, spec) in made.iter().zip(&specs) {
        assert_made_of(cubin, spec);
    }
    assert!(Arc::ptr_eq(&made[7], &made[20]) && Arc::ptr_eq(&made[7], &made[21]));
    assert_eq!(counts(&cold.report()), (0, 20, 0));
    assert!(cold.report().compile_ms > 0.0 && cold.report().warnings.is_empty());
    assert_eq!(entries(&folder).len(), 20);

    let warm = fake(at(&folder));
    assert_eq!(warm.compile_with_logs(&specs[..2]).unwrap()[1].log, "log");
    assert_eq!(warm.compile(&specs).unwrap(), made);
    assert_eq!((counts(&warm.report()), warm.report().compile_ms), ((22, 0, 0), 0.0));

    let nowhere = fake(CacheDir::None);
    for round in 1..=2 {
        assert_eq!(nowhere.compile(&specs[..3]).unwrap(), made[..3]);
        assert_eq!(counts(&nowhere.report()), (0, 3 * round, 0));
    }
    assert!(nowhere.compile(&[]).unwrap().is_empty());
    assert_eq!(entries(&folder).len(), 20);
}

#[test]
fn another_architecture_is_another_cubin() {
    let folder = tempfile::tempdir().unwrap();
    let compile = |arch| {
        let options = JitOptions { cache: at(&folder), workers: 0, worker: Some(fake_worker()), stop: Stop::default() };
        let jit = Jit::new(arch, options)?;
        jit.compile(&factors(1)).map(|cubins| cubins[0].clone())
    };
    let cubins: Vec<_> = Arch::TESTED.map(|arch| compile(arch).unwrap()).into();
    for (arch, cubin) in Arch::TESTED.iter().zip(&cubins) {
        assert!(String::from_utf8_lossy(cubin).contains(&format!("\"--gpu-architecture={arch}\"")));
    }
    let old = compile(Arch { major: 3, minor: 5 }).unwrap_err();
    assert!(matches!(old, JitError::UnknownArch { .. }), "{old:?}");
    assert!(old.to_string().contains("sm_35") && old.to_string().contains("13.0"), "{old}");
}

#[test]
fn damaged_entries_are_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let specs = factors(2);
    let made = fake(at(&folder)).compile(&specs).unwrap();
    let [file, other] = &entries(&folder)[..] else { panic!("two entries") };
    let whole = fs::read(file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let changed: Vec<(&str, Vec<u8>)> = vec![
        ("no start", flipped(0)),
        ("another format", flipped(12)),
        ("another key", flipped(20)),
        ("another length", flipped(49)),
        ("another checksum", flipped(60)),
        ("another body", flipped(whole.len() / 2)),
        ("another last byte", flipped(whole.len() - 1)),
        ("empty", Vec::new()),
        ("half a header", whole[..40].to_vec()),
        ("half a body", whole[..whole.len() / 2].to_vec()),
        ("too long", [&whole[..], b"x"].concat()),
        ("zeros, as after a power failure", vec![0; whole.len()]),
        ("the entry of another kernel", fs::read(other).unwrap()),
    ];
    for (what, bytes) in changed {
        fs::write(file, bytes).unwrap();
        let jit = fake(at(&folder));
        assert_eq!(jit.compile(&specs).unwrap(), made, "{what}");
        assert_eq!(counts(&jit.report()), (1, 1, 1), "{what}");
        assert_eq!(jit.report().warnings, [""; 0], "{what}");
        assert_eq!(fs::read(file).unwrap(), whole, "{what}: mended");
    }
    assert_eq!(entries(&folder).len(), 2, "nothing is left behind");
    // What cannot be replaced by a file costs time only.
    fs::remove_file(file).unwrap();
    fs::create_dir(file).unwrap();
    let jit = fake(at(&folder));
    assert_eq!(jit.compile(&specs).unwrap(), made);
    assert_eq!((counts(&jit.report()), jit.report().warnings.len()), ((1, 1, 1), 1));
}

/// The work is done and one warning says why it will be done again.
fn assert_useless(folder: &Path, reason: &str) {
    let jit = fake(CacheDir::At(folder.to_path_buf()));
    let specs = factors(5);
    for round in 1..=2 {
        for (cubin, spec) in jit.compile(&specs).unwrap().iter().zip(&specs) {
            assert_made_of(cubin, spec);
        }
        assert_eq!(counts(&jit.report()), (0, 5 * round, 0));
        let [warning] = &jit.report().warnings[..] else { panic!("{:?}", jit.report()) };
        let says = [reason, "OCELLUS_CACHE_DIR", &*folder.to_string_lossy()].map(|part| warning.contains(part));
        assert!(says == [true; 3] && !warning.contains('\n'), "{warning}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_costs_only_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert_useless(&file, "ot a directory");
    assert_useless(Path::new("/proc/none"), "");
}

/// A file system of its own, unmounted at the end.
struct Mount(TempDir);

impl Mount {
    fn new(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(folder.path()).output();
        if mount.as_ref().is_ok_and(|mount| mount.status.success()) {
            return Some(Self(folder));
        }
        skip("REQUIRE_MOUNT", &format!("cannot make a file system: {mount:?}"));
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

#[test]
fn a_read_only_folder_serves_what_it_has() {
    let Some(disk) = Mount::new("size=1m") else { return };
    let cache = || CacheDir::At(disk.path().to_path_buf());
    let made = fake(cache()).compile(&factors(2)).unwrap();
    assert!(Command::new("mount").args(["-o", "remount,ro"]).arg(disk.path()).status().unwrap().success());
    let jit = fake(cache());
    assert_eq!(jit.compile(&factors(2)).unwrap(), made);
    assert_eq!((counts(&jit.report()), jit.report().warnings.len()), ((2, 0, 0), 0), "nothing is written: no warning");
    let specs = factors(4);
    assert_made_of(&jit.compile(&specs).unwrap()[3], &specs[3]);
    let report = jit.report();
    assert_eq!((counts(&report), report.warnings.len()), ((4, 2, 0), 1));
    assert!(report.warnings[0].contains("Read-only"), "{report:?}");

    let Some(empty) = Mount::new("ro") else { return };
    assert_useless(empty.path(), "Read-only");
}

#[test]
fn a_full_disk_keeps_what_fits() {
    let Some(disk) = Mount::new("size=64k") else { return };
    let cache = || CacheDir::At(disk.path().to_path_buf());
    let specs: Vec<_> = (0..8).map(|i| spec(&[("FACTOR", &i.to_string()), ("SIZE", "15000")])).collect();
    let full = fake(cache());
    let made = full.compile(&specs).unwrap();
    for (cubin, spec) in made.iter().zip(&specs) {
        assert_made_of(cubin, spec);
    }
    let report = full.report();
    assert_eq!((counts(&report), report.warnings.len()), ((0, 8, 0), 1));
    assert!(report.warnings[0].contains("No space left"), "{report:?}");

    let folder = cache().folder().unwrap();
    let contents = list(&folder).unwrap();
    assert_eq!((contents.damaged, contents.unfinished), (Total::default(), Total::default()), "nothing half-written");
    let kept: u64 = contents.kernels.values().map(|total| total.files).sum();
    assert!((1..8).contains(&kept), "{kept} kept");
    let again = fake(cache());
    assert_eq!(again.compile(&specs).unwrap(), made);
    assert_eq!(again.report().hits as u64, kept);
}

#[test]
fn processes_may_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Command::new(fake_worker());
    process.arg("compile").arg(folder.path()).arg("40").stdout(Stdio::piped());
    let processes: Vec<_> = (0..4).map(|_| process.spawn().unwrap()).collect();
    let mut outputs: Vec<_> = processes.into_iter().map(|process| process.wait_with_output().unwrap()).collect();
    // One more, that finds everything.
    outputs.push(process.output().unwrap());
    for output in outputs {
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said, "right 40 made 40 damaged 0 warnings 0 children 0\n");
    }
    let contents = list(&at(&folder).folder().unwrap()).unwrap();
    assert_eq!(contents.kernels.values().map(|total| total.files).sum::<u64>(), 40);
    assert_eq!((contents.damaged.files, contents.unfinished.files), (0, 0));
}

#[test]
fn a_compile_error_names_the_kernel_and_carries_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let jit = fake(at(&folder));
    let mut specs = factors(6);
    specs.insert(2, spec(&[("FAIL", "1"), ("FACTOR", "2")]));
    let error = jit.compile(&specs).unwrap_err();
    let message = error.to_string();
    let expected =
        "self_test in self_test.cu FACTOR=2 FAIL=1 for sm_90a does not compile: self_test.cu(5): error: made up";
    assert_eq!(message, expected);
    assert_eq!(error.log(), Some("remark\nself_test.cu(5): error: made up\nmore\n"));
    specs.remove(2);
    assert_eq!(jit.compile(&specs).unwrap().len(), 6, "the compiler is none the worse for it");
    let nothing = KernelSpec::new("no_such.cu", "x", []);
    assert_eq!(jit.compile(&[nothing]), Err(JitError::NoFile("no_such.cu")));
}

#[test]
fn a_worker_that_is_killed_costs_nothing_and_one_that_crashes_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let held = folder.path().join("pid");
    let mut specs = factors(6);
    specs.insert(1, spec(&[("HOLD", held.to_str().unwrap())]));
    let jit = fake(CacheDir::None);
    let made = thread::scope(|scope| {
        let compiling = scope.spawn(|| jit.compile(&specs));
        kill(&wait_for("the worker's number", || fs::read_to_string(&held).ok()));
        compiling.join().unwrap().unwrap()
    });
    for (cubin, spec) in made.iter().zip(&specs) {
        assert_made_of(cubin, spec);
    }
    assert_eq!(counts(&jit.report()), (0, 7, 0));

    specs[4] = spec(&[("CRASH", "1")]);
    let error = jit.compile(&specs).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, JitError::Worker { .. }), "{error:?}");
    let says = ["self_test.cu CRASH=1 for sm_90a", "signal: 6"].map(|part| message.contains(part));
    assert!(says == [true; 2] && !message.contains('\n'), "{message}");
}

/// A worker at work, one that waits, and those that would have been started.
#[test]
fn compiling_that_is_stopped_leaves_no_worker() {
    let folder = tempfile::tempdir().unwrap();
    let held = folder.path().join("pid");
    let stop = Stop::default();
    let options = JitOptions { cache: CacheDir::None, workers: 2, worker: Some(fake_worker()), stop: stop.clone() };
    let jit = Jit::new(HOPPER, options).unwrap();
    let mut specs = factors(40);
    specs.insert(1, spec(&[("HOLD", held.to_str().unwrap())]));
    let (ended, worker) = thread::scope(|scope| {
        let compiling = scope.spawn(|| jit.compile(&specs));
        let worker = wait_for("the worker's number", || fs::read_to_string(&held).ok());
        stop.set();
        (compiling.join().unwrap(), worker)
    });
    assert_eq!(ended, Err(JitError::Stopped));
    assert!(!Path::new("/proc").join(worker).exists());
    assert_eq!(jit.compile(&specs), Err(JitError::Stopped));
    let options = JitOptions { cache: CacheDir::None, workers: 2, worker: Some(fake_worker()), stop };
    assert_eq!(Jit::new(HOPPER, options).err(), Some(JitError::Stopped));
}

#[test]
fn workers_end_with_their_parent() {
    let mut parent = Command::new(fake_worker()).arg("idle").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = parent.id().to_string();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let worker = children.trim().to_owned();
    assert!(worker.parse::<u32>().is_ok(), "one worker: {children:?}");
    kill(&pid);
    parent.wait().unwrap();
    // Whoever inherits the orphan may be slow to take note of its end.
    wait_for("the worker's end", || {
        let stat = fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z')).then_some(())
    });
}

#[test]
fn a_program_that_is_no_worker_is_an_error() {
    for (program, why) in [("/no/such/program", "does not start"), ("/bin/false", "exit status: 1"), ("/bin/echo", "")]
    {
        let error = jit_with(CacheDir::None, Some(program.into())).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, JitError::NoWorker { .. }), "{error:?}");
        assert!(message.contains(program) && message.contains(why) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn the_cache_command_lists_and_clears() {
    let folder = tempfile::tempdir().unwrap();
    let cache = |command: &str| {
        let mut program = ocellus();
        let output = program.args(["cache", command]).env("OCELLUS_CACHE_DIR", folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(cache("list").contains("\n0 kernels"));
    fake(at(&folder)).compile(&factors(3)).unwrap();
    let kernels = at(&folder).folder().unwrap();
    let (foreign, unfinished) = (kernels.join("README"), entries(&folder)[0].with_extension("1.unfinished"));
    fs::write(&foreign, "not ours").unwrap();
    fs::write(&unfinished, "half").unwrap();
    fs::write(&entries(&folder)[1], "damaged").unwrap();
    let text = cache("list");
    let kept = text.lines().find(|line| line.starts_with("sm_90a")).unwrap().split_whitespace();
    assert_eq!(kept.take(3).collect::<Vec<_>>(), ["sm_90a", "self_test.cu", "2"]);
    for part in [kernels.to_str().unwrap(), "2 kernels", "1 unusable file (", "1 unfinished file ("] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(cache("clear").starts_with("removed 4 files"));
    assert_eq!(entries(&folder), [foreign]);
    assert!(cache("list").contains("\n0 kernels"));
}

#[test]
fn the_real_compilers_message_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let Some(jit) = compiler(HOPPER, at(&folder)) else { return };
    let error = jit.compile(&[spec(&[("FACTOR", "nonsense")])]).unwrap_err();
    let message = error.to_string();
    for part in ["self_test in self_test.cu FACTOR=nonsense for sm_90a", "self_test.cu(6): error", "nonsense"] {
        assert!(message.contains(part) && !message.contains('\n'), "{part}: {message}");
    }
    assert!(error.log().unwrap().lines().count() > 3, "{error:?}");
    assert!(list(&at(&folder).folder().unwrap()).unwrap().kernels.is_empty());
}

#[test]
fn this_process_and_workers_make_the_same() {
    let Some(workers) = compiler(HOPPER, CacheDir::None) else { return };
    let here = jit_with(CacheDir::None, None).unwrap();
    let specs = factors(4);
    let made = workers.compile(&specs).unwrap();
    assert!(made.iter().all(|cubin| cubin.starts_with(b"\x7fELF")));
    assert_eq!(here.compile(&specs).unwrap(), made);
    assert_ne!(made[0], made[1]);
    assert_eq!((here.version(), here.arch()), (workers.version(), HOPPER));
}
