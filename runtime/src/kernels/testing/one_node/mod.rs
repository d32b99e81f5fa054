//! Graphs of one node, run by ONNX Runtime.

#![allow(unsafe_code)]

mod onnx;

use ort::AsPointer;
use ort::environment::Environment;
use ort::memory::MemoryInfo;
use ort::operator::OperatorDomain;
use ort::ortsys;
use ort::session::Session;
use ort::value::{DynValueRefMut, PrimitiveTensorElementType, Shape, Tensor, TensorRefMut};
use std::ffi::CString;

/// An attribute of a node.
#[derive(Clone, Debug)]
pub(crate) enum Attr {
    Int(i64),
    Float(f32),
    Text(&'static str),
}

/// Elements of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Floats(Vec<f32>),
    Ints(Vec<i32>),
}

/// A tensor given to a node, with its name in the graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Feed {
    pub(crate) name: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Data,
    /// Put into the graph instead of being an input of it.
    pub(crate) constant: bool,
}

pub(crate) fn floats(name: &'static str, shape: &[usize], data: &[f32]) -> Feed {
    let data = Data::Floats(data.to_vec());
    Feed {
        name,
        shape: shape.to_vec(),
        data,
        constant: false,
    }
}

pub(crate) fn ints(name: &'static str, shape: &[usize], data: &[i32]) -> Feed {
    let data = Data::Ints(data.to_vec());
    Feed {
        name,
        shape: shape.to_vec(),
        data,
        constant: false,
    }
}

/// An input that the node leaves out.
pub(crate) fn absent() -> Feed {
    floats("", &[], &[])
}

impl Feed {
    /// The elements of a float tensor.
    pub(crate) fn floats(&self) -> &[f32] {
        match &self.data {
            Data::Floats(data) => data,
            Data::Ints(_) => panic!("{} holds integers", self.name),
        }
    }

    pub(crate) fn constant(mut self) -> Self {
        self.constant = true;
        self
    }
}

/// A node and how it is run.
#[derive(Clone, Debug)]
pub(crate) struct OneNode {
    pub(crate) domain: &'static str,
    pub(crate) operator: &'static str,
    pub(crate) attributes: Vec<(&'static str, Attr)>,
    /// Names in the graph; empty for outputs that the node leaves out.
    pub(crate) outputs: Vec<&'static str>,
    pub(crate) threads: usize,
}

/// Shape and elements of an output.
pub(crate) type Found = (Vec<usize>, Vec<f32>);

impl OneNode {
    pub(crate) fn new(domain: &'static str, operator: &'static str) -> Self {
        Self {
            domain,
            operator,
            attributes: Vec::new(),
            outputs: Vec::new(),
            threads: 1,
        }
    }

    pub(crate) fn with(mut self, name: &'static str, value: Attr) -> Self {
        self.attributes.push((name, value));
        self
    }

