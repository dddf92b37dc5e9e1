//! The text of the GPU kernels (`kernels/cu`), part of the program.

/// A file of `kernels/cu`.
#[derive(Debug)]
pub struct File {
    /// Its name, without a folder.
    pub name: &'static str,
    /// Its content.
    pub text: &'static str,
}

macro_rules! files {
    ($($name:literal)*) => {
        &[$(File { name: $name, text: include_str!(concat!("../cu/", $name)) }),*]
    };
}

/// Every file, sorted by name.
pub const FILES: &[File] = files! {
    "activation.cuh"
    "conv.cuh"
    "conv_fp32.cu"
    "conv_mma.cu"
    "conv_sm90.cu"
    "conv_transpose.cu"
    "depthwise.cu"
    "matmul.cu"
    "movement.cu"
    "norm.cu"
    "parts.cuh"
    "pointwise.cu"
    "pool.cu"
    "preprocess.cu"
    "preprocess.cuh"
    "preprocess_source.cuh"
    "proof.cu"
    "ptx.cuh"
    "reduce.cu"
    "resize.cu"
    "self_test.cu"
    "sm90.cuh"
    "top_k.cu"
    "types.cuh"
    "vector.cuh"
};

/// The file of this name.
pub fn file(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

/// One way to specialise a file: its name, an entry point, and values of its defines, sorted by name.
pub type Sample = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Samples of the kernels that no network launches.
pub const SAMPLES: &[Sample] = &[
    ("preprocess.cu", "preprocess", &[("PITCH", "4"), ("PLANES", "0"), ("TYPE", "1")]),
    ("preprocess.cu", "preprocess", &[("PITCH", "3"), ("PLANES", "1"), ("TYPE", "0")]),
    ("proof.cu", "proof", &[]),
    ("self_test.cu", "self_test", &[("FACTOR", "3")]),
    ("top_k.cu", "softmax_top_k", &[("SCORES", "kLogits"), ("TX", "f16")]),
    ("top_k.cu", "softmax_top_k", &[("SCORES", "kProbabilities"), ("TX", "float")]),
    ("top_k.cu", "softmax_top_k", &[("SCORES", "kSigmoid"), ("TX", "bf16")]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_folder() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("cu");
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(FILES.iter().map(|file| file.name).collect::<Vec<_>>(), names);
    }

    #[test]
    fn samples_are_of_what_there_is() {
        for (name, entry, defines) in SAMPLES {
            assert!(file(name).unwrap().text.contains(&format!("{entry}(")), "{name} has no {entry}");
            assert!(defines.is_sorted_by_key(|(name, _)| name), "{name}: {defines:?} is not sorted");
        }
    }
}
