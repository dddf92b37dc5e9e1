//! Operators that take parts of tensors or put them together.

use ocellus_kernels::op::{Op, PadMode};

use super::eval;
use super::node::{NodeImport, Outcome, Slot};
use super::refusal::{Refusal, axis, refuse, size};
use super::tensor::Tensor;

/// Every `step`-th element from `start` on, along each axis.
struct Part {
    start: Vec<usize>,
    step: Vec<isize>,
    dims: Vec<usize>,
}

impl Part {
    /// The whole of a tensor.
    fn whole(dims: &[usize]) -> Self {
        Self { start: vec![0; dims.len()], step: vec![1; dims.len()], dims: dims.to_vec() }
    }

    /// Narrows one axis to `length` elements.
    fn narrow(mut self, axis: usize, start: usize, step: isize, length: usize) -> Self {
        (self.start[axis], self.step[axis], self.dims[axis]) = (start, step, length);
        self
    }

    fn of(self, n: &mut NodeImport<'_>, x: &Slot) -> Result<Slot, Refusal> {
        let Self { start, step, dims } = self;
        match x {
            Slot::Constant(tensor) => {
                let own = eval::strides(&tensor.dims);
                let first = start.iter().zip(&own).map(|(&i, stride)| i as isize * stride).sum();
                let strides: Vec<isize> = step.iter().zip(&own).map(|(step, stride)| step * stride).collect();
                Ok(eval::view(tensor, first, &strides, dims, &mut n.builder.budget)?.into())
            }
            Slot::Activation(_) if n.dims(x) == dims && step.iter().all(|&s| s == 1) => Ok(x.clone()),
            Slot::Activation(_) => n.push(Op::Slice { start, step }, &[x], dims),
        }
    }
}

