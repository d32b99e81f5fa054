//! Options of every command that loads a model.

use crate::error::CliError;
use pawl::{LoadOptions, Model};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// How to load the model.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// Threads of one step; all cores by default.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<NonZeroUsize>,
    /// Refuses a model that would take more memory than this, such as 512MiB or 4GiB; bytes without a unit.
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    memory_limit: Option<Size>,
    /// The ONNX Runtime library; found by itself by default.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

impl LoadArgs {
    /// The options.
    pub(crate) fn options(&self) -> LoadOptions {
        let mut options = LoadOptions::default();
        if let Some(threads) = self.threads {
            options = options.threads(threads.get());
        }
        if let Some(Size(bytes)) = self.memory_limit {
            options = options.memory_limit(bytes);
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
