//! Rotary positions, computed as transformers computes them: in float32, in the same order of operations.

use std::f64::consts::PI;

use crate::config::{Config, Section, show};
use crate::description::Rope;
use crate::error::DescribeError;
use crate::refuse::refuse;

/// What an architecture assumes where `config.json` is silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RopeDefaults {
    pub(crate) theta: f64,
    /// Share of a head that turns; `None` where the architecture turns whole heads only.
    pub(crate) partial_rotary_factor: Option<f64>,
}

/// The rotary settings of a file, whichever generation of transformers wrote it.
#[derive(Clone, Debug)]
struct Settings<'a> {
    text: &'a Section<'a>,
    /// `rope_parameters` or `rope_scaling`.
    rope: Option<Section<'a>>,
}

impl<'a> Settings<'a> {
    fn read(text: &'a Section<'a>) -> Result<Self, DescribeError> {
        let old = text.section("rope_scaling")?.filter(|old| !old.is_empty());
        let flat = match old {
            Some(old) => Some(old),
            None => text.section("rope_parameters")?,
        };
        let rope = match flat {
            // Some files keep one section per layer type; only attention turns.
            Some(flat) => Some(flat.section("full_attention")?.unwrap_or(flat)),
            None => None,
        };
        Ok(Self { text, rope })
    }

    /// The section that holds `key`: the rotary one, else the model's.
    fn section_with(&self, key: &str) -> &Section<'a> {
        let rope = self.rope.as_ref();
        rope.filter(|rope| rope.get(key).is_some())
            .unwrap_or(self.text)
    }

    fn positive(&self, key: &str) -> Result<Option<f64>, DescribeError> {
        self.section_with(key).positive(key)
    }
}

/// Reads the rotary settings of `config` and computes the frequencies for heads of `head_dim` elements.
pub(crate) fn rope(
    config: &Config<'_>,
    head_dim: u64,
    context_length: u64,
    defaults: RopeDefaults,
) -> Result<Rope, DescribeError> {
    let settings = Settings::read(&config.text)?;
    let theta = settings.positive("rope_theta")?.unwrap_or(defaults.theta);
    let rotary_dim = rotary_dim(&settings, head_dim, defaults)?;
    let plain = plain_frequencies(theta, rotary_dim);
    let name = rope_type(&settings)?;
    let scaled = match (name, settings.rope.as_ref()) {
        ("default", _) | (_, None) => Scaled::plain(plain),
        ("linear", Some(rope)) => linear(rope, &plain)?,
        ("llama3", Some(rope)) => llama3(rope, &settings, &plain, context_length)?,
        ("yarn", Some(rope)) => yarn(rope, &settings, theta, rotary_dim, context_length)?,
        (other, Some(rope)) => {
            let key = if rope.get("rope_type").is_some() {
                "rope_type"
            } else {
                "type"
            };
            return Err(refuse(rope.path(key), KNOWN, format!("\"{other}\"")));
        }
    };
    let finite = scaled.frequencies.iter().all(|f| f.is_finite()) && scaled.factor.is_finite();
    if !finite {
        return Err(settings.section_with("rope_theta").error_at(
            "rope_theta",
            "rotary settings that give finite frequencies",
            format!("settings of type {name} that do not"),
        ));
    }
    Ok(Rope {
        rotary_dim,
        inverse_frequencies: scaled.frequencies,
        attention_factor: scaled.factor,
    })
}

const KNOWN: &str = "one of default, linear, llama3, yarn";

fn rope_type<'a>(settings: &Settings<'a>) -> Result<&'a str, DescribeError> {
    let Some(rope) = &settings.rope else {
        return Ok("default");
    };
    let name = match rope.text("rope_type")? {
        Some(name) => Some(name),
        None => rope.text("type")?,
    };
    if name.is_none() && rope.get("factor").is_some() {
        return Err(rope.error("rope_type", KNOWN));
    }
    Ok(name.unwrap_or("default"))
}

