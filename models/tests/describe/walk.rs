//! Every weight of a description.

use pawl_models::{Layer, Mixer, ModelDescription, Norm, Weight};

/// All weights, in no particular order.
pub(crate) fn weights(model: &ModelDescription) -> Vec<&Weight> {
    let mut all = vec![&model.embedding, &model.final_norm.weight];
    all.extend(&model.output);
    for layer in &model.layers {
        add_layer(&mut all, layer);
    }
    if let Some(head) = &model.mtp {
        let norms = [&head.embedding_norm, &head.hidden_norm, &head.final_norm];
        all.extend(norms.map(|norm| &norm.weight));
        all.push(&head.fc);
        add_layer(&mut all, &head.layer);
    }
    all
}

fn add_layer<'a>(all: &mut Vec<&'a Weight>, layer: &'a Layer) {
    all.extend([&layer.mixer_norm.weight, &layer.mlp_norm.weight]);
    all.extend([&layer.mlp.gate, &layer.mlp.up, &layer.mlp.down]);
    match &layer.mixer {
        Mixer::Attention(a) => {
            all.extend([&a.query, &a.key, &a.value, &a.output]);
            all.extend(&a.gate);
            let norms: [&Option<Norm>; 2] = [&a.query_norm, &a.key_norm];
            all.extend(norms.into_iter().flatten().map(|norm| &norm.weight));
        }
        Mixer::GatedDelta(d) => {
            all.extend([&d.qkv, &d.z, &d.a, &d.b, &d.conv, &d.a_log, &d.dt_bias]);
            all.extend([&d.norm.weight, &d.output]);
        }
        Mixer::ShortConv(c) => all.extend([&c.input, &c.conv, &c.output]),
    }
}
