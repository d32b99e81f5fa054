//! `genai_config.json`: reading, resolving, planning and writing.

use genai_config_schema::{ConfigCode, GenaiConfig};
use pawl::StatePlan;

/// Reads a configuration, plans its state, and reads what is written of it.
///
/// # Panics
/// When a refusal names nothing, when a file that was accepted is refused later, or when it is not the same after it was
/// written.
pub fn genai_config(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let config = match GenaiConfig::from_json(text) {
        Ok(config) => config,
        Err(errors) => {
            assert!(!errors.errors.is_empty(), "refused, and nothing is wrong");
            assert!(errors.to_string().len() > "configuration: ".len());
            return;
        }
    };
    let manifest = config.manifest();
    if let Err(errors) = manifest {
        let absent = errors.codes().all(|code| code == ConfigCode::MissingKey);
        assert!(absent, "accepted, and then: {errors}");
    }
    let again = GenaiConfig::from_json(&config.to_json());
    let again = again.unwrap_or_else(|errors| panic!("written, and then: {errors}"));
    assert_eq!(again, config);
    plan(text);
}

fn plan(text: &str) {
    let written = tempfile::NamedTempFile::new()
        .and_then(|file| std::fs::write(file.path(), text).map(|()| file));
    let file = written.unwrap_or_else(|error| panic!("a temporary file: {error}"));
    for window in [1, 8] {
        match StatePlan::read(file.path(), window, None) {
            Ok(plan) => assert!(!plan.to_string().is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
