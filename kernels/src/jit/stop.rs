//! Ends a compilation from another thread.

use std::collections::HashMap;
use std::io;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Asks a compiler to stop: its workers are killed, and it starts none from then on. Clones are one and the same request.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    asked: bool,
    workers: HashMap<u32, Arc<Mutex<Child>>>,
}

impl Stop {
    /// Asks.
    pub fn set(&self) {
        let mut state = lock(&self.0);
        state.asked = true;
        for worker in state.workers.values() {
            // One that has ended by itself is no trouble.
            let _ = lock(worker).kill();
        }
    }

    /// True once somebody asked.
    pub fn is_set(&self) -> bool {
        lock(&self.0).asked
    }

    /// Starts a worker, which [`Stop::set`] kills from then on.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Worker> {
        let mut state = lock(&self.0);
        if state.asked {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "compiling was stopped"));
        }
        let child = command.spawn()?;
        let id = child.id();
        let child = Arc::new(Mutex::new(child));
        state.workers.insert(id, Arc::clone(&child));
        Ok(Worker { child, id, stop: self.clone() })
    }
}

/// A worker's process. It is killed with this value.
#[derive(Debug)]
pub(super) struct Worker {
    child: Arc<Mutex<Child>>,
    id: u32,
    stop: Stop,
}

impl Worker {
    pub(super) fn child(&self) -> MutexGuard<'_, Child> {
        lock(&self.child)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // First: its number may be another process's once it is waited for.
        lock(&self.stop.0).workers.remove(&self.id);
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
