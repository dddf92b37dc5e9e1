//! Why a node or tensor is not accepted.

/// One line that completes "node x: ..."; the importer adds node, operator and opset.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) String);

/// The error of a [`Refusal`].
pub(super) fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(message.into()))
}

/// A dimension or count of the file as a size.
pub(super) fn size(value: i64, what: &str) -> Result<usize, Refusal> {
    usize::try_from(value).map_err(|_| Refusal(format!("{what} is {value}; it must not be negative")))
}

/// An axis counted from either end: -rank <= axis < rank.
pub(super) fn axis(value: i64, rank: usize) -> Result<usize, Refusal> {
    let signed = if value < 0 { value.checked_add(rank as i64) } else { Some(value) };
    match signed.and_then(|v| usize::try_from(v).ok()) {
        Some(v) if v < rank => Ok(v),
        _ => refuse(format!("axis {value} does not exist in a tensor of {rank} dimensions")),
    }
}

/// Several axes as [`axis`], ascending, none twice.
pub(super) fn axes(values: &[i64], rank: usize) -> Result<Vec<usize>, Refusal> {
    let mut axes = values.iter().map(|&v| axis(v, rank)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    if axes.windows(2).any(|pair| pair[0] == pair[1]) {
        return refuse(format!("axes {values:?} name one axis twice"));
    }
    Ok(axes)
}

/// Number of elements, or `None` on overflow.
pub(super) fn product(dims: &[usize]) -> Option<usize> {
    dims.iter().try_fold(1usize, |product, &d| product.checked_mul(d))
}
