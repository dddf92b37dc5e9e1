//! NVRTC, the run-time compiler of CUDA C++: from a program's text to machine code for one GPU architecture. Needs no GPU
//! and no driver.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

use crate::{Found, Library, LoadError, load};

/// `nvrtcResult`.
type Status = c_int;
/// `nvrtcProgram`.
type Program = *mut std::ffi::c_void;

/// Codes of `nvrtcResult` that are given or made here (nvrtc.h).
mod code {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const INVALID_INPUT: i32 = 3;
    pub(super) const INVALID_OPTION: i32 = 5;
}

/// The loaded compiler. All functions may be called from several threads at once; NVRTC itself compiles one program at
/// a time in a process.
#[derive(Debug)]
pub struct Nvrtc {
    library: &'static Found,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    num_supported_archs: unsafe extern "C" fn(*mut c_int) -> Status,
    supported_archs: unsafe extern "C" fn(*mut c_int) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    create_program: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy_program: unsafe extern "C" fn(*mut Program) -> Status,
    compile_program: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Status,
}

/// What a compilation gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Machine code: an ELF file for the driver to load.
    pub cubin: Vec<u8>,
    /// The compiler's remarks, among them what `--ptxas-options=-v` prints.
    pub log: String,
}

/// A call of NVRTC that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct NvrtcError {
    /// The `nvrtcResult`.
    pub code: i32,
    /// Its name, as in `NVRTC_ERROR_COMPILATION`.
    pub name: String,
    /// The compiler's log, all lines; empty where there is none.
    pub log: String,
}

impl fmt::Display for NvrtcError {
    /// One line: the name, and the log's first line with an error, or else its first line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.code)?;
        let mut lines = self.log.lines().filter(|line| !line.trim().is_empty());
        let first = lines.clone().next();
        match lines.find(|line| line.contains("error")).or(first) {
            Some(line) => write!(f, ": {}", line.trim()),
            None => Ok(()),
        }
    }
}

impl Nvrtc {
    /// The compiler, loaded at the first call as by [`load`].
    ///
    /// # Errors
    /// No library loads, or it lacks a function.
    pub fn load() -> Result<&'static Self, LoadError> {
        static NVRTC: OnceLock<Result<Nvrtc, LoadError>> = OnceLock::new();
        NVRTC.get_or_init(|| Self::bind(load(Library::Nvrtc)?)).as_ref().map_err(Clone::clone)
    }

    fn bind(library: &'static Found) -> Result<Self, LoadError> {
        // SAFETY: the types are those of the declarations in nvrtc.h, and the library is never unloaded.
        unsafe {
            Ok(Self {
                library,
                version: library.function("nvrtcVersion")?,
                num_supported_archs: library.function("nvrtcGetNumSupportedArchs")?,
                supported_archs: library.function("nvrtcGetSupportedArchs")?,
                error_string: library.function("nvrtcGetErrorString")?,
                create_program: library.function("nvrtcCreateProgram")?,
                destroy_program: library.function("nvrtcDestroyProgram")?,
                compile_program: library.function("nvrtcCompileProgram")?,
                cubin_size: library.function("nvrtcGetCUBINSize")?,
                cubin: library.function("nvrtcGetCUBIN")?,
                log_size: library.function("nvrtcGetProgramLogSize")?,
                log: library.function("nvrtcGetProgramLog")?,
            })
        }
    }

    /// The library that it is.
    pub fn library(&self) -> &'static Found {
        self.library
    }

    /// Its version: major, minor.
    ///
    /// # Errors
    /// What NVRTC reports.
    pub fn version(&self) -> Result<(i32, i32), NvrtcError> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are valid for writes.
        self.check(unsafe { (self.version)(&raw mut major, &raw mut minor) })?;
        Ok((major, minor))
    }

    /// The architectures it compiles for, in ascending order: 90 is `sm_90`.
    ///
    /// # Errors
    /// What NVRTC reports.
    pub fn supported_archs(&self) -> Result<Vec<i32>, NvrtcError> {
        let mut count = 0;
        // SAFETY: the pointer is valid for writes.
        self.check(unsafe { (self.num_supported_archs)(&raw mut count) })?;
        let mut archs = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for as many as were announced.
        self.check(unsafe { (self.supported_archs)(archs.as_mut_ptr()) })?;
        Ok(archs)
    }

    /// Compiles a program to machine code.
    ///
    /// `name` stands for the program in messages. `headers` are pairs of the name that `#include` says and the text.
    /// `options` are those of NVRTC; one of them must name a real architecture (`--gpu-architecture=sm_90a`).
    ///
    /// # Errors
    /// What NVRTC reports, with its log; a NUL byte in a text is `NVRTC_ERROR_INVALID_INPUT`, options without a real
    /// architecture are `NVRTC_ERROR_INVALID_OPTION`.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        options: &[String],
    ) -> Result<Compiled, NvrtcError> {
        let (name, source) = (self.c_string(name)?, self.c_string(source)?);
        let include_names = self.c_strings(headers.iter().map(|&(name, _)| name))?;
        let header_texts = self.c_strings(headers.iter().map(|&(_, text)| text))?;
        let options = self.c_strings(options.iter().map(String::as_str))?;
        let mut program = Handle { nvrtc: self, program: ptr::null_mut() };
        // SAFETY: all strings end with NUL and live until the end of this function; both lists have as many pointers as
        // the count says.
        self.check(unsafe {
            (self.create_program)(
                &raw mut program.program,
                source.as_ptr(),
                name.as_ptr(),
                count(headers),
                pointers(&header_texts).as_ptr(),
                pointers(&include_names).as_ptr(),
            )
        })?;
        // SAFETY: the program was created above and is used by this thread alone; the list is as long as its count says.
        let status = unsafe { (self.compile_program)(program.program, count(&options), pointers(&options).as_ptr()) };
        let log = program.bytes(self.log_size, self.log).map(|bytes| text(&bytes)).unwrap_or_default();
        if status != code::SUCCESS {
            return Err(self.error(status, log));
        }
        let cubin = program.bytes(self.cubin_size, self.cubin)?;
        if cubin.is_empty() {
            return Err(self.error(code::INVALID_OPTION, "no option names a real architecture (sm_..)".to_owned()));
        }
        Ok(Compiled { cubin, log })
    }

    fn check(&self, status: Status) -> Result<(), NvrtcError> {
        if status == code::SUCCESS { Ok(()) } else { Err(self.error(status, String::new())) }
    }

    fn error(&self, code: i32, log: String) -> NvrtcError {
        // SAFETY: takes any code, and gives a static string.
        let name = unsafe { (self.error_string)(code) };
        let name = if name.is_null() {
            "NVRTC error".to_owned()
        } else {
            // SAFETY: not null, so it is that string.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        NvrtcError { code, name, log }
    }

    fn c_string(&self, text: &str) -> Result<CString, NvrtcError> {
        CString::new(text).map_err(|_| self.error(code::INVALID_INPUT, "a NUL byte in a text".to_owned()))
    }

    fn c_strings<'a>(&self, texts: impl Iterator<Item = &'a str>) -> Result<Vec<CString>, NvrtcError> {
        texts.map(|text| self.c_string(text)).collect()
    }
}

