//! What the library says of a case that a tool refuses: the code of its error.

use std::path::Path;

use pawl::{Engine, EngineOptions, ErrorCode, LoadOptions, Model, Request};

use super::case::{Case, HERE};

/// The code of what a case is refused for; `None` where it is not.
pub(crate) fn code(case: &Case, world: &Path) -> Option<ErrorCode> {
    let here = |text: &str| text.replace(HERE, world.to_str().unwrap());
    let value = |option: &str| {
        let place = case.args.iter().position(|arg| arg == option)?;
        case.args.get(place + 1).map(|value| here(value))
    };
    let mut options = LoadOptions::new();
    if let Some(limit) = value("--memory-limit") {
        options = options.memory_limit(bytes(&limit));
    }
    if case.args[0] == "inspect" {
        let refused = pawl::inspect(here(&case.args[1]), &options);
        return refused.err().map(|error| error.code());
    }
    let engine = Model::load(value("--model").unwrap(), &options)
        .and_then(|model| Engine::new(model, &EngineOptions::default()));
    let engine = match engine {
        Ok(engine) => engine,
        Err(error) => return Some(error.code()),
    };
    let ids = value("--ids").unwrap();
    let ids: Vec<u32> = ids.split(',').map(|id| id.parse().unwrap()).collect();
    let handle = match engine.submit(Request::from_ids(ids)) {
        Ok(handle) => handle,
        Err(error) => return Some(error.code()),
    };
    handle.wait().err().map(|error| error.code())
}

/// A number of bytes, or of MiB.
fn bytes(text: &str) -> u64 {
    match text.strip_suffix("MiB") {
        Some(number) => number.parse::<u64>().unwrap() << 20,
        None => text.parse().unwrap(),
    }
}
