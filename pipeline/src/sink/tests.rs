use std::fs;
use std::path::{Path, PathBuf};

use ocellus_kernels::preprocess::Transform;
use proptest::prelude::*;

use super::*;
use crate::error::{ErrorKind, ItemError, StageName};
use crate::frame::{Decoder, Item, Origin, PictureInfo, Results, Scored};

mod models;
mod names;

const COLUMNS: Columns = Columns { top: 2, models: Vec::new() };

fn item(path: impl Into<PathBuf>, payload: Result<Vec<Scored>, ItemError>) -> Item<Results> {
    let transform = Transform { scale: [1.0; 2], offset_px: [0.0; 2] };
    let info = PictureInfo { width_px: 500, height_px: 375, decoder: Decoder::Image, partial: false, transform };
    let payload = payload.map(|top| Results { info, top: top.into() });
    Item::new(0, Origin::File(path.into()), payload)
}

fn scored(class: u32, label: &str, score: f32) -> Scored {
    Scored { class, label: label.into(), score }
}

/// A path of arbitrary bytes.
fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned()
}

fn sample_rows() -> Vec<Row> {
    let error = ItemError::new(StageName::Decode, ErrorKind::Unsupported12Bit, "a \"quoted\",\nbroken line");
    let mut partial = Row::new(item("p.jpg", Ok(vec![scored(1, "x", 1.0)])));
    partial.partial = true;
    vec![
        Row::new(item("a.jpg", Ok(vec![scored(281, "tabby", 0.91), scored(282, "tiger, cat", 0.05)]))),
        Row::new(item("b,\"\n.jpg", Err(error))),
        Row::new(item(path_of(b"\xff\xfe.jpg"), Ok(vec![scored(0, "é", 1.0e-9)]))),
        Row::new(item("empty.jpg", Ok(vec![]))),
        partial,
    ]
}

const FORMATS: &[(&str, Format)] = &[
    ("jsonl", Format::Jsonl),
    ("csv", Format::Csv),
    #[cfg(feature = "parquet")]
    ("parquet", Format::Parquet),
];

fn open(path: &Path, existing: Existing) -> Result<(Writer, Earlier), JobError> {
    Writer::to_file(path, Format::of_file(path)?, existing, &COLUMNS, &Cancel::default())
}

fn partial(path: &Path) -> PathBuf {
    format!("{}.partial", path.display()).into()
}

