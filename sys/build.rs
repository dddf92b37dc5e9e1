//! With the feature `bindgen` the declarations of nvJPEG are made anew from NVIDIA's header, in the build's own folder;
//! without it there is nothing to do, and the committed ones are used.
//!
//! The header is that of the wheel `nvidia-nvjpeg`; it may not be redistributed and is not in the repository. It includes
//! two large headers of CUDA, of which it needs the few lines in `shims`. A test compares what is made with
//! `src/nvjpeg/bindings.rs`, and with `UPDATE_BINDINGS=1` writes it there:
//!
//! ```text
//! apt-get install libclang-dev
//! python3 -m venv venv && venv/bin/pip install nvidia-nvjpeg==13.0.4.44
//! OCELLUS_NVJPEG_HEADER=$(echo $PWD/venv/lib/python3*/site-packages/nvidia/cu13/include/nvjpeg.h) UPDATE_BINDINGS=1 \
//!     cargo test -p ocellus-sys --features bindgen --lib declarations
//! ```

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "bindgen")]
    if let Err(error) = declarations::generate() {
        println!("cargo::error={error}");
    }
}

#[cfg(feature = "bindgen")]
mod declarations {
    use std::env;
    use std::error::Error;
    use std::path::Path;

    /// The functions that are declared: what `nvjpeg` calls. Loading fails where one of them is missing.
    const FUNCTIONS: &[&str] = &[
        "nvjpegGetProperty",
        // Handle
        "nvjpegCreateEx",
        "nvjpegDestroy",
        "nvjpegSetDeviceMemoryPadding",
        "nvjpegSetPinnedMemoryPadding",
        "nvjpegGetHardwareDecoderInfo",
        // Parsed stream
        "nvjpegJpegStreamCreate",
        "nvjpegJpegStreamDestroy",
        "nvjpegJpegStreamParse",
        "nvjpegJpegStreamParseHeader",
        "nvjpegJpegStreamGetComponentsNum",
        "nvjpegJpegStreamGetComponentDimensions",
        // Decode parameters
        "nvjpegDecodeParamsCreate",
        "nvjpegDecodeParamsDestroy",
        "nvjpegDecodeParamsSetOutputFormat",
        // Batched
        "nvjpegJpegStateCreate",
        "nvjpegJpegStateDestroy",
        "nvjpegDecodeBatchedInitialize",
        "nvjpegDecodeBatchedPreAllocate",
        "nvjpegDecodeBatchedSupportedEx",
        "nvjpegDecodeBatched",
        // Decoupled
        "nvjpegDecoderCreate",
        "nvjpegDecoderDestroy",
        "nvjpegDecoderStateCreate",
        "nvjpegDecoderJpegSupported",
        "nvjpegBufferPinnedCreate",
        "nvjpegBufferPinnedDestroy",
        "nvjpegBufferDeviceCreate",
        "nvjpegBufferDeviceDestroy",
        "nvjpegStateAttachPinnedBuffer",
        "nvjpegStateAttachDeviceBuffer",
        "nvjpegDecodeJpegHost",
        "nvjpegDecodeJpegTransferToDevice",
        "nvjpegDecodeJpegDevice",
    ];

    /// Enumerations become numbers with named constants: a newer library may give values that this header does not know.
    pub(super) fn generate() -> Result<(), Box<dyn Error>> {
        println!("cargo::rerun-if-env-changed=OCELLUS_NVJPEG_HEADER");
        println!("cargo::rerun-if-changed=shims");
        let header = env::var("OCELLUS_NVJPEG_HEADER")
            .map_err(|_| "the feature bindgen needs the path of nvjpeg.h in OCELLUS_NVJPEG_HEADER")?;
        println!("cargo::rerun-if-changed={header}");
        let shims = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("shims");
        let mut builder = bindgen::builder()
            .header(header)
            .clang_arg(format!("-I{}", shims.display()))
            .dynamic_library_name("Functions")
            .dynamic_link_require_all(true)
            .allowlist_var("NVJPEG_FLAGS_ENABLE_MEMORY_POOLS")
            .newtype_enum("nvjpeg.*|libraryPropertyType.*")
            .prepend_enum_name(false)
            .generate_comments(false)
            .wrap_unsafe_ops(true)
            .rust_edition(bindgen::RustEdition::Edition2024)
            .rust_target(bindgen::RustTarget::stable(85, 0).map_err(|error| error.to_string())?)
            .blocklist_type("cudaStream_t|CUstream_st")
            .raw_line("// Made by sys/build.rs (feature bindgen) from nvjpeg.h; do not edit.")
            .raw_line("use super::Stream as cudaStream_t;")
            .disable_header_comment()
            .formatter(bindgen::Formatter::Prettyplease);
        for function in FUNCTIONS {
            builder = builder.allowlist_function(format!("^{function}$"));
        }
        builder.generate()?.write_to_file(Path::new(&env::var("OUT_DIR")?).join("nvjpeg.rs"))?;
        Ok(())
    }
}
