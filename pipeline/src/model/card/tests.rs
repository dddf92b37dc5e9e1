use super::*;

const GOOD: &str = r#"
task = "classify"
onnx = "nets/x.onnx"
labels = "x.txt"
[input]
width_px = 224
height_px = 192
colour = "bgr"
[resize]
rule = "shortest"
short_px = 256
filter = "bicubic"
[normalise]
mean = [1, 2.5, 3]
std = [4, 5, 6]
[output]
decoder = "softmax"
"#;

fn parse(text: &str) -> Result<Card, ModelError> {
    Card::parse(text, Path::new("cards/x.toml"))
}

#[test]
fn a_card_with_defaults() {
    let card = parse(GOOD).unwrap();
    assert_eq!(card.onnx, Path::new("cards/nets/x.onnx"));
    assert_eq!(card.labels.as_deref(), Some(Path::new("cards/x.txt")));
    let desc = card.preprocess(Layout::Nhwc);
    assert_eq!((desc.width_px, desc.height_px, desc.colour), (224, 192, ColourOrder::Bgr));
    assert_eq!(desc.resize, ResizeRule::Shortest { short_px: 256 });
    assert_eq!((desc.filter, desc.antialias, desc.matching), (Filter::Bicubic, true, Match::Pillow));
    assert_eq!((desc.mean, desc.std), ([1.0, 2.5, 3.0], [4.0, 5.0, 6.0]));
    let expected = Output { decoder: Decoder::Softmax, background: false, top: 5, threshold: 0.0 };
    assert_eq!(card.output, expected);
}

#[test]
fn every_value_of_a_choice() {
    let with = |from: &str, to: &str| parse(&GOOD.replace(from, to)).unwrap();
    let letterbox =
        with("rule = \"shortest\"\nshort_px = 256", "rule = \"letterbox\"\nfill = [1, 2, 255]\nplace = \"top-left\"");
    let rule = ResizeRule::Letterbox { fill: [1, 2, 255], place: LetterboxPlace::TopLeft };
    assert_eq!(letterbox.resize.rule, rule);
    let bare = with("rule = \"shortest\"\nshort_px = 256", "rule = \"letterbox\"");
    assert_eq!(bare.resize.rule, ResizeRule::Letterbox { fill: [0; 3], place: LetterboxPlace::Centre });
    assert_eq!(with("rule = \"shortest\"\nshort_px = 256", "rule = \"stretch\"").resize.rule, ResizeRule::Stretch);
    assert_eq!(with("\"bgr\"", "\"rgb\"").input.colour, ColourOrder::Rgb);
    assert_eq!(
        with("\"bicubic\"", "\"nearest\"\nantialias = false\nmatch = \"pillow12\"").resize.matching,
        Match::Pillow12
    );
    assert_eq!(with("\"bicubic\"", "\"lanczos3\"").resize.filter, Filter::Lanczos3);
    let output = with("\"softmax\"", "\"probabilities\"\nbackground = true\ntop = 3\nthreshold = 0.25").output;
    let expected = Output { decoder: Decoder::Probabilities, background: true, top: 3, threshold: 0.25 };
    assert_eq!(output, expected);
}

