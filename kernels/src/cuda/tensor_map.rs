//! Encodes the descriptors of the tensor memory accelerator.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUtensorMapDataType_enum as Type};

use super::device::check;
use super::lower::{MapKind, TensorMap};
use crate::error::KernelError;
use crate::tensor::DType;

/// Up to this driver (CUDA version) descriptors of small tensors need [`SMALL_TENSOR_BIT`] cleared.
const LAST_DRIVER_WITH_QUIRK: (u32, u32) = (13, 1);
/// Tensors below this size are small.
const SMALL_TENSOR_BYTES: u64 = 131_072;
/// Bit of the second 64-bit word.
const SMALL_TENSOR_BIT: u64 = 1 << 21;

/// The descriptor of a map over memory at `address`, for a driver of this CUDA version.
///
/// # Errors
/// Where the driver refuses the sizes.
pub(super) fn encode(map: &TensorMap, address: u64, driver: (u32, u32)) -> Result<Box<sys::CUtensorMap>, KernelError> {
    let (dtype, element_bytes) = match map.dtype {
        DType::F16 => (Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2),
        DType::Bf16 => (Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2),
        DType::F32 => (Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4),
        other => return Err(KernelError::invalid("tensor map", format!("elements of type {other:?}"))),
    };
    let rank = map.dims.len();
    let boxes = match &map.kind {
        MapKind::Tiled(sizes) => sizes.len(),
        MapKind::Im2col { .. } => 4,
    };
    if rank == 0 || map.strides_bytes.len() + 1 != rank || map.element_strides.len() != rank || boxes != rank {
        return Err(KernelError::invalid("tensor map", format!("ranks differ: {map:?}")));
    }
    let mut encoded = Box::new(sys::CUtensorMap { opaque: [0; 16] });
    let base = address as *mut c_void;
    let interleave = sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE;
    let swizzle = sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B;
    let promotion = sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
    let fill = sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    // SAFETY: every list has as many entries as the rank says, and the driver writes one descriptor.
    let done = unsafe {
        match &map.kind {
            MapKind::Tiled(sizes) => sys::cuTensorMapEncodeTiled(
                encoded.as_mut(),
                dtype,
                rank as u32,
                base,
                map.dims.as_ptr(),
                map.strides_bytes.as_ptr(),
                sizes.as_ptr(),
                map.element_strides.as_ptr(),
                interleave,
                swizzle,
                promotion,
                fill,
            ),
            MapKind::Im2col { lower, upper, channels, pixels } => sys::cuTensorMapEncodeIm2col(
                encoded.as_mut(),
                dtype,
                rank as u32,
                base,
                map.dims.as_ptr(),
                map.strides_bytes.as_ptr(),
                lower.as_ptr(),
                upper.as_ptr(),
                *channels,
                *pixels,
                map.element_strides.as_ptr(),
                interleave,
                swizzle,
                promotion,
                fill,
            ),
        }
    };
    check("cuTensorMapEncode", done.result())?;
    let bytes = map.dims.iter().product::<u64>() * element_bytes;
    if driver <= LAST_DRIVER_WITH_QUIRK && bytes < SMALL_TENSOR_BYTES {
        encoded.opaque[1] &= !SMALL_TENSOR_BIT;
    }
    Ok(encoded)
}
