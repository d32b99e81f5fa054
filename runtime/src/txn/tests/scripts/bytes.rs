//! Scripts that any bytes stand for.

use super::{Between, Form, Pick, SAVED, Script, Turn};
use arbitrary::{Result, Unstructured};

/// Turns of a script at most.
const TURNS: usize = 40;

/// Plays the script that `bytes` stand for, turn by turn until they end. Checkpoints are those that the host commits:
/// graphs would take most of the time.
pub(crate) fn play(bytes: &[u8]) {
    let mut bytes = Unstructured::new(bytes);
    let Ok(mut script) = script(&mut bytes) else {
        return;
    };
    for _ in 0..TURNS {
        match turn(&mut bytes) {
            Ok(turn) if !bytes.is_empty() => script.turn(&turn),
            _ => return,
        }
    }
}

fn script(bytes: &mut Unstructured<'_>) -> Result<Script> {
    let form = match bytes.int_in_range(0..=2)? {
        0 => Form::Absent,
        1 => Form::State(bytes.int_in_range(1..=8)?),
        _ => Form::Update(bytes.int_in_range(1..=8)?),
    };
    let fixed = !bytes.ratio(1, 5)?;
    Ok(Script::new(form, fixed, bytes.arbitrary()?))
}

fn turn(bytes: &mut Unstructured<'_>) -> Result<Turn> {
    let count = bytes.int_in_range(1..=4)?;
    let picks = (0..count).map(|_| pick(bytes)).collect::<Result<_>>()?;
    Ok(Turn {
        picks,
        leave: leave(bytes)?,
        between: between(bytes)?,
    })
}

fn pick(bytes: &mut Unstructured<'_>) -> Result<Pick> {
    Ok(Pick {
        request: request(bytes)?,
        tokens: bytes.int_in_range(1..=6)?,
        drafts: bytes.int_in_range(0..=7)?,
        accepted: bytes.int_in_range(0..=7)?,
        head: bytes.int_in_range(0..=5)?,
    })
}

fn between(bytes: &mut Unstructured<'_>) -> Result<Between> {
    Ok(match bytes.int_in_range(0..=11)? {
        0..=3 => Between::Nothing,
        4 | 5 => Between::Release(request(bytes)?),
        6 => Between::Transfer(request(bytes)?, request(bytes)?),
        7 => Between::Save(request(bytes)?),
        8 => Between::Restore(
            request(bytes)?,
            bytes.int_in_range(0..=SAVED - 1)?,
            leave(bytes)?,
        ),
        _ => {
            let (from, to) = (request(bytes)?, request(bytes)?);
            // Fewer tokens than there are need a checkpoint, and mostly there is none.
            let less = bytes.int_in_range(-8..=8_isize)?.max(0).unsigned_abs();
            Between::Fork(from, to, less, leave(bytes)?)
        }
    })
}

/// One more than there are slots for, twice.
fn request(bytes: &mut Unstructured<'_>) -> Result<u64> {
    bytes.int_in_range(0..=4)
}

/// A phase: the fourth and later ones publish.
fn leave(bytes: &mut Unstructured<'_>) -> Result<usize> {
    bytes.int_in_range(0..=11)
}
