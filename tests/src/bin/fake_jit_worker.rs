//! A worker of `ocellus_kernels::jit` whose compiler is made up: the cubin is the request as text. Defines make it fail in
//! the ways that a compiler may.
//!
//! `FAIL` is a compile error, `CRASH` ends the process, `HOLD=FILE` writes the process's number to FILE if there is none
//! yet and then waits to be killed, `SIZE=N` makes the cubin N bytes longer.
//!
//! `fake_jit_worker compile FOLDER COUNT` is a process that has COUNT kernels compiled, by itself as workers, with its
//! cache in FOLDER; it prints a line of what it did. `fake_jit_worker idle` has a worker and waits.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io, process, thread};

use ocellus_kernels::jit::worker::{self, Answer, Compiled, Compiler, Request};
use ocellus_kernels::jit::{Arch, CacheDir, Jit, JitOptions, KernelSpec, Stop};

fn main() -> io::Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [worker::COMMAND] => {
            let archs = Arch::TESTED.iter().map(|arch| arch.major * 10 + arch.minor).collect();
            let compiler = Compiler { version: (13, 0), library_bytes: 0, archs };
            worker::serve(&Ok(compiler), compile, io::stdin().lock(), io::stdout().lock())
        }
        ["compile", folder, count] => compile_many(folder.into(), count.parse().map_err(io::Error::other)?),
        ["idle"] => {
            let _jit = jit(CacheDir::None)?;
            println!("ready");
            thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        _ => Err(io::Error::other("see the head of its source")),
    }
}

fn jit(cache: CacheDir) -> io::Result<Jit> {
    let options = JitOptions { cache, workers: 2, worker: Some(env::current_exe()?), stop: Stop::default() };
    Jit::new(Arch { major: 9, minor: 0 }, options).map_err(io::Error::other)
}

fn compile_many(folder: PathBuf, count: u32) -> io::Result<()> {
    let jit = jit(CacheDir::At(folder))?;
    let specs: Vec<_> =
        (0..count).map(|i| KernelSpec::new("self_test.cu", "self_test", [("FACTOR", i.to_string())])).collect();
    let cubins = jit.compile(&specs).map_err(io::Error::other)?;
    let report = jit.report();
    let right = cubins.iter().zip(&specs).filter(|(cubin, spec)| {
        let define = format!("\"-DFACTOR={}\"", spec.defines[0].1);
        String::from_utf8_lossy(cubin).contains(&define)
    });
    println!(
        "right {} made {} damaged {} warnings {} children {}",
        right.count(),
        report.hits + report.compiled,
        report.damaged,
        report.warnings.len(),
        children()?
    );
    Ok(())
}

/// Number of processes that this one has started and not yet waited for.
fn children() -> io::Result<usize> {
    let lists = fs::read_dir("/proc/self/task")?.map(|task| fs::read_to_string(task?.path().join("children")));
    Ok(lists.filter_map(Result::ok).map(|list| list.split_whitespace().count()).sum())
}

fn compile(request: &Request) -> Answer {
    let define = |name: &str| request.options.iter().find_map(|option| option.strip_prefix(&format!("-D{name}=")));
    if define("FAIL").is_some() {
        return Err("remark\nself_test.cu(5): error: made up\nmore\n".into());
    }
    if define("CRASH").is_some() {
        process::abort();
    }
    if let Some(file) = define("HOLD").map(Path::new)
        && !file.exists()
    {
        // Whole when it appears under its name.
        let new = file.with_extension("new");
        let written = fs::write(&new, process::id().to_string()).and_then(|()| fs::rename(&new, file));
        written.map_err(|error| error.to_string())?;
        thread::sleep(Duration::from_secs(60));
    }
    let mut cubin = format!("{request:?}").into_bytes();
    let more: usize = define("SIZE").and_then(|size| size.parse().ok()).unwrap_or(0);
    cubin.resize(cubin.len() + more, b'x');
    Ok(Compiled { cubin: cubin.into(), log: "log".into() })
}
