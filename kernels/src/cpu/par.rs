//! Spreading one operator over the cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder, Yield};

use crate::error::KernelError;
use crate::op::Op;
use crate::plan::Step;
use crate::tensor::elements;

/// Multiply-adds that are worth handing to another thread: some 5 microseconds of one core.
const PIECE_MACS: usize = 300_000;

/// Most pieces for each thread.
const PIECES_A_THREAD: usize = 6;

/// Multiply-adds that are worth waking the pool for: some 100 microseconds of one core. On a quiet machine that takes half
/// as long; beside programs that keep the cores busy a thread that is woken waits for their slice to end, some milliseconds.
const WAKE_MACS: usize = 6_000_000;

/// What an element that is read or written costs an operator without multiply-adds, in those.
const ELEMENT_MACS: usize = 32;

/// Whether an operator may use the pool that it runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Par {
    /// The calling thread only: the batch is already spread image by image.
    Serial,
    /// The pool's threads.
    Pool,
}

impl Par {
    /// Pieces to cut work of `macs` multiply-adds of a matrix product into: each worth a thread's while, and several for
    /// each thread, so that none waits long for another.
    pub(super) fn pieces(self, macs: usize) -> usize {
        match self {
            Self::Serial => 1,
            Self::Pool => (macs / PIECE_MACS).clamp(1, PIECES_A_THREAD * rayon::current_num_threads()),
        }
    }

    /// Calls `f(i, chunk)` for the chunks of `chunk_len` elements of `out` (the last may be shorter), i counting from 0.
    pub(super) fn chunks(self, out: &mut [f32], chunk_len: usize, f: impl Fn(usize, &mut [f32]) + Sync + Send) {
        match self {
            Self::Pool if out.len() > chunk_len => {
                out.par_chunks_mut(chunk_len).enumerate().for_each(|(i, chunk)| f(i, chunk));
            }
            _ => out.chunks_mut(chunk_len).enumerate().for_each(|(i, chunk)| f(i, chunk)),
        }
    }
}

/// A pool of `threads` threads (0: one a core).
///
/// A pool that has a thread for each core keeps each on its own: after a pause the system likes to wake several on one
/// core and takes up to 100 ms to part them, which is longer than most single images take.
///
/// # Errors
/// Where the threads cannot be started.
pub(super) fn pool(threads: usize) -> Result<ThreadPool, KernelError> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let threads = if threads == 0 { cores.len() } else { threads };
    let own_core = threads == cores.len();
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|i| format!("infer-{i}"))
        .start_handler(move |i| {
            if let Some(&core) = cores.get(i).filter(|_| own_core) {
                // Where the system refuses, the thread stays free.
                core_affinity::set_for_current(core);
            }
        })
        .build()
        .map_err(|e| KernelError::invalid("CPU engine", format!("cannot start its threads: {e}")))
}

/// The threads of `pool` that share in work of `macs` multiply-adds. One: the calling thread, and the pool sleeps on.
pub(super) fn threads_for(macs: usize, pool: &ThreadPool) -> usize {
    if macs < WAKE_MACS { 1 } else { pool.current_num_threads() }
}

/// What a step takes, in multiply-adds of a matrix product; roughly.
pub(super) fn work(step: &Step) -> usize {
    let out = step.output.len();
    let macs = match (&step.op, step.inputs.get(1)) {
        (Op::Conv(_) | Op::ConvTranspose(_) | Op::Gemm(_), Some(weights)) => {
            let dims = weights.dims();
            out.saturating_mul(dims.get(1..).map_or(1, elements))
        }
        (Op::MatMul(desc), _) => out.saturating_mul(desc.k),
        _ => 0,
    };
    let touched: usize = step.inputs.iter().map(|x| elements(x.dims())).sum();
    macs.saturating_add(ELEMENT_MACS.saturating_mul(out + touched))
}

/// Looks for work that a thread without any makes before it lets other programs' threads run.
const LOOKS: usize = 32;

/// How long a thread looks for work in vain before it gives up. It may have come to look while it waits inside a piece of
/// the work for another piece: that one goes on only when the thread returns. So this bounds a rare delay, and is longer
/// than what an image's operators leave a thread without work.
const PATIENCE: Duration = Duration::from_millis(2);

