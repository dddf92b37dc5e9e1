//! What the system says of this process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time that the processor spent in this process so far, on all cores together, for the program and for the system. Workers that
/// compile kernels are processes of their own.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Most memory that the process has held at a time; `None` where the system does not say.
pub fn peak_memory_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// Memory that the process holds now; `None` where the system does not say.
pub fn memory_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

fn status_bytes(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn work_takes_time_and_memory() {
        let before = cpu_time();
        let mut x = 1_u64;
        // Whatever the machine: a clock that stands still is found.
        while cpu_time() < before + Duration::from_millis(5) {
            x = black_box(x.wrapping_mul(3));
        }
        assert!(cpu_time() > before);
        let (now, peak) = (memory_bytes().unwrap(), peak_memory_bytes().unwrap());
        assert!(now > 1 << 20 && peak > 1 << 20, "{now} {peak}");
    }
}