    pub(crate) fn giving(mut self, outputs: &[&'static str]) -> Self {
        self.outputs = outputs.to_vec();
        self
    }

    pub(crate) fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Opens the graph with Pawl's operators.
    pub(crate) fn open(&self, feeds: &[Feed]) -> ort::Result<Session> {
        environment()?;
        self.open_with(crate::kernels::Operators::new()?.domain, feeds)
    }

    fn open_with(&self, domain: OperatorDomain, feeds: &[Feed]) -> ort::Result<Session> {
        let mut builder = Session::builder(environment()?)?
            .with_operators(domain)?
            .with_intra_threads(self.threads)?
            .with_intra_op_spinning(false)?;
        builder.commit_from_memory(&onnx::model(self, feeds))
    }

    /// Runs the node once.
    pub(crate) fn run(&self, feeds: &[Feed]) -> ort::Result<Vec<Found>> {
        run(&mut self.open(feeds)?, feeds)
    }

    /// Runs the node once with other operators than Pawl's. [`environment`] comes first.
    pub(crate) fn run_with(
        &self,
        domain: OperatorDomain,
        feeds: &[Feed],
    ) -> ort::Result<Vec<Found>> {
        run(&mut self.open_with(domain, feeds)?, feeds)
    }
}

/// ONNX Runtime, loaded: nothing else of it may be used before.
pub(crate) fn environment() -> ort::Result<&'static Environment> {
    crate::exec::environment().map_err(|error| ort::Error::new(error.to_string()))
}

/// Runs a session that [`OneNode::open`] made.
pub(crate) fn run(session: &mut Session, feeds: &[Feed]) -> ort::Result<Vec<Found>> {
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

/// A session with values bound to memory of the caller.
pub(crate) struct Bound<'m> {
    session: &'m mut Session,
    inputs: Vec<(CString, DynValueRefMut<'m>)>,
    outputs: Vec<(CString, DynValueRefMut<'m>)>,
    /// Outputs that are the value of the input with this index.
    in_place: Vec<(CString, usize)>,
}

impl<'m> Bound<'m> {
    /// Binds inputs and outputs (name, shape, elements). `in_place` are pairs of an input and the
    /// output that is the same value.
    pub(crate) fn new(
        session: &'m mut Session,
        feeds: &'m mut [Feed],
        in_place: &[(&'static str, &'static str)],
        outputs: &'m mut [(&'static str, Vec<usize>, Vec<f32>)],
    ) -> ort::Result<Self> {
        let c = |name: &str| CString::new(name).unwrap_or_default();
        let mut inputs = Vec::new();
        for feed in feeds
            .iter_mut()
            .filter(|f| !f.name.is_empty() && !f.constant)
        {
            let value = match &mut feed.data {
                Data::Floats(data) => value(data, &feed.shape)?,
                Data::Ints(data) => value(data, &feed.shape)?,
            };
            inputs.push((c(feed.name), value));
        }
        let in_place = in_place
            .iter()
            .filter_map(|(input, output)| {
                Some((c(output), inputs.iter().position(|v| v.0 == c(input))?))
            })
            .collect();
        let mut bound = Vec::new();
        for (name, extents, data) in outputs {
            bound.push((c(name), value(data, extents)?));
        }
        Ok(Self {
            session,
            inputs,
            outputs: bound,
            in_place,
        })
    }

    /// Runs the session.
    pub(crate) fn run(&mut self) -> ort::Result<()> {
        let in_names: Vec<_> = self.inputs.iter().map(|v| v.0.as_ptr()).collect();
        let in_values: Vec<_> = self.inputs.iter().map(|v| v.1.ptr()).collect();
        let mut out_names: Vec<_> = self.outputs.iter().map(|v| v.0.as_ptr()).collect();
        let mut out_values: Vec<_> = self.outputs.iter().map(|v| v.1.ptr().cast_mut()).collect();
        for (output, input) in &self.in_place {
            out_names.push(output.as_ptr());
            out_values.extend(in_values.get(*input).map(|value| value.cast_mut()));
        }
        ortsys![unsafe Run(
            self.session.ptr().cast_mut(),
            std::ptr::null(),
            in_names.as_ptr(),
            in_values.as_ptr(),
            in_values.len(),
            out_names.as_ptr(),
            out_names.len(),
            out_values.as_mut_ptr()
        )?];
        Ok(())
    }
}

/// A value over memory of the caller.
fn value<'m, T: PrimitiveTensorElementType + std::fmt::Debug + 'static>(
    data: &'m mut [T],
    extents: &[usize],
) -> ort::Result<DynValueRefMut<'m>> {
    assert_eq!(
        data.len(),
        extents.iter().product::<usize>(),
        "elements of {extents:?}"
    );
    let data = data.as_mut_ptr().cast();
    let shape = Shape::new(
        extents
            .iter()
            .map(|&d| i64::try_from(d).unwrap_or(i64::MAX)),
    );
    // SAFETY: the memory has the shape's number of elements, and the value borrows it.
    let value = unsafe { TensorRefMut::<T>::from_raw(MemoryInfo::default(), data, shape)? };
    Ok(value.into_dyn())
}

/// Names of the axes that shape inference found; fixed axes as numbers.
pub(crate) fn symbols(ty: &ort::value::ValueType) -> Vec<String> {
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
