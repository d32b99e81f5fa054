//! Writes `schema.json` of this crate anew: `cargo run -p genai_config_schema --example write-schema`.

fn main() -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.json");
    std::fs::write(path, genai_config_schema::json_schema())
}
