//! Names with a place for the layer id.

/// Longest tensor name or template, bytes.
pub(crate) const MAX_NAME: usize = 256;

/// Says why `text` is not a tensor name; `None` when it is one.
pub(crate) fn name_fault(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        Some("a name may not be empty")
    } else if text.len() > MAX_NAME {
        Some("a name has at most 256 bytes")
    } else if text.contains('%') {
        Some("a name may not contain %")
    } else if text.chars().any(char::is_control) {
        Some("a name may not contain control characters")
    } else {
        None
    }
}

/// Says why `text` is not a template; `None` when it is one: a name with exactly one `%d`.
pub(crate) fn template_fault(text: &str) -> Option<&'static str> {
    match text.split_once("%d") {
        None => Some("a template needs %d, the layer id"),
        Some((before, after)) if before.contains('%') || after.contains('%') => {
            Some("a template has exactly one %d and no other %")
        }
        Some(_) if text.len() > MAX_NAME => Some("a template has at most 256 bytes"),
        Some(_) if text.chars().any(char::is_control) => {
            Some("a template may not contain control characters")
        }
        Some(_) => None,
    }
}

/// The name of `layer`'s tensor.
pub(crate) fn expand(template: &str, layer: u32) -> String {
    template.replacen("%d", &layer.to_string(), 1)
}
