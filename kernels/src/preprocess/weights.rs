//! Pillow's resampling as data: which samples an output sample is made of, with which weights.

use std::ops::Range;

use super::{Filter, Match};

/// Up to this size Pillow's running sum of nearest coordinates is followed.
const MAX_RUNNING_SUM: usize = 1 << 25;

/// Fractional bits of a weight.
pub(crate) const PRECISION: u32 = 32 - 8 - 2;

/// What is to be computed: the window of the picture resized from `source` to `target`. Sizes are columns, rows.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) source: [usize; 2],
    pub(crate) target: [usize; 2],
    /// Columns and rows of the target that are wanted; not empty.
    pub(crate) window: [Range<usize>; 2],
    pub(crate) filter: Filter,
    pub(crate) antialias: bool,
    pub(crate) matching: Match,
}

impl Job {
    /// Whether the vertical pass runs first.
    pub(crate) fn vertical_first(&self) -> bool {
        let [[sw, sh], [dw, dh]] = [self.source, self.target].map(|size| size.map(|v| v as i128));
        self.matching == Match::Pillow && sh > dh && sh - dh > 2 * (sw - dw)
    }

    /// What the weights of an axis (0: columns) follow from.
    pub(crate) fn key(&self, axis: usize) -> TableKey {
        TableKey {
            input: self.source[axis],
            output: self.target[axis],
            window: self.window[axis].clone(),
            filter: self.filter,
            antialias: self.antialias,
        }
    }
}

/// What an axis of a [`Job`] depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TableKey {
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) window: Range<usize>,
    pub(crate) filter: Filter,
    pub(crate) antialias: bool,
}

impl TableKey {
    /// First input sample and weights of every output sample of the window, whatever the filter; a sample that is
    /// copied has one weight of 1.
    pub(crate) fn weights(&self) -> Vec<(usize, Vec<i32>)> {
        let copied = |sample: usize| (sample, vec![1 << PRECISION]);
        if self.filter == Filter::Nearest {
            return nearest_samples(self).into_iter().map(copied).collect();
        }
        if self.input == self.output {
            return self.window.clone().map(copied).collect();
        }
        let table = Table::new(self);
        (0..table.taps.len()).map(|x| (table.taps[x].0, table.weights(x).to_vec())).collect()
    }
}

/// Radius of a filter.
fn radius(filter: Filter) -> f64 {
    match filter {
        Filter::Nearest => 0.5,
        Filter::Bilinear => 1.0,
        Filter::Bicubic => 2.0,
        Filter::Lanczos3 => 3.0,
    }
}

/// Value of a filter at x; the order of operations is Pillow's.
fn filter_value(filter: Filter, x: f64) -> f64 {
    /// Parameter of the cubic.
    const A: f64 = -0.5;
    let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * std::f64::consts::PI).sin() / (x * std::f64::consts::PI) };
    let distance = x.abs();
    match filter {
        Filter::Nearest => 1.0,
        Filter::Bilinear if distance < 1.0 => 1.0 - distance,
        Filter::Bicubic if distance < 1.0 => ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0,
        Filter::Bicubic if distance < 2.0 => (((distance - 5.0) * distance + 8.0) * distance - 4.0) * A,
        Filter::Lanczos3 if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
        _ => 0.0,
    }
}

/// The weights of a window of output samples of one axis.
pub(crate) struct Table {
    /// First input sample and number of samples of each output sample.
    pub(crate) taps: Vec<(usize, usize)>,
    /// Weights, `stride` to an output sample.
    pub(crate) weights: Vec<i32>,
    pub(crate) stride: usize,
}

impl Table {
    pub(crate) fn new(key: &TableKey) -> Self {
        let scale = key.input as f64 / key.output as f64;
        let stretch = if key.antialias { scale.max(1.0) } else { 1.0 };
        let support = radius(key.filter) * stretch;
        let stride = (support.ceil() as usize * 2 + 1).min(key.input);
        let mut taps = Vec::with_capacity(key.window.len());
        let mut weights = vec![0; stride * key.window.len()];
        let mut values = Vec::with_capacity(stride);
        for (x, weights) in key.window.clone().zip(weights.chunks_exact_mut(stride)) {
            let centre = (x as f64 + 0.5) * scale;
            // Casts cut towards 0 and saturate.
            let first = (centre - support + 0.5) as usize;
            let end = ((centre + support + 0.5) as usize).min(key.input);
            values.clear();
            values.extend((first..end).map(|i| filter_value(key.filter, (i as f64 - centre + 0.5) * (1.0 / stretch))));
            let sum: f64 = values.iter().sum();
            for (weight, value) in weights.iter_mut().zip(&values) {
                let value = if sum == 0.0 { *value } else { value / sum };
                let fixed = value * f64::from(1 << PRECISION);
                *weight = (if value < 0.0 { fixed - 0.5 } else { fixed + 0.5 }) as i32;
            }
            taps.push((first, end.saturating_sub(first)));
        }
        Self { taps, weights, stride }
    }

    pub(crate) fn weights(&self, index: usize) -> &[i32] {
        &self.weights[index * self.stride..][..self.taps[index].1]
    }

    /// Input samples that output samples `window` (counted in this table) are made of.
    pub(crate) fn span(&self, window: Range<usize>) -> Range<usize> {
        let (first, _) = self.taps[window.start];
        let (last, count) = self.taps[window.end - 1];
        first..last + count
    }

    /// Input samples that all output samples are made of.
    pub(crate) fn needed(&self) -> Range<usize> {
        self.span(0..self.taps.len())
    }
}

/// Source samples of a window. Pillow adds the scale up instead of multiplying, which rounds
/// differently (`Geometry.c`, `ImagingScaleAffine`).
pub(crate) fn nearest_samples(key: &TableKey) -> Vec<usize> {
    let &TableKey { input, output, ref window, .. } = key;
    let scale = input as f64 / output as f64;
    let mut at = scale * 0.5;
    if output <= MAX_RUNNING_SUM {
        (0..window.start).for_each(|_| at += scale);
    } else {
        at += scale * window.start as f64;
    }
    window
        .clone()
        .map(|_| {
            let sample = (at as usize).min(input - 1);
            at += scale;
            sample
        })
        .collect()
}
