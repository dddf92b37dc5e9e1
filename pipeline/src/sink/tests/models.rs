//! Rows of several models.

use super::*;

fn columns() -> Columns {
    Columns { top: 2, models: ["small", "large"].map(Arc::from).to_vec() }
}

fn open_several(path: &Path, existing: Existing) -> Result<(Writer, Earlier), JobError> {
    Writer::to_file(path, Format::of_file(path)?, existing, &columns(), &Cancel::default())
}

/// The sample rows as both models give them.
fn rows() -> Vec<Row> {
    let of_model =
        |row: &Row| columns().models.into_iter().map(|model| Row { model: Some(model), ..row.clone() }).collect();
    sample_rows().iter().flat_map(|row| -> Vec<Row> { of_model(row) }).collect()
}

fn write_some(path: &Path, rows: &[Row]) -> Writer {
    let (mut writer, _) = open_several(path, Existing::Refuse).unwrap();
    for row in rows {
        writer.write(row).unwrap();
    }
    writer
}

#[test]
fn every_format_names_the_model_only_where_there_are_several() {
    let line = serde_json::to_string(&rows()[0]).unwrap();
    assert!(line.starts_with(r#"{"path":"a.jpg","model":"small","width":500"#), "{line}");
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("rows.csv");
    write_some(&csv, &rows()).finish().unwrap();
    let text = fs::read_to_string(&csv).unwrap();
    assert!(text.starts_with("path,path_bytes,model,width,height,"), "{text}");
    assert!(text.contains("\na.jpg,,large,500,375,image,"), "{text}");
    let line = table::Table::new(Some(80)).line(&rows()[1]);
    assert!(line.starts_with("a.jpg (large) ") && line.contains("tabby"), "{line}");
    assert!(!table::Table::new(Some(80)).line(&sample_rows()[0]).contains('('), "one model has no name");
}

/// Killed after any row, and within it: what is there of an input without all its rows is cut off, whole rows included.
#[test]
fn an_input_is_done_when_all_its_rows_are_there() {
    let rows = rows();
    for (extension, _) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("rows.{extension}"));
        write_some(&path, &rows).finish().unwrap();
        let complete = fs::read(&path).unwrap();
        for whole in 0..=rows.len() {
            for torn in [false, true] {
                fs::remove_file(&path).unwrap();
                let writer = write_some(&path, &rows[..whole]);
                drop(writer);
                if torn {
                    use std::io::Write as _;
                    let mut file = fs::File::options().append(true).open(partial(&path)).unwrap();
                    let start: &[u8] = if *extension == "csv" { b"c.jpg,,sm" } else { b"{\"path\":\"c.jpg\"," };
                    file.write_all(start).unwrap();
                }
                let (mut writer, mut earlier) = open_several(&path, Existing::Resume).unwrap();
                assert_eq!(earlier.rows() as usize, whole / 2, "{extension} {whole}");
                for row in &rows[whole / 2 * 2..] {
                    assert!(!earlier.take(&row.file_path().unwrap()), "{extension} {whole}");
                    writer.write(row).unwrap();
                }
                writer.finish().unwrap();
                assert_eq!(fs::read(&path).unwrap(), complete, "{extension} {whole}");
            }
        }
        let (_, mut earlier) = open_several(&path, Existing::Resume).unwrap();
        assert_eq!((earlier.rows(), earlier.failed()), (5, 1), "{extension}");
        assert!(rows.iter().step_by(2).all(|row| earlier.take(&row.file_path().unwrap())));
    }
}

#[test]
fn rows_of_other_models_are_not_continued() {
    for (extension, _) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let (several, one) =
            (folder.path().join(format!("s.{extension}")), folder.path().join(format!("o.{extension}")));
        write_some(&several, &rows()).finish().unwrap();
        write_all(&one, &sample_rows());
        let names = [["large", "small"], ["small", "other"]];
        let others = names.map(|names| Columns { top: 2, models: names.map(Arc::from).to_vec() });
        let three = Columns { top: 2, models: ["small", "large", "third"].map(Arc::from).to_vec() };
        let one_model = COLUMNS;
        let cases = others.iter().chain([&three, &one_model]).map(|columns| (&several, columns.clone()));
        for (path, columns) in cases.chain([(&one, columns())]) {
            let before = fs::read(path).unwrap();
            let format = Format::of_file(path).unwrap();
            let error = Writer::to_file(path, format, Existing::Resume, &columns, &Cancel::default())
                .err()
                .unwrap()
                .to_string();
            assert!(error.contains("models") && error.contains("--overwrite"), "{extension} {columns:?}: {error}");
            assert_eq!(fs::read(path).unwrap(), before, "{error}");
        }
    }
}