/// Slice: its parameters are attributes before opset 10, operands from it on.
pub(super) fn slice(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.input(0)?;
    let dims = n.dims(&x).to_vec();
    let (Some(starts), Some(ends)) = (n.ints_since(10, 1, "starts")?, n.ints_since(10, 2, "ends")?) else {
        return refuse("\"starts\" or \"ends\" is missing");
    };
    let axes = n.ints_since(10, 3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = n.optional_ints(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return refuse("starts, ends, axes and steps have different lengths");
    }
    let mut part = Part::whole(&dims);
    let mut seen = vec![false; dims.len()];
    for (((&start, &end), &at), &step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let at = axis(at, dims.len())?;
        if std::mem::replace(&mut seen[at], true) {
            return refuse(format!("axis {at} is sliced twice"));
        }
        let (first, length) = range(start, end, step, dims[at])?;
        // With one element the step says nothing; a huge one must not overflow later.
        let step = if length > 1 { step as isize } else { 1 };
        part = part.narrow(at, first, step, length);
    }
    Ok(vec![part.of(n, &x)?])
}

/// First index and number of elements of start..end by step in an axis of `length`, clamped as Slice-13 says: a
/// negative step starts at the first element at the least, where Python would start before it and take nothing.
fn range(start: i64, end: i64, step: i64, length: usize) -> Result<(usize, usize), Refusal> {
    let length = length as i64;
    let wrap = |v: i64| if v < 0 { v.saturating_add(length) } else { v };
    let (start, end) = (wrap(start), wrap(end));
    let (start, span) = match step {
        0 => return refuse("a step of 0 is not allowed"),
        1.. => {
            let start = start.clamp(0, length);
            (start, end.clamp(0, length) - start)
        }
        _ => {
            let start = start.clamp(0.min(length - 1), length - 1);
            (start, start - end.clamp(-1, length - 1))
        }
    };
    let count = span.max(0).unsigned_abs().div_ceil(step.unsigned_abs()) as usize;
    Ok(if count == 0 { (0, 0) } else { (start as usize, count) })
}

/// Split: sizes are an attribute before opset 13; without them the parts are equal, from opset 18 on `num_outputs` of
/// them with a smaller last one.
pub(super) fn split(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.input(0)?;
    let dims = n.dims(&x).to_vec();
    let at = axis(n.attributes.int("axis", 0)?, dims.len())?;
    let stated = n.ints_since(13, 1, "split")?;
    let count = match n.attributes.optional_int("num_outputs")? {
        Some(_) if stated.is_some() => return refuse("both the sizes and num_outputs are given"),
        Some(count) => size(count, "num_outputs")?,
        None => n.outputs,
    };
    if count == 0 || count != n.outputs {
        return refuse(format!("{count} parts for {} outputs", n.outputs));
    }
    let lengths = match stated {
        Some(stated) => stated.iter().map(|&v| size(v, "a part")).collect::<Result<Vec<_>, _>>()?,
        None if n.opset < 18 && !dims[at].is_multiple_of(count) => {
            return refuse(format!("{} elements cannot be split into {count} equal parts", dims[at]));
        }
        None => {
            let each = dims[at].div_ceil(count);
            (0..count).map(|i| each.min(dims[at].saturating_sub(i * each))).collect()
        }
    };
    let total = lengths.iter().try_fold(0usize, |sum, &length| sum.checked_add(length));
    if lengths.len() != n.outputs || total != Some(dims[at]) {
        return refuse(format!("parts {lengths:?} do not make up {} elements in {} outputs", dims[at], n.outputs));
    }
    let mut start = 0;
    let mut parts = Vec::with_capacity(lengths.len());
    for length in lengths {
        // An empty part at the end has no first element.
        let first = if length == 0 { 0 } else { start };
        parts.push(Part::whole(&dims).narrow(at, first, 1, length).of(n, &x)?);
        start += length;
    }
    Ok(parts)
}

/// Concat.
pub(super) fn concat(n: &mut NodeImport<'_>) -> Outcome {
    let slots = (0..n.inputs.len()).map(|i| n.input(i)).collect::<Result<Vec<_>, _>>()?;
    let Some(at) = n.attributes.optional_int("axis")? else {
        return refuse("attribute \"axis\" is missing");
    };
    let at = axis(at, n.dims(&slots[0]).len())?;
    Ok(vec![join(n, &slots, at)?])
}

/// Tensors one after another along an axis.
fn join(n: &mut NodeImport<'_>, slots: &[Slot], at: usize) -> Result<Slot, Refusal> {
    if let [only] = slots {
        return Ok(only.clone());
    }
    let mut dims = n.dims(&slots[0]).to_vec();
    for slot in &slots[1..] {
        let next = n.dims(slot);
        let fits = next.len() == dims.len() && (0..dims.len()).all(|i| i == at || next[i] == dims[i]);
        let sum = fits.then(|| dims[at].checked_add(next[at])).flatten();
        let Some(sum) = sum else {
            return refuse(format!("{dims:?} and {next:?} cannot be joined along axis {at}"));
        };
        if n.dtype(slot) != n.dtype(&slots[0]) {
            return refuse("tensors of different element types cannot be joined");
        }
        dims[at] = sum;
    }
    let constants: Option<Vec<&Tensor>> =
        slots.iter().map(|slot| if let Slot::Constant(tensor) = slot { Some(&**tensor) } else { None }).collect();
    if let Some(tensors) = constants {
        return Ok(eval::concat(&tensors, at, dims, &mut n.builder.budget)?.into());
    }
    let slots: Vec<&Slot> = slots.iter().filter(|slot| n.dims(slot)[at] != 0).collect();
    n.push(Op::Concat { axis: at }, &slots, dims)
}

/// Gather along an axis by constant indices. Of an activation runs of evenly spaced indices become slices.
pub(super) fn gather(n: &mut NodeImport<'_>) -> Outcome {
    let x = n.input(0)?;
    let dims = n.dims(&x).to_vec();
    let at = axis(n.attributes.int("axis", 0)?, dims.len())?;
    let indices = n.constant(1, "the indices")?;
    let wrapped = indices.ints("the indices")?.iter().map(|&i| axis(i, dims[at]));
    let picks = wrapped
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| Refusal(format!("an index lies outside the {} elements of axis {at}", dims[at])))?;
    let out = [&dims[..at], &indices.dims, &dims[at + 1..]].concat();
    if let Slot::Constant(tensor) = &x {
        return Ok(vec![eval::gather(tensor, at, &picks, out, &mut n.builder.budget)?.into()]);
    }
    let mut parts = Vec::new();
    let mut rest = &picks[..];
    while !rest.is_empty() {
        let (step, length) = even_run(rest);
        parts.push(Part::whole(&dims).narrow(at, rest[0], step, length).of(n, &x)?);
        rest = &rest[length..];
    }
    if parts.is_empty() {
        parts.push(Part::whole(&dims).narrow(at, 0, 1, 0).of(n, &x)?);
    }
    let joined = join(n, &parts, at)?;
    Ok(vec![n.reshape(joined, out)?])
}

