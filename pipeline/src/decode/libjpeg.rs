//! JPEG through mozjpeg, a libjpeg-turbo with the same decoder: pixels equal to `djpeg -dct int`.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use mozjpeg::{ColorSpace, Decompress, decompress::DecompressBuilder};
use mozjpeg_sys::{jpeg_common_struct, jpeg_error_mgr, msg_parm_union};

use super::colour::{self, FourColour};
use super::jpeg::{Colour, Decoded};
use super::jpeg_header::{Frame, JpegHeader};
use crate::error::panic_message;
use crate::frame::Decoder;

/// How rows name this decoder.
pub(super) const DECODER: Decoder = Decoder::Libjpeg;

/// Decodes the whole file; libjpeg reads the header again by itself.
pub(super) fn decode(bytes: &[u8], header: &JpegHeader, frame: &Frame) -> Result<Decoded, String> {
    let colour = Colour::of(header, frame);
    let builder = Decompress::with_err(counting_error_manager());
    // On failure once more with the error manager of mozjpeg, which has libjpeg's text for it.
    run(bytes, frame, colour, builder).or_else(|_| run(bytes, frame, colour, Decompress::builder()))
}

fn run(bytes: &[u8], frame: &Frame, colour: Colour, builder: DecompressBuilder<'_>) -> Result<Decoded, String> {
    // libjpeg reports fatal errors by calling back into Rust, which unwinds through the C code (mozjpeg-sys is built
    // for it). Unwind safety: the decompressor is dropped on the way, and nothing else is changed.
    catch_unwind(AssertUnwindSafe(|| {
        let decompress = builder.from_mem(bytes).map_err(|e| e.to_string())?;
        if decompress.size() != (usize::from(frame.width_px), usize::from(frame.height_px)) {
            return Err("two frame headers of different sizes".to_owned());
        }
        // Warnings about the header cost no pixels.
        WARNINGS.set(0);
        let out = if matches!(colour, Colour::Four(_)) { ColorSpace::JCS_CMYK } else { ColorSpace::JCS_RGB };
        let mut started = decompress.to_colorspace(out).map_err(|e| e.to_string())?;
        let rgb = match colour {
            // libjpeg has turned Y Cb Cr K into C M Y K.
            Colour::Four(_) => {
                let cmyk: Vec<[u8; 4]> = started.read_scanlines().map_err(|e| e.to_string())?;
                colour::four_to_rgb(&cmyk, FourColour::Cmyk)
            }
            Colour::Grey | Colour::YCbCr | Colour::Rgb => started.read_scanlines().map_err(|e| e.to_string())?,
        };
        started.finish().map_err(|e| e.to_string())?;
        Ok(Decoded { rgb, damaged: WARNINGS.get() > 0 })
    }))
    .unwrap_or_else(|panic| Err(panic_message(panic.as_ref())))
}

thread_local! {
    /// Warnings of the decompression that runs on this thread. libjpeg calls back on the thread that called it.
    static WARNINGS: Cell<u32> = const { Cell::new(0) };
}

/// An error manager that unwinds on fatal errors, prints nothing and counts warnings (mozjpeg's own forgets them).
fn counting_error_manager() -> jpeg_error_mgr {
    extern "C-unwind" fn fatal(_: &mut jpeg_common_struct) {
        // Not `panic!`: the panic hook has nothing to say about a broken file.
        resume_unwind(Box::new("fatal libjpeg error"));
    }
    extern "C-unwind" fn message(_: &mut jpeg_common_struct, level: c_int) {
        // Level -1 is a warning, 0 and above are traces.
        if level < 0 {
            WARNINGS.set(WARNINGS.get().saturating_add(1));
        }
    }
    extern "C-unwind" fn ignore(_: &mut jpeg_common_struct) {}
    jpeg_error_mgr {
        error_exit: Some(fatal),
        emit_message: Some(message),
        output_message: Some(ignore),
        format_message: None,
        reset_error_mgr: Some(ignore),
        msg_code: 0,
        msg_parm: msg_parm_union::default(),
        trace_level: 0,
        num_warnings: 0,
        jpeg_message_table: ptr::null(),
        last_jpeg_message: 0,
        addon_message_table: ptr::null(),
        first_addon_message: 0,
        last_addon_message: 0,
    }
}
