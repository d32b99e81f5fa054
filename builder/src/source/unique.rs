//! JSON objects of tensors: a name that comes twice is an error, and errors say which name.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

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
            let value = map.next_value();
            let value = value.map_err(|problem| A::Error::custom(format!("{name}: {problem}")))?;
            if values.contains_key(&name) {
                return Err(A::Error::custom(format!("{name} appears twice")));
            }
            values.insert(name, value);
        }
        Ok(Unique(values))
    }
}
