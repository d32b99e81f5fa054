//! Graphs as ONNX protobuf. Same graph, same bytes.

use prost::Message;

use super::external::{Location, Plan};
use super::proto;
use crate::error::BuildError;
use crate::graph::ir::{Attribute, Dim, Graph, Initializer, InitializerData, Node, ValueInfo};

/// Version of the ONNX file format.
const IR_VERSION: i64 = 10;
/// Version of every other operator domain in use.
const OTHER_OPSET: i64 = 1;

/// One graph as the bytes of its file. `locations` holds one place per initializer.
pub(crate) fn encode(
    graph: &Graph,
    plan: &Plan<'_>,
    locations: &[Location],
) -> Result<Vec<u8>, BuildError> {
    let mut initializers = Vec::new();
    for (initializer, location) in graph.initializers.iter().zip(locations) {
        initializers.push(tensor(graph, initializer, plan, *location)?);
    }
    let model = proto::ModelProto {
        ir_version: Some(IR_VERSION),
        opset_import: opsets(graph),
        producer_name: Some("pawl-builder".to_owned()),
        producer_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        graph: Some(proto::GraphProto {
            name: Some(graph.name.clone()),
            node: graph.nodes.iter().map(node).collect(),
            initializer: initializers,
            input: graph.inputs.iter().map(value_info).collect(),
            output: graph.outputs.iter().map(value_info).collect(),
            ..proto::GraphProto::default()
        }),
        ..proto::ModelProto::default()
    };
    Ok(model.encode_to_vec())
}

fn opsets(graph: &Graph) -> Vec<proto::OperatorSetIdProto> {
    let mut domains: Vec<_> = graph.nodes.iter().map(|node| node.domain).collect();
    domains.push("");
    domains.sort_unstable();
    domains.dedup();
    (domains.into_iter())
        .map(|domain| proto::OperatorSetIdProto {
            domain: Some(domain.to_owned()),
            version: Some(if domain.is_empty() {
                graph.opset
            } else {
                OTHER_OPSET
            }),
        })
        .collect()
}

fn node(node: &Node) -> proto::NodeProto {
    proto::NodeProto {
        name: Some(node.name.clone()),
        domain: Some(node.domain.to_owned()),
        op_type: Some(node.op_type.to_owned()),
        input: node.inputs.clone(),
        output: node.outputs.clone(),
        attribute: node
            .attributes
            .iter()
            .map(|(name, value)| attribute(name, value))
            .collect(),
        ..proto::NodeProto::default()
    }
}

fn attribute(name: &str, value: &Attribute) -> proto::AttributeProto {
    use proto::attribute_proto::AttributeType;
    let mut attribute = proto::AttributeProto {
        name: Some(name.to_owned()),
        ..proto::AttributeProto::default()
    };
    match value {
        Attribute::Int(value) => {
            attribute.set_type(AttributeType::Int);
            attribute.i = Some(*value);
        }
        Attribute::Ints(values) => {
            attribute.set_type(AttributeType::Ints);
            attribute.ints.clone_from(values);
        }
        Attribute::Float(value) => {
            attribute.set_type(AttributeType::Float);
            attribute.f = Some(*value);
        }
        Attribute::String(value) => {
            attribute.set_type(AttributeType::String);
            attribute.s = Some(value.clone().into_bytes());
        }
    }
    attribute
}

fn value_info(value: &ValueInfo) -> proto::ValueInfoProto {
    use proto::tensor_shape_proto::{Dimension, dimension::Value};
    let dim = (value.dims.iter())
        .map(|dim| Dimension {
            denotation: None,
            value: Some(match dim {
                Dim::Static(extent) => Value::DimValue(extent.cast_signed()),
                Dim::Symbol(name) => Value::DimParam((*name).to_owned()),
            }),
        })
        .collect();
    let tensor = proto::type_proto::Tensor {
        elem_type: Some(value.dtype.onnx()),
        shape: Some(proto::TensorShapeProto { dim }),
    };
    proto::ValueInfoProto {
        name: Some(value.name.clone()),
        r#type: Some(proto::TypeProto {
            value: Some(proto::type_proto::Value::TensorType(tensor)),
            ..proto::TypeProto::default()
        }),
        ..proto::ValueInfoProto::default()
    }
}