fn rotary_dim(
    settings: &Settings<'_>,
    head_dim: u64,
    defaults: RopeDefaults,
) -> Result<u64, DescribeError> {
    const KEY: &str = "partial_rotary_factor";
    let section = settings.section_with(KEY);
    let factor = settings.positive(KEY)?;
    let factor = match (factor, defaults.partial_rotary_factor) {
        (Some(factor), None) if factor != 1.0 => {
            return Err(refuse(
                section.path(KEY),
                "nothing or 1",
                show(section.get(KEY)),
            ));
        }
        (None, Some(default)) => default,
        (Some(factor), _) => factor,
        (None, None) => 1.0,
    };
    let dim = truncate(head_dim as f64 * factor);
    if factor <= 1.0 && dim > 0 && dim.is_multiple_of(2) {
        return Ok(dim);
    }
    let expected =
        format!("a factor up to 1 that turns an even number of the {head_dim} elements of a head");
    Err(section.error_at(KEY, expected, factor.to_string()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "truncation is what is asked for; the value is a share of a head size"
)]
fn truncate(x: f64) -> u64 {
    x as u64
}

/// Frequencies and the factor on cosine and sine.
struct Scaled {
    frequencies: Vec<f32>,
    factor: f32,
}

impl Scaled {
    fn plain(frequencies: Vec<f32>) -> Self {
        Self {
            frequencies,
            factor: 1.0,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the reference computes in float32"
)]
fn narrow(x: f64) -> f32 {
    x as f32
}

/// `theta ^ (2i / dim)`.
fn wavelengths(theta: f64, dim: u64) -> impl Iterator<Item = f32> {
    let theta = f64::from(narrow(theta));
    (0..dim).step_by(2).map(move |i| {
        let exponent = narrow(i as f64) / narrow(dim as f64);
        narrow(theta.powf(f64::from(exponent)))
    })
}

fn plain_frequencies(theta: f64, dim: u64) -> Vec<f32> {
    wavelengths(theta, dim).map(|w| 1.0 / w).collect()
}

fn linear(rope: &Section<'_>, plain: &[f32]) -> Result<Scaled, DescribeError> {
    let factor = narrow(rope.required_positive("factor")?);
    Ok(Scaled::plain(plain.iter().map(|f| f / factor).collect()))
}

/// The context length before scaling.
fn original_context(
    rope: &Section<'_>,
    settings: &Settings<'_>,
    context_length: u64,
) -> Result<f64, DescribeError> {
    const KEY: &str = "original_max_position_embeddings";
    // Files that have the key at the level of the model mean it to win.
    let value = match settings.text.positive(KEY)? {
        Some(value) => Some(value),
        None => rope.positive(KEY)?,
    };
    Ok(value.unwrap_or(context_length as f64))
}

fn llama3(
    rope: &Section<'_>,
    settings: &Settings<'_>,
    plain: &[f32],
    context_length: u64,
) -> Result<Scaled, DescribeError> {
    let factor = narrow(rope.required_positive("factor")?);
    let low = rope.required_positive("low_freq_factor")?;
    let high = rope.required_positive("high_freq_factor")?;
    if high <= low {
        let expected = format!("a number above low_freq_factor ({low})");
        return Err(rope.error("high_freq_factor", expected));
    }
    let context = original_context(rope, settings, context_length)?;
    let (longest, shortest) = (narrow(context / low), narrow(context / high));
    let (context, low, span) = (narrow(context), narrow(low), narrow(high - low));
    let frequencies = plain.iter().map(|&f| {
        let wavelength = narrow(2.0 * PI) / f;
        if wavelength > longest {
            f / factor
        } else if wavelength < shortest {
            f
        } else {
            let smooth = (context / wavelength - low) / span;
            (1.0 - smooth) * f / factor + smooth * f
        }
    });
    Ok(Scaled::plain(frequencies.collect()))
}

fn yarn(
    rope: &Section<'_>,
    settings: &Settings<'_>,
    theta: f64,
    dim: u64,
    context_length: u64,
) -> Result<Scaled, DescribeError> {
    if theta <= 1.0 {
        let section = settings.section_with("rope_theta");
        return Err(section.error("rope_theta", "a number above 1 for yarn"));
    }
    let context = original_context(rope, settings, context_length)?;
    let factor = match rope.positive("factor")? {
        Some(factor) => factor,
        None => context_length as f64 / context,
    };
    let (low, high) = correction_range(rope, theta, dim, context)?;
    let scale = narrow(factor);
    let ramp_start = narrow(low);
    let ramp_length = narrow(high - low);
    let frequencies = wavelengths(theta, dim).enumerate().map(|(i, wavelength)| {
        let ramp = ((narrow(i as f64) - ramp_start) / ramp_length).clamp(0.0, 1.0);
        let keep = 1.0 - ramp;
        1.0 / (scale * wavelength) * (1.0 - keep) + 1.0 / wavelength * keep
    });
    Ok(Scaled {
        frequencies: frequencies.collect(),
        factor: narrow(yarn_attention_factor(rope, factor)?),
    })
}

/// Between which pair indices yarn goes from unscaled to scaled frequencies.
fn correction_range(
    rope: &Section<'_>,
    theta: f64,
    dim: u64,
    context: f64,
) -> Result<(f64, f64), DescribeError> {
    let fast = nonzero(rope, "beta_fast")?.unwrap_or(32.0);
    let slow = nonzero(rope, "beta_slow")?.unwrap_or(1.0);
    let dim = dim as f64;
    let index = |turns: f64| dim * (context / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln());
    let (mut low, mut high) = (index(fast), index(slow));
    if rope.flag("truncate")?.unwrap_or(true) {
        low = low.floor();
        high = high.ceil();
    }
    low = low.max(0.0);
    high = high.min(dim - 1.0);
    if low == high {
        high += 0.001;
    }
    Ok((low, high))
}

fn yarn_attention_factor(rope: &Section<'_>, factor: f64) -> Result<f64, DescribeError> {
    if let Some(given) = rope.positive("attention_factor")? {
        return Ok(given);
    }
    let magnitude = |scale: f64| {
        if factor <= 1.0 {
            1.0
        } else {
            0.1 * scale * factor.ln() + 1.0
        }
    };
    let (one, all) = (nonzero(rope, "mscale")?, nonzero(rope, "mscale_all_dim")?);
    Ok(match (one, all) {
        (Some(one), Some(all)) => magnitude(one) / magnitude(all),
        _ => magnitude(1.0),
    })
}

/// A positive number, where zero means the same as absent.
fn nonzero(rope: &Section<'_>, key: &str) -> Result<Option<f64>, DescribeError> {
    if rope.get(key).and_then(serde_json::Value::as_f64) == Some(0.0) {
        return Ok(None);
    }
    rope.positive(key)
}
