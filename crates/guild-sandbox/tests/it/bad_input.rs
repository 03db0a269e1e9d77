//! What cannot be run is refused, by the name of what is wrong.

use std::collections::BTreeSet;

use guild_sandbox::{Bind, Error, Image, Layer, Limits, Ns, Options, Sandbox, Spec, Standing};

use super::support::{LAUNCHER, limits, sandbox, sandbox_without_cgroups, shell};
use super::traces::Traces;

#[expect(clippy::unwrap_used, reason = "a test stops where nothing is refused")]
fn refused(spec: &Spec) -> Error {
    let error = sandbox().start(spec).unwrap_err();
    Traces::now().assert_none();
    error
}

#[test]
fn a_missing_image() {
    let error =
        refused(&Spec { image: Image::Directory("/no/such/image".into()), ..shell("true") });
    assert_eq!(error.code().name, "sandbox.no_image");
    assert!(error.to_string().starts_with("/no/such/image: "), "{error}");
}

#[test]
fn an_image_that_is_a_file() {
    let error = refused(&Spec { image: Image::Directory("/etc/passwd".into()), ..shell("true") });
    assert_eq!(error.code().name, "sandbox.no_image", "{error}");
}

#[test]
fn a_missing_program() {
    let error = refused(&Spec::new(["no-such-program"], limits()));
    assert_eq!(error.code().name, "sandbox.not_started");
    assert_eq!(error.to_string(), "no-such-program: No such file or directory (os error 2)");
    let error = refused(&Spec::new(["/usr"], limits()));
    assert_eq!(error.to_string(), "/usr: Permission denied (os error 13)");
}

#[test]
fn a_missing_interpreter() {
    let mut spec =
        Spec::new(["/workspace/x"], limits()).file("/workspace/x", "#!/no/such/interpreter\n");
    spec.files[0].executable = true;
    assert_eq!(refused(&spec).code().name, "sandbox.not_started");
}

#[test]
fn a_missing_directory_to_start_in() {
    let error = refused(&Spec { cwd: "/nowhere".to_owned(), ..shell("true") });
    assert_eq!(error.to_string(), "cwd: No such file or directory (os error 2)");
}

#[test]
fn a_missing_bind() {
    let bind = Bind { host: "/no/such/bind".into(), at: "/data".to_owned(), writable: false };
    let error = refused(&Spec { binds: vec![bind], ..shell("true") });
    assert_eq!(error.code().name, "sandbox.no_image");
    assert!(error.to_string().contains("/no/such/bind"), "{error}");
}

#[test]
fn a_place_that_is_read_only() {
    let error = refused(&shell("true").file("/usr/new", "x"));
    assert!(error.to_string().starts_with("files.at: /usr/new: "), "{error}");
    let bind = Bind { host: "/usr".into(), at: "/usr/new".to_owned(), writable: false };
    let error = refused(&Spec { binds: vec![bind], ..shell("true") });
    assert!(error.to_string().starts_with("binds.at: "), "{error}");
}

#[test]
fn limits_out_of_range() {
    let error = refused(&Spec { limits: Limits { pids: 0, ..limits() }, ..shell("true") });
    assert_eq!(error.code().name, "sandbox.bad_limit");
}

#[test]
fn a_layer_that_this_host_lacks() {
    let require = BTreeSet::from([Layer::CgroupMemory]);
    let error = sandbox_without_cgroups().start(&Spec { require, ..shell("true") }).unwrap_err();
    assert_eq!(error.code().name, "sandbox.layer_missing");
    assert_eq!(error.to_string(), "the layer cgroup_memory is required, but switched off");
    let host = sandbox().host();
    for layer in Layer::ALL {
        let spec = Spec { require: [layer].into(), ..shell("true") };
        let started = sandbox().start(&spec);
        assert_eq!(started.is_ok(), host.standing(layer) == Standing::Enforced, "{layer}");
    }
}

#[test]
fn a_launcher_that_is_none() {
    let error =
        |program: &str| Ns::new(Options::new(program)).unwrap().start(&shell("true")).unwrap_err();
    assert_eq!(error("/no/such/launcher").code().name, "sandbox.failed");
    assert_eq!(error("/bin/true").code().name, "sandbox.failed");
    assert!(std::path::Path::new(LAUNCHER).is_file());
}
