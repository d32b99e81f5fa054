//! Where every initializer goes: small values into the protobuf, everything else into data files,
//! page-aligned, each once.

use std::collections::{HashMap, HashSet};

use pawl_models::{Transform, Weight};

use crate::error::BuildError;
use crate::graph::ir::{Dtype, Graph, Initializer, InitializerData, SharedPlacement};
use crate::quantized::Half;

/// What lies between initializers: up to a page, so that a reader can map each on its own.
pub(crate) static PADDING: [u8; 4096] = [0; 4096];
const ALIGNMENT: u64 = PADDING.len() as u64;
/// Bytes up to which values made by the builder stay in the protobuf.
const MOST_INLINE: usize = 1024;

/// Where the data of one initializer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In the protobuf.
    Inline,
    /// In a data file of the plan.
    External {
        /// Index into [`Plan::files`].
        file: usize,
        /// Bytes.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

/// One stretch of a data file, in order of offsets.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    /// The initializer that first asked for the data.
    pub(crate) name: &'a str,
    pub(crate) offset: u64,
    pub(crate) dtype: Dtype,
    pub(crate) data: &'a InitializerData,
}

/// A data file to write.
#[derive(Debug)]
pub(crate) struct DataFile<'a> {
    pub(crate) name: String,
    pub(crate) entries: Vec<Entry<'a>>,
    /// Bytes.
    pub(crate) length: u64,
}

/// The layout of all data files of an export.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) files: Vec<DataFile<'a>>,
    /// Per graph, per initializer.
    pub(crate) locations: Vec<Vec<Location>>,
    /// Elements of all distinct weights, however often and in whatever form each is stored.
    pub(crate) parameters: u64,
}

/// Lays out the initializers of all graphs in order. Data that an earlier graph has already placed
/// is referred to, not repeated. Same graphs, same plan.
pub(crate) fn plan(graphs: &[Graph]) -> Result<Plan<'_>, BuildError> {
    let mut plan = Plan {
        files: Vec::new(),
        locations: Vec::new(),
        parameters: 0,
    };
    let mut placed: HashMap<Key<'_>, Location> = HashMap::new();
    let mut counted = HashSet::new();
    for graph in graphs {
        let index = plan.files.len();
        let mut own = DataFile {
            name: format!("{}.data", graph.file),
            entries: Vec::new(),
            length: 0,
        };
        let mut locations = Vec::new();
        for initializer in &graph.initializers {
            let Some(key) = Key::of(initializer) else {
                locations.push(Location::Inline);
                continue;
            };
            let location = match placed.get(&key) {
                Some(location) => *location,
                None => {
                    if let Some(weight) = initializer.data.weight()
                        && counted.insert(rows(weight))
                    {
                        plan.parameters = plan.parameters.saturating_add(weight.elements());
                    }
                    let (offset, length) = own.place(initializer).ok_or_else(|| {
                        BuildError::defect(&own.name, &initializer.name, "the file is too long")
                    })?;
                    Location::External {
                        file: index,
                        offset,
                        length,
                    }
                }
            };
            placed.insert(key, location);
            locations.push(location);
        }
        plan.files.push(own);
        plan.locations.push(locations);
    }
    Ok(plan)
}

impl<'a> DataFile<'a> {
    fn place(&mut self, initializer: &'a Initializer) -> Option<(u64, u64)> {
        let offset = self.length.checked_next_multiple_of(ALIGNMENT)?;
        let length = (initializer.dims.iter())
            .try_fold(initializer.dtype.size(), |size, &extent| {
                size.checked_mul(extent)
            })?;
        self.length = offset.checked_add(length)?;
        self.entries.push(Entry {
            name: &initializer.name,
            offset,
            dtype: initializer.dtype,
            data: &initializer.data,
        });
        Some((offset, length))
    }
}

impl Plan<'_> {
    /// The data file and the place in it of every initializer marked as shared.
    pub(crate) fn shared(&self, graphs: &[Graph]) -> Result<Vec<SharedPlacement>, BuildError> {
        let mut shared = Vec::new();
        for (graph, locations) in graphs.iter().zip(&self.locations) {
            for (initializer, location) in graph.initializers.iter().zip(locations) {
                if initializer.shared {
                    shared.push(self.placement(graph, initializer, *location)?);
                }
            }
        }
        Ok(shared)
    }

    fn placement(
        &self,
        graph: &Graph,
        initializer: &Initializer,
        location: Location,
    ) -> Result<SharedPlacement, BuildError> {
        let inline = || BuildError::defect(&graph.file, &initializer.name, "shared, but inline");
        let Location::External {
            file,
            offset,
            length,
        } = location
        else {
            return Err(inline());
        };
        Ok(SharedPlacement {
            graph: graph.file.clone(),
            name: initializer.name.clone(),
            data_file: self.files.get(file).ok_or_else(inline)?.name.clone(),
            offset,
            length,
            dtype: initializer.dtype,
            dims: initializer.dims.clone(),
        })
    }
}

