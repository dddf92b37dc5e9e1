//! Preprocessing on the CPU.
