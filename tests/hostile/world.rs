//! Sound folders to spoil: a checkpoint, and a model exported from one.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use pawl_tests::export::Export;
use serde_json::{Map, Value, json};

/// A checkpoint of three layers at `{here}/in`.
pub(crate) fn checkpoint(here: &Path) {
    copy(
        &pawl_tests::checkpoint("llama-odd"),
        &here.join("in"),
        |name| name != "golden.safetensors",
    );
}

/// An exported hybrid model with a drafting head and a tokenizer of bytes at `{here}/model`.
pub(crate) fn model(here: &Path) {
    static EXPORT: OnceLock<Export> = OnceLock::new();
    let export =
        EXPORT.get_or_init(|| Export::of("qwen3_5-odd", pawl_builder::CheckpointOption::default()));
    let model = here.join("model");
    copy(&export.path(), &model, |_| true);
    write(&model.join("tokenizer.json"), tokenizer().to_string());
    let template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    write(&model.join("chat_template.jinja"), template);
}

/// The same with weights that compute nothing.
pub(crate) fn model_of_nan(here: &Path) {
    model(here);
    let path = here.join("model/model.onnx.data");
    let bytes = fs::read(&path).unwrap();
    write(&path, f32::NAN.to_le_bytes().repeat(bytes.len() / 4));
}

/// An export for another provider at `{here}/model`, with graphs that commit.
pub(crate) fn cuda_model(here: &Path) {
    static EXPORT: OnceLock<Export> = OnceLock::new();
    let export = EXPORT.get_or_init(|| {
        Export::with(&pawl_tests::checkpoint("qwen3_5-odd"), |options| {
            options.target = pawl_builder::Target::Cuda;
        })
    });
    copy(&export.path(), &here.join("model"), |_| true);
}

/// A tokenizer whose tokens are the 256 bytes, after three special ones.
pub(crate) fn tokenizer() -> Value {
    let mut vocabulary = Map::new();
    for (id, word) in ["<pad>", "<s>", "</s>"].into_iter().enumerate() {
        vocabulary.insert(word.to_owned(), id.into());
    }
    for byte in 0..=255u8 {
        let id = vocabulary.len();
        vocabulary.insert(byte_letter(byte).to_string(), id.into());
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [
            {"id": 2, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
             "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": []},
    })
}

/// The letter of a byte in the byte-level alphabet.
fn byte_letter(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let place = (0..byte).filter(|byte| !printable(*byte)).count() as u32;
    char::from_u32(0x100 + place).unwrap()
}

fn copy(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if wanted(entry.file_name().to_str().unwrap()) {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Replaces a file, whatever it is.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

/// Changes the JSON object of a file.
pub(crate) fn edit(path: &Path, change: impl Fn(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    write(path, value.to_string());
}

/// Sets the value at a JSON pointer.
pub(crate) fn set(value: &mut Value, pointer: &str, new: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = new,
        object => object[key] = new,
    }
}

/// The header and the data of a safetensors file.
pub(crate) fn tensors(path: &Path) -> (Map<String, Value>, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    (header, bytes[8 + length..].to_vec())
}

/// A safetensors file of a header and data.
pub(crate) fn write_tensors(path: &Path, header: &str, data: &[u8]) {
    let length = (header.len() as u64).to_le_bytes();
    write(path, [&length, header.as_bytes(), data].concat());
}

/// A file of `length` bytes that takes no room.
pub(crate) fn sparse(path: &Path, length: u64) {
    let _ = fs::remove_file(path);
    File::create(path).unwrap().set_len(length).unwrap();
}

/// Writes at a place of a file.
pub(crate) fn patch(path: &Path, offset: u64, bytes: &[u8]) {
    let mut file = File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}

/// What stands in a file's place and is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Odd {
    Pipe,
    Socket,
    Folder,
    Zeros,
    Loop,
    Sparse,
}

impl Odd {
    pub(crate) const ALL: [Self; 6] = [
        Self::Pipe,
        Self::Socket,
        Self::Folder,
        Self::Zeros,
        Self::Loop,
        Self::Sparse,
    ];

    /// What the message says of it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Pipe | Self::Socket | Self::Folder | Self::Zeros => "not a regular file",
            Self::Loop => "symbolic links",
            Self::Sparse => "",
        }
    }

    /// Puts it at `path`.
    pub(crate) fn put(self, path: &Path) {
        let _ = fs::remove_file(path);
        match self {
            Self::Pipe => {
                assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
            }
            Self::Socket => {
                std::os::unix::net::UnixListener::bind(path).unwrap();
            }
            Self::Folder => fs::create_dir(path).unwrap(),
            Self::Zeros => link(Path::new("/dev/zero"), path),
            Self::Loop => link(path, path),
            Self::Sparse => sparse(path, 1 << 40),
        }
    }
}

pub(crate) fn link(target: &Path, at: &Path) {
    let _ = fs::remove_file(at);
    std::os::unix::fs::symlink(target, at).unwrap();
}

/// Moves a file out of its folder and leaves a link to it.
pub(crate) fn move_out(here: &Path, file: &Path) {
    let outside: PathBuf = here.join("outside");
    fs::create_dir_all(&outside).unwrap();
    let moved = outside.join(file.file_name().unwrap());
    fs::rename(file, &moved).unwrap();
    link(&moved, file);
}
