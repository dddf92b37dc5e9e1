//! Compiling in other processes: NVRTC compiles one program at a time within a process, whatever the number of threads.
//!
//! A worker is a program that calls [`run`] when it is started with the argument [`COMMAND`]; the program that needs
//! kernels starts itself that way. It greets, then answers one request after the other, in frames of fields over its
//! standard input and output, and ends when its input does, even in the middle of a compilation, so that none outlives its
//! parent. A terminal's Ctrl-C is the parent's affair and does not reach it.

use std::fs;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ocellus_sys::nvrtc::{Nvrtc, NvrtcError};

use super::fields::{Fields, put, put_number, read_frame, write_frame};
use super::stop::{Stop, Worker};

/// The argument that makes a program a worker.
pub const COMMAND: &str = "jit-worker";

/// First field of a greeting. The number counts versions of the messages.
const MAGIC: &[u8] = b"ocellus jit worker 1";

/// A program for the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Name in messages.
    pub name: String,
    /// Text.
    pub source: String,
    /// Name and text of what it may include.
    pub headers: Vec<(String, String)>,
    /// Options of the compiler.
    pub options: Vec<String>,
}

impl Request {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.name.as_bytes());
        put(&mut bytes, self.source.as_bytes());
        put_number(&mut bytes, self.headers.len() as u32);
        for (name, text) in &self.headers {
            put(&mut bytes, name.as_bytes());
            put(&mut bytes, text.as_bytes());
        }
        // What is put behind the options must not look like one more of them.
        let mut options = Vec::new();
        self.options.iter().for_each(|option| put(&mut options, option.as_bytes()));
        put(&mut bytes, &options);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (name, source) = (fields.text()?, fields.text()?);
        let headers = (0..fields.number()?).map(|_| Some((fields.text()?, fields.text()?))).collect::<Option<_>>()?;
        let options = Fields(fields.bytes()?).all(Fields::text)?;
        fields.0.is_empty().then_some(Self { name, source, headers, options })
    }
}

/// What the compiler made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The code, for one architecture.
    pub cubin: Arc<[u8]>,
    /// What the compiler said: warnings, registers, spills.
    pub log: String,
}

/// The compiler's answer: its log instead of code where the program is at fault.
pub type Answer = Result<Compiled, String>;

/// What a worker says first: its compiler, or why it has none.
pub type Greeting = Result<Compiler, String>;

/// A compiler, as a greeting describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// Major and minor version.
    pub version: (u32, u32),
    /// Length of the library, which tells builds of one version apart; 0 where the system's loader chose the file.
    pub library_bytes: u64,
    /// Architectures that it compiles for: 90 is 9.0.
    pub archs: Vec<u32>,
}

impl Compiler {
    /// NVRTC, as it is loaded here.
    pub(super) fn of(nvrtc: &Nvrtc) -> Greeting {
        let describe = || {
            let (major, minor) = nvrtc.version()?;
            let archs = nvrtc.supported_archs()?.into_iter().map(i32::unsigned_abs).collect();
            let path = nvrtc.library().path();
            let about = path.is_absolute().then(|| fs::metadata(path)).transpose();
            let library_bytes = about.ok().flatten().map_or(0, |about| about.len());
            Ok(Self { version: (major.unsigned_abs(), minor.unsigned_abs()), library_bytes, archs })
        };
        describe().map_err(|error: NvrtcError| format!("NVRTC does not work: {error}"))
    }
}

/// Compiles in this process.
pub(super) fn compile(nvrtc: &Nvrtc, request: &Request) -> Answer {
    let headers: Vec<_> = request.headers.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    match nvrtc.compile(&request.name, &request.source, &headers, &request.options) {
        Ok(compiled) => Ok(Compiled { cubin: compiled.cubin.into(), log: compiled.log }),
        Err(error) if error.log.is_empty() => Err(error.to_string()),
        Err(error) => Err(error.log),
    }
}

/// Runs a worker over the standard streams, with NVRTC.
///
/// # Errors
/// When the parent is gone.
pub fn run() -> io::Result<()> {
    let (sender, requests) = mpsc::channel();
    // Reads while this thread compiles, to see the parent go.
    thread::Builder::new().name("requests".into()).spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            match read_frame(&mut input) {
                // What is being compiled has no reader any more.
                Ok(None) => ocellus_sys::exit_at_once(0),
                frame => {
                    let failed = frame.is_err();
                    if sender.send(frame).is_err() || failed {
                        break;
                    }
                }
            }
        }
    })?;
    let requests = || requests.recv().unwrap_or(Ok(None));
    let output = io::stdout().lock();
    match Nvrtc::load() {
        Ok(nvrtc) => answer_all(&Compiler::of(nvrtc), |request| compile(nvrtc, request), requests, output),
        Err(error) => answer_all(&Err(error.to_string()), |_| Err(error.to_string()), requests, output),
    }
}