#[test]
fn each_mistake_is_one_line_that_says_what_to_write() {
    for (from, to, expected) in [
        ("task = \"classify\"", "task = \"detect\"", "task: \"detect\" is not supported yet; write \"classify\""),
        ("task = \"classify\"", "", "missing field `task`"),
        ("\"nets/x.onnx\"", "\"\"", "onnx: empty"),
        ("width_px = 224", "width_px = 0", "input.width_px: 0 is out of range; write 1 to 8192"),
        ("width_px = 224", "width_px = \"224\"", "line 6: "),
        ("width_px", "width", "line 6: unknown field `width`"),
        ("height_px = 192", "height_px = -1", "input.height_px: -1 is out of range"),
        ("\"bgr\"", "\"grey\\n\"", "input.colour: \"grey\\n\" is unknown; write \"rgb\" or \"bgr\""),
        (
            "\"shortest\"",
            "\"crop\"",
            "resize.rule: \"crop\" is unknown; write \"shortest\" or \"stretch\" or \"letterbox\"",
        ),
        ("short_px = 256", "", "resize.short_px: missing; write the shorter side before the centre crop, 224 or more"),
        ("short_px = 256", "short_px = 223", "resize.short_px: 223 is out of range; write 224 to 8192"),
        ("[1, 2.5, 3]", "[1, 2]", "invalid length 2, expected three values"),
        ("[1, 2.5, 3]", "[1, 2.5, 3, 4]", "invalid length 4, expected three values"),
        ("short_px = 256", "short_px = 256\nfill = [0, 0, 0, 0]", "invalid length 4, expected three values"),
        ("short_px = 256", "short_px = 256\nfill = [0, 0, 0]", "resize.fill: belongs to rule = \"letterbox\""),
        ("\"shortest\"", "\"stretch\"", "resize.short_px: belongs to rule = \"shortest\", not \"stretch\""),
        ("\"shortest\"\nshort_px = 256", "\"letterbox\"\nfill = [0, 0, 256]", "resize.fill: 256 is out of range"),
        ("\"shortest\"\nshort_px = 256", "\"letterbox\"\nplace = \"left\"", "resize.place: \"left\" is unknown"),
        ("\"bicubic\"", "\"cubic\"", "resize.filter: \"cubic\" is unknown"),
        (
            "\"bicubic\"",
            "\"bicubic\"\nmatch = \"opencv\"",
            "resize.match: \"opencv\" is not supported yet; write \"pillow\"",
        ),
        ("[1, 2.5, 3]", "[1, nan, 3]", "normalise.mean: write three finite numbers"),
        ("[1, 2.5, 3]", "[1, 2.5]", "line 14: "),
        ("[4, 5, 6]", "[4, 5, 1e-40]", "(x - mean) / std overflows"),
        ("[1, 2.5, 3]\nstd = [4, 5, 6]", "[1, 2.5, 3e38]\nstd = [1, 1, 0.5]", "(x - mean) / std overflows"),
        ("[4, 5, 6]", "[4, 0, 6]", "normalise.std: write three numbers above 0"),
        (
            "\"softmax\"",
            "\"yolox\"",
            "output.decoder: \"yolox\" is not supported yet; write \"softmax\" or \"probabilities\"",
        ),
        ("\"softmax\"", "\"softmax\"\ntop = 0", "output.top: 0 is out of range; write 1 to 1000"),
        ("\"softmax\"", "\"softmax\"\nthreshold = 1.5", "output.threshold: 1.5 is no probability"),
        ("[output]", "[output", "line 16: "),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let message = parse(&GOOD.replace(from, to)).expect_err(to).to_string();
        assert!(message.starts_with("cards/x.toml: ") && message.contains(expected), "{to}: {message}");
        assert!(!message.contains('\n'), "{message:?}");
    }
}

#[test]
fn a_file_that_is_not_there() {
    let message = Card::read(Path::new("no/such.toml")).expect_err("absent").to_string();
    assert!(message.starts_with("no/such.toml: "), "{message}");
}

#[test]
fn the_card_of_a_bare_network_says_what_it_assumes() {
    let (card, assumptions) = Card::for_bare_onnx(Path::new("x.onnx"), 224, 224, false);
    assert_eq!(card.resize.rule, ResizeRule::Shortest { short_px: 256 });
    assert_eq!(card.output.decoder, Decoder::Softmax);
    let text = assumptions.join("\n");
    for word in ["RGB", "256 px", "224x224", "bilinear", "123.675", "58.395", "logits", "no labels"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let (card, _) = Card::for_bare_onnx(Path::new("x.onnx"), 224, 224, true);
    assert_eq!(card.output.decoder, Decoder::Probabilities);
}

#[test]
fn the_cards_of_this_project_are_good() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/models");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            Card::read(&path).unwrap();
            count += 1;
        }
    }
    assert!(count >= 2);
}
