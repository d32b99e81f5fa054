//! Graphs of one node, run by ONNX Runtime.

#![allow(unsafe_code)]

use ort::AsPointer;
use ort::environment::Environment;
use ort::operator::OperatorDomain;
use ort::ortsys;
use ort::session::Session;
use ort::value::{Shape, Tensor, TensorRefMut};
use std::ffi::CString;

/// An attribute of a node.
#[derive(Clone, Debug)]
pub(in crate::kernels) enum Attr {
    Int(i64),
    Float(f32),
    Text(&'static str),
}

/// Elements of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernels) enum Data {
    Floats(Vec<f32>),
    Ints(Vec<i32>),
}

/// A tensor given to a node, with its name in the graph.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernels) struct Feed {
    pub(in crate::kernels) name: &'static str,
    pub(in crate::kernels) shape: Vec<usize>,
    pub(in crate::kernels) data: Data,
    /// Put into the graph instead of being an input of it.
    pub(in crate::kernels) constant: bool,
}

pub(in crate::kernels) fn floats(name: &'static str, shape: &[usize], data: &[f32]) -> Feed {
    let data = Data::Floats(data.to_vec());
    Feed {
        name,
        shape: shape.to_vec(),
        data,
        constant: false,
    }
}

pub(in crate::kernels) fn ints(name: &'static str, shape: &[usize], data: &[i32]) -> Feed {
    let data = Data::Ints(data.to_vec());
    Feed {
        name,
        shape: shape.to_vec(),
        data,
        constant: false,
    }
}

/// An input that the node leaves out.
pub(in crate::kernels) fn absent() -> Feed {
    floats("", &[], &[])
}

impl Feed {
    /// The elements of a float tensor.
    pub(in crate::kernels) fn floats(&self) -> &[f32] {
        match &self.data {
            Data::Floats(data) => data,
            Data::Ints(_) => panic!("{} holds integers", self.name),
        }
    }

    pub(in crate::kernels) fn constant(mut self) -> Self {
        self.constant = true;
        self
    }
}

/// A node and how it is run.
#[derive(Clone, Debug)]
pub(in crate::kernels) struct OneNode {
    pub(in crate::kernels) domain: &'static str,
    pub(in crate::kernels) operator: &'static str,
    pub(in crate::kernels) attributes: Vec<(&'static str, Attr)>,
    /// Names in the graph; empty for outputs that the node leaves out.
    pub(in crate::kernels) outputs: Vec<&'static str>,
    pub(in crate::kernels) threads: usize,
}

/// Shape and elements of an output.
pub(in crate::kernels) type Found = (Vec<usize>, Vec<f32>);

impl OneNode {
    pub(in crate::kernels) fn new(domain: &'static str, operator: &'static str) -> Self {
        Self {
            domain,
            operator,
            attributes: Vec::new(),
            outputs: Vec::new(),
            threads: 1,
        }
    }

    pub(in crate::kernels) fn with(mut self, name: &'static str, value: Attr) -> Self {
        self.attributes.push((name, value));
        self
    }