fn write_all(path: &Path, rows: &[Row]) {
    let (mut writer, _) = open(path, Existing::Refuse).unwrap();
    for row in rows {
        writer.write(row).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn json_rows_have_the_documented_form() {
    let lines: Vec<String> = sample_rows().iter().map(|r| serde_json::to_string(r).unwrap()).collect();
    assert_eq!(
        lines[0],
        r#"{"path":"a.jpg","width":500,"height":375,"decoder":"image","top":[{"class":281,"label":"tabby","score":0.91},{"class":282,"label":"tiger, cat","score":0.05}]}"#
    );
    assert_eq!(
        lines[1],
        r#"{"path":"b,\"\n.jpg","error":{"stage":"decode","kind":"unsupported-12-bit","message":"a \"quoted\",\nbroken line"}}"#
    );
    assert!(lines[2].starts_with(r#"{"path":"��.jpg","path_bytes":"fffe2e6a7067","width""#), "{}", lines[2]);
    assert!(lines[3].ends_with(r#""decoder":"image","top":[]}"#), "{}", lines[3]);
    assert!(lines[4].contains(r#""decoder":"image","partial":true,"top":["#), "{}", lines[4]);
    for (line, row) in lines.iter().zip(sample_rows()) {
        assert_eq!(serde_json::from_str::<Row>(line).unwrap(), row);
    }
}

#[test]
fn csv_rows_have_the_columns_of_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.csv");
    write_all(&path, &sample_rows());
    let mut reader = csv::Reader::from_path(&path).unwrap();
    let header: Vec<_> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!(
        header.join(","),
        "path,path_bytes,width,height,decoder,partial,error_stage,error_kind,error_message,class1,label1,score1,class2,label2,score2"
    );
    let records: Vec<Vec<String>> = reader.records().map(|r| r.unwrap().iter().map(str::to_owned).collect()).collect();
    assert_eq!(records[0].join("|"), "a.jpg||500|375|image|false||||281|tabby|0.91|282|tiger, cat|0.05");
    assert_eq!(records[1].join("|"), "b,\"\n.jpg|||||false|decode|unsupported-12-bit|a \"quoted\",\nbroken line||||||");
    assert_eq!(records.len(), 5);
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_gives_back_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let (path, back) = (folder.path().join("x.parquet"), folder.path().join("back"));
    let rows = sample_rows();
    write_all(&path, &rows);
    parquet::to_jsonl(&path, &back).unwrap();
    let read: Vec<Row> = fs::read_to_string(&back).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(read, rows);
    assert!(!partial(&path).exists() && !folder.path().join("x.parquet.tmp").exists());
}

#[test]
fn an_output_that_exists_is_not_replaced_unasked() {
    for (extension, _) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("x.{extension}"));
        write_all(&path, &sample_rows());
        let before = fs::read(&path).unwrap();
        let error = open(&path, Existing::Refuse).err().unwrap().to_string();
        assert!(error.contains("--overwrite") && error.contains("--resume") && !error.contains('\n'), "{error}");
        assert!(fs::read(&path).unwrap() == before && !partial(&path).exists(), "nothing changed");
        let (writer, earlier) = open(&path, Existing::Overwrite).unwrap();
        assert_eq!(earlier.rows(), 0);
        assert!(fs::read(&path).unwrap() == before, "replaced only at the end");
        writer.finish().unwrap();
        assert!(fs::read(&path).unwrap() != before);
    }
}

#[test]
fn a_second_job_cannot_write_the_same_output() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl");
    let (mut first, _) = open(&path, Existing::Refuse).unwrap();
    first.write(&sample_rows()[0]).unwrap();
    for existing in [Existing::Refuse, Existing::Overwrite, Existing::Resume] {
        let error = open(&path, existing).err().unwrap().to_string();
        assert!(error.contains("another job"), "{error}");
    }
    first.finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
}

#[test]
fn resume_continues_from_any_byte_a_killed_job_left() {
    let rows = sample_rows();
    for (extension, format) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("x.{extension}"));
        // What the job would have left behind, whole.
        let (mut writer, _) = open(&path, Existing::Refuse).unwrap();
        for row in &rows {
            writer.write(row).unwrap();
        }
        assert!(writer.abandon().is_some());
        let spool = fs::read(partial(&path)).unwrap();
        let complete = Writer::to_file(&path, *format, Existing::Resume, &COLUMNS, &Cancel::default()).unwrap().0;
        complete.finish().unwrap();
        let expected = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        for cut in (0..=spool.len()).step_by(5) {
            fs::write(partial(&path), &spool[..cut]).unwrap();
            let (mut writer, mut earlier) = open(&path, Existing::Resume).unwrap();
            for row in &rows {
                if !earlier.take(&row.file_path().unwrap()) {
                    writer.write(row).unwrap();
                }
            }
            writer.finish().unwrap();
            assert_eq!(fs::read(&path).unwrap(), expected, "{extension} cut at {cut}");
            assert!(!partial(&path).exists());
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn resume_continues_a_finished_output() {
    let rows = sample_rows();
    for (extension, _) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("x.{extension}"));
        write_all(&path, &rows[..2]);
        let (mut writer, mut earlier) = open(&path, Existing::Resume).unwrap();
        assert_eq!((earlier.rows(), earlier.failed()), (2, 1), "{extension}");
        for row in &rows {
            if !earlier.take(&row.file_path().unwrap()) {
                writer.write(row).unwrap();
            }
        }
        writer.finish().unwrap();
        let other = folder.path().join(format!("y.{extension}"));
        write_all(&other, &rows);
        assert_eq!(fs::read(&path).unwrap(), fs::read(&other).unwrap(), "{extension}");
    }
}

#[test]
fn what_is_no_output_of_this_program_is_not_continued() {
    let folder = tempfile::tempdir().unwrap();
    let own = "path,path_bytes,width,height,decoder,partial,error_stage,error_kind,error_message";
    let one = format!("{own},class1,label1,score1\n");
    let torn = format!("{own},class1,label1,score1,class2,label2,score2\na.jpg,,1");
    let cases: &[(&str, &[u8])] = &[
        ("a.jsonl", b"not json\n{\"path\":\"a\"}\n"),
        ("b.csv", b"path,label\na.jpg,cat\n"),
        ("c.jsonl", b"{\"image\":\"a\"}\n{\"path\":\"a\"}\n"),
        ("d.txt", b"a.jpg  0.9 cat\n"),
        // Of one line, or with a last line that is not ours or not whole: there is nothing torn about a finished file.
        ("e.json", b"[{\"image\":\"a\"}]"),
        ("f.json", b"[{\"path\":\"a\"}]\n"),
        ("g.jsonl", b"{\"image\":\"a\"}\n"),
        ("h.jsonl", b"{\"path\":\"a\"}"),
        ("i.jsonl", b"{\"path\":\"a\"}\n{\"pa"),
        ("j.jsonl", b"{\"path\":\"a\"}\n\0\0\0\0"),
        ("k.jsonl", b"\n"),
        ("l.csv", b"path,label"),
        ("m.csv", b"path,label\n"),
        ("n.csv", one.as_bytes()),
        ("o.csv", torn.as_bytes()),
        ("p.txt", b"x"),
        ("s.csv", b"a,b,c"),
        ("t.jsonl", b"no line end"),
        ("u.jsonl", b"\xef\xbb\xbf{\"path\":\"q.jpg\"}\n"),
        ("v.jsonl", b"{\"path\":\"a\"}\n{\"path\":\"b\",\"decoder\":\"of a later version\"}\n"),
        #[cfg(feature = "parquet")]
        ("q.parquet", b"not parquet"),
        #[cfg(feature = "parquet")]
        ("r.parquet", &parquet::tests::foreign()),
    ];
    for &(name, content) in cases {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let error = open(&path, Existing::Resume).err().unwrap().to_string();
        assert!(error.contains("--overwrite") && !error.contains('\n'), "{name}: {error}");
        assert!(error.contains(name) && !error.contains(".partial"), "names what the user has: {error}");
        assert!(fs::read(&path).unwrap() == content, "{name}");
        fs::remove_file(path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name}: nothing beside it");
    }
}

#[test]
fn what_no_job_leaves_behind_is_not_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let header = "path,path_bytes,width,height,decoder,partial,error_stage,error_kind,error_message,class1,label1,score1,class2,label2,score2\n";
    let row = "a.jpg,,,,,false,decode,corrupt,x,,,,,,\n";
    let lost_quote = format!("{header}\"{}", row.repeat(10_000));
    let few = format!("{header}/x.jpg\n{row}");
    let many = format!("{header}/x.jpg{}\n{row}", ",".repeat(15));
    let cases: &[(&str, &str)] = &[
        ("a.jsonl", "no line end"),
        ("b.jsonl", "one line of notes\n"),
        ("c.jsonl", "\u{feff}{\"path\":\"q.jpg\"}\n"),
        ("d.csv", "a,b,c"),
        ("e.csv", "a,b,c\n1,2,3\n"),
        ("f.csv", &lost_quote),
        ("g.csv", &few),
        ("h.csv", &many),
        #[cfg(feature = "parquet")]
        ("i.parquet", "notes"),
    ];
    for (name, content) in cases {
        let path = folder.path().join(name);
        fs::write(partial(&path), content).unwrap();
        let error = open(&path, Existing::Resume).err().unwrap().to_string();
        assert!(error.contains("--overwrite") && !error.contains('\n'), "{name}: {error}");
        assert!(fs::read_to_string(partial(&path)).unwrap() == *content, "{name}");
    }
    // What a job or a power cut does leave.
    for rest in [&b"{"[..], b"{\"path", b"{\"path\":\"a.jpg\",\"wid", &[0; 700]] {
        let path = folder.path().join("z.jsonl");
        fs::write(partial(&path), rest).unwrap();
        drop(open(&path, Existing::Resume).unwrap());
        assert_eq!(fs::read(partial(&path)).unwrap(), b"");
    }
}

#[test]
fn links_are_followed_to_the_output_and_never_from_the_partial_file() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (extension, _) in FORMATS {
        let (real, link) = (path(&format!("real.{extension}")), path(&format!("link.{extension}")));
        write_all(&real, &sample_rows());
        symlink(&real, &link).unwrap();
        for existing in [Existing::Overwrite, Existing::Resume] {
            let (mut writer, _) = open(&link, existing).unwrap();
            writer.write(&sample_rows()[0]).unwrap();
            writer.finish().unwrap();
            assert!(link.is_symlink() && !real.is_symlink(), "{extension}: the link stays");
        }
        assert_eq!(open(&real, Existing::Resume).unwrap().1.rows(), 2);
        let precious = path("precious");
        fs::write(&precious, "precious").unwrap();
        let planted = path(&format!("y.{extension}"));
        symlink(&precious, partial(&planted)).unwrap();
        symlink(&precious, path(&format!("z.{extension}.partial.tmp"))).unwrap();
        for existing in [Existing::Refuse, Existing::Overwrite, Existing::Resume] {
            assert!(open(&planted, existing).err().unwrap().to_string().contains("a link"), "{extension}");
        }
        write_all(&path(&format!("z.{extension}")), &sample_rows());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious", "{extension}");
    }
    symlink(path("nowhere"), path("dangling.csv")).unwrap();
    assert!(open(&path("dangling.csv"), Existing::Overwrite).err().unwrap().to_string().contains("leads nowhere"));
    assert!(path("dangling.csv").is_symlink());
}

#[test]
fn a_replaced_output_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    for (extension, _) in FORMATS {
        let path = folder.path().join(format!("x.{extension}"));
        write_all(&path, &sample_rows());
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        for existing in [Existing::Overwrite, Existing::Resume] {
            open(&path, existing).unwrap().0.finish().unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640, "{extension} {existing:?}");
        }
    }
}

