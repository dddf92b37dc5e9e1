//! Prometheus's text format, <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::Write as _;
use std::time::Duration;

use super::Durations;

/// Upper bounds of the buckets of a histogram, in milliseconds.
const BOUNDS_MS: [u64; 16] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 300_000];

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A page in the making.
#[derive(Debug, Default)]
pub struct Exposition(String);

/// Samples of one name.
#[derive(Debug)]
pub struct Family<'a> {
    page: &'a mut String,
    name: &'a str,
}

impl Exposition {
    /// A metric; its samples follow.
    pub fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
        self.head(name, kind, help);
        Family { page: &mut self.0, name }
    }

    /// Durations as a histogram in seconds.
    pub fn histogram(&mut self, name: &str, help: &str, durations: &Durations) {
        self.head(name, "histogram", help);
        let (bucket, sum, count) = (format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count"));
        let mut buckets = Family { page: &mut self.0, name: &bucket };
        for ms in BOUNDS_MS {
            let up_to = durations.count_up_to(Duration::from_millis(ms));
            buckets.sample(&[("le", &(ms as f64 / 1e3).to_string())], up_to as f64);
        }
        buckets.sample(&[("le", "+Inf")], durations.count() as f64);
        Family { page: &mut self.0, name: &sum }.sample(&[], durations.sum().as_secs_f64());
        Family { page: &mut self.0, name: &count }.sample(&[], durations.count() as f64);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ =
            write!(self.0, "# HELP {name} {}\n# TYPE {name} {kind}\n", help.replace('\\', "\\\\").replace('\n', "\\n"));
    }

    /// The page.
    pub fn finish(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// A value with its labels.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<_> = labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escaped(text))).collect();
        let _ = match labels.as_slice() {
            [] => writeln!(self.page, "{} {value}", self.name),
            labels => writeln!(self.page, "{}{{{}}} {value}", self.name, labels.join(",")),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_the_format_says() {
        let mut page = Exposition::default();
        let mut family = page.family("a_total", Kind::Counter, "All\nof \\ them");
        family.sample(&[], 3.0);
        family.sample(&[("x", "a \"b\" \\ \n"), ("y", "")], 0.25);
        page.family("b_bytes", Kind::Gauge, "Bytes").sample(&[], 5e12);
        let mut durations = Durations::default();
        for ms in [3, 30, 400_000] {
            durations.record(Duration::from_millis(ms));
        }
        page.histogram("c_seconds", "Time", &durations);
        let page = page.finish();
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(
            lines[..6],
            [
                r"# HELP a_total All\nof \\ them",
                "# TYPE a_total counter",
                "a_total 3",
                r#"a_total{x="a \"b\" \\ \n",y=""} 0.25"#,
                "# HELP b_bytes Bytes",
                "# TYPE b_bytes gauge",
            ]
        );
        assert_eq!(lines[6..9], ["b_bytes 5000000000000", "# HELP c_seconds Time", "# TYPE c_seconds histogram"]);
        for line in [
            r#"c_seconds_bucket{le="0.002"} 0"#,
            r#"c_seconds_bucket{le="0.005"} 1"#,
            r#"c_seconds_bucket{le="300"} 2"#,
            r#"c_seconds_bucket{le="+Inf"} 3"#,
            "c_seconds_sum 400.033",
            "c_seconds_count 3",
        ] {
            assert!(lines.contains(&line), "{line}: {page}");
        }
    }
}
