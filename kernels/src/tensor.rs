//! Element types and layouts.

/// Element type of a tensor at the border of a network.
///
/// Inside the CPU engine every tensor is f32; integer tensors hold whole numbers, exact up to 2^24.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// Signed 8 bit.
    I8,
    /// Unsigned 8 bit.
    U8,
    /// Signed 32 bit.
    I32,
    /// Signed 64 bit.
    I64,
    /// Truth values, 0 or 1.
    Bool,
}

/// Order of an image tensor's axes in memory, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// N, C, H, W: planes.
    Nchw,
    /// N, H, W, C: channels innermost.
    Nhwc,
}

/// Number of elements of a tensor with these dimensions.
pub fn elements(dims: &[usize]) -> usize {
    dims.iter().product()
}
