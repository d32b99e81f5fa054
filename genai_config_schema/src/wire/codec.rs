//! Values whose spelling in the file differs from their type.

/// A list that may also be given as its only element. Written as a list.
pub(super) mod one_or_many {
    use serde::{Deserialize, Deserializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(u32),
        Many(Vec<u32>),
    }

    pub(in crate::wire) fn deserialize<'de, D>(deserializer: D) -> Result<Vec<u32>, D::Error>
    where
        D: Deserializer<'de>,
    {
        Ok(match OneOrMany::deserialize(deserializer)? {
            OneOrMany::One(id) => vec![id],
            OneOrMany::Many(ids) => ids,
        })
    }
}

/// An unsigned 64-bit number spelled as a string of decimal digits.
pub(super) mod decimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes fields by reference"
    )]
    pub(in crate::wire) fn serialize<S>(value: &u64, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
    {
        serializer.collect_str(value)
    }

    pub(in crate::wire) fn deserialize<'de, D>(deserializer: D) -> Result<u64, D::Error>
    where
        D: Deserializer<'de>,
    {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
