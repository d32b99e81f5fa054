//! `session_options`, `run_options` and provider options.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Omit, wire};

/// `run_options`: configuration entries of every run, passed on as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RunOptions(pub BTreeMap<String, String>);

/// How far ONNX Runtime rewrites the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum GraphOptimizationLevel {
    /// Not at all.
    #[serde(rename = "ORT_DISABLE_ALL")]
    DisableAll,
    /// Semantics-preserving clean-up.
    #[serde(rename = "ORT_ENABLE_BASIC")]
    Basic,
    /// Fusions as well.
    #[serde(rename = "ORT_ENABLE_EXTENDED")]
    Extended,
    /// Layout changes as well.
    #[serde(rename = "ORT_ENABLE_ALL")]
    All,
}

/// `session_options`: the settings of one session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend(
    "patternProperties" = {"\\.": {"type": "string"}},
    "additionalProperties" = false,
))]
pub struct SessionOptions {
    /// Threads inside an operator; 0 lets ONNX Runtime choose.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub intra_op_num_threads: Option<u32>,
    /// Threads across operators; 0 lets ONNX Runtime choose.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub inter_op_num_threads: Option<u32>,
    /// 0 verbose to 4 fatal.
    #[serde(skip_serializing_if = "Omit::omit")]
    #[schemars(range(max = 4))]
    pub log_severity_level: Option<u32>,
    /// Detail of verbose logs.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub log_verbosity_level: Option<u32>,
    /// Whether host memory comes from an arena.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub enable_cpu_mem_arena: Option<bool>,
    /// Whether memory is planned from earlier runs of the same shapes.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub enable_mem_pattern: Option<bool>,
    /// Prefix of log lines.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub log_id: Option<String>,
    /// Prefix of the profile file, below the model folder.
    #[serde(skip_serializing_if = "Omit::omit")]
    #[schemars(extend("format" = "relative-path"))]
    pub enable_profiling: Option<String>,
    /// Library of custom operators, below the model folder.
    #[serde(skip_serializing_if = "Omit::omit")]
    #[schemars(extend("format" = "relative-path"))]
    pub custom_ops_library: Option<String>,
    /// How far the graph is rewritten.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub graph_optimization_level: Option<GraphOptimizationLevel>,
    /// Execution providers, in order of preference.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub provider_options: Vec<ProviderOptions>,
    /// Every other key: configuration entries such as `session.disable_prepacking`, whose names
    /// contain a dot.
    #[serde(flatten)]
    pub config_entries: BTreeMap<String, String>,
}

/// One entry of `provider_options`, an object with one key: the provider's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    try_from = "BTreeMap<String, ProviderBody>",
    into = "BTreeMap<String, ProviderBody>"
)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct ProviderOptions {
    /// Provider, such as `cuda`.
    pub name: String,
    /// Which of its devices may be used.
    pub device_filtering_options: Option<DeviceFilteringOptions>,
    /// The provider's own settings.
    pub options: BTreeMap<String, String>,
}

/// What stands below a provider's name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Provider")]
struct ProviderBody {
    #[serde(skip_serializing_if = "Omit::omit")]
    device_filtering_options: Option<DeviceFilteringOptions>,
    #[serde(flatten)]
    options: BTreeMap<String, String>,
}

impl TryFrom<BTreeMap<String, ProviderBody>> for ProviderOptions {
    type Error = &'static str;

    fn try_from(map: BTreeMap<String, ProviderBody>) -> Result<Self, Self::Error> {
        let mut entries = map.into_iter();
        match (entries.next(), entries.next()) {
            (Some((name, body)), None) => Ok(Self {
                name,
                device_filtering_options: body.device_filtering_options,
                options: body.options,
            }),
            _ => Err("expected an object with one key, the provider's name"),
        }
    }
}

impl From<ProviderOptions> for BTreeMap<String, ProviderBody> {
    fn from(provider: ProviderOptions) -> Self {
        let body = ProviderBody {
            device_filtering_options: provider.device_filtering_options,
            options: provider.options,
        };
        Self::from([(provider.name, body)])
    }
}

wire! {
    /// `device_filtering_options`: which devices of a provider may be used.
    #[derive(Eq)]
    pub struct DeviceFilteringOptions {
        /// `CPU`, `GPU` or `NPU`.
        #[schemars(extend("enum" = ["CPU", "GPU", "NPU", "cpu", "gpu", "npu"]))]
        pub hardware_device_type: Option<String>,
        /// Device number.
        pub hardware_device_id: Option<u32>,
        /// PCI vendor.
        pub hardware_vendor_id: Option<u32>,
    }
}
