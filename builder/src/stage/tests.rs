use super::*;

struct World {
    root: TempDir,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("input")).unwrap();
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn stage(&self, name: &str, force: bool) -> Result<Stage, BuildError> {
        let interrupt = Interrupt::default();
        Stage::create(&self.path(name), &self.path("input"), force, &interrupt)
    }

    fn refused(&self, name: &str, force: bool) -> String {
        self.stage(name, force).unwrap_err().to_string()
    }

    /// Every path below, but the input.
    fn entries(&self) -> Vec<String> {
        fn walk(folder: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                found.push(path.strip_prefix(root).unwrap().display().to_string());
                if path.is_dir() {
                    walk(&path, root, found);
                }
            }
        }
        let mut found = Vec::new();
        walk(self.root.path(), self.root.path(), &mut found);
        found.retain(|path| !path.starts_with("input"));
        found.sort_unstable();
        found
    }

    fn export(&self, name: &str, force: bool, text: &str) {
        let stage = self.stage(name, force).unwrap();
        fs::write(stage.path().join(MARK), text).unwrap();
        let written = stage.publish().unwrap();
        assert_eq!(fs::read_to_string(written.join(MARK)).unwrap(), text);
    }
}

#[test]
fn an_export_appears_whole_or_not_at_all() {
    let world = World::new();
    let stage = world.stage("a/b/out", false).unwrap();
    assert_eq!(
        stage.path().parent().unwrap().parent().unwrap(),
        world.path("a/b")
    );
    fs::write(stage.path().join(MARK), "x").unwrap();
    assert!(!world.path("a/b/out").exists());
    drop(stage);
    assert_eq!(world.entries(), Vec::<String>::new());

    world.export("a/b/out", false, "x");
    assert_eq!(
        world.entries(),
        ["a", "a/b", "a/b/out", "a/b/out/genai_config.json"]
    );
}

#[cfg(unix)]
#[test]
fn an_export_has_the_permissions_of_any_new_folder() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    world.export("out", false, "x");
    fs::create_dir(world.path("other")).unwrap();
    let mode = |name| fs::metadata(world.path(name)).unwrap().permissions().mode();
    assert_eq!(mode("out"), mode("other"));
}

#[test]
fn parents_of_others_stay() {
    let world = World::new();
    fs::create_dir(world.path("a")).unwrap();
    let stage = world.stage("a/b/c/out", false).unwrap();
    fs::write(world.path("a/b/theirs"), "").unwrap();
    drop(stage);
    assert_eq!(world.entries(), ["a", "a/b", "a/b/theirs"]);
}

#[test]
fn an_existing_output_is_replaced_only_by_force_and_only_when_complete() {
    let world = World::new();
    world.export("out", false, "old");
    fs::write(world.path("out/stale"), "").unwrap();
    assert!(
        world
            .refused("out", false)
            .contains("exists already; --force replaces it")
    );

    drop(world.stage("out", true).unwrap());
    assert_eq!(
        world.entries(),
        ["out", "out/genai_config.json", "out/stale"]
    );

    let stage = world.stage("out", true).unwrap();
    fs::write(stage.path().join(MARK), "new").unwrap();
    assert_eq!(
        fs::read_to_string(world.path("out/genai_config.json")).unwrap(),
        "old"
    );
    stage.publish().unwrap();
    assert_eq!(world.entries(), ["out", "out/genai_config.json"]);
    assert_eq!(
        fs::read_to_string(world.path("out/genai_config.json")).unwrap(),
        "new"
    );
}

#[test]
fn a_folder_with_folders_is_not_replaced() {
    let world = World::new();
    fs::create_dir_all(world.path("out/thesis")).unwrap();
    fs::write(world.path("out/genai_config.json"), "{}").unwrap();
    let error = world.refused("out", true);
    assert!(error.contains("holds a folder"), "{error}");
    assert!(world.path("out/thesis").is_dir());
}

#[test]
fn what_is_no_export_is_never_replaced() {
    let world = World::new();
    fs::create_dir_all(world.path("home")).unwrap();
    fs::write(world.path("home/thesis.txt"), "").unwrap();
    fs::write(world.path("file"), "").unwrap();
    assert!(
        world
            .refused("home", true)
            .contains("not an exported model")
    );
    assert!(world.refused("file", true).contains("not a folder"));
    assert!(world.refused("home", false).contains("exists already"));
    assert!(world.refused("file/out", true).contains("file/out") || cfg!(windows));

    fs::create_dir(world.path("empty")).unwrap();
    world.export("empty", true, "x");

    fs::write(world.path("input").join(MARK), "").unwrap();
    assert!(
        world
            .refused("input", true)
            .contains("is the input folder or contains it")
    );
    fs::write(world.root.path().join(MARK), "").unwrap();
    assert!(world.refused("", true).contains("contains it"));
    assert!(
        world
            .refused("nowhere/..", true)
            .contains("cannot be the name")
    );
}