/// What makes two initializers the same data.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key<'a> {
    Weight {
        rows: Vec<(&'a str, u64, u64)>,
        add_one: bool,
        dtype: Dtype,
        /// Where it is quantised: how many blocks a row has is not in the data.
        half: Option<Half>,
    },
    Values(&'a [u8]),
}

impl<'a> Key<'a> {
    /// `None` for data that stays in the protobuf.
    fn of(initializer: &'a Initializer) -> Option<Self> {
        let of_weight = |weight: &'a Weight, half| Self::Weight {
            rows: rows(weight),
            add_one: match weight.transform {
                Transform::None => false,
                Transform::AddOne => true,
            },
            dtype: initializer.dtype,
            half,
        };
        match &initializer.data {
            InitializerData::Weight(weight) => Some(of_weight(weight, None)),
            InitializerData::Quantized(weight, half) => Some(of_weight(weight, Some(*half))),
            InitializerData::Values(bytes) => {
                (bytes.len() > MOST_INLINE || initializer.shared).then_some(Self::Values(bytes))
            }
        }
    }
}

fn rows(weight: &Weight) -> Vec<(&str, u64, u64)> {
    (weight.parts.iter())
        .map(|part| (part.tensor.as_str(), part.rows.start, part.rows.end))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(name: &str, dtype: Dtype, weight: Weight, shared: bool) -> Initializer {
        Initializer {
            name: name.to_owned(),
            dtype,
            dims: weight.shape.clone(),
            data: InitializerData::Weight(weight),
            shared,
        }
    }

    fn values(name: &str, length: usize) -> Initializer {
        Initializer {
            name: name.to_owned(),
            dtype: Dtype::I64,
            dims: vec![length as u64 / 8],
            data: InitializerData::Values(vec![7; length]),
            shared: false,
        }
    }

    fn graph(file: &'static str, initializers: Vec<Initializer>) -> Graph {
        Graph {
            name: "g".to_owned(),
            file: file.into(),
            opset: 23,
            nodes: vec![],
            inputs: vec![],
            outputs: vec![],
            initializers,
        }
    }

    fn external(file: usize, offset: u64, length: u64) -> Location {
        Location::External {
            file,
            offset,
            length,
        }
    }

    #[test]
    fn data_is_aligned_and_stored_once_across_graphs() {
        let embedding = Weight::whole("embed", [100, 3]);
        let mut shifted = embedding.clone();
        shifted.transform = Transform::AddOne;
        let flat = Weight {
            shape: vec![300],
            ..embedding.clone()
        };
        let graphs = [
            graph(
                "model.onnx",
                vec![
                    values("small", 1024),
                    weight("embed", Dtype::F32, embedding.clone(), true),
                    weight("again", Dtype::F32, flat, false),
                    weight("half", Dtype::F16, embedding.clone(), false),
                    weight("shifted", Dtype::F32, shifted, false),
                    values("large", 1032),
                ],
            ),
            graph(
                "mtp.onnx",
                vec![
                    weight("head", Dtype::F32, Weight::whole("head", [2]), false),
                    weight("tokens", Dtype::F32, embedding, true),
                    values("table", 1032),
                ],
            ),
        ];
        let plan = plan(&graphs).unwrap();
        let tied = external(0, 0, 1200);
        let table = external(0, 3 * 4096, 1032);
        let (half, shifted) = (external(0, 4096, 600), external(0, 2 * 4096, 1200));
        assert_eq!(
            plan.locations[0],
            [Location::Inline, tied, tied, half, shifted, table]
        );
        assert_eq!(plan.locations[1], [external(1, 0, 8), tied, table]);
        assert_eq!(plan.files[0].length, 3 * 4096 + 1032);
        assert_eq!(plan.files[0].entries.len(), 4);
        assert_eq!(plan.files[1].length, 8);
        assert_eq!(plan.parameters, 300 + 2);

        let shared = plan.shared(&graphs).unwrap();
        let places: Vec<_> = shared
            .iter()
            .map(|s| (&*s.graph, &*s.name, &*s.data_file, s.offset, s.length))
            .collect();
        assert_eq!(
            places,
            [
                ("model.onnx", "embed", "model.onnx.data", 0, 1200),
                ("mtp.onnx", "tokens", "model.onnx.data", 0, 1200),
            ]
        );
    }

    #[test]
    fn each_form_of_a_weight_is_stored_once_and_counted_once_in_all() {
        let table = Weight::whole("embed", [10, 64]);
        let half = |name: &str, half, dtype, dims: &[u64]| Initializer {
            name: name.to_owned(),
            dtype,
            dims: dims.to_vec(),
            data: InitializerData::Quantized(table.clone(), half),
            shared: false,
        };
        let graphs = [graph(
            "mtp.onnx",
            vec![
                weight("embed", Dtype::F32, table.clone(), false),
                half("values", Half::Values, Dtype::U8, &[10, 2, 32]),
                half("scales", Half::Scales, Dtype::F32, &[10, 2]),
                half("again", Half::Values, Dtype::U8, &[10, 2, 32]),
                half("scales again", Half::Scales, Dtype::F32, &[10, 2]),
            ],
        )];
        let plan = plan(&graphs).unwrap();
        let (values, scales) = (external(0, 4096, 640), external(0, 8192, 80));
        assert_eq!(
            plan.locations[0],
            [external(0, 0, 2560), values, scales, values, scales]
        );
        assert_eq!(plan.parameters, 640);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let huge = weight("huge", Dtype::F32, Weight::whole("huge", [u64::MAX]), false);
        let message = plan(&[graph("model.onnx", vec![huge])])
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("model.onnx.data: huge: the file is too long"),
            "{message}"
        );
    }
}
