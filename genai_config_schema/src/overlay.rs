//! Laying one value over another.

use serde_json::{Map, Value};

/// Lays `over` over `base`: objects merge, `provider_options` merge by name, other lists append,
/// everything else is replaced.
pub(crate) fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge_key(base, key, value);
            }
        }
        (Value::Array(base), Value::Array(mut over)) => base.append(&mut over),
        (base, over) => *base = over,
    }
}

fn merge_key(base: &mut Map<String, Value>, key: String, over: Value) {
    match (base.get_mut(&key), over) {
        (Some(Value::Array(base)), Value::Array(over)) if key == "provider_options" => {
            for provider in over {
                merge_provider(base, provider);
            }
        }
        (Some(base), over) => merge(base, over),
        (None, over) => {
            base.insert(key, over);
        }
    }
}

fn merge_provider(base: &mut Vec<Value>, over: Value) {
    let name = |provider: &Value| {
        provider
            .as_object()
            .and_then(|one| one.keys().next().cloned())
    };
    let wanted = name(&over);
    match base.iter_mut().find(|provider| name(provider) == wanted) {
        Some(provider) => merge(provider, over),
        None => base.push(over),
    }
}
