//! When to do what: the pace of collection, when a dictionary is trained, what a relation would shrink to.

pub mod dictionary_policy;
pub mod estimate;
pub mod pace;
