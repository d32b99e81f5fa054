//! JSON objects of tensors: a name that comes twice is an error, and errors say which name.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use genai_config_schema::{MAX_TOLD, quoted, shortened};
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::limits::{NAME_BYTES, TENSORS};

/// Reserved in safetensors headers for free text; no tensor has this name.
const METADATA: &str = "__metadata__";

/// Values by tensor name.
#[derive(Debug)]
pub(super) struct Unique<V>(pub(super) BTreeMap<String, V>);

impl<'de, V: DeserializeOwned> Deserialize<'de> for Unique<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Names(PhantomData))
    }
}

struct Names<V>(PhantomData<V>);

impl<'de, V: DeserializeOwned> Visitor<'de> for Names<V> {
    type Value = Unique<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if name.len() > NAME_BYTES {
                let (length, name) = (name.len(), quoted(&name));
                let problem =
                    format!("{name}: a name of {length} bytes, at most {NAME_BYTES} are read");
                return Err(A::Error::custom(problem));
            }
            if values.len() == TENSORS {
                return Err(A::Error::custom(format!("more than {TENSORS} tensors")));
            }
            let value = map.next_value().map_err(|problem: A::Error| {
                // It may hold a string of any length.
                let problem = problem.to_string();
                A::Error::custom(format!("{name}: {}", shortened(&problem, MAX_TOLD)))
            })?;
            if values.contains_key(&name) {
                return Err(A::Error::custom(format!("{name} appears twice")));
            }
            values.insert(name, value);
        }
        Ok(Unique(values))
    }
}
