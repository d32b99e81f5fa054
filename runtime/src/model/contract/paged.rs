//! Key/value caches.

use super::DEFAULT_BLOCK_SIZE;
use super::fixed::require_element;
use super::pattern::{Axis, Pattern, Side, find, require_same};
use super::report::{ContractCode, Findings};
use crate::model::graph_io::GraphIo;
use crate::model::spec::{PagedNames, PagedSpec};
use crate::model::tensor_spec::{DataType, TensorSpec};
use genai_config_schema::{ElementType, GenaiConfig, Mtp, PagedGroup, PagedLayer};

/// What the configuration says about every cache of a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    block_size: Option<u64>,
    kv_heads: u64,
    head_dim: u64,
    /// On the host caches are float32; elsewhere whatever the first cache is.
    data_type: Option<DataType>,
    /// What the group declares.
    declared: Option<ElementType>,
}

impl Geometry {
    pub(super) fn of_decoder(config: &GenaiConfig, group: &PagedGroup, host: bool) -> Self {
        let decoder = &config.model.decoder;
        Self {
            declared: group.element_type,
            ..Self::new(config, decoder.num_key_value_heads, decoder.head_size, host)
        }
    }

    pub(super) fn of_head(config: &GenaiConfig, mtp: &Mtp, host: bool) -> Self {
        Self::new(config, mtp.num_key_value_heads, mtp.head_size, host)
    }

    fn new(config: &GenaiConfig, kv_heads: u32, head_dim: u32, host: bool) -> Self {
        let batching = config.engine.dynamic_batching.as_ref();
        Self {
            block_size: batching.and_then(|b| b.block_size).map(u64::from),
            kv_heads: kv_heads.into(),
            head_dim: head_dim.into(),
            data_type: host.then_some(DataType::F32),
            declared: None,
        }
    }
}

/// Names as the manifest resolves them.
pub(super) fn names(layers: &[PagedLayer]) -> Vec<PagedNames> {
    layers
        .iter()
        .map(|layer| PagedNames {
            layer: layer.layer,
            key_input: layer.key_input.clone(),
            key_output: layer.key_output.clone(),
            value_input: layer.value_input.clone(),
            value_output: layer.value_output.clone(),
        })
        .collect()
}

/// Names of a head: templates with one `%d`, the layer of the head.
pub(super) fn head_names(mtp: &Mtp) -> Vec<PagedNames> {
    let (inputs, outputs) = (&mtp.inputs, &mtp.outputs);
    let name = |given: &Option<String>, default: &str, layer: u32| {
        given
            .as_deref()
            .unwrap_or(default)
            .replace("%d", &layer.to_string())
    };
    (0..mtp.num_hidden_layers.unwrap_or(1))
        .map(|layer| PagedNames {
            layer,
            key_input: name(&inputs.past_key_names, "past_key_values.%d.key", layer),
            key_output: name(&outputs.present_key_names, "present.%d.key", layer),
            value_input: name(&inputs.past_value_names, "past_key_values.%d.value", layer),
            value_output: name(&outputs.present_value_names, "present.%d.value", layer),
        })
        .collect()
}

/// Checks every cache of `layers` against the configuration and against the first one. Returns them and their element
/// type.
pub(super) fn check(
    graph: &GraphIo,
    layers: &[PagedNames],
    expected: &Geometry,
    findings: &mut Findings,
) -> (PagedSpec, DataType) {
    let pairs = layers.iter().flat_map(|layer| {
        [
            (&layer.key_input, &layer.key_output),
            (&layer.value_input, &layer.value_output),
        ]
    });
    let mut seen: Vec<&TensorSpec> = Vec::new();
    for (input, output) in pairs {
        let input = find(graph, Side::Input, input, ContractCode::M1, findings);
        let output = find(graph, Side::Output, output, ContractCode::M1, findings);
        if let (Some(input), Some(output)) = (input, output) {
            require_same(input, output, findings);
        }
        seen.extend(input);
    }
    // Where the configuration leaves the block size open, the graph may say it, but only one.
    let block_size = expected
        .block_size
        .or_else(|| seen.iter().find_map(|cache| cache.fixed(1)))
        .unwrap_or(DEFAULT_BLOCK_SIZE.into());
    let data_type = expected
        .data_type
        .or(seen.first().map(|cache| cache.data_type));
    let pattern = Pattern::new(
        data_type,
        [
            Axis::Run("num_blocks"),
            Axis::Is(block_size),
            Axis::Is(expected.kv_heads),
            Axis::Is(expected.head_dim),
        ],
    );
    for cache in seen {
        pattern.require(cache, ContractCode::M3, findings);
        require_element(expected.declared, cache, findings);
    }
    let spec = PagedSpec {
        layers: layers.to_vec(),
        block_size: extent(block_size),
        kv_heads: extent(expected.kv_heads),
        head_dim: extent(expected.head_dim),
    };
    (spec, data_type.unwrap_or(DataType::F32))
}

/// An extent as a size; one beyond the address space saturates, and the memory plan refuses it.
pub(super) fn extent(extent: u64) -> usize {
    usize::try_from(extent).unwrap_or(usize::MAX)
}
