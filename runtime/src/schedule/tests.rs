//! The planner: single plans by example, whole workloads by simulation against the real pools.

mod branches;
mod plans;
mod workloads;
