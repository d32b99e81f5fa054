//! Options of every command that loads a model.

use crate::error::CliError;
use crate::numbers::whole;
use pawl::{LoadOptions, Model};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// How to load the model.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// Threads of one step; all cores by default.
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroUsize>(1), allow_negative_numbers = true)]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    memory: MemoryArgs,
    /// The ONNX Runtime library; found by itself by default.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

impl LoadArgs {
    /// The options.
    pub(crate) fn options(&self) -> LoadOptions {
        let mut options = self.memory.options();
        if let Some(threads) = self.threads {
            options = options.threads(threads.get());
        }
        if let Some(library) = &self.library {
            options = options.library(library);
        }
        options
    }

    /// Loads a model folder.
    pub(crate) fn load(&self, folder: &Path) -> Result<Model, CliError> {
        Ok(Model::load(folder, &self.options())?)
    }
}

/// What memory the model may take.
#[derive(Debug, clap::Args)]
pub(crate) struct MemoryArgs {
    /// Refuses a model that would take more memory than this, such as 512MiB or 4GiB; bytes without a unit.
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    memory_limit: Option<Size>,
    /// Requests that run at once, each with a fixed state of its own; others wait. By default as many as the model's
    /// genai_config.json says, else 16.
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroUsize>(1), allow_negative_numbers = true)]
    max_batch_size: Option<NonZeroUsize>,
    /// Blocks of the key/value cache of each layer. By default as many as the model's genai_config.json says, else as many
    /// as the requests can fill, within 2 GiB and what memory there is.
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroUsize>(1), allow_negative_numbers = true)]
    kv_blocks: Option<NonZeroUsize>,
}

impl MemoryArgs {
    /// The options.
    pub(crate) fn options(&self) -> LoadOptions {
        let mut options = LoadOptions::default();
        if let Some(Size(bytes)) = self.memory_limit {
            options = options.memory_limit(bytes);
        }
        if let Some(requests) = self.max_batch_size {
            options = options.max_batch_size(requests.get());
        }
        if let Some(blocks) = self.kv_blocks {
            options = options.kv_blocks(blocks.get());
        }
        options
    }
}

/// A number of bytes, at least 1, with or without a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size(u64);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u32); 5] =
            [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
        let number = |(unit, shift): &(&str, u32)| {
            let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            number.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
        };
        let bytes = UNITS.iter().find_map(number);
        bytes.map(Self).ok_or_else(|| {
            "expected a whole number from 1, in bytes or with the unit KiB, MiB, GiB or TiB"
                .to_owned()
        })
    }
}

/// Token ids as `1,2,3`.
#[derive(Clone, Debug)]
pub(crate) struct Ids(pub(crate) Vec<u32>);

impl std::str::FromStr for Ids {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = |part: &str| {
            part.trim()
                .parse()
                .map_err(|_| format!("`{part}` is not a token id"))
        };
        text.split(',').map(id).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_bounds() {
        for (text, bytes) in [
            ("1", 1),
            ("512MiB", 512 << 20),
            ("4 GiB", 4 << 30),
            ("3KiB", 3072),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in [
            "",
            "0",
            "-1",
            "1.5GiB",
            "GiB",
            "1GB",
            "16777216TiB",
            "18446744073709551616",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
