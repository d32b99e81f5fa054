#!/usr/bin/env python3
"""Rotary frequencies of all supported scaling types, in float64, straight from the papers' formulas.

usage: python3 reference.py > cases.json

Each case holds the rotary section of a config.json, the context length, the head size, the radians per position of
every element pair, and the factor on cosine and sine.
"""
import json
import math


def plain(theta, dim):
    return [math.exp(-math.log(theta) * 2 * pair / dim) for pair in range(dim // 2)]


def linear(p, dim, context):
    return [f / p["factor"] for f in plain(p["rope_theta"], dim)], 1.0


def llama3(p, dim, context):
    """Blend by how many times a pair turns within the original context."""
    trained = p.get("original_max_position_embeddings", context)
    low, high = p["low_freq_factor"], p["high_freq_factor"]
    out = []
    for f in plain(p["rope_theta"], dim):
        turns = trained * f / (2 * math.pi)
        keep = min(1.0, max(0.0, (turns - low) / (high - low)))
        out.append(f * (keep + (1 - keep) / p["factor"]))
    return out, 1.0


def yarn(p, dim, context):
    """Blend by pair index, between the pairs that turn beta_fast and beta_slow times within the original context."""
    theta = p["rope_theta"]
    trained = p.get("original_max_position_embeddings", context)
    factor = p.get("factor") or context / trained

    def pair_that_turns(times):
        return dim / 2 * math.log(trained / (2 * math.pi * times), theta)

    first, last = pair_that_turns(p.get("beta_fast", 32)), pair_that_turns(p.get("beta_slow", 1))
    if p.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    width = last - first or 0.001
    out = []
    for pair, f in enumerate(plain(theta, dim)):
        scaled = min(1.0, max(0.0, (pair - first) / width))
        out.append(f * (1 - scaled + scaled / factor))

    def temperature(scale):
        return 1 + 0.1 * scale * math.log(factor) if factor > 1 else 1.0

    if "attention_factor" in p:
        return out, p["attention_factor"]
    if "mscale" in p and "mscale_all_dim" in p:
        return out, temperature(p["mscale"]) / temperature(p["mscale_all_dim"])
    return out, temperature(1)


def default(p, dim, context):
    return plain(p["rope_theta"], dim), 1.0


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
YARN = dict(rope_type="yarn", factor=4.0)
CASES = [
    (default, 32, 512, dict(rope_type="default", rope_theta=10000.0)),
    (default, 128, 32768, dict(rope_type="default", rope_theta=1000000.0)),
    (linear, 32, 512, dict(rope_type="linear", factor=4.0, rope_theta=10000.0)),
    (linear, 80, 4096, dict(rope_type="linear", factor=2.5, rope_theta=500000.0)),
    (llama3, 32, 512, dict(LLAMA3, original_max_position_embeddings=64, rope_theta=10000.0)),
    (llama3, 128, 131072, dict(LLAMA3, original_max_position_embeddings=8192, rope_theta=500000.0)),
    (llama3, 64, 131072, dict(LLAMA3, factor=32.0, original_max_position_embeddings=8192, rope_theta=500000.0)),
    (llama3, 64, 256, dict(LLAMA3, rope_theta=10000.0)),
    (yarn, 32, 512, dict(YARN, original_max_position_embeddings=64, rope_theta=10000.0)),
    (yarn, 128, 40960, dict(YARN, original_max_position_embeddings=32768, rope_theta=1000000.0)),
    (yarn, 128, 131072, dict(YARN, original_max_position_embeddings=32768, truncate=False, rope_theta=1000000.0)),
    (yarn, 64, 4096, dict(YARN, factor=16.0, original_max_position_embeddings=256, beta_fast=24, beta_slow=2,
                          rope_theta=10000.0)),
    (yarn, 64, 163840, dict(YARN, factor=40.0, original_max_position_embeddings=4096, mscale=1.0,
                            mscale_all_dim=0.5, rope_theta=10000.0)),
    (yarn, 64, 163840, dict(YARN, factor=40.0, original_max_position_embeddings=4096, mscale=0.707,
                            rope_theta=10000.0)),
    (yarn, 64, 4096, dict(YARN, original_max_position_embeddings=1024, attention_factor=1.25, rope_theta=10000.0)),
    (yarn, 64, 4096, dict(rope_type="yarn", original_max_position_embeddings=512, rope_theta=10000.0)),
    (yarn, 64, 8, dict(YARN, rope_theta=10000.0)),
    (yarn, 64, 4096, dict(YARN, factor=0.5, rope_theta=10000.0)),
    (yarn, 8, 1000000, dict(YARN, beta_fast=20000, rope_theta=100.0)),
    (yarn, 64, 6, dict(YARN, rope_theta=10000.0)),
]


def main():
    cases = []
    for compute, dim, context, section in CASES:
        frequencies, factor = compute(section, dim, context)
        cases.append(dict(rope=section, context=context, head_dim=dim, inverse_frequencies=frequencies,
                          attention_factor=factor))
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
