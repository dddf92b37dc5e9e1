//! What is compiled and for what.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::JitError;
use super::fields::{put, put_number};
use super::worker::{Compiler, Request};
use crate::cu;

/// What to compile: a file of `kernels/cu`, specialised by defines.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelSpec {
    /// Name of the file.
    pub file: &'static str,
    /// The entry point that will be launched. A file has the same entry points whatever its defines, and all of them
    /// are compiled.
    pub entry: &'static str,
    /// Defines and their values, sorted by name, so that equal specs are equal.
    pub defines: Vec<(&'static str, String)>,
}

impl KernelSpec {
    /// A spec with its defines sorted.
    pub fn new(
        file: &'static str,
        entry: &'static str,
        defines: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Self {
        let mut defines: Vec<_> = defines.into_iter().collect();
        defines.sort();
        Self { file, entry, defines }
    }

    /// The specs of [`cu::SAMPLES`].
    pub fn samples() -> Vec<Self> {
        let own =
            |defines: &[(&'static str, &str)]| defines.iter().map(|&(n, v)| (n, v.to_owned())).collect::<Vec<_>>();
        cu::SAMPLES.iter().map(|(file, entry, defines)| Self::new(file, entry, own(defines))).collect()
    }

    /// The compiler's input.
    pub(super) fn request(&self, arch: Arch) -> Result<Request, JitError> {
        let file = cu::file(self.file).ok_or(JitError::NoFile(self.file))?;
        let mut options = vec![
            format!("--gpu-architecture={arch}"),
            "--std=c++17".into(),
            "-default-device".into(),
            "--ptxas-options=-v".into(),
            "--ptxas-options=--warn-on-spills".into(),
        ];
        options.extend(self.defines.iter().map(|(name, value)| format!("-D{name}={value}")));
        let headers =
            headers_of(file.text).into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        Ok(Request { name: file.name.into(), source: file.text.into(), headers, options })
    }
}

impl fmt::Display for KernelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.entry, self.file)?;
        self.defines.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// The headers that a text includes, and those that they include, by name. One that does not exist is left out: the
/// compiler's message is better.
fn headers_of(text: &'static str) -> BTreeMap<&'static str, &'static str> {
    let mut headers = BTreeMap::new();
    let mut open = vec![text];
    while let Some(text) = open.pop() {
        for header in text.lines().filter_map(included).filter_map(cu::file) {
            if headers.insert(header.name, header.text).is_none() {
                open.push(header.text);
            }
        }
    }
    headers
}

/// The name in a line `#include "name"`.
fn included(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
    rest.trim_start().strip_prefix('"')?.split('"').next()
}

/// A real architecture, the one that a GPU has. From 9.0 on it is compiled for with its own instructions (`sm_90a`):
/// such a cubin runs on this very architecture only, which is where it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch {
    /// Major part of the compute capability.
    pub major: u32,
    /// Minor part.
    pub minor: u32,
}

impl Arch {
    /// The oldest that the kernels are written for.
    pub const OLDEST: Self = Self { major: 8, minor: 0 };

    /// Every architecture that the kernels are tested to compile for.
    pub const TESTED: [Self; 6] = [
        Self { major: 8, minor: 0 },
        Self { major: 8, minor: 6 },
        Self { major: 8, minor: 9 },
        Self { major: 9, minor: 0 },
        Self { major: 10, minor: 0 },
        Self { major: 12, minor: 0 },
    ];

    /// True where the architecture has instructions that later ones need not have.
    pub fn specific(self) -> bool {
        self.major >= 9
    }

    /// As one number: 90 for 9.0.
    pub(super) fn number(self) -> u32 {
        self.major * 10 + self.minor
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.number(), if self.specific() { "a" } else { "" })
    }
}

impl FromStr for Arch {
    type Err = String;

    /// Takes `sm_90a`, `sm_90` and `9.0`, nothing older than [`Arch::OLDEST`].
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("sm_").map(|number| number.strip_suffix('a').unwrap_or(number));
        let parts = match digits {
            Some(digits) => digits.split_at_checked(digits.len().saturating_sub(1)),
            None => text.split_once('.'),
        };
        let number = |part: &str| part.bytes().all(|c| c.is_ascii_digit()).then(|| part.parse().ok()).flatten();
        let arch = parts
            .and_then(|(major, minor)| Some(Self { major: number(major)?, minor: number(minor)? }))
            .filter(|arch| (1..100).contains(&arch.major) && arch.minor < 10)
            .ok_or("give an architecture, as in sm_90a or 9.0")?;
        let Self { major, minor } = Self::OLDEST;
        if arch < Self::OLDEST { Err(format!("the kernels need {major}.{minor} or newer")) } else { Ok(arch) }
    }
}

