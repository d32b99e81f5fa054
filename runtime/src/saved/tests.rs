//! Files that are whole, cut off, changed, and foreign.

use super::format::{Entry, checksum};
use super::layout::FRESH;
use super::layout::{CacheLayout, FixedLayout};
use super::*;
use crate::device::ElementType;
use crate::error::ErrorCode;
use crate::kv::KeysValues;
use crate::model::Fingerprint;
use crate::txn::{HeadImage, StateImage};
use safetensors::Dtype;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn cache(kind: &str, layers: usize) -> CacheLayout {
    let name = |l, part| format!("{kind}.past.{l}.{part}");
    CacheLayout {
        layers: (0..layers)
            .map(|l| (name(l, "key"), name(l, "value")))
            .collect(),
        position: [2, 3],
    }
}

fn layout() -> Layout {
    Layout::small()
}

fn fixed(name: &str, shape: &[usize], element: ElementType) -> FixedLayout {
    FixedLayout {
        name: format!("fixed.{name}"),
        shape: shape.to_vec(),
        element,
        fresh_id: (element == ElementType::I64).then_some(FRESH),
    }
}

fn row(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

fn floats(count: usize, from: f32) -> Vec<f32> {
    (0..count).map(|i| from + i as f32 / 8.0).collect()
}

fn image(tokens: usize) -> StateImage {
    let layer = |tokens: usize, from| KeysValues {
        keys: floats(tokens * 6, from),
        values: floats(tokens * 6, -from),
    };
    StateImage {
        tokens,
        fixed: vec![
            row(&floats(6, 1.0)),
            row(&floats(8, f32::MIN_POSITIVE)),
            [49i64, i64::from(FRESH)].map(i64::to_ne_bytes).concat(),
        ],
        cache: vec![layer(tokens, 100.0), layer(tokens, 200.0)],
        head: Some(HeadImage {
            tokens: tokens - 1,
            cache: vec![layer(tokens - 1, 300.0)],
            unread: floats(5, 400.0),
        }),
    }
}

const TOKENS: [u32; 4] = [7, 0, 49, 7];

/// A folder with one saved state, its path and its bytes.
fn saved() -> (TempDir, std::path::PathBuf, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.state");
    write(&path, &layout(), &TOKENS, &image(4)).unwrap();
    let bytes = fs::read(&path).unwrap();
    (folder, path, bytes)
}

/// The error of reading, with its code; its message names the file.
fn refused(path: &Path, layout: &Layout) -> (ErrorCode, String) {
    let error = read(path, layout).unwrap_err();
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    (error.code(), message)
}

fn files(folder: &TempDir) -> usize {
    fs::read_dir(folder.path()).unwrap().count()
}

#[test]
fn what_was_written_is_read() {
    let (folder, path, bytes) = saved();
    assert_eq!(read(&path, &layout()).unwrap(), (TOKENS.to_vec(), image(4)));
    // Written again, over the old file.
    write(&path, &layout(), &[1, 2], &image(2)).unwrap();
    assert_eq!(read(&path, &layout()).unwrap(), (vec![1, 2], image(2)));
    assert_eq!(files(&folder), 1);
    assert!(u64::try_from(bytes.len()).unwrap() <= layout().most_bytes(4));
}

#[test]
fn ids_are_saved_as_ids() {
    let (_folder, path, bytes) = saved();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let ids = file.tensor("fixed.ids").unwrap();
    assert_eq!((ids.dtype(), ids.shape()), (Dtype::I64, &[2][..]));
    let expected = [49i64, i64::from(FRESH)].map(i64::to_le_bytes);
    assert_eq!(ids.data(), expected.concat());
    let mut other = layout();
    other.fixed[2].element = ElementType::I32;
    let (_, message) = refused(&path, &other);
    assert!(
        message.contains("[2] I32") && message.contains("[2] I64"),
        "{message}"
    );
}

#[cfg(unix)]
#[test]
fn a_link_is_written_through() {
    let (folder, path, _) = saved();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    write(&link, &layout(), &[1, 2], &image(2)).unwrap();
    assert_eq!(read(&path, &layout()).unwrap().0, [1, 2]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(files(&folder), 2);
}

#[test]
fn models_without_some_kind_of_state_are_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.state");
    let whole = layout();
    for (fixed, cache, head) in [
        (true, false, false),
        (false, true, false),
        (true, true, true),
    ] {
        let layout = Layout {
            fixed: if fixed {
                whole.fixed.clone()
            } else {
                Vec::new()
            },
            cache: whole.cache.clone().filter(|_| cache),
            head: whole.head.clone().filter(|_| head),
            ..whole.clone()
        };
        let mut image = image(4);
        image.fixed.retain(|_| fixed);
        image.cache.retain(|_| cache);
        image.head = image.head.filter(|_| head);
        write(&path, &layout, &TOKENS, &image).unwrap();
        assert_eq!(read(&path, &layout).unwrap().1, image);
    }
}

#[test]
fn a_file_that_is_cut_off_is_damaged() {
    let (_folder, path, bytes) = saved();
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let (code, message) = refused(&path, &layout());
        assert_eq!(code, ErrorCode::StateDamaged, "{length}: {message}");
    }
    fs::write(&path, [&bytes[..], &[0]].concat()).unwrap();
    assert_eq!(refused(&path, &layout()).0, ErrorCode::StateDamaged);
}

