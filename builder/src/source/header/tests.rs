use super::*;
use crate::limits::NAME_BYTES;
use crate::source::testing::raw;
use proptest::prelude::*;

const ENTRY: &str = r#"{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;

fn parsed(header: &str, data: u64) -> Result<BTreeMap<String, Entry>, Fault> {
    let begin = PREFIX + header.len() as u64;
    parse(header.as_bytes(), begin, begin + data)
}

fn refused(header: &str, data: u64, key: &str, problem: &str) {
    let fault = parsed(header, data).expect_err(header);
    assert_eq!(fault.key, key, "{header}: {fault:?}");
    assert!(fault.problem.contains(problem), "{header}: {fault:?}");
}

#[test]
fn what_the_format_allows_is_read() {
    assert_eq!(parsed("{}", 0).unwrap().len(), 0);
    // Any order, empty tensors, scalars, padding after the object, unaligned data, later types.
    let header = r#"{"b":{"dtype":"F16","shape":[1],"data_offsets":[1,3]},
        "a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"later":[1,{}]},
        "__metadata__":{"x":"y"},
        "e":{"dtype":"F32","shape":[0,9],"data_offsets":[3,3]},
        "n":{"dtype":"F5_NEW","shape":[3],"data_offsets":[3,5]}}   "#;
    let tensors = parsed(header, 5).unwrap();
    let begin = PREFIX + header.len() as u64;
    let places: Vec<_> = tensors
        .iter()
        .map(|(n, e)| (n.as_str(), e.begin - begin))
        .collect();
    assert_eq!(places, [("a", 0), ("b", 1), ("e", 3), ("n", 3)]);
    assert_eq!(tensors["e"].shape, [0, 9]);
}

