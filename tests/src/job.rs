//! Jobs of the program under test that are watched from outside.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::workspace_root;

/// Longest that anything of a job may take here, its start on a busy machine among it: it only catches hangs.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Seconds in a row that a job must have been still for, to be at rest.
const STILL_S: u32 = 3;
/// What a job that waits may use of a processor in a second, in hundredths of one.
const IDLE_TICKS: u64 = 10;
/// What its resident memory may change by in a second.
const STILL_BYTES: u64 = 256 << 10;

/// What some work gives.
///
/// # Panics
/// Where it does, or hangs: it has not ended after [`PATIENCE`].
pub fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = channel();
    let thread = thread::spawn(move || {
        // Nobody waits any more where it took too long.
        let _ = done.send(work());
    });
    match is_done.recv_timeout(PATIENCE) {
        Ok(given) => given,
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("the thread sends before it ends"),
        },
    }
}

/// A figure of `/proc/PID/status`, in bytes; `None` where the process has ended.
pub fn memory_bytes(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// `job`, started by `launcher`, which becomes it.
pub fn through(launcher: &[&str], job: &Command) -> Command {
    let mut command = Command::new(launcher[0]);
    command.args(&launcher[1..]).arg(job.get_program()).args(job.get_args()).current_dir(workspace_root());
    for (name, value) in job.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// `job` as signals find it when nobody ignores them: whoever runs the tests may, as under `nohup`, and the job would go on
/// ignoring them.
pub fn with_default_signals(job: &Command) -> Command {
    through(&["env", "--default-signal=INT,HUP,TERM,XFSZ", "--"], job)
}

/// `job` with a limit, as `ulimit` takes it: `-n 8`.
pub fn with_limit(job: &Command, limit: &str) -> Command {
    through(&["sh", "-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")], job)
}

/// Sends a job a signal, such as `-TERM`.
///
/// # Panics
/// Where there is no such process any more.
pub fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// Makes a named pipe.
///
/// # Panics
/// Where it cannot be made.
pub fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Waits until something can be seen of a job that goes on.
///
/// # Panics
/// Where the job ends before, or it is not seen.
pub fn wait_until(child: &mut Child, what: &str, mut seen: impl FnMut() -> bool) {
    let started = Instant::now();
    while !seen() {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("it ended before, {status}: {what}");
        }
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("after {PATIENCE:?} not yet: {what}");
        }
        sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of a job.
///
/// # Panics
/// Where it hangs.
pub fn wait(child: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it hangs");
        }
        sleep(Duration::from_millis(5));
    }
}

/// The same file by a path that is nearly as long as paths may be, so that few rows fill a pipe.
pub fn long_path(path: &Path) -> PathBuf {
    const LEN: usize = 3900;
    let (folder, name) = (path.parent().unwrap(), path.file_name().unwrap());
    let dots = "./".repeat(LEN.saturating_sub(path.as_os_str().len()) / 2);
    folder.join(dots).join(name)
}

/// How a job fared whose rows nobody read for a while.
#[derive(Debug)]
pub struct Blocked {
    /// Resident memory while it waited, bytes.
    pub rss_bytes: Vec<u64>,
    /// Paths that it was given.
    pub asked: u64,
    /// Rows that came, in the end.
    pub rows: Vec<String>,
    /// Its exit code.
    pub code: Option<i32>,
    /// What it said.
    pub said: String,
}

/// Runs a job that reads paths from standard input (`-`) and writes JSON lines to a pipe. It gets `paths` again and again,
/// and nobody reads more than the first byte of the rows until it has come to rest and `blocked` has passed.
///
/// # Panics
/// Where the job goes on to take paths or memory without end, or hangs.
pub fn with_a_blocked_sink(command: &mut Command, paths: &[PathBuf], blocked: Duration) -> Blocked {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (asked, enough) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut stdin = child.stdin.take().unwrap();
    let asker = {
        let (asked, enough) = (Arc::clone(&asked), Arc::clone(&enough));
        let lines: Vec<String> = paths.iter().map(|path| format!("{}\n", path.display())).collect();
        thread::spawn(move || {
            for line in lines.iter().cycle().take_while(|_| !enough.load(SeqCst)) {
                if stdin.write_all(line.as_bytes()).is_err() {
                    break;
                }
                asked.fetch_add(1, SeqCst);
            }
        })
    };
    let mut stderr = child.stderr.take().unwrap();
    let speaker = thread::spawn(move || {
        let mut said = String::new();
        stderr.read_to_string(&mut said).map(|_| said)
    });
    // A job that starts may look as if it were at rest, so the first row is waited for.
    let mut stdout = child.stdout.take().unwrap();
    let (started, start) = channel();
    thread::spawn(move || {
        let mut byte = [0];
        let len = stdout.read(&mut byte).unwrap();
        started.send((byte[..len].to_vec(), stdout))
    });
    let mut first = None;
    wait_until(&mut child, "a row", || {
        first = start.try_recv().ok();
        first.is_some()
    });
    let (first, stdout) = first.expect("it came");
    let taken = until_at_rest(&mut child, &asked);
    let (mut rss_bytes, since) = (Vec::new(), Instant::now());
    while since.elapsed() < blocked {
        rss_bytes.push(memory_bytes(child.id(), "VmRSS").expect("it runs"));
        sleep(Duration::from_millis(100));
    }
    assert_eq!(asked.load(SeqCst), taken, "it took more paths");
    enough.store(true, SeqCst);
    let rows = BufReader::new(first.chain(stdout)).lines().map(Result::unwrap).collect();
    asker.join().unwrap();
    let code = wait(&mut child).code();
    let said = speaker.join().unwrap().unwrap();
    Blocked { rss_bytes, asked: asked.load(SeqCst), rows, code, said }
}

/// Waits until a job takes no paths and no memory, and does next to nothing, beside looking whether there is something to do.
/// Gives the number of paths taken.
///
/// # Panics
/// Where it goes on without end.
pub fn until_at_rest(child: &mut Child, asked: &AtomicU64) -> u64 {
    let pid = child.id();
    let look = || (asked.load(SeqCst), busy_ticks(pid), memory_bytes(pid, "VmRSS").unwrap_or_default());
    let (mut before, mut still_s) = (look(), 0);
    let started = Instant::now();
    while still_s < STILL_S {
        sleep(Duration::from_secs(1));
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        let now = look();
        let [taken, ticks, bytes] = [now.0 - before.0, now.1.saturating_sub(before.1), now.2.abs_diff(before.2)];
        let is_still = taken == 0 && ticks <= IDLE_TICKS && bytes <= STILL_BYTES;
        still_s = if is_still { still_s + 1 } else { 0 };
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it goes on: in a second it took {taken} paths, {ticks} ticks, {bytes} bytes more or less");
        }
        before = now;
    }
    before.0
}

/// Time that the process has used of processors, in hundredths of a second.
fn busy_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything; user and system time are the twelfth and thirteenth field behind it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}