#[test]
fn a_partial_file_without_rows_is_no_unfinished_job() {
    let folder = tempfile::tempdir().unwrap();
    for (extension, _) in FORMATS {
        let path = folder.path().join(format!("x.{extension}"));
        let (writer, _) = open(&path, Existing::Refuse).unwrap();
        // As a job leaves it that is killed before its first row.
        let header = fs::read(partial(&path)).unwrap();
        drop(writer);
        let mut blanks = vec![vec![], header.clone(), header[..header.len() / 2].to_vec()];
        if *extension == "csv" {
            blanks.push([&header[..header.len() - 1], b",class3,label3,score3\n"].concat());
        }
        for blank in blanks {
            for existing in [Existing::Refuse, Existing::Overwrite, Existing::Resume] {
                fs::write(partial(&path), &blank).unwrap();
                let (mut writer, earlier) = open(&path, existing).unwrap();
                assert_eq!((earlier.rows(), fs::read(partial(&path)).unwrap()), (0, header.clone()), "{blank:?}");
                writer.write(&sample_rows()[0]).unwrap();
                writer.abandon().unwrap();
                let error = open(&path, Existing::Refuse).err().unwrap().to_string();
                assert!(error.contains("unfinished job"), "{error}");
            }
        }
        fs::remove_file(partial(&path)).unwrap();
    }
}

