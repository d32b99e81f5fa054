//! Changes to an ONNX file.

use std::path::Path;

use prost::Message;

use super::world::write;

#[allow(
    clippy::all,
    missing_debug_implementations,
    missing_docs,
    dead_code,
    unreachable_pub,
    unnameable_types,
    unused_qualifications,
    reason = "generated"
)]
#[path = "../../builder/src/onnx/proto.rs"]
pub(crate) mod proto;

pub(crate) use proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

/// Changes the graph of a file.
pub(crate) fn edit(path: &Path, change: impl Fn(&mut GraphProto)) {
    let mut model = ModelProto::decode(std::fs::read(path).unwrap().as_slice()).unwrap();
    change(model.graph.as_mut().unwrap());
    write(path, model.encode_to_vec());
}

/// The input or output of this name.
pub(crate) fn value<'g>(graph: &'g mut GraphProto, name: &str) -> &'g mut ValueInfoProto {
    let values = graph.input.iter_mut().chain(&mut graph.output);
    let mut found = values.filter(|value| value.name() == name);
    found.next().unwrap_or_else(|| panic!("no {name}"))
}

/// The type and shape of an input or output.
pub(crate) fn tensor(value: &mut ValueInfoProto) -> &mut proto::type_proto::Tensor {
    match value.r#type.as_mut().unwrap().value.as_mut().unwrap() {
        proto::type_proto::Value::TensorType(tensor) => tensor,
        _ => panic!("no tensor"),
    }
}

/// The extents of an input or output.
pub(crate) fn extents(
    value: &mut ValueInfoProto,
) -> &mut Vec<proto::tensor_shape_proto::Dimension> {
    &mut tensor(value).shape.as_mut().unwrap().dim
}

/// A fixed extent.
pub(crate) fn extent(extent: i64) -> proto::tensor_shape_proto::Dimension {
    proto::tensor_shape_proto::Dimension {
        value: Some(proto::tensor_shape_proto::dimension::Value::DimValue(
            extent,
        )),
        ..Default::default()
    }
}

/// The first node of this type.
pub(crate) fn node<'g>(graph: &'g mut GraphProto, kind: &str) -> &'g mut NodeProto {
    let mut found = graph.node.iter_mut().filter(|node| node.op_type() == kind);
    found.next().unwrap_or_else(|| panic!("no {kind}"))
}
