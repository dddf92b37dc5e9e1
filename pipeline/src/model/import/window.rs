//! Windows of convolutions and pools: strides, dilations, padding and the sizes that follow.

use super::node::NodeImport;
use super::refusal::{Refusal, refuse, size};

/// ONNX `auto_pad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AutoPad {
    /// Padding as stated.
    NotSet,
    /// None.
    Valid,
    /// Output is input over stride; an odd sample of padding goes behind.
    SameUpper,
    /// Likewise; an odd sample goes before.
    SameLower,
}

/// A window's parameters, rows then columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    pub(super) auto: AutoPad,
    /// Above, left, below, right as stated.
    pub(super) pads: [usize; 4],
}

impl Window {
    /// Reads `auto_pad`, `dilations`, `kernel_shape`, `pads` and `strides`. The kernel's size is that of the weights
    /// where there are any.
    pub(super) fn read(n: &mut NodeImport<'_>, weights: Option<[usize; 2]>) -> Result<Self, Refusal> {
        let stated = pair(n.attributes.ints("kernel_shape")?.as_deref(), "kernel_shape")?;
        let kernel = match (stated, weights) {
            (Some(stated), Some(weights)) if stated != weights => {
                return refuse(format!("kernel_shape is {stated:?}, the weights have {weights:?}"));
            }
            (Some(kernel), _) | (None, Some(kernel)) => kernel,
            (None, None) => return refuse("attribute \"kernel_shape\" is missing"),
        };
        let stride = pair(n.attributes.ints("strides")?.as_deref(), "strides")?.unwrap_or([1, 1]);
        let dilation = pair(n.attributes.ints("dilations")?.as_deref(), "dilations")?.unwrap_or([1, 1]);
        let table = [
            ("NOTSET", AutoPad::NotSet),
            ("VALID", AutoPad::Valid),
            ("SAME_UPPER", AutoPad::SameUpper),
            ("SAME_LOWER", AutoPad::SameLower),
        ];
        let auto = n.attributes.choice("auto_pad", AutoPad::NotSet, &table)?;
        let pads = match n.attributes.ints("pads")? {
            None => [0; 4],
            Some(pads) => {
                let pads = pads.iter().map(|&p| size(p, "a pad")).collect::<Result<Vec<_>, _>>()?;
                <[usize; 4]>::try_from(pads).map_err(|p| Refusal(format!("pads {p:?} must be four numbers")))?
            }
        };
        if auto != AutoPad::NotSet && pads != [0; 4] {
            return refuse("both pads and auto_pad are set");
        }
        let largest = 1 << 24;
        if let Some(value) = [&kernel[..], &stride, &dilation, &pads].concat().into_iter().find(|&v| v > largest) {
            return refuse(format!("a window parameter of {value} is over the limit of {largest}"));
        }
        Ok(Self { kernel, stride, dilation, auto, pads })
    }

    /// Samples from a window's first to its last on an axis (0 rows, 1 columns).
    pub(super) fn extent(&self, axis: usize) -> usize {
        self.dilation[axis] * (self.kernel[axis] - 1) + 1
    }

    /// Output size and padding (before, behind) of an axis of `input` samples, for windows that slide over the input.
    /// With `ceil` a last window that starts inside the input or the padding before it may hang over.
    pub(super) fn slide(&self, axis: usize, input: usize, ceil: bool) -> Result<(usize, [usize; 2]), Refusal> {
        let (stride, extent) = (self.stride[axis], self.extent(axis));
        let pads = match self.auto {
            AutoPad::NotSet => [self.pads[axis], self.pads[axis + 2]],
            AutoPad::Valid => [0, 0],
            AutoPad::SameUpper | AutoPad::SameLower => {
                let output = input.div_ceil(stride);
                let total = ((output - 1) * stride + extent).saturating_sub(input);
                return Ok((output, self.share(total)));
            }
        };
        let Some(room) = (input + pads[0] + pads[1]).checked_sub(extent) else {
            return refuse(format!("a window of {extent} does not fit {input} samples padded by {pads:?}"));
        };
        let mut output = room / stride + 1;
        if ceil && room % stride != 0 && output * stride < input + pads[0] {
            output += 1;
        }
        Ok((output, pads))
    }

    /// Splits automatic padding.
    pub(super) fn share(&self, total: usize) -> [usize; 2] {
        let half = total / 2;
        if self.auto == AutoPad::SameUpper { [half, total - half] } else { [total - half, half] }
    }
}

/// Two positive numbers, rows then columns.
pub(super) fn pair(values: Option<&[i64]>, name: &str) -> Result<Option<[usize; 2]>, Refusal> {
    match values {
        None => Ok(None),
        Some(&[a, b]) if a > 0 && b > 0 => Ok(Some([size(a, name)?, size(b, name)?])),
        Some(other) => refuse(format!("{name} {other:?} must be two positive numbers, for rows and columns")),
    }
}
