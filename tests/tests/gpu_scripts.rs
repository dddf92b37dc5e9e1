//! What `tests/gpu` makes of a run's logs, with programs that only pretend: no test is taken for passed or clean that did
//! not come to its end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::workspace_root;

fn python(script: &str) -> Command {
    let mut command = Command::new("python3");
    // Nothing is left beside the script.
    command.arg("-B").arg(workspace_root().join("tests/gpu").join(script));
    command
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn program(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A bundle whose programs only pretend.
struct Bundle(TempDir);

impl Bundle {
    /// With a program of tests, and the one that they start.
    fn new(name: &str, tests: &str, ocellus: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        program(&bin.join("ocellus"), ocellus);
        program(&bin.join(name), tests);
        Self(folder)
    }

    /// Puts a program where the system looks for it.
    fn tool(&self, name: &str, text: &str) {
        program(&self.0.path().join(name), text);
    }

    /// Puts compute-sanitizer there, which does this with the command in `$@` and the log in `$log`.
    fn checked_by(&self, text: &str) {
        let options = "while [ \"${1#--}\" != \"$1\" ]; do\n\
                       [ \"$1\" = --log-file ] && log=$(echo \"$2\" | sed s/%p/$$/)\nshift 2\ndone\n";
        self.tool("compute-sanitizer", &format!("{options}{text}"));
    }

    /// `sanitizer.py` in it.
    fn sanitizer(&self, options: &[&str]) -> Command {
        let mut sanitizer = python("sanitizer.py");
        let path = format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        sanitizer.args(options).current_dir(self.0.path()).env("PATH", path);
        sanitizer
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

#[test]
fn a_report_counts_what_ran_and_keeps_what_an_earlier_part_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second, file) = (folder.path().join("1"), folder.path().join("2"), folder.path().join("report.json"));
    let write = |path: &Path, text: &str| fs::write(path, text).unwrap();
    let figure = |name: &str, value: f64| json!({ "name": name, "value": value, "unit": "img/s", "spread": 1.0, "bound_percent": null });
    let peer = |peer: &str, value: f64| json!({ "name": "decode", "peer": peer, "value": value, "spread": 2.0 });
    for logs in [&first, &second] {
        fs::create_dir_all(logs.join("sanitizer")).unwrap();
    }
    write(&first.join("gpu_a.log"), "skipped b: a real GPU\ntest a ... ok\ntest b ... ok\ntest c ... FAILED\n");
    write(&first.join("gpu_a.status"), "101\n");
    write(&first.join("gpu_b.log"), "test d ... ok\nout of time\n");
    write(&first.join("gpu_b.status"), "124\n");
    write(&first.join("gpu_c.log"), "Segmentation fault\n");
    write(&first.join("gpu_c.status"), "139\n");
    let mut decode = figure("decode", 30.0);
    decode["decoders_percent"] = json!({ "nvjpeg-hw": 75.0, "image": 25.0 });
    write(&first.join("bench-a.json"), &json!([figure("infer", 5.0), decode]).to_string());
    write(&first.join("peers.json"), &json!([peer("slow", 10.0), peer("fast", 20.0)]).to_string());
    write(&second.join("bench-a.json"), &json!([figure("infer", 7.0)]).to_string());
    write(&second.join("soak.json"), &json!({ "seconds": 600, "images": 5 }).to_string());
    write(&second.join("sanitizer/summary.json"), &json!({ "memcheck": { "tests": 3, "errors": 0 } }).to_string());
    let report = |logs: &Path, commit: &str| {
        run(python("report.py").arg(logs).arg(commit).arg(&file));
        read(&file)
    };

    let whole = report(&first, "abc");
    assert_eq!(
        whole["tests"],
        json!({
            "passed": 2,
            "failed": 3,
            "failures": ["gpu_a: c", "gpu_b: out of time", "gpu_c: status 139"],
            "skipped": { "a real GPU": 1 },
        })
    );
    let decode = &whole["results"][1];
    assert_eq!(decode["decoders_percent"]["nvjpeg-hw"], json!(75.0));
    assert_eq!((&decode["peer"], &decode["peer_value"], &decode["ratio"]), (&json!("fast"), &json!(20.0), &json!(1.5)));

    let added = report(&second, "abc");
    assert_eq!(added["tests"], whole["tests"]);
    assert_eq!((&added["sanitizer"]["memcheck"]["tests"], &added["soak"]["images"]), (&json!(3), &json!(5)));
    let values: Vec<_> = added["results"].as_array().unwrap().iter().map(|r| (&r["name"], &r["value"])).collect();
    assert_eq!(values, [(&json!("decode"), &json!(30.0)), (&json!("infer"), &json!(7.0))]);
    assert_eq!(report(&second, "def")["results"].as_array().unwrap().len(), 1);
}

#[test]
fn what_a_sanitizer_did_not_see_to_its_end_is_not_clean() {
    let bundle = Bundle::new(
        "gpu_x",
        "[ \"$1\" = --list ] && { for t in clean faulty slow broken skipped cut; do echo \"$t: test\"; done; exit; }\n\
         case $2 in broken) exit 101;; skipped) echo 'test skipped ... skipped skipped: no reason';; esac\n\
         case $2$OCELLUS_TEST_TOOL in slow*check) sleep 60;; esac\n",
        "",
    );
    // Reports one fault for one test, and does not come to its end for another.
    bundle.checked_by(
        "echo '========= COMPUTE-SANITIZER' >\"$log\"\n\
         \"$@\" || exit $?\n\
         [ \"$3\" = cut ] && exit\n\
         [ \"$3\" = faulty ] && printf '========= Invalid read\\n=========     at conv+0x10\\n' >>\"$log\"\n\
         [ \"$3\" = faulty ] && n=1\n\
         echo \"========= ERROR SUMMARY: ${n:-0} errors\" >>\"$log\"\n",
    );
    let options = ["out", "--tools", "memcheck,initcheck", "--seconds", "8", "--jobs", "4"];
    let output = run(&mut bundle.sanitizer(&options));
    let said = String::from_utf8_lossy(&output.stdout);
    let summary = read(&bundle.path("out/summary.json"));
    for tool in ["memcheck", "initcheck"] {
        let counts = ["tests", "errors", "failed", "timed_out"].map(|key| summary[tool][key].as_u64().unwrap());
        // Clean, faulty and cut ended; broken fails without a tool already.
        assert_eq!(counts, [3, 1, 2, 1], "{tool}: {said}");
    }
    for part in
        ["Invalid read", "at conv+0x10", "timed out: gpu_x::slow", "failed: gpu_x::cut", "failed: gpu_x::broken"]
    {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

/// The time ends for one of two tests; a later run does that one alone, and its summary is of both.
#[test]
fn a_sanitizer_goes_on_where_its_time_ended() {
    let bundle = Bundle::new(
        "gpu_x",
        "[ \"$1\" = --list ] && { echo 'quick: test'; echo 'slow: test'; echo 'skipped: test'; exit; }\n\
         [ $2 = skipped ] && echo 'test skipped ... skipped skipped: no reason'\n\
         echo \"$2 $OCELLUS_TEST_TOOL\" >>ran\n\
         [ -z \"$PATIENT\" ] && [ \"$2$OCELLUS_TEST_TOOL\" = slowmemcheck ] && sleep 60; true\n",
        "",
    );
    bundle.checked_by("\"$@\"\necho \"========= ERROR SUMMARY: 0 errors\" >\"$log\"\n");
    let sanitizer = |output: &str, seconds: &str, more: &[&str], patient: &str| {
        let options = [output, "--tools", "memcheck,initcheck", "--seconds", seconds, "--jobs", "4"];
        run(bundle.sanitizer(&options).args(more).env("PATIENT", patient));
        let summary = read(&bundle.path(output).join("summary.json"));
        let ran = fs::read_to_string(bundle.path("ran")).unwrap();
        fs::remove_file(bundle.path("ran")).unwrap();
        let counts = |tool: &str| ["tests", "failed", "timed_out"].map(|key| summary[tool][key].as_u64().unwrap());
        ([counts("memcheck"), counts("initcheck")], ran.lines().count())
    };
    assert_eq!(sanitizer("first", "25", &[], ""), ([[1, 0, 1], [2, 0, 0]], 7));
    assert_eq!(sanitizer("second", "60", &["--go-on", "first/jobs.json"], "yes"), ([[2, 0, 0], [2, 0, 0]], 1));
}

/// Where a test that uses the GPU itself starts the program, what its tool tells it is not for that.
#[test]
fn a_program_beside_a_checked_test_is_left_alone() {
    let bundle = Bundle::new(
        "gpu_single",
        "[ \"$1\" = --list ] && { echo 'both: test'; exit; }\n\
         \"$OCELLUS_TEST_PROGRAM\" 'an argument' || [ -z \"$OCELLUS_TEST_TOOL\" ] || exit 101\n",
        "[ \"$1\" = an\\ argument ] && [ -z \"$CUDA_INJECTION64_PATH$NV_SANITIZER_PORT$OTHER\" ] && [ -n \"$OCELLUS_TEST_TOOL\" ]",
    );
    bundle.checked_by(
        "CUDA_INJECTION64_PATH=/tool.so NV_SANITIZER_PORT=5 OTHER=6 \"$@\" || exit $?\n\
         echo \"========= ERROR SUMMARY: 0 errors\" >\"$log\"\n",
    );
    let output = run(&mut bundle.sanitizer(&["out", "--tools", "memcheck", "--seconds", "60", "--jobs", "1"]));
    let summary = read(&bundle.path("out/summary.json"));
    let counts = ["tests", "failed"].map(|key| summary["memcheck"][key].as_u64().unwrap());
    assert_eq!(counts, [1, 0], "{}", String::from_utf8_lossy(&output.stdout));
}

/// The GPU's memory is full: processes come one after another.
#[test]
fn the_sanitizer_waits_for_memory_of_the_gpu() {
    let bundle = Bundle::new(
        "gpu_x",
        "[ \"$1\" = --list ] && { for t in a b c d; do echo \"$t: test\"; done; exit; }\n\
         mkdir running || exit 101\n\
         sleep 0.7; rmdir running\n",
        "",
    );
    bundle.tool("nvidia-smi", "echo 1000");
    let output = run(&mut bundle.sanitizer(&["out", "--tools", "", "--seconds", "60", "--jobs", "4"]));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("plainly {'passed': 4}"), "{said}");
}

/// A worker that cannot do its work, here for the name of a test that is no file's: no summary says that all is well.
#[test]
fn an_error_of_the_sanitizers_own_fails_its_run() {
    let bundle = Bundle::new("gpu_x", "[ \"$1\" = --list ] && echo 'no/file: test'\n", "");
    let options = ["out", "--tools", "memcheck", "--seconds", "20", "--jobs", "3"];
    let output = bundle.sanitizer(&options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no/file"), "{said}");
    assert!(!bundle.path("out/summary.json").exists());
}

/// What a soak says of a program that only pretends to classify: `$HOW` says how well.
#[test]
fn a_soak_sees_what_grows_slows_down_changes_or_is_missing() {
    let fake = r#"
import os, sys
if sys.argv[1] == "bench":
    os.makedirs(sys.argv[-1])
    for n in range(4):
        open(f"{sys.argv[-1]}/{n}.jpg", "wb").write(b"x" * 1000)
    sys.exit()
import time
how, kept, started = os.environ["HOW"], [], time.monotonic()
for n, line in enumerate(sys.stdin.buffer):
    path = line.strip()
    if how == "forgets" and n == 500:
        continue
    if how == "changes" and n > 1000 and n % 2:
        path += b"x"
    seconds = time.monotonic() - started
    # By the clock, not by rows, of which a busy machine makes few.
    if how == "grows" and len(kept) < seconds:
        kept.append(bytearray(b"x") * (12 << 20))
    bad = b',"error":{' if b"bad" in path else b""
    sys.stdout.buffer.write(b'{"path":"' + path + b'"' + bad + b"}\n")
    if n % 10 == 0:
        time.sleep(0.3 if how == "slows" and 7 < seconds < 14 else 0.01)
sys.exit(3)
"#;
    let cases = [
        ("well", None),
        ("grows", Some("rss rose")),
        ("slows", Some("the rate fell")),
        ("changes", Some("rows that changed")),
        ("forgets", Some("rows for")),
    ];
    let folder = tempfile::tempdir().unwrap();
    program(&folder.path().join("ocellus"), "exec python3 -B \"$(dirname \"$0\")/fake.py\" \"$@\"\n");
    fs::write(folder.path().join("fake.py"), fake).unwrap();
    // At the same time: each takes as long as it is told to.
    let soaks = cases.map(|(how, _)| {
        let mut soak = Command::new(workspace_root().join("tests/gpu/soak.sh"));
        soak.arg("12").env("OCELLUS_TEST_PROGRAM", folder.path().join("ocellus")).env("HOW", how);
        soak.env("SOAK_LIGHT", "1").stdout(std::process::Stdio::piped()).spawn().unwrap()
    });
    for ((how, problem), soak) in cases.into_iter().zip(soaks) {
        let output = soak.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let figures: Value = serde_json::from_str(&said).unwrap();
        let problems = figures["problems"].to_string();
        assert!(figures["images"].as_u64().unwrap() > 500 && figures["failed"].as_u64().unwrap() > 0, "{how}: {said}");
        match problem {
            // A busy machine may make anything slower.
            None => assert!(
                figures["problems"].as_array().unwrap().iter().all(|p| p.as_str().unwrap().contains("rate")),
                "{said}"
            ),
            Some(problem) => assert!(problems.contains(problem) && output.status.code() == Some(1), "{how}: {said}"),
        }
    }
}
