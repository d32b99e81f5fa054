//! `search`: sampling defaults, from the checkpoint's generation settings.

use std::path::Path;

use genai_config_schema::Search;
use serde_json::Value;

use crate::error::BuildError;

/// Sampling settings of `generation_config.json`; absent and null keys stay absent.
///
/// # Errors
/// A setting of the wrong type or out of range.
pub(super) fn search(
    max_length: u32,
    generation_config: Option<&Value>,
) -> Result<Search, BuildError> {
    let settings = Settings {
        object: generation_config.unwrap_or(&Value::Null),
    };
    let at_least_0 = "a number of at least 0";
    let share = "a number from 0 to 1";
    Ok(Search {
        do_sample: settings.get("do_sample", "true or false", Value::as_bool)?,
        temperature: settings.float("temperature", at_least_0, |t| t >= 0.0)?,
        top_k: settings.get("top_k", "a number of tokens, 0 for all", token_count)?,
        top_p: settings.float("top_p", share, |p| (0.0..=1.0).contains(&p))?,
        min_p: settings.float("min_p", share, |p| (0.0..=1.0).contains(&p))?,
        repetition_penalty: settings.float(
            "repetition_penalty",
            "a number greater than 0",
            |penalty| penalty > 0.0,
        )?,
        max_length: Some(max_length),
        ..Search::default()
    })
}

/// -1 means all tokens in some files, as 0 does.
fn token_count(value: &Value) -> Option<u32> {
    match value.as_i64() {
        Some(-1) => Some(0),
        count => count.and_then(|count| u32::try_from(count).ok()),
    }
}

/// The file's object.
#[derive(Clone, Copy, Debug)]
struct Settings<'a> {
    object: &'a Value,
}

impl Settings<'_> {
    fn get<T>(
        self,
        key: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, BuildError> {
        match self.object.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| {
                let problem = format!("expected {expected}, found {value}");
                BuildError::input(Path::new("generation_config.json"), key, problem)
            }),
        }
    }

    fn float(
        self,
        key: &str,
        expected: &str,
        valid: impl Fn(f32) -> bool,
    ) -> Result<Option<f32>, BuildError> {
        self.get(key, expected, |value| {
            #[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
            let number = value.as_f64()? as f32;
            (number.is_finite() && valid(number)).then_some(number)
        })
    }
}
