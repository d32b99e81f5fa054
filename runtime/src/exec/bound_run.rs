//! One session and the names it is run with.
//!
//! This is the only place that calls ONNX Runtime's `Run`: with values that the caller made, outputs preallocated, and
//! where state is kept the same value as input and output.

#![allow(unsafe_code)]

use super::session::Session;
use super::tensor_value::TensorValue;
use ort::AsPointer;
use ort::ortsys;
use ort::sys::OrtValue;
use std::ffi::{CString, c_char};

/// A session with resolved names. `Run` is not safe to call from two threads at once, hence `&mut self`.
#[derive(Debug)]
pub(crate) struct BoundRun {
    session: Session,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
    scratch: Scratch,
    /// How many inputs and outputs each run had so far.
    #[cfg(test)]
    pub(super) bound: std::sync::Arc<std::sync::Mutex<Vec<(usize, usize)>>>,
}

/// Argument arrays, kept between runs.
#[derive(Debug, Default)]
struct Scratch {
    input_names: Vec<*const c_char>,
    input_values: Vec<*const OrtValue>,
    output_names: Vec<*const c_char>,
    output_values: Vec<*mut OrtValue>,
}

// SAFETY: the pointers in it are written and used within one `run`; between runs they are not read.
unsafe impl Send for Scratch {}
// SAFETY: as above; `run` needs `&mut`.
unsafe impl Sync for Scratch {}

impl BoundRun {
    /// A session that is run with `inputs`, all of them and in this order, and any of `outputs`.
    pub(crate) fn new(
        session: Session,
        inputs: Vec<String>,
        outputs: Vec<String>,
    ) -> ort::Result<Self> {
        let owned = |names: Vec<String>| -> ort::Result<Vec<CString>> {
            names
                .into_iter()
                .map(|name| Ok(CString::new(name)?))
                .collect()
        };
        Ok(Self {
            session,
            inputs: owned(inputs)?,
            outputs: owned(outputs)?,
            scratch: Scratch::default(),
            #[cfg(test)]
            bound: std::sync::Arc::default(),
        })
    }

    /// The session.
    #[cfg(feature = "cuda")]
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Runs the graph. `inputs` are in the order of the names; `outputs` are (index of the name, value) and may leave
    /// names out. The same value may be an input and an output: the operator then works in place.
    pub(crate) fn run(
        &mut self,
        inputs: &[&TensorValue<'_>],
        outputs: &[(usize, &TensorValue<'_>)],
    ) -> ort::Result<()> {
        if inputs.len() != self.inputs.len() {
            return Err(ort::Error::new(format!(
                "{} values for {} inputs",
                inputs.len(),
                self.inputs.len()
            )));
        }
        self.scratch.clear();
        self.scratch
            .input_names
            .extend(self.inputs.iter().map(|name| name.as_ptr()));
        self.scratch
            .input_values
            .extend(inputs.iter().map(|value| value.as_input()));
        for (index, value) in outputs {
            let name = self
                .outputs
                .get(*index)
                .ok_or_else(|| ort::Error::new("no such output"))?;
            let value = value.as_output().ok_or_else(|| {
                ort::Error::new(format!(
                    "output {name:?} is bound to memory that is only read"
                ))
            })?;
            self.scratch.output_names.push(name.as_ptr());
            self.scratch.output_values.push(value);
        }
        #[cfg(test)]
        if let Ok(mut bound) = self.bound.lock() {
            bound.push((inputs.len(), outputs.len()));
        }
        self.call()
    }

    fn call(&mut self) -> ort::Result<()> {
        let session = self.session.inner().ptr().cast_mut();
        let Scratch {
            input_names,
            input_values,
            output_names,
            output_values,
        } = &mut self.scratch;
        // The names are owned by `self`; each value array has as many entries as its name array, so `Run` replaces
        // none of the preallocated outputs; the memory behind the values is valid by the contract of `TensorValue`.
        ortsys![unsafe Run(
            session,
            std::ptr::null(),
            input_names.as_ptr(),
            input_values.as_ptr(),
            input_values.len(),
            output_names.as_ptr(),
            output_names.len(),
            output_values.as_mut_ptr()
        )?];
        Ok(())
    }
}

impl Scratch {
    fn clear(&mut self) {
        self.input_names.clear();
        self.input_values.clear();
        self.output_names.clear();
        self.output_values.clear();
    }
}