/// Runs `work` on a thread of `pool` while the others look for pieces of it, awake all the time.
///
/// Left alone they fall asleep between two operators, and waking one takes longer than most operators do.
/// `EfficientNet-Lite0` on two threads took 9.3 ms instead of 5.2 in about every second process. The price: they keep
/// their cores busy while one image runs.
///
/// Nobody waits for their search to begin or to end: beside programs that keep the cores busy each such wait costs
/// slices of the system's time, as often as threads yield before they sleep.
pub(super) fn run_awake(pool: &ThreadPool, work: impl FnOnce() + Send) {
    /// Ends the others' search, also when `work` panics.
    struct Done(Arc<AtomicBool>);
    impl Drop for Done {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    pool.install(|| {
        let worker = rayon::current_thread_index();
        let done = Done(Arc::default());
        let over = Arc::clone(&done.0);
        rayon::spawn_broadcast(move |_| {
            // The thread that runs `work` may come by here while it waits for a piece: it must not stay.
            let (mut idle, mut since) = (0, Instant::now());
            while rayon::current_thread_index() != worker && !over.load(Ordering::Acquire) {
                if rayon::yield_now() == Some(Yield::Executed) {
                    (idle, since) = (0, Instant::now());
                } else if idle < LOOKS {
                    idle += 1;
                    std::hint::spin_loop();
                } else if since.elapsed() > PATIENCE {
                    break;
                } else {
                    idle = 0;
                    std::thread::yield_now();
                }
            }
        });
        work();
    });
}

/// A tensor to read: dense, row-major, never empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// Dimensions, outermost first.
    pub(super) dims: &'a [usize],
    /// Elements.
    pub(super) data: &'a [f32],
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::testing::BusyThreads;
    use super::*;

    #[test]
    fn awake_threads_share_the_work_and_end_with_it() {
        for threads in [1, 2, 5] {
            let pool = pool(threads).unwrap();
            for len in [1, 7, 1000] {
                let mut out = vec![f32::NAN; len];
                run_awake(&pool, || Par::Pool.chunks(&mut out, 3, |i, chunk| chunk.fill(i as f32)));
                let want: Vec<f32> = (0..len).map(|i| (i / 3) as f32).collect();
                assert_eq!(out, want, "{threads} threads, {len} elements");
            }
        }
    }

    /// A thread that waits inside one piece for another may find the search for work there, and must come back from it.
    #[test]
    fn pieces_that_wait_inside_do_not_wait_for_ever() {
        for _ in 0..3000 {
            // Threads that have only just started look for work before they look for the search.
            let pool = pool(5).unwrap();
            let mut outs = vec![vec![f32::NAN; 4000]; 3];
            run_awake(&pool, || {
                outs.par_iter_mut().for_each(|out| Par::Pool.chunks(out, 500, |i, chunk| chunk.fill(i as f32)));
            });
            assert!(outs.iter().all(|out| out[3999] == 7.0));
        }
    }

    /// A thread whose core another program has for itself neither begins a search nor ends one.
    #[test]
    fn nobody_waits_for_a_thread_that_does_not_come() {
        for threads in [2, 5] {
            let pool = pool(threads).unwrap();
            let mut out = vec![f32::NAN; 1000];
            let busy = BusyThreads::of(&pool, threads - 1);
            run_awake(&pool, || Par::Pool.chunks(&mut out, 3, |i, chunk| chunk.fill(i as f32)));
            busy.end();
            let want: Vec<f32> = (0..1000).map(|i| (i / 3) as f32).collect();
            assert_eq!(out, want, "{threads} threads");
            // The pool is of use afterwards.
            run_awake(&pool, || out.fill(0.0));
            assert!(out.iter().all(|&v| v == 0.0));
        }
    }

    #[test]
    fn a_panic_ends_the_search_for_work() {
        let pool = pool(3).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| run_awake(&pool, || panic!("as asked"))));
        assert!(panicked.is_err());
        let mut ran = false;
        run_awake(&pool, || ran = true);
        assert!(ran, "the pool is of use afterwards");
    }
}
