//! The last checks of a graph, and the names of its outputs.

use std::collections::{HashMap, HashSet};

use super::builder::GraphBuilder;
use super::ir::{Graph, ValueInfo};
use crate::error::BuildError;

impl GraphBuilder {
    /// The finished graph.
    ///
    /// # Errors
    /// A defect if something is computed or declared that nothing reads, or if an output is not the result of a
    /// node, or if two outputs share a value or a name.
    pub(crate) fn finish(mut self) -> Result<Graph, BuildError> {
        self.rename_outputs()?;
        self.everything_is_read()?;
        self.outputs.sort_by_key(|output| output.place);
        let name = self.file.strip_suffix(".onnx").unwrap_or(&self.file);
        Ok(Graph {
            name: name.to_owned(),
            file: self.file,
            opset: self.opset,
            nodes: self.nodes,
            inputs: self.inputs,
            outputs: self
                .outputs
                .into_iter()
                .map(|output| ValueInfo {
                    name: output.name,
                    dtype: output.value.dtype,
                    dims: output.value.dims,
                })
                .collect(),
            initializers: self.initializers,
        })
    }

    fn rename_outputs(&mut self) -> Result<(), BuildError> {
        let mut names = HashMap::new();
        for output in &self.outputs {
            let twice = names.insert(output.value.name.clone(), output.name.clone());
            if twice.is_some() {
                return Err(self.defect(&output.value.name, "two outputs have this value"));
            }
        }
        let mut taken: HashSet<&str> = self
            .inputs
            .iter()
            .map(|input| input.name.as_str())
            .chain(self.initializers.iter().map(|init| init.name.as_str()))
            .collect();
        let mut produced = HashSet::new();
        for name in self.nodes.iter().flat_map(|node| &node.outputs) {
            produced.insert(name.as_str());
            let name = names.get(name).unwrap_or(name);
            if !taken.insert(name) {
                return Err(self.defect(name, "an output takes the name of another value"));
            }
        }
        if let Some(name) = names.keys().find(|name| !produced.contains(name.as_str())) {
            return Err(self.defect(name, "an output must be the result of a node"));
        }
        for node in &mut self.nodes {
            for name in node.inputs.iter_mut().chain(&mut node.outputs) {
                if let Some(public) = names.get(name) {
                    name.clone_from(public);
                }
            }
        }
        Ok(())
    }

    fn everything_is_read(&self) -> Result<(), BuildError> {
        let read: HashSet<&str> = self
            .nodes
            .iter()
            .flat_map(|node| &node.inputs)
            .chain(self.outputs.iter().map(|output| &output.name))
            .chain(&self.offered)
            .map(String::as_str)
            .collect();
        let defined = self
            .inputs
            .iter()
            .map(|input| &input.name)
            .chain(self.initializers.iter().map(|init| &init.name))
            .chain(self.nodes.iter().flat_map(|node| &node.outputs));
        for name in defined {
            if !read.contains(name.as_str()) {
                return Err(self.defect(name, "nothing reads this value"));
            }
        }
        Ok(())
    }
}