fn tensor(
    graph: &Graph,
    initializer: &Initializer,
    plan: &Plan<'_>,
    location: Location,
) -> Result<proto::TensorProto, BuildError> {
    let defect = |problem: &str| BuildError::defect(&graph.file, &initializer.name, problem);
    let mut tensor = proto::TensorProto {
        name: Some(initializer.name.clone()),
        data_type: Some(initializer.dtype.onnx()),
        dims: initializer
            .dims
            .iter()
            .map(|extent| extent.cast_signed())
            .collect(),
        ..proto::TensorProto::default()
    };
    match (location, &initializer.data) {
        (Location::Inline, InitializerData::Values(bytes)) => {
            tensor.raw_data = Some(bytes.clone());
        }
        (Location::Inline, InitializerData::Weight(_) | InitializerData::Quantized(..)) => {
            return Err(defect("a weight without a place in a data file"));
        }
        (
            Location::External {
                file,
                offset,
                length,
            },
            _,
        ) => {
            let file = plan
                .files
                .get(file)
                .ok_or_else(|| defect("no such data file"))?;
            tensor.set_data_location(proto::tensor_proto::DataLocation::External);
            tensor.external_data = vec![
                entry("location", file.name.clone()),
                entry("offset", offset.to_string()),
                entry("length", length.to_string()),
            ];
        }
    }
    Ok(tensor)
}

fn entry(key: &str, value: String) -> proto::StringStringEntryProto {
    proto::StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::super::external;
    use super::*;
    use crate::graph::ir::Dtype;
    use pawl_models::Weight;

    fn graph() -> Graph {
        Graph {
            name: "decoder".to_owned(),
            file: "model.onnx".into(),
            opset: 23,
            nodes: vec![Node {
                name: "/attention".to_owned(),
                domain: "pawl",
                op_type: "PagedAttention",
                inputs: vec!["x".to_owned(), String::new(), "w".to_owned()],
                outputs: vec!["y".to_owned()],
                attributes: vec![
                    ("heads", Attribute::Int(0)),
                    ("scale", Attribute::Float(0.0)),
                    ("form", Attribute::String("update".to_owned())),
                    ("perm", Attribute::Ints(vec![0, 2, 1])),
                ],
            }],
            inputs: vec![ValueInfo {
                name: "x".to_owned(),
                dtype: Dtype::I32,
                dims: vec![Dim::Symbol("rows"), Dim::Static(4)],
            }],
            outputs: vec![ValueInfo {
                name: "y".to_owned(),
                dtype: Dtype::Bf16,
                dims: vec![],
            }],
            initializers: vec![
                Initializer {
                    name: "w".to_owned(),
                    dtype: Dtype::F16,
                    dims: vec![3, 5],
                    data: InitializerData::Weight(Weight::whole("w", [3, 5])),
                    shared: false,
                },
                Initializer {
                    name: "axis".to_owned(),
                    dtype: Dtype::I64,
                    dims: vec![],
                    data: InitializerData::Values(1_i64.to_le_bytes().to_vec()),
                    shared: false,
                },
            ],
        }
    }

    #[test]
    fn a_graph_is_read_back_as_it_was() {
        let graph = graph();
        let graphs = [graph.clone()];
        let plan = external::plan(&graphs).unwrap();
        let bytes = encode(&graph, &plan, &plan.locations[0]).unwrap();
        assert_eq!(bytes, encode(&graph, &plan, &plan.locations[0]).unwrap());

        let model = proto::ModelProto::decode(&*bytes).unwrap();
        assert_eq!(
            (model.ir_version(), model.producer_name()),
            (10, "pawl-builder")
        );
        let opsets: Vec<_> = model
            .opset_import
            .iter()
            .map(|o| (o.domain(), o.version()))
            .collect();
        assert_eq!(opsets, [("", 23), ("pawl", 1)]);

        let read = model.graph.unwrap();
        assert_eq!(read.name(), "decoder");
        assert_eq!(read.node[0].input, ["x", "", "w"]);
        let attributes = &read.node[0].attribute;
        assert_eq!((attributes[0].i, attributes[1].f), (Some(0), Some(0.0)));
        assert_eq!(attributes[2].s(), b"update");
        assert_eq!(
            (attributes[3].r#type, &*attributes[3].ints),
            (Some(7), &[0, 2, 1][..])
        );
        assert_eq!(read.input[0], value_info(&graph.inputs[0]));

        let weight = &read.initializer[0];
        assert_eq!((weight.data_type(), &*weight.dims), (10, &[3, 5][..]));
        let places: Vec<_> = weight
            .external_data
            .iter()
            .map(|e| (e.key(), e.value()))
            .collect();
        assert_eq!(
            places,
            [
                ("location", "model.onnx.data"),
                ("offset", "0"),
                ("length", "30")
            ]
        );
        assert_eq!(weight.raw_data, None);
        assert_eq!(read.initializer[1].raw_data(), 1_i64.to_le_bytes());
        assert!(read.initializer[1].external_data.is_empty());
    }
}