#[test]
fn a_resumed_job_without_a_new_row_leaves_the_output_as_it_was() {
    for (extension, _) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("x.{extension}"));
        write_all(&path, &sample_rows());
        let before = fs::read(&path).unwrap();
        let (writer, _) = open(&path, Existing::Resume).unwrap();
        assert_eq!(writer.abandon(), None);
        assert!(fs::read(&path).unwrap() == before, "{extension}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{extension}");
        let (mut writer, _) = open(&path, Existing::Resume).unwrap();
        writer.write(&sample_rows()[0]).unwrap();
        assert_eq!(writer.abandon(), Some(partial(&path)), "{extension}: with one it is kept");
    }
}

#[test]
fn of_two_jobs_that_resume_a_finished_output_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (extension, _) in FORMATS {
        let path = folder.path().join(format!("x.{extension}"));
        write_all(&path, &sample_rows());
        for round in 0..50 {
            let start = std::sync::Barrier::new(2);
            let (opened, refused): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
                let resume = || {
                    start.wait();
                    open(&path, Existing::Resume)
                };
                let jobs = [scope.spawn(resume), scope.spawn(resume)];
                jobs.map(|job| job.join().unwrap()).into_iter().partition(Result::is_ok)
            });
            assert_eq!((opened.len(), refused.len()), (1, 1), "{extension}, round {round}");
            for (writer, earlier) in opened.into_iter().flatten() {
                assert_eq!(earlier.rows(), sample_rows().len() as u64);
                writer.finish().unwrap();
            }
        }
        assert_eq!(open(&path, Existing::Resume).unwrap().1.rows(), sample_rows().len() as u64);
        fs::remove_file(partial(&path)).unwrap();
    }
}