    pub(in crate::kernels) fn giving(mut self, outputs: &[&'static str]) -> Self {
        self.outputs = outputs.to_vec();
        self
    }

    pub(in crate::kernels) fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Opens the graph with Pawl's operators.
    pub(in crate::kernels) fn open(&self, feeds: &[Feed]) -> ort::Result<Session> {
        environment()?;
        self.open_with(crate::kernels::domain()?, feeds)
    }

    fn open_with(&self, domain: OperatorDomain, feeds: &[Feed]) -> ort::Result<Session> {
        let mut builder = Session::builder(environment()?)?
            .with_operators(domain)?
            .with_intra_threads(self.threads)?
            .with_intra_op_spinning(false)?;
        builder.commit_from_memory(&super::onnx::model(self, feeds))
    }

    /// Runs the node once.
    pub(in crate::kernels) fn run(&self, feeds: &[Feed]) -> ort::Result<Vec<Found>> {
        run(&mut self.open(feeds)?, feeds)
    }

    /// Runs the node once with other operators than Pawl's. [`environment`] comes first.
    pub(in crate::kernels) fn run_with(
        &self,
        domain: OperatorDomain,
        feeds: &[Feed],
    ) -> ort::Result<Vec<Found>> {
        run(&mut self.open_with(domain, feeds)?, feeds)
    }
}

/// ONNX Runtime, loaded: nothing else of it may be used before.
pub(in crate::kernels) fn environment() -> ort::Result<&'static Environment> {
    crate::exec::environment().map_err(|error| ort::Error::new(error.to_string()))
}

/// Runs a session that [`OneNode::open`] made.
pub(in crate::kernels) fn run(session: &mut Session, feeds: &[Feed]) -> ort::Result<Vec<Found>> {
    let mut values = Vec::new();
    for feed in feeds.iter().filter(|f| !f.name.is_empty() && !f.constant) {
        let value = match &feed.data {
            Data::Floats(data) => {
                Tensor::from_array((feed.shape.clone(), data.clone()))?.into_dyn()
            }
            Data::Ints(data) => Tensor::from_array((feed.shape.clone(), data.clone()))?.into_dyn(),
        };
        values.push((feed.name, value));
    }
    let outputs = session.run(values)?;
    outputs
        .values()
        .map(|value| {
            let (shape, data) = value.try_extract_tensor::<f32>()?;
            Ok((shape.iter().map(|&d| d as usize).collect(), data.to_vec()))
        })
        .collect()
}

/// Runs a session with outputs bound to memory of the caller. An output with the same address as an
/// input is the same value.
pub(in crate::kernels) fn run_bound(
    session: &mut Session,
    feeds: &mut [Feed],
    in_place: &[(&'static str, &'static str)],
    outputs: &mut [(&'static str, Vec<usize>, Vec<f32>)],
) -> ort::Result<()> {
    let info = || ort::memory::MemoryInfo::default();
    let shape = |extents: &[usize]| Shape::new(extents.iter().map(|&d| d as i64));
    let mut values = Vec::new();
    for feed in feeds
        .iter_mut()
        .filter(|f| !f.name.is_empty() && !f.constant)
    {
        let extents = shape(&feed.shape);
        let value = match &mut feed.data {
            Data::Floats(data) => {
                let data = data.as_mut_ptr().cast();
                // SAFETY: the data outlives the run and has the shape's number of elements.
                unsafe { TensorRefMut::<f32>::from_raw(info(), data, extents)? }.into_dyn()
            }
            Data::Ints(data) => {
                let data = data.as_mut_ptr().cast();
                // SAFETY: as above.
                unsafe { TensorRefMut::<i32>::from_raw(info(), data, extents)? }.into_dyn()
            }
        };
        values.push((feed.name, value));
    }
    let mut bound = Vec::new();
    for (name, extents, data) in outputs.iter_mut() {
        let data = data.as_mut_ptr().cast();
        // SAFETY: as above.
        let value = unsafe { TensorRefMut::<f32>::from_raw(info(), data, shape(extents))? };
        bound.push((*name, value.into_dyn()));
    }
    let c = |name: &str| CString::new(name).unwrap();
    let in_names: Vec<CString> = values.iter().map(|v| c(v.0)).collect();
    let in_values: Vec<_> = values.iter().map(|v| v.1.ptr()).collect();
    let mut out_names: Vec<CString> = bound.iter().map(|v| c(v.0)).collect();
    let mut out_values: Vec<_> = bound.iter().map(|v| v.1.ptr().cast_mut()).collect();
    for (input, output) in in_place {
        let at = values.iter().position(|v| v.0 == *input).unwrap();
        out_names.push(c(output));
        out_values.push(in_values[at].cast_mut());
    }
    let pointers = |names: &[CString]| names.iter().map(|n| n.as_ptr()).collect::<Vec<_>>();
    ortsys![unsafe Run(
        session.ptr().cast_mut(),
        std::ptr::null(),
        pointers(&in_names).as_ptr(),
        in_values.as_ptr(),
        in_values.len(),
        pointers(&out_names).as_ptr(),
        out_names.len(),
        out_values.as_mut_ptr()
    )?];
    Ok(())
}

/// Names of the axes that shape inference found; fixed axes as numbers.
pub(in crate::kernels) fn symbols(ty: &ort::value::ValueType) -> Vec<String> {
    let ort::value::ValueType::Tensor {
        shape,
        dimension_symbols,
        ..
    } = ty
    else {
        panic!("{ty}")
    };
    let name = |(&extent, symbol): (&i64, &String)| {
        if extent < 0 {
            symbol.clone()
        } else {
            extent.to_string()
        }
    };
    shape
        .iter()
        .zip(dimension_symbols.iter())
        .map(name)
        .collect()
}
