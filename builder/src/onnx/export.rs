//! Writing the files of an export into its folder.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, IntoInnerError, Read, Write};
use std::path::{Path, PathBuf};

use super::external::{DataFile, Entry, Plan};
use super::{check, encode, external};
use crate::build_request::Progress;
use crate::error::BuildError;
use crate::graph::ir::{Graph, InitializerData, SharedPlacement};
use crate::interrupt::Interrupt;
use crate::report::ReportedFile;
use crate::source::convert::{Converter, Encoding, NonFinite};
use crate::source::{Checkpoint, Companion};

/// Bytes gathered before a write: weights smaller than this would each be a call.
const GATHERED: usize = 1 << 20;

/// Graphs that are sound, and where their data goes.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    graphs: &'a [Graph],
    plan: Plan<'a>,
}

impl<'a> Layout<'a> {
    /// Checks the graphs, and that the checkpoint has all their weights in a type that can be
    /// converted: a wrong one is refused at once, not after an hour of writing.
    pub(crate) fn new(graphs: &'a [Graph], checkpoint: &Checkpoint) -> Result<Self, BuildError> {
        for graph in graphs {
            check::check(graph)?;
        }
        let plan = external::plan(graphs)?;
        for entry in plan.files.iter().flat_map(|file| &file.entries) {
            if let Some(weight) = entry.data.weight() {
                checkpoint.segments(weight)?;
            }
        }
        Ok(Self { graphs, plan })
    }

    /// Bytes of all data files.
    pub(crate) fn bytes(&self) -> u64 {
        let lengths = self.plan.files.iter().map(|file| file.length);
        lengths.fold(0, u64::saturating_add)
    }

    /// Where shared initializers will be.
    pub(crate) fn shared(&self) -> Result<Vec<SharedPlacement>, BuildError> {
        self.plan.shared(self.graphs)
    }
}

/// An export that is being written.
pub(crate) struct Export<'a> {
    folder: PathBuf,
    progress: &'a mut dyn Progress,
    interrupt: &'a Interrupt,
    written: Written,
    finite_only: bool,
}

/// What has been written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// In order of names once finished.
    pub(crate) files: Vec<ReportedFile>,
    pub(crate) warnings: Vec<String>,
    /// Elements of all distinct weights.
    pub(crate) parameters: u64,
}

impl<'a> Export<'a> {
    /// An export into `folder`, which exists and is empty.
    pub(crate) fn new(
        folder: PathBuf,
        progress: &'a mut dyn Progress,
        interrupt: &'a Interrupt,
    ) -> Self {
        Self {
            folder,
            progress,
            interrupt,
            written: Written::default(),
            finite_only: false,
        }
    }

    /// Refuses NaN and infinite weights, if so asked, instead of warning of them.
    pub(crate) fn finite_only(mut self, finite_only: bool) -> Self {
        self.finite_only = finite_only;
        self
    }

    /// Writes the graphs and their data.
    pub(crate) fn graphs(
        &mut self,
        layout: &Layout<'_>,
        checkpoint: &Checkpoint,
    ) -> Result<(), BuildError> {
        let Layout { graphs, plan } = layout;
        self.progress.begin(layout.bytes());
        let mut converter = Converter::new(self.finite_only);
        for file in plan.files.iter().filter(|file| !file.entries.is_empty()) {
            self.data(file, checkpoint, &mut converter)?;
        }
        for (graph, locations) in graphs.iter().zip(&plan.locations) {
            self.file(&graph.file, &encode::encode(graph, plan, locations)?)?;
        }
        self.written.parameters = plan.parameters;
        self.written
            .warnings
            .extend(converter.non_finite().iter().map(|(tensor, counts)| {
                let file = checkpoint.file_of(tensor);
                non_finite(file, tensor, counts)
            }));
        Ok(())
    }

