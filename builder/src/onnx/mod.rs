//! ONNX files: protobuf and the data beside it.
//!
//! `proto.rs` is generated and committed, so that a build needs neither `protoc` nor the proto
//! file. To make it anew: take `onnx-ml.proto` out of the `onnx` package from PyPI (1.23 here), then
//! in a throw-away package with `prost-build` 0.14 and `protox` 0.10:
//!
//! ```text
//! let files = protox::compile(["onnx-ml.proto"], ["."])?;
//! prost_build::Config::new().disable_comments(["."]).out_dir("out").compile_fds(files)?;
//! ```
//!
//! and put `out/onnx.rs` here, below the comment that starts `proto.rs`.

pub(crate) mod check;
mod encode;
pub(crate) mod export;
pub(crate) mod external;
#[allow(
    clippy::all,
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    dead_code,
    missing_docs,
    unreachable_pub,
    unnameable_types,
    unused_qualifications,
    reason = "generated"
)]
#[rustfmt::skip]
mod proto;

/// The bytes of a graph whose initializers are all within it.
#[cfg(test)]
pub(crate) fn bytes(graph: crate::graph::ir::Graph) -> Vec<u8> {
    check::check(&graph).expect("a sound graph");
    let graphs = [graph];
    let plan = external::plan(&graphs).expect("a plan");
    let [graph] = &graphs;
    let locations = plan.locations.concat();
    encode::encode(graph, &plan, &locations).expect("an encoded graph")
}