/// Runs a worker with a compiler of any kind until `input` ends.
///
/// # Errors
/// When `input` holds no request or `output` is closed.
pub fn serve(
    greeting: &Greeting,
    compile: impl Fn(&Request) -> Answer,
    mut input: impl Read,
    output: impl Write,
) -> io::Result<()> {
    answer_all(greeting, compile, || read_frame(&mut input), output)
}

/// Greets and answers until there is no further request.
fn answer_all(
    greeting: &Greeting,
    compile: impl Fn(&Request) -> Answer,
    mut next: impl FnMut() -> io::Result<Option<Vec<u8>>>,
    mut output: impl Write,
) -> io::Result<()> {
    write_frame(&mut output, &greeting_bytes(greeting))?;
    while let Some(frame) = next()? {
        let request = Request::from_bytes(&frame).ok_or(ErrorKind::InvalidData)?;
        write_frame(&mut output, &answer_bytes(&compile(&request)))?;
    }
    Ok(())
}

fn greeting_bytes(greeting: &Greeting) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, MAGIC);
    match greeting {
        Ok(Compiler { version, library_bytes, archs }) => {
            for number in [1, version.0, version.1] {
                put_number(&mut bytes, number);
            }
            put(&mut bytes, &library_bytes.to_le_bytes());
            for &arch in archs {
                put_number(&mut bytes, arch);
            }
        }
        Err(why) => {
            put_number(&mut bytes, 0);
            put(&mut bytes, why.as_bytes());
        }
    }
    bytes
}

fn greeting(bytes: &[u8]) -> Option<Greeting> {
    let mut fields = Fields(bytes);
    if fields.bytes()? != MAGIC {
        return None;
    }
    Some(if fields.number()? == 1 {
        let version = (fields.number()?, fields.number()?);
        let library_bytes = u64::from_le_bytes(fields.bytes()?.try_into().ok()?);
        Ok(Compiler { version, library_bytes, archs: fields.all(Fields::number)? })
    } else {
        Err(fields.text()?)
    })
}

fn answer_bytes(answer: &Answer) -> Vec<u8> {
    let mut bytes = Vec::new();
    match answer {
        Ok(compiled) => {
            put(&mut bytes, compiled.log.as_bytes());
            put(&mut bytes, &compiled.cubin);
        }
        Err(log) => put(&mut bytes, log.as_bytes()),
    }
    bytes
}

fn answer(bytes: &[u8]) -> Option<Answer> {
    let mut fields = Fields(bytes);
    let log = fields.text()?;
    Some(if fields.0.is_empty() { Err(log) } else { Ok(Compiled { cubin: fields.bytes()?.into(), log }) })
}

/// A running worker.
pub(super) struct Process {
    worker: Worker,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a worker and waits for its greeting. The error says why there is none.
    pub(super) fn start(program: &Path, stop: &Stop) -> Result<(Self, Greeting), String> {
        let mut command = Command::new(program);
        command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A group of its own: a terminal sends its signals to the whole group that is in front.
        command.process_group(0);
        let worker = stop.spawn(&mut command).map_err(|error| format!("does not start: {error}"))?;
        let (requests, answers) = {
            let mut child = worker.child();
            (child.stdin.take(), child.stdout.take())
        };
        let (Some(requests), Some(answers)) = (requests, answers) else {
            return Err("has no pipes".into());
        };
        let mut process = Self { worker, requests, answers: BufReader::new(answers) };
        let frame = process.read()?;
        let greeting = greeting(&frame).ok_or("is no worker of this version")?;
        Ok((process, greeting))
    }

    /// Has a program compiled. The error says how the worker failed; it is of no more use then.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        // Where the worker is gone, reading tells how it ended.
        let _ = write_frame(&mut self.requests, &request.to_bytes());
        let frame = self.read()?;
        answer(&frame).ok_or_else(|| "answered nonsense".into())
    }

    fn read(&mut self) -> Result<Vec<u8>, String> {
        match read_frame(&mut self.answers) {
            Ok(Some(frame)) => Ok(frame),
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(format!("cannot be read: {error}")),
            Ok(None) | Err(_) => Err(self.end()),
        }
    }

    /// How the worker ended, whose output is closed.
    fn end(&mut self) -> String {
        // A program may close its output a little before it ends.
        for _ in 0..100 {
            if let Ok(Some(status)) = self.worker.child().try_wait() {
                return format!("ended ({status})");
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.worker.child().kill();
        "closed its output".into()
    }
}