#[test]
fn an_output_that_appears_meanwhile_is_not_replaced() {
    let world = World::new();
    let stage = world.stage("out", false).unwrap();
    fs::create_dir(world.path("out")).unwrap();
    assert!(
        stage
            .publish()
            .unwrap_err()
            .to_string()
            .contains("exists already")
    );
    assert_eq!(world.entries(), ["out"]);
}

#[test]
fn a_rename_that_fails_leaves_the_old_output() {
    for fails in 0..2 {
        let world = World::new();
        world.export("out", false, "old");
        let stage = world.stage("out", true).unwrap();
        fs::write(stage.path().join(MARK), "new").unwrap();
        let (output, old) = (world.path("out"), stage.path().with_file_name(OLD));
        let mut calls = 0;
        let mut rename = |from: &Path, to: &Path| {
            calls += 1;
            match calls - 1 == fails {
                true => Err(io::ErrorKind::PermissionDenied.into()),
                false => fs::rename(from, to),
            }
        };
        let moved = put_in_place(&stage.path(), &output, Some(&old), &mut rename);
        assert_eq!(moved.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        drop(stage);
        assert_eq!(world.entries(), ["out", "out/genai_config.json"]);
        assert_eq!(fs::read_to_string(output.join(MARK)).unwrap(), "old");
    }
}

/// What a process that was killed leaves: its folder, with a lock nobody holds.
fn killed(world: &World, folder: &str, old: Option<&str>) {
    let folder = world.path(folder);
    fs::create_dir_all(folder.join(MODEL)).unwrap();
    fs::write(folder.join(MODEL).join("model.onnx.data"), "half").unwrap();
    File::create(folder.join(LOCK)).unwrap();
    if let Some(text) = old {
        fs::create_dir(folder.join(OLD)).unwrap();
        fs::write(folder.join(OLD).join(MARK), text).unwrap();
    }
}

#[test]
fn what_the_dead_left_is_removed_and_the_living_are_left_alone() {
    let world = World::new();
    killed(&world, ".out.pawl-dead42", None);
    killed(&world, ".other.pawl-dead42", None);
    let living = world.stage("out", false).unwrap();
    let second = world.stage("out", false).unwrap();
    fs::write(living.path().join(MARK), "x").unwrap();
    let top: Vec<_> = fs::read_dir(world.root.path())
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .collect();
    assert!(!world.path(".out.pawl-dead42").exists());
    assert!(world.path(".other.pawl-dead42").exists());
    assert_eq!(top.len(), 4, "{top:?}");
    drop(second);
    living.publish().unwrap();
    assert!(world.path("out/genai_config.json").exists());
}

#[test]
fn an_old_output_left_aside_by_the_dead_is_put_back() {
    let world = World::new();
    killed(&world, ".out.pawl-dead42", Some("old"));
    assert!(world.refused("out", false).contains("exists already"));
    assert_eq!(world.entries(), ["out", "out/genai_config.json"]);
    assert_eq!(
        fs::read_to_string(world.path("out/genai_config.json")).unwrap(),
        "old"
    );

    killed(&world, ".out.pawl-dead42", Some("older"));
    world.export("out", true, "new");
    assert_eq!(world.entries(), ["out", "out/genai_config.json"]);
}

#[cfg(unix)]
#[test]
fn a_link_leads_to_the_folder_it_names() {
    let world = World::new();
    world.export("real", false, "old");
    std::os::unix::fs::symlink(world.path("real"), world.path("link")).unwrap();
    world.export("link", true, "new");
    assert_eq!(
        fs::read_to_string(world.path("real/genai_config.json")).unwrap(),
        "new"
    );
    assert!(
        fs::symlink_metadata(world.path("link"))
            .unwrap()
            .is_symlink()
    );
    std::os::unix::fs::symlink(world.path("nowhere"), world.path("dangling")).unwrap();
    assert!(world.refused("dangling", true).contains("dangling"));
}

#[test]
fn only_staging_folders_of_this_output_are_swept() {
    let world = World::new();
    let others = [
        ".a.pawl-x.pawl-dead42",
        ".a.pawl-dead4",
        ".a.pawl-dead423",
        ".a.pawl-de.d42",
        ".a.pawl-de-d42",
        ".a.pawl-d\u{e4}d42",
        ".aa.pawl-dead42",
        "a.pawl-dead42",
    ];
    for folder in others {
        killed(&world, folder, None);
    }
    killed(&world, ".a.pawl-dead42", None);
    let stage = world.stage("a", false).unwrap();
    for folder in others {
        assert!(world.path(folder).exists(), "{folder}");
    }
    assert!(!world.path(".a.pawl-dead42").exists());
    let hidden = stage.folder.path().file_name().unwrap().to_str().unwrap();
    assert!(is_staging(hidden, "a"), "{hidden}");
}

#[cfg(unix)]
#[test]
fn an_output_that_holds_what_the_input_links_to_is_never_replaced() {
    use std::os::unix::fs::symlink;
    let world = World::new();
    world.export("out", false, "old");
    fs::write(world.path("out/weights"), "precious").unwrap();
    symlink(
        world.path("out/weights"),
        world.path("input/model.safetensors"),
    )
    .unwrap();
    let message = world.refused("out", true);
    assert!(message.contains("out: holds what"), "{message}");
    assert!(message.contains("model.safetensors links to"), "{message}");
    assert_eq!(
        fs::read_to_string(world.path("out/weights")).unwrap(),
        "precious"
    );

    fs::rename(world.path("out/weights"), world.path("weights")).unwrap();
    fs::remove_file(world.path("input/model.safetensors")).unwrap();
    symlink(world.path("weights"), world.path("input/model.safetensors")).unwrap();
    symlink(world.path("out"), world.path("input/latest")).unwrap();
    world.export("out", true, "new");
    world.export("input/onnx", false, "old");
    world.export("input/onnx", true, "new");
}

/// Another export that fails removes the parents that it made, also where this one is about to use them.
#[test]
fn parents_that_another_export_removes_are_made_again() {
    let world = World::new();
    let (output, input) = (world.path("p/q/out"), world.path("input"));
    let mut lost = 0;
    let mut losing = |parent: &Path| {
        let made = make_parents(parent)?;
        lost += 1;
        match lost {
            1 => fs::remove_dir(world.path("p/q")).unwrap(),
            2 => fs::remove_dir_all(world.path("p")).unwrap(),
            _ => {}
        }
        Ok(made)
    };
    let claimed = claim(&output, &input, false, &mut losing).unwrap();
    assert!(claimed.1.path().join(MODEL).exists());
    drop(claimed.2);
    drop(claimed.1);
    drop(claimed.0);
    assert_eq!((lost, world.entries()), (3, Vec::new()));

    let mut always = |parent: &Path| {
        lost += 1;
        make_parents(parent).map(drop)?;
        Ok(Made(Vec::new()))
    };
    let error = claim(&output, &input, false, &mut always).unwrap_err();
    assert!(error.to_string().contains("p/q: cannot be"), "{error}");
    assert_eq!(lost, 3 + PARENT_ATTEMPTS);
    let missing = claim(
        &world.path("out"),
        &world.path("none"),
        false,
        &mut make_parents,
    );
    let missing = missing.unwrap_err().to_string();
    assert!(missing.contains("none: cannot be read"), "{missing}");
}

#[test]
fn what_is_interrupted_leaves_nothing_and_publishes_nothing() {
    let world = World::new();
    world.export("out", false, "old");
    let interrupt = Interrupt::default();
    let stage =
        |name: &str| Stage::create(&world.path(name), &world.path("input"), true, &interrupt);
    let (first, second) = (stage("out").unwrap(), stage("a/b/out").unwrap());
    fs::write(first.path().join(MARK), "new").unwrap();
    drop(stage("c/out").unwrap());
    interrupt.stop();
    assert_eq!(world.entries(), ["out", "out/genai_config.json"]);
    assert!(matches!(first.publish(), Err(BuildError::Interrupted)));
    assert!(matches!(stage("d/out"), Err(BuildError::Interrupted)));
    drop(second);
    assert_eq!(world.entries(), ["out", "out/genai_config.json"]);
    assert_eq!(
        fs::read_to_string(world.path("out/genai_config.json")).unwrap(),
        "old"
    );
}
