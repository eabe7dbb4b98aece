//! Charts: values over time, drawn as SVG paths. Words and numbers stand beside the drawing, because the
//! drawing is stretched to the width of its place.

use askama::Template;
use askama::filters::HtmlSafe;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// Values over time, as a card.
#[derive(Template)]
#[template(path = "chart.html")]
pub(super) struct Chart {
    title: &'static str,
    now: String,
    lines: Vec<Line>,
    top: String,
    middle: String,
    from: String,
    summary: String,
}

impl HtmlSafe for Chart {}

/// One line of a chart.
struct Line {
    name: &'static str,
    kind: &'static str,
    stroke: String,
    area: String,
}

/// The values of one line: one for each place on the axis, where there is one.
pub(super) struct Series {
    pub(super) name: &'static str,
    /// Its colour, as a class of the style sheet.
    pub(super) kind: &'static str,
    pub(super) values: Vec<Option<f64>>,
}

impl Chart {
    /// A chart that says `now` in large letters, with values written by `write`, over the time `from`
    /// until now.
    pub(super) fn new(
        title: &'static str,
        now: String,
        from: &str,
        series: Vec<Series>,
        write: impl Fn(f64) -> String,
    ) -> Self {
        let values = || {
            series
                .iter()
                .flat_map(|series| series.values.iter().flatten())
        };
        let highest = values().copied().fold(0.0, f64::max);
        let top = ceiling(highest);
        let summary = if values().next().is_none() {
            format!("{title}: nothing measured yet")
        } else {
            format!("{title} over {from}: now {now}, at most {}", write(highest))
        };
        Self {
            title,
            now,
            top: write(top),
            middle: write(top / 2.0),
            from: format!("{from} ago"),
            summary,
            lines: series.iter().map(|series| series.line(top)).collect(),
        }
    }
}

impl Series {
    fn line(&self, top: f64) -> Line {
        let mut line = Line {
            name: self.name,
            kind: self.kind,
            stroke: String::new(),
            area: String::new(),
        };
        let steps = self.values.len().saturating_sub(1).max(1);
        let place = |step: usize, value: f64| {
            let x = WIDTH * step as f64 / steps as f64;
            let y = HEIGHT - (HEIGHT - 2.0) * (value / top).clamp(0.0, 1.0);
            format!("{x:.1} {y:.1}")
        };
        let ground = |step: usize| format!("{:.1} {HEIGHT}", WIDTH * step as f64 / steps as f64);
        let mut begun = None;
        for (step, value) in self.values.iter().enumerate() {
            match (value, begun) {
                (Some(value), None) => {
                    begun = Some(step);
                    line.stroke.push_str(&format!("M{}", place(step, *value)));
                    line.area
                        .push_str(&format!("M{}L{}", ground(step), place(step, *value)));
                }
                (Some(value), Some(_)) => {
                    let point = format!("L{}", place(step, *value));
                    line.stroke.push_str(&point);
                    line.area.push_str(&point);
                }
                (None, Some(_)) => {
                    line.area.push_str(&format!("L{}Z", ground(step - 1)));
                    begun = None;
                }
                (None, None) => {}
            }
        }
        if begun.is_some() {
            line.area
                .push_str(&format!("L{}Z", ground(self.values.len() - 1)));
        }
        line
    }
}

/// The next round number: 1, 2 or 5 with zeros.
fn ceiling(highest: f64) -> f64 {
    if highest <= 1.0 {
        return 1.0;
    }
    let power = 10_f64.powf(highest.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= highest)
        .unwrap_or(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_ends_at_a_round_number() {
        for (highest, top) in [
            (0.0, 1.0),
            (0.3, 1.0),
            (3.0, 5.0),
            (50.0, 50.0),
            (51.0, 100.0),
            (1_234.0, 2_000.0),
        ] {
            assert_eq!(ceiling(highest), top, "{highest}");
        }
    }

    #[test]
    fn a_gap_ends_a_line_and_its_area() {
        let series = Series {
            name: "ready",
            kind: "ready",
            values: vec![Some(0.0), Some(1.0), None, Some(1.0)],
        };
        let line = series.line(1.0);
        assert_eq!(line.stroke, "M0.0 120.0L200.0 2.0M600.0 2.0");
        assert_eq!(
            line.area,
            "M0.0 120L0.0 120.0L200.0 2.0L200.0 120ZM600.0 120L600.0 2.0L600.0 120Z"
        );
    }
}
