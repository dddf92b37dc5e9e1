//! Placeholder until the plugin crate is filled in.