#[test]
fn every_bit_counts() {
    let (_folder, path, bytes) = saved();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(&path, &changed).unwrap();
        let (code, message) = refused(&path, &layout());
        // A bit of the format or the version makes it another one's.
        let foreign = ["metadata format", "version is"];
        let expected = if foreign.iter().any(|part| message.contains(part)) {
            ErrorCode::StateForeign
        } else {
            ErrorCode::StateDamaged
        };
        assert_eq!(code, expected, "byte {at}: {message}");
    }
}

#[test]
fn states_of_other_models_are_refused() {
    let (_folder, path, _) = saved();
    let whole = layout();
    let cases: [(Layout, &str); 6] = [
        (
            Layout {
                vocab: 49,
                ..whole.clone()
            },
            "ids below 49, found",
        ),
        (
            Layout {
                most_tokens: 3,
                ..whole.clone()
            },
            "1 to 3 tokens",
        ),
        (
            Layout {
                fixed: vec![fixed("conv", &[3, 2], ElementType::F32)],
                ..whole.clone()
            },
            "fixed.conv is [2, 3] F32, expected [3, 2] F32",
        ),
        (
            Layout {
                fixed: vec![fixed("other", &[3, 2], ElementType::F32)],
                ..whole.clone()
            },
            "fixed.other is absent",
        ),
        (
            Layout {
                cache: Some(cache("cache", 3)),
                ..whole.clone()
            },
            "cache.past.2.key is absent",
        ),
        (
            Layout {
                head: Some(cache("other", 1)),
                ..whole
            },
            "speculation ngram or off",
        ),
    ];
    for (layout, part) in cases {
        let (code, message) = refused(&path, &layout);
        let part = part.strip_suffix(", found").unwrap_or(part);
        assert!(message.contains(part), "{message}");
        assert_eq!(code, ErrorCode::StateForeign, "{message}");
    }
}

/// A sparse file whose header says that a tensor is as long as it takes for so many rows.
fn sparse(path: &Path, bytes: &[u8], name: &str, rows: u64) {
    let (_, header) = safetensors::SafeTensors::read_metadata(bytes).unwrap();
    let metadata = header.metadata();
    let end = 4 * rows;
    let header = serde_json::json!({"__metadata__": metadata,
        name: {"dtype": "U32", "shape": [rows], "data_offsets": [0, end]}});
    let header = header.to_string();
    let length = u64::try_from(header.len()).unwrap();
    fs::write(path, [&length.to_le_bytes(), header.as_bytes()].concat()).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(8 + length + end).unwrap();
}