/// Step and length of the longest evenly spaced run at the start.
fn even_run(indices: &[usize]) -> (isize, usize) {
    let Some(step) = indices.get(1).map(|&second| second as isize - indices[0] as isize).filter(|&step| step != 0)
    else {
        return (1, 1);
    };
    let length = 1 + indices.windows(2).take_while(|w| w[1] as isize - w[0] as isize == step).count();
    (step, length)
}

/// Pad: its parameters are attributes before opset 11; negative pads cut.
pub(super) fn pad(n: &mut NodeImport<'_>) -> Outcome {
    #[derive(Clone, Copy, PartialEq)]
    enum Mode {
        Constant,
        Reflect,
        Edge,
    }
    let x = n.input(0)?;
    let dims = n.dims(&x).to_vec();
    let table = [("constant", Mode::Constant), ("reflect", Mode::Reflect), ("edge", Mode::Edge)];
    let mode = n.attributes.choice("mode", Mode::Constant, &table)?;
    let Some(pads) = n.ints_since(11, 1, "pads")? else {
        return refuse("\"pads\" is missing");
    };
    let value = if n.opset < 11 {
        n.attributes.float("value", 0.0)?
    } else {
        n.optional_constant(2, "constant_value")?.map_or(Ok(0.0), |value| value.float("constant_value"))?
    };
    let axes = n.optional_ints(3, "axes")?.unwrap_or_else(|| (0..dims.len() as i64).collect());
    if pads.len() != 2 * axes.len() {
        return refuse(format!("{} pads for {} axes", pads.len(), axes.len()));
    }
    let (mut cut, mut before, mut out) = (Part::whole(&dims), vec![0; dims.len()], dims.clone());
    let mut seen = vec![false; dims.len()];
    for (i, &at) in axes.iter().enumerate() {
        let at = axis(at, dims.len())?;
        if std::mem::replace(&mut seen[at], true) {
            return refuse(format!("axis {at} is padded twice"));
        }
        let (front, back) = (pads[i], pads[i + axes.len()]);
        let dropped = [front, back].map(|p| p.min(0).unsigned_abs() as usize);
        let added = [front, back].map(|p| p.max(0) as usize);
        let kept = dims[at].checked_sub(dropped[0]).and_then(|rest| rest.checked_sub(dropped[1]));
        let Some(kept) = kept.filter(|&kept| kept > 0) else {
            return refuse(format!("pads {front} and {back} leave nothing of {} elements", dims[at]));
        };
        if mode == Mode::Reflect && added.iter().any(|&p| p >= kept) {
            return refuse(format!("{kept} elements cannot be mirrored to pads of {front} and {back}"));
        }
        cut = cut.narrow(at, dropped[0], 1, kept);
        before[at] = added[0];
        let total = added[0].checked_add(added[1]).and_then(|sum| sum.checked_add(kept));
        out[at] = total.ok_or_else(|| Refusal("pads overflow".into()))?;
    }
    let x = cut.of(n, &x)?;
    if n.dims(&x) == out {
        return Ok(vec![x]);
    }
    let mode = match mode {
        Mode::Constant => PadMode::Constant(value),
        Mode::Reflect => PadMode::Reflect,
        Mode::Edge => PadMode::Edge,
    };
    n.emit(Op::Pad { before, mode }, &[&x], out)
}