/// Under which a cubin is kept: a hash of everything that it depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key(pub(super) [u8; 32]);

impl Key {
    /// Of the compiler's input, the compiler, and the format of what is kept.
    pub(super) fn new(request: &Request, compiler: &Compiler, format: u32) -> Self {
        let mut bytes = request.to_bytes();
        let Compiler { version, library_bytes, archs: _ } = compiler;
        for number in [version.0, version.1, format] {
            put_number(&mut bytes, number);
        }
        put(&mut bytes, &library_bytes.to_le_bytes());
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn architectures_are_named_as_the_compiler_does() {
        let names = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"];
        assert_eq!(Arch::TESTED.map(|arch| arch.to_string()), names);
        for arch in Arch::TESTED {
            for text in [arch.to_string(), format!("sm_{}", arch.number()), format!("{}.{}", arch.major, arch.minor)] {
                assert_eq!(text.parse(), Ok(arch), "{text}");
            }
        }
        for bad in [
            "",
            "7.5",
            "sm_75",
            "sm_",
            "sm_9",
            "sm_a",
            "90",
            "9.",
            ".0",
            "9.00x",
            "9.10",
            "sm_+90",
            "sm_90b",
            "compute_90",
            "é",
        ] {
            assert!(bad.parse::<Arch>().is_err(), "{bad}");
        }
    }

    #[test]
    fn includes_are_followed() {
        assert_eq!(included("  #  include  \"a.cuh\"  // why"), Some("a.cuh"));
        for other in ["#include <a>", "// #include \"a\"", "#define include \"a\"", "include \"a\""] {
            assert_eq!(included(other), None, "{other}");
        }
        let names = |text| headers_of(text).into_keys().collect::<Vec<_>>();
        assert_eq!(names(cu::file("self_test.cu").unwrap().text), ["ptx.cuh"]);
        assert_eq!(names("#include \"types.cuh\"\n#include \"none.cuh\"\n"), ["ptx.cuh", "types.cuh"]);
    }

    #[test]
    fn everything_that_a_cubin_depends_on_is_in_its_key() {
        let spec = |defines: &[(&'static str, &str)]| {
            KernelSpec::new("self_test.cu", "self_test", defines.iter().map(|&(n, v)| (n, v.to_owned())))
        };
        let hopper = Arch { major: 9, minor: 0 };
        let base = spec(&[("A", "1"), ("B", "2")]);
        assert_eq!(base, spec(&[("B", "2"), ("A", "1")]));
        let request = base.request(hopper).unwrap();
        let compiler = |version, library_bytes| Compiler { version, library_bytes, archs: Vec::new() };
        let ours = compiler((13, 0), 1000);
        let mut keys = HashSet::from([Key::new(&request, &ours, 1)]);
        assert!(!keys.insert(Key::new(&request, &ours, 1)), "equal inputs have equal keys");
        let mut different = |what: &str, request: &Request, compiler: &Compiler, format| {
            assert!(keys.insert(Key::new(request, compiler, format)), "{what}");
        };
        different("minor version", &request, &compiler((13, 1), 1000), 1);
        different("major version", &request, &compiler((12, 0), 1000), 1);
        different("build", &request, &compiler((13, 0), 1001), 1);
        different("format", &request, &ours, 2);
        different("architecture", &base.request(Arch { major: 8, minor: 9 }).unwrap(), &ours, 1);
        for defines in
            [&[("A", "1")][..], &[("A", "1"), ("B", "3")], &[("A", "12"), ("B", "")], &[("A", "1"), ("C", "2")]]
        {
            different("defines", &spec(defines).request(hopper).unwrap(), &ours, 1);
        }
        let edits: [fn(&mut Request); 6] = [
            |r| r.source.push(' '),
            |r| r.headers[0].1.push(' '),
            |r| r.headers[0].0.push('x'),
            |r| r.headers.clear(),
            |r| r.options.push("-lineinfo".into()),
            // The same characters, otherwise divided.
            |r| {
                let moved = r.source.pop();
                r.headers[0].0.insert(0, moved.unwrap());
            },
        ];
        for (i, edit) in edits.iter().enumerate() {
            let mut edited = request.clone();
            edit(&mut edited);
            different(&format!("edit {i}"), &edited, &ours, 1);
        }
    }
}