/// What fits no cache is refused by the header alone, and told from what is of another model.
#[test]
fn a_state_that_the_cache_cannot_hold_is_refused_unread() {
    let (_folder, path, bytes) = saved();
    let small = |most_tokens| Layout {
        most_tokens,
        room: 3,
        ..layout()
    };
    let (code, message) = refused(&path, &small(9));
    assert_eq!(code, ErrorCode::NoRoom, "{message}");
    assert!(message.contains("holds 4 tokens"), "{message}");
    assert_eq!(refused(&path, &small(3)).0, ErrorCode::StateForeign);
    let other = Layout {
        model: Fingerprint::test(7),
        ..small(9)
    };
    assert_eq!(refused(&path, &other).0, ErrorCode::StateForeign);
    // Something large that no state has.
    sparse(&path, &bytes, "more", 1 << 36);
    let (code, message) = refused(&path, &layout());
    assert_eq!(code, ErrorCode::StateDamaged);
    assert!(message.contains("is larger than"), "{message}");
    // The end of all tensors, and what comes before them, is more than there are numbers.
    let (text, end) = ("\u{20}".repeat(64), u64::MAX - 63);
    let tensor = |name, begin: u64, end: u64| {
        format!(
            r#""{name}":{{"dtype":"U8","shape":[{}],"data_offsets":[{begin},{end}]}}"#,
            end - begin
        )
    };
    let header = format!(
        "{{{},{}}}{text}",
        tensor("a", 0, 1 << 60),
        tensor("b", 1 << 60, end)
    );
    fs::write(
        &path,
        [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat(),
    )
    .unwrap();
    assert_eq!(refused(&path, &layout()).0, ErrorCode::StateDamaged);
}

/// A state that another model saved fails by its fingerprint, before anything else of it is looked at.
#[test]
fn the_fingerprint_decides() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.state");
    let other = Layout {
        model: Fingerprint::test(7),
        ..layout()
    };
    write(&path, &other, &TOKENS, &image(4)).unwrap();
    let (code, message) = refused(&path, &layout());
    assert_eq!(code, ErrorCode::StateForeign);
    assert!(message.contains("model is 0707"), "{message}");
}

/// Undamaged, of the right model, and with token ids that are signed.
#[test]
fn token_ids_of_another_type_are_shown() {
    let (_folder, path, bytes) = saved();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let entry = |(name, view): (&str, safetensors::tensor::TensorView<'_>)| Entry {
        name: name.to_owned(),
        dtype: match name {
            "tokens" => Dtype::I32,
            _ => view.dtype(),
        },
        shape: view.shape().to_vec(),
        bytes: view.data().to_vec(),
    };
    let entries: Vec<_> = file.iter().map(entry).collect();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let mut metadata: BTreeMap<_, _> = header.metadata().clone().unwrap().into_iter().collect();
    let sum = checksum(&metadata, entries.iter().collect());
    metadata.insert("sha256".to_owned(), sum);
    let tensors = entries.into_iter().map(|entry| (entry.name.clone(), entry));
    let metadata = Some(metadata.into_iter().collect());
    safetensors::serialize_to_file(tensors, metadata, &path).unwrap();
    let (code, message) = refused(&path, &layout());
    assert_eq!(code, ErrorCode::StateForeign, "{message}");
    assert!(
        message.contains("tokens is [4] I32, expected [n] U32"),
        "{message}"
    );
}

