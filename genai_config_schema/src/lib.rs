//! genai_config_schema