#[test]
fn the_headers_of_all_files_are_bounded_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    raw(&path, &format!("{{{}}}", " ".repeat(98)), &[]);
    let mut left = 250;
    assert!(read(&path, &mut left).is_ok());
    assert!(read(&path, &mut left).is_ok());
    let error = read(&path, &mut left).unwrap_err().to_string();
    assert!(error.contains("all headers of a checkpoint"), "{error}");
    let name = "n".repeat(NAME_BYTES);
    assert!(parsed(&format!(r#"{{"{name}":{ENTRY}}}"#), 8).is_ok());
    refused(
        &format!(r#"{{"{name}n":{ENTRY}}}"#),
        8,
        "",
        "a name of 1025 bytes",
    );
}

#[test]
fn each_lie_is_named() {
    let one = |entry: &str| format!(r#"{{"w":{entry}}}"#);
    for (entry, data, problem) in [
        (
            r#"{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#,
            7,
            "truncated",
        ),
        (
            r#"{"dtype":"F32","shape":[2],"data_offsets":[8,0]}"#,
            8,
            "backwards",
        ),
        (
            r#"{"dtype":"F32","shape":[3],"data_offsets":[0,8]}"#,
            8,
            "takes 12 bytes",
        ),
        (
            r#"{"dtype":"F16","shape":[2],"data_offsets":[0,8]}"#,
            8,
            "takes 4 bytes",
        ),
        (
            r#"{"dtype":"F4","shape":[3],"data_offsets":[0,1]}"#,
            1,
            "takes 2 bytes",
        ),
        (
            r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}"#,
            8,
            "overflows",
        ),
        (
            r#"{"dtype":"F32","shape":[2305843009213693952],"data_offsets":[0,8]}"#,
            8,
            "overflows",
        ),
        (
            r#"{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}"#,
            8,
            "outside",
        ),
        (
            r#"{"dtype":"F32","shape":[2],"data_offsets":[1,9]}"#,
            9,
            "begins 1 bytes after",
        ),
    ] {
        refused(&one(entry), data, "w", problem);
    }
    refused(&one(ENTRY), 9, "", "holds 1 bytes that belong to no tensor");
    refused(
        &format!(r#"{{"a":{ENTRY},"b":{ENTRY}}}"#),
        8,
        "b",
        "overlaps a",
    );
    let late = ENTRY.replace("[0,8]", "[9,17]");
    refused(
        &format!(r#"{{"a":{ENTRY},"b":{late}}}"#),
        17,
        "b",
        "begins 1 bytes after",
    );
}

#[test]
fn what_is_not_a_header_is_refused() {
    let many_axes = format!(
        r#"{{"w":{{"dtype":"U8","shape":[{}1],"data_offsets":[0,1]}}}}"#,
        "1,".repeat(32)
    );
    for (header, problem) in [
        ("", "not a JSON object"),
        ("[]", "not a JSON object"),
        (" {}", "not a JSON object"),
        ("{", "invalid safetensors header"),
        ("{}x", "trailing characters"),
        (r#"{"w":5}"#, "w: "),
        (
            r#"{"w":{"dtype":"F32","shape":[2]}}"#,
            "w: missing field `data_offsets`",
        ),
        (
            r#"{"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}"#,
            "w: invalid value",
        ),
        (
            r#"{"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}"#,
            "w: invalid type",
        ),
        (
            r#"{"w":{"dtype":"F32","shape":[1e99],"data_offsets":[0,8]}}"#,
            "w: ",
        ),
        (
            r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}"#,
            "w: ",
        ),
        (
            r#"{"w":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}}"#,
            "duplicate field",
        ),
        (
            &format!(r#"{{"w":{ENTRY},"w":{ENTRY}}}"#),
            "w appears twice",
        ),
        (&many_axes, "at most 32 axes"),
        (&format!(r#"{{"w":{}"#, "[".repeat(100_000)), "w: "),
    ] {
        refused(header, 8, "", problem);
    }
}

#[test]
fn files_that_end_early_or_announce_too_much_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let with = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let message = read(&path, &mut { HEADER_BYTES }).unwrap_err().to_string();
        assert!(
            message.starts_with(&path.display().to_string()),
            "{message}"
        );
        message
    };
    assert!(with(b"").contains("is truncated: 0 bytes"));
    assert!(with(b"1234567").contains("is truncated: 7 bytes"));
    assert!(with(&[3, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']).contains("a header of 3 bytes"));
    assert!(with(&[0xFF; 64]).contains("header of 18446744073709551615 bytes, more than"));
    assert!(with(&100_000_001_u64.to_le_bytes()).contains("more than 100000000"));
    let note = b"\x1b\0\0\0\0\0\0\0{\"__metadata__\":{\"a\":\"\xFF\"}} ";
    assert!(with(note).contains("invalid safetensors header: invalid utf-8"));
    raw(&path, &format!(r#"{{"w":{ENTRY}}}"#), &[0; 7]);
    assert!(
        read(&path, &mut { HEADER_BYTES })
            .unwrap_err()
            .to_string()
            .contains("model.safetensors: w: ")
    );
    assert!(
        read(folder.path(), &mut { HEADER_BYTES })
            .unwrap_err()
            .to_string()
            .contains("not a regular file")
    );
}

proptest! {
    /// Whatever the header says, it is read or refused, and what is read lies within the file.
    #[test]
    fn nothing_read_lies_outside(
        header in "[\\[\\]{}:,\"wdF0-9 -]{0,40}|\\{\"w\":\\{\"dtype\":\"F(16|32)\",\"shape\":\\[[0-9]{1,20}(,[0-9]{1,20})?\\],\"data_offsets\":\\[[0-9]{1,2},[0-9]{1,20}\\]\\}\\}",
        data in 0_u64..64,
    ) {
        if let Ok(tensors) = parsed(&header, data) {
            let begin = PREFIX + header.len() as u64;
            for entry in tensors.values() {
                prop_assert!(begin <= entry.begin && entry.begin <= entry.end);
                prop_assert!(entry.end <= begin + data);
            }
        }
    }

    /// What the reference writer writes is read, and where the reference reader reads it.
    #[test]
    fn agrees_with_the_reference(lengths in prop::collection::vec((0_usize..3, 0_usize..5), 0..6)) {
        use safetensors::{Dtype, SafeTensors, tensor::TensorView};
        let bytes = [7_u8; 64];
        let views: Vec<_> = lengths.iter().enumerate().map(|(index, (rows, columns))| {
            let data = &bytes[..rows * columns * 2];
            let view = TensorView::new(Dtype::BF16, vec![*rows, *columns], data).unwrap();
            (format!("t{index}"), view)
        }).collect();
        let file = safetensors::serialize(views, None).unwrap();
        let length = u64::from_le_bytes(file[..8].try_into().unwrap());
        let data = PREFIX + length;
        let json = &file[8..usize::try_from(data).unwrap()];
        let read = parse(json, data, file.len() as u64).unwrap();
        let reference = SafeTensors::deserialize(&file).unwrap();
        prop_assert_eq!(read.len(), reference.len());
        for (name, view) in reference.tensors() {
            let entry = &read[&name];
            let place = usize::try_from(entry.begin).unwrap()..usize::try_from(entry.end).unwrap();
            prop_assert_eq!(&file[place], view.data());
            prop_assert_eq!(&entry.shape, &view.shape().iter().map(|&n| n as u64).collect::<Vec<_>>());
        }
    }
}
