//! `com.microsoft::MatMulNBits`.

use crate::error::BuildError;
use crate::graph::ir::{Attribute, Dtype};
use crate::graph::{GraphBuilder, Operator, Output, Value};
use crate::quantized::BLOCK_EXTENT;

/// Products of 8-bit integers: the activations of a block are rounded to 8 bits as well. The other levels widen the
/// weights first, which costs more than reading them in float32.
const PRODUCTS_OF_INT8: i64 = 4;

/// A projection by a weight in 8 bits, `uint8 [out, blocks, 32]` around 128 with scales of `float32 [out, blocks]`:
/// `[T, blocks * 32] -> [T, out]`.
pub(crate) fn matmul_nbits(
    g: &mut GraphBuilder,
    name: &str,
    x: &Value,
    values: &Value,
    scales: &Value,
) -> Result<Value, BuildError> {
    let check = g.check(name);
    let (rows, width) = check.rows("A", x)?;
    check.dtype("A", x, Dtype::F32)?;
    check.dtype("B", values, Dtype::U8)?;
    let [out, blocks, block] = check.rank("B", values)?;
    check.equal("length of a block of B", BLOCK_EXTENT, block)?;
    let (out, blocks) = (check.extent("B", out)?, check.extent("B", blocks)?);
    let inner = blocks.saturating_mul(BLOCK_EXTENT);
    check.equal("columns of B", width, inner)?;
    check.tensor("scales", scales, Dtype::F32, &[out.into(), blocks.into()])?;
    let operator = Operator {
        domain: super::DOMAIN,
        op_type: "MatMulNBits",
        name,
        inputs: vec![Some(x), Some(values), Some(scales)],
        attributes: vec![
            ("K", Attribute::Int(check.integer("K", inner)?)),
            ("N", Attribute::Int(check.integer("N", out)?)),
            ("bits", Attribute::Int(8)),
            (
                "block_size",
                Attribute::Int(check.integer("block_size", BLOCK_EXTENT)?),
            ),
            ("accuracy_level", Attribute::Int(PRODUCTS_OF_INT8)),
        ],
    };
    let [y] = g.node(operator, [Output::main(Dtype::F32, [rows, out.into()])])?;
    Ok(y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ir::Dim;

    /// The node for such arguments, or what is wrong with them.
    fn emit(
        x: (Dtype, &[u64]),
        b: (Dtype, &[u64]),
        scales: (Dtype, &[u64]),
    ) -> Result<Value, String> {
        let mut g = GraphBuilder::new("mtp.onnx");
        let mut input = |name: &str, (dtype, dims): (Dtype, &[u64])| {
            let dims: Vec<Dim> = dims.iter().copied().map(Dim::Static).collect();
            g.input(name, dtype, dims).unwrap()
        };
        let (x, b, scales) = (input("x", x), input("b", b), input("scales", scales));
        matmul_nbits(&mut g, "fc", &x, &b, &scales).map_err(|error| error.to_string())
    }

    #[test]
    fn a_projection_has_the_rows_of_its_weight() {
        let y = emit(
            (Dtype::F32, &[5, 64]),
            (Dtype::U8, &[7, 2, 32]),
            (Dtype::F32, &[7, 2]),
        );
        let y = y.unwrap();
        assert_eq!(
            (y.dtype(), y.dims()),
            (Dtype::F32, &[5.into(), 7.into()][..])
        );
    }

    #[test]
    fn arguments_of_another_type_or_shape_are_named() {
        const X: (Dtype, &[u64]) = (Dtype::F32, &[5, 64]);
        const B: (Dtype, &[u64]) = (Dtype::U8, &[7, 2, 32]);
        const S: (Dtype, &[u64]) = (Dtype::F32, &[7, 2]);
        for (x, b, scales, expected) in [
            ((Dtype::F16, X.1), B, S, "A: expected F32, found F16"),
            (
                (Dtype::F32, &[5, 96][..]),
                B,
                S,
                "columns of B: expected 96, found 64",
            ),
            (X, (Dtype::F32, B.1), S, "B: expected U8, found F32"),
            (X, (Dtype::U8, &[7, 64][..]), S, "B: expected rank 3"),
            (
                X,
                (Dtype::U8, &[7, 4, 16][..]),
                S,
                "a block of B: expected 32, found 16",
            ),
            (X, B, (Dtype::F16, S.1), "scales: expected F32, found F16"),
            (
                X,
                B,
                (Dtype::F32, &[14][..]),
                "scales: expected [7, 2], found [14]",
            ),
            (
                X,
                B,
                (Dtype::F32, &[2, 7][..]),
                "scales: expected [7, 2], found [2, 7]",
            ),
        ] {
            let message = emit(x, b, scales).unwrap_err();
            assert!(
                message.contains("/fc") && message.contains(expected),
                "{message}"
            );
        }
    }
}