#[test]
fn devices_pipes_and_own_open_files_are_written_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("x.jsonl");
    fs::write(&plain, "before\n").unwrap();
    let link = folder.path().join("link.jsonl");
    std::os::unix::fs::symlink(&plain, &link).unwrap();
    let file = fs::File::open(&plain).unwrap();
    let own = PathBuf::from(format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
    for (path, stream) in [
        (Path::new("/dev/null"), true),
        (Path::new("/dev/stdout"), true),
        (&own, true),
        (&plain, false),
        (&link, false),
    ] {
        assert_eq!(is_stream(path), stream, "{}", path.display());
    }
    let (mut writer, _) = Writer::to_file(&own, Format::Jsonl, Existing::Refuse, &COLUMNS, &Cancel::default()).unwrap();
    writer.write(&sample_rows()[0]).unwrap();
    writer.finish().unwrap();
    let text = fs::read_to_string(&plain).unwrap();
    assert!(text.starts_with("before\n{\"path\":\"a.jpg\"") && text.lines().count() == 2, "{text}");
    let error =
        Writer::to_file(&own, Format::Jsonl, Existing::Resume, &COLUMNS, &Cancel::default()).err().unwrap().to_string();
    assert!(error.contains("plain file"), "{error}");
}

#[test]
fn a_full_device_is_an_error_of_one_line() {
    let (mut writer, _) =
        Writer::to_file(Path::new("/dev/full"), Format::Jsonl, Existing::Refuse, &COLUMNS, &Cancel::default()).unwrap();
    let error = writer.write(&sample_rows()[0]).unwrap_err().to_string();
    assert!(error.contains("/dev/full") && error.contains("No space left") && !error.contains('\n'), "{error}");
    // Its header is the first thing that is written.
    let csv = Writer::to_file(Path::new("/dev/full"), Format::Csv, Existing::Refuse, &COLUMNS, &Cancel::default());
    let error = csv.err().unwrap().to_string();
    assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");
}

#[test]
fn a_job_without_rows_leaves_nothing() {
    for (extension, _) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let (writer, _) = open(&folder.path().join(format!("x.{extension}")), Existing::Refuse).unwrap();
        assert_eq!(writer.abandon(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_path_and_text_survive_every_format(
        paths in prop::collection::vec(prop::collection::vec(1_u8.., 1..12), 1..6),
        label in ".{0,20}",
        score in 0.0_f32..1.0,
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (extension, _) in FORMATS {
            let file = folder.path().join(format!("x.{extension}"));
            let top = vec![scored(7, &label, score)];
            let rows: Vec<Row> = paths.iter().map(|p| Row::new(item(path_of(p), Ok(top.clone())))).collect();
            write_all(&file, &rows);
            let (mut writer, mut earlier) = open(&file, Existing::Resume).unwrap();
            for path in &paths {
                prop_assert!(earlier.take(&path_of(path)), "{} {:?}", extension, path);
            }
            for path in &paths {
                prop_assert!(!earlier.take(&path_of(path)), "each counts once");
            }
            writer.write(&rows[0]).unwrap();
            writer.finish().unwrap();
        }
    }
}
