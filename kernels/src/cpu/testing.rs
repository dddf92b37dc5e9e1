//! What the unit tests of the operators share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rayon::ThreadPool;

use super::par::Par;

/// Seeded random numbers (xorshift64*).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A whole number in `low..=high`.
    pub(super) fn size(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() >> 33) as usize % (high - low + 1)
    }

    /// One of `items`.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.size(0, items.len() - 1)]
    }

    /// `len` values in -1..1.
    pub(super) fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
    }
}

/// Runs an operator on an output full of NaN: on this thread, and in a pool of three threads, whose result must have the
/// same bits.
pub(super) fn run(len: usize, f: impl Fn(&mut [f32], Par) + Sync) -> Vec<f32> {
    let mut serial = vec![f32::NAN; len];
    f(&mut serial, Par::Serial);
    let mut spread = vec![f32::NAN; len];
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    pool.install(|| f(&mut spread, Par::Pool));
    assert_same_bits(&serial, &spread, "one thread and three");
    serial
}

/// Threads of a pool that do not come to any work, as where another program has their cores for itself.
pub(super) struct BusyThreads {
    end: Sender<()>,
    given_up: Arc<AtomicBool>,
}

impl BusyThreads {
    /// Keeps `count` threads of the pool busy.
    pub(super) fn of(pool: &ThreadPool, count: usize) -> Self {
        /// Long past what any work here takes: a test that waits in vain fails instead of standing still.
        const GIVEN_UP: Duration = Duration::from_secs(60);
        let given_up = Arc::new(AtomicBool::new(false));
        let (arrived, arrivals) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        for _ in 0..count {
            let (arrived, given_up, ended) = (arrived.clone(), Arc::clone(&given_up), Arc::clone(&ended));
            pool.spawn(move || {
                arrived.send(()).unwrap();
                // All but one wait for the lock meanwhile.
                if ended.lock().unwrap().recv_timeout(GIVEN_UP) == Err(RecvTimeoutError::Timeout) {
                    given_up.store(true, Ordering::Release);
                }
            });
        }
        (0..count).for_each(|_| arrivals.recv().unwrap());
        Self { end, given_up }
    }

    /// Lets them go.
    ///
    /// # Panics
    /// Where what was done meanwhile has waited for them.
    pub(super) fn end(self) {
        drop(self.end);
        assert!(!self.given_up.load(Ordering::Acquire), "the work waited for a busy thread");
    }
}

pub(super) fn assert_same_bits(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert_eq!(a.to_bits(), b.to_bits(), "{what}: element {i} is {a} and {b}");
    }
}

/// Asserts |got - want| <= 1e-6 (1 + scale) everywhere, `scale` being the sum of the absolute values of what was added.
pub(super) fn assert_close(got: &[f32], want: &[(f64, f64)], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (&got, &(want, scale))) in got.iter().zip(want).enumerate() {
        let error = (f64::from(got) - want).abs();
        assert!(error <= 1e-6 * (1.0 + scale), "{what}: element {i} is {got} instead of {want}");
    }
}

/// The activations of [`random_epilogue`], in f64.
pub(super) fn activate(activation: Option<crate::op::Unary>, x: f64) -> f64 {
    use crate::op::Unary;
    match activation {
        None => x,
        Some(Unary::Relu) => x.max(0.0),
        Some(Unary::Clip { min, max }) => x.max(min.into()).min(max.into()),
        Some(Unary::LeakyRelu { alpha }) => {
            if x >= 0.0 {
                x
            } else {
                x * f64::from(alpha)
            }
        }
        Some(Unary::HardSwish) => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Some(Unary::Silu) => x / (1.0 + (-x).exp()),
        Some(other) => unimplemented!("{other:?}"),
    }
}

/// A random epilogue: activations that are clamps and run in registers, and others.
pub(super) fn random_epilogue(random: &mut Random, residual: bool) -> crate::op::Epilogue {
    use crate::op::Unary;
    let activations = [
        None,
        Some(Unary::Relu),
        Some(Unary::Clip { min: -0.25, max: 0.5 }),
        Some(Unary::LeakyRelu { alpha: 0.1 }),
        Some(Unary::HardSwish),
        Some(Unary::Silu),
    ];
    crate::op::Epilogue {
        bias: random.pick(&[false, true]),
        residual: residual && random.pick(&[false, true]),
        activation: random.pick(&activations),
    }
}