/// Well formed and undamaged, but for numbers that are none.
#[test]
fn values_that_are_not_finite_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.state");
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let [mut row, mut cache, mut head] = [image(4), image(4), image(4)];
        let bytes = row.fixed.first_mut().unwrap();
        bytes[..4].copy_from_slice(&value.to_ne_bytes());
        cache.cache[1].values[0] = value;
        head.head.as_mut().unwrap().cache[0].keys[2] = value;
        for image in [row, cache, head] {
            write(&path, &layout(), &TOKENS, &image).unwrap();
            let (code, message) = refused(&path, &layout());
            assert_eq!(code, ErrorCode::StateDamaged, "{message}");
            assert!(message.contains("not finite"), "{message}");
        }
    }
}

#[test]
fn other_files_are_no_states() {
    let (folder, path, bytes) = saved();
    let tensor = safetensors::tensor::TensorView::new(Dtype::U8, vec![1], &[0]);
    let weights = safetensors::serialize([("w", tensor.unwrap())], None).unwrap();
    fs::write(&path, weights).unwrap();
    let (code, message) = refused(&path, &layout());
    assert_eq!(code, ErrorCode::StateForeign);
    assert!(
        message.contains("format is absent, expected pawl-state"),
        "{message}"
    );

    let text = String::from_utf8_lossy(&bytes[8..]).into_owned();
    let at = 8 + text.find("\"version\":\"1\"").unwrap() + "\"version\":\"".len();
    let mut newer = bytes.clone();
    newer[at] = b'2';
    fs::write(&path, newer).unwrap();
    let (code, message) = refused(&path, &layout());
    assert_eq!(code, ErrorCode::StateForeign);
    assert!(message.contains("version is 2, expected 1"), "{message}");

    // A size that no state has is refused before it is read, whatever a context would allow.
    let wide = Layout {
        most_tokens: 1 << 31,
        room: 1 << 31,
        ..layout()
    };
    for layout in [&layout(), &wide] {
        let large = fs::File::create(&path).unwrap();
        large.set_len(1 << 40).unwrap();
        assert_eq!(refused(&path, layout).0, ErrorCode::StateDamaged);
    }
    sparse(&path, &bytes, "tokens", 1 << 38);
    assert_eq!(refused(&path, &layout()).0, ErrorCode::StateForeign);
    let missing = folder.path().join("missing");
    assert_eq!(refused(&missing, &layout()).0, ErrorCode::FileUnreadable);
    assert_eq!(
        refused(folder.path(), &layout()).0,
        ErrorCode::FileUnreadable
    );
}

#[test]
fn a_failed_write_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("missing").join("a.state");
    for path in [inside.as_path(), folder.path()] {
        let error = write(path, &layout(), &TOKENS, &image(4)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::FileUnreadable);
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
        assert!(!error.to_string().contains(".pawl-state-"), "{error}");
    }
    let error = write(&inside, &layout(), &TOKENS, &image(4)).unwrap_err();
    let missing = format!(
        "the folder `{}` does not exist",
        inside.parent().unwrap().display()
    );
    assert!(error.to_string().ends_with(&missing), "{error}");
    assert_eq!(files(&folder), 0);
}

#[test]
#[cfg(unix)]
fn a_saved_state_has_the_permissions_of_any_new_file() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, path, _) = saved();
    let other = folder.path().join("other");
    fs::write(&other, "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&other));
}

#[test]
fn ids_of_a_history_that_do_not_exist_are_refused() {
    for (id, fits) in [
        (0, true),
        (49, true),
        (i64::from(FRESH), true),
        (50, false),
        (-1, false),
        (1 << 40, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.state");
        let mut image = image(4);
        image.fixed[2] = [49i64, id].map(i64::to_ne_bytes).concat();
        write(&path, &layout(), &TOKENS, &image).unwrap();
        if fits {
            assert_eq!(read(&path, &layout()).unwrap().1, image);
            continue;
        }
        let (code, message) = refused(&path, &layout());
        assert_eq!(code, ErrorCode::StateForeign);
        let (key, found) = ("fixed.ids", format!("{id}, expected ids below 50"));
        assert!(
            message.contains(key) && message.contains(&found),
            "{message}"
        );
    }
}
