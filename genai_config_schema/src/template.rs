//! Names with a place for the layer id.

/// The name of `layer`'s tensor.
pub(crate) fn expand(template: &str, layer: u32) -> String {
    template.replacen("%d", &layer.to_string(), 1)
}