/// A program that is destroyed at the end.
struct Handle<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Handle<'_> {
    /// What a pair of functions, one for the size and one for the content, gives of the program.
    fn bytes(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> Status,
        content: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    ) -> Result<Vec<u8>, NvrtcError> {
        let mut length = 0;
        // SAFETY: the program is a valid one, the pointer valid for writes.
        self.nvrtc.check(unsafe { size(self.program, &raw mut length) })?;
        let mut bytes = vec![0u8; length];
        if length > 0 {
            // SAFETY: there is room for as much as was announced.
            self.nvrtc.check(unsafe { content(self.program, bytes.as_mut_ptr().cast()) })?;
        }
        Ok(bytes)
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: the program was created, and nobody else has it. Nothing can be done about a failure.
            unsafe { (self.nvrtc.destroy_program)(&raw mut self.program) };
        }
    }
}

fn count<T>(list: &[T]) -> c_int {
    // Lists of more than 2^31 entries do not fit in memory.
    list.len() as c_int
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

/// A text up to its NUL.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const KERNEL: &str = "#include \"scale.cuh\"\n\
        extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] = scale(x[threadIdx.x]); }\n";
    const HEADER: (&str, &str) = ("scale.cuh", "__device__ inline float scale(float x) { return x * FACTOR; }\n");

    fn options(more: &[&str]) -> Vec<String> {
        let fixed = ["--gpu-architecture=sm_90a", "--std=c++17", "-default-device"];
        fixed.iter().chain(more).map(|&option| option.to_owned()).collect()
    }

    #[test]
    fn compiles_with_headers_and_defines() {
        let Some(nvrtc) = testing::available(Nvrtc::load()) else { return };
        assert!(nvrtc.version().unwrap() >= (12, 0));
        assert!(nvrtc.supported_archs().unwrap().contains(&90));
        let compile = |factor| nvrtc.compile("twice.cu", KERNEL, &[HEADER], &options(&[factor])).unwrap().cubin;
        let two = compile("-DFACTOR=2.0f");
        assert!(two.starts_with(b"\x7fELF"));
        assert_eq!(two, compile("-DFACTOR=2.0f"));
        assert_ne!(two, compile("-DFACTOR=3.0f"));
    }

    #[test]
    fn errors_carry_the_log() {
        let Some(nvrtc) = testing::available(Nvrtc::load()) else { return };
        let error = nvrtc.compile("twice.cu", KERNEL, &[HEADER], &options(&[])).unwrap_err();
        assert_eq!((error.code, error.name.as_str()), (6, "NVRTC_ERROR_COMPILATION"));
        assert!(error.log.contains("FACTOR"), "{}", error.log);
        assert!(error.to_string().contains("FACTOR") && !error.to_string().contains('\n'), "{error}");
        let error = nvrtc.compile("twice.cu", KERNEL, &[], &options(&["-DFACTOR=1"])).unwrap_err();
        assert!(error.log.contains("scale.cuh"), "{}", error.log);
        let error = nvrtc.compile("nul.cu", "int a;\0", &[], &options(&[])).unwrap_err();
        assert_eq!((error.code, error.name.as_str()), (3, "NVRTC_ERROR_INVALID_INPUT"));
    }

    #[test]
    fn threads_compile_at_once() {
        let Some(nvrtc) = testing::available(Nvrtc::load()) else { return };
        let compile = |factor: usize| {
            let define = format!("-DFACTOR={factor}.0f");
            nvrtc.compile("twice.cu", KERNEL, &[HEADER], &options(&[define.as_str()])).unwrap().cubin
        };
        let alone: Vec<_> = (1..5).map(compile).collect();
        let together: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..5).map(|factor| scope.spawn(move || compile(factor))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(alone, together);
    }

    #[test]
    fn an_error_without_log_is_one_line() {
        let error = |log: &str| NvrtcError { code: 7, name: "NAME".into(), log: log.into() }.to_string();
        assert_eq!(error(""), "NAME (7)");
        assert_eq!(error("\nremark\n"), "NAME (7): remark");
        assert_eq!(error("remark\na.cu(1): error: x\n1 error detected\n"), "NAME (7): a.cu(1): error: x");
    }
}