    /// Writes one small file.
    pub(crate) fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), BuildError> {
        let path = self.folder.join(name);
        let write = || {
            let mut file = File::create_new(&path)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write().map_err(BuildError::write(&path))?;
        self.wrote(name, bytes.len() as u64);
        Ok(())
    }

    /// Copies tokenizer, chat template and settings.
    pub(crate) fn companions(&mut self, companions: &[Companion]) -> Result<(), BuildError> {
        for companion in companions {
            let path = self.folder.join(companion.name);
            let mut to = File::create_new(&path).map_err(BuildError::write(&path))?;
            copy(companion, &mut |bytes| {
                to.write_all(bytes).map_err(BuildError::write(&path))
            })?;
            to.sync_all().map_err(BuildError::write(&path))?;
            self.wrote(companion.name, companion.size);
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Written {
        self.written.files.sort_by(|a, b| a.name.cmp(&b.name));
        self.written
    }

    fn data(
        &mut self,
        file: &DataFile<'_>,
        checkpoint: &Checkpoint,
        converter: &mut Converter,
    ) -> Result<(), BuildError> {
        let path = self.folder.join(&file.name);
        let handle = File::create_new(&path).map_err(BuildError::write(&path))?;
        let mut output = Output {
            writer: BufWriter::with_capacity(GATHERED, handle),
            file,
            path: &path,
            reached: 0,
            progress: self.progress,
            interrupt: self.interrupt,
        };
        for entry in &file.entries {
            output.pad(entry)?;
            match &entry.data {
                InitializerData::Values(bytes) => output.put(bytes)?,
                InitializerData::Weight(weight) => {
                    let sink = &mut |bytes: &[u8]| output.put(bytes);
                    let encoding = Encoding::Float(entry.dtype);
                    converter.convert(checkpoint, weight, encoding, sink)?;
                }
                InitializerData::Quantized(weight, half) => {
                    let sink = &mut |bytes: &[u8]| output.put(bytes);
                    let encoding = Encoding::Int8(*half);
                    converter.convert(checkpoint, weight, encoding, sink)?;
                }
            }
        }
        let bytes = output.finish()?;
        self.wrote(&file.name, bytes);
        Ok(())
    }

    fn wrote(&mut self, name: &str, bytes: u64) {
        let name = name.to_owned();
        self.written.files.push(ReportedFile { name, bytes });
    }
}

/// Gives a companion to `sink`, piece by piece: as many bytes as it had when its room was planned.
fn copy(
    companion: &Companion,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let path = &companion.path;
    let read = || BuildError::read(path);
    let (mut from, _) = genai_config_schema::open_regular(path).map_err(read())?;
    let (mut piece, mut bytes) = (vec![0; 1 << 16], 0);
    loop {
        let length = match from.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            length => length.map_err(read())?,
        };
        bytes += length as u64;
        if bytes > companion.size || (length == 0 && bytes < companion.size) {
            let (size, path) = (companion.size, &companion.path);
            let problem = format!("changed while it was copied: it had {size} bytes");
            return Err(BuildError::input(path, "", problem));
        }
        if length == 0 {
            return Ok(());
        }
        sink(piece.get(..length).unwrap_or_default())?;
    }
}

/// A data file that is being written.
struct Output<'a> {
    writer: BufWriter<File>,
    file: &'a DataFile<'a>,
    path: &'a Path,
    /// Bytes so far.
    reached: u64,
    progress: &'a mut dyn Progress,
    interrupt: &'a Interrupt,
}

impl Output<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        self.interrupt.check()?;
        self.writer
            .write_all(bytes)
            .map_err(BuildError::write(self.path))?;
        self.reached += bytes.len() as u64;
        self.progress.advance(&self.file.name, bytes.len() as u64);
        Ok(())
    }

    /// Zeros up to an entry.
    fn pad(&mut self, entry: &Entry<'_>) -> Result<(), BuildError> {
        let gap = entry.offset.checked_sub(self.reached);
        let gap = gap.and_then(|gap| external::PADDING.get(..usize::try_from(gap).ok()?));
        let moved = || {
            let problem = format!(
                "is planned at {}, {} is reached",
                entry.offset, self.reached
            );
            BuildError::defect(&self.file.name, entry.name, problem)
        };
        let gap = gap.ok_or_else(moved)?;
        self.put(gap)
    }

    /// Makes the file durable. Returns its length.
    fn finish(self) -> Result<u64, BuildError> {
        let (reached, planned) = (self.reached, self.file.length);
        if reached != planned {
            let problem = format!("{reached} bytes were written, {planned} planned");
            return Err(BuildError::defect(&self.file.name, "length", problem));
        }
        let handle = self.writer.into_inner().map_err(IntoInnerError::into_error);
        let synced = handle.and_then(|handle| handle.sync_all());
        synced.map_err(BuildError::write(self.path))?;
        Ok(reached)
    }
}

fn non_finite(file: &Path, tensor: &str, counts: &NonFinite) -> String {
    let NonFinite { nan, infinite } = counts;
    let file = file.display();
    format!("{file}: {tensor}: holds {nan} NaN and {infinite} infinite values; they are kept")
}

#[cfg(test)]
mod tests;
