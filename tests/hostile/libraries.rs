//! Libraries that are not ONNX Runtime, or not the whole of it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::case::Case;
use super::world::{Odd, model, write};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = files();
    cases.extend(stubs());
    for odd in Odd::ALL {
        let words = if odd == Odd::Sparse {
            "ELF"
        } else {
            "is not a file"
        };
        cases.push(library(
            &format!("a library that is {odd:?}"),
            &[words],
            move |path| odd.put(path),
        ));
    }
    cases
}

/// `make` makes the library at the given path.
fn library(name: &str, words: &[&str], make: impl Fn(&Path) + Send + Sync + 'static) -> Case {
    let words = [&["{here}/lib.so"], words].concat();
    let args = [
        "generate",
        "--model",
        "{here}/model",
        "--ids",
        "5",
        "--library",
        "{here}/lib.so",
    ];
    Case::new(name, "pawl", &args, &words, move |here| {
        model(here);
        make(&here.join("lib.so"));
    })
}

/// The library that the tests themselves use.
fn real() -> &'static [u8] {
    static REAL: OnceLock<Vec<u8>> = OnceLock::new();
    REAL.get_or_init(|| {
        #[expect(
            clippy::disallowed_methods,
            reason = "this program is not a part of Pawl"
        )]
        let given = std::env::var_os("ORT_DYLIB_PATH").map(std::path::PathBuf::from);
        let set_up = pawl_tests::workspace().join(".ort/1.32.0/libonnxruntime.so");
        let path = given.unwrap_or(set_up);
        fs::read(path).unwrap()
    })
}

fn files() -> Vec<Case> {
    let cut = |name: &str, keep: fn(usize) -> usize| {
        library(name, &["truncated"], move |path| {
            let real = real();
            write(path, &real[..keep(real.len())]);
        })
    };
    vec![
        cut("half of the library", |length| length / 2),
        cut("the library without its last page", |length| length - 4096),
        cut("the first page of the library", |_| 4096),
        library("an empty library", &["not an ELF file"], |path| {
            write(path, "")
        }),
        library("a library of text", &["not an ELF file"], |path| {
            write(path, "#!/bin/sh\nexit 0\n")
        }),
        library("a library of zeros", &["not an ELF file"], |path| {
            write(path, [0; 4096])
        }),
        library(
            "a library of nothing but its first bytes",
            &["not an ELF file"],
            |path| write(path, &real()[..20]),
        ),
        library(
            "headers beyond the end",
            &["truncated or damaged"],
            |path| {
                let mut bytes = real()[..4096].to_vec();
                bytes[0x28..0x30].copy_from_slice(&u64::MAX.to_le_bytes());
                write(path, bytes);
            },
        ),
        library("no library", &["is not a file"], |_| {}),
        Case::load(
            "a library that the environment names",
            &["ORT_DYLIB_PATH", "{here}/none.so"],
            model,
        )
        .variable("ORT_DYLIB_PATH", "{here}/none.so"),
        Case::build(
            "a build with half of the library",
            &[],
            &["lib.so", "truncated"],
            |here| {
                super::world::checkpoint(here);
                write(&here.join("lib.so"), &real()[..1 << 20]);
            },
        )
        .variable("ORT_DYLIB_PATH", "{here}/lib.so"),
    ]
}

/// Libraries that export what ONNX Runtime exports, and give something else. Whoever runs these tests has a compiler.
fn stubs() -> Vec<Case> {
    let version =
        |text: &str| format!(r#"Base(Some(api), Some(version)); const TEXT: &[u8] = b"{text}\0""#);
    let table = [
        (
            "a library without the function",
            "",
            "does not export `OrtGetApiBase`",
        ),
        ("a library that gives nothing", "null", "returned nothing"),
        (
            "a library without functions",
            "Base(None, None); const TEXT: &[u8] = b\"\\0\"",
            "no function for its version",
        ),
        (
            "a library without a version",
            "Base(Some(api), Some(nothing)); const TEXT: &[u8] = b\"\\0\"",
            "has no version",
        ),
        (
            "a library of an unknown version",
            &version("latest"),
            "its version is `latest`",
        ),
        ("a library that is too old", &version("1.31.1"), "1.31.1"),
        (
            "a library without an interface",
            &version("1.99.0"),
            "has no interface of version",
        ),
    ];
    let stub = |(name, base, words): (&str, &str, &str)| {
        let base = base.to_owned();
        library(name, &[words], move |path| compile(path, &base))
    };
    table.into_iter().map(stub).collect()
}

const RUSTC: &str = match option_env!("RUSTC") {
    Some(path) => path,
    None => "rustc",
};

fn compile(library: &Path, base: &str) {
    let body = match base {
        "" => "#[no_mangle] pub extern \"system\" fn Other() {}".to_owned(),
        "null" => "#[no_mangle] pub extern \"system\" fn OrtGetApiBase() -> *const u8 { std::ptr::null() }".to_owned(),
        base => format!(
            "#[repr(C)] pub struct Base(Option<extern \"system\" fn(u32) -> *const u8>, Option<extern \"system\" fn() -> *const u8>);
             #[allow(dead_code)] extern \"system\" fn api(_: u32) -> *const u8 {{ std::ptr::null() }}
             #[allow(dead_code)] extern \"system\" fn nothing() -> *const u8 {{ std::ptr::null() }}
             #[allow(dead_code)] extern \"system\" fn version() -> *const u8 {{ TEXT.as_ptr() }}
             static BASE: Base = {base};
             #[no_mangle] pub extern \"system\" fn OrtGetApiBase() -> *const Base {{ &BASE }}"
        ),
    };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("stub.rs");
    fs::write(&source, body).unwrap();
    let done = Command::new(RUSTC)
        .args([
            "--edition",
            "2021",
            "--crate-type",
            "cdylib",
            "-C",
            "panic=abort",
            "-o",
        ])
        .args([library, &source])
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
