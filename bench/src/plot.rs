//! The figures as a picture: postroom, the floor and the peers in four workloads.

use std::fmt::Write as _;

use crate::goals::median;
use crate::workloads::{BULK_ENQUEUE, Backend, DRAIN, ENQUEUE_1, ENQUEUE_16, FLOOR, POSTROOM, Row};

const WIDTH: usize = 760;
const LABELS: usize = 190;
const BAR: usize = 18;
const STEP: usize = 24;
const HEAD: usize = 34;

/// Bars for what was measured on PostgreSQL, longest first; the picture suits a light and a dark page.
pub(crate) fn svg(rows: &[Row]) -> String {
    let mut body = String::new();
    let mut top = 0;
    for workload in [ENQUEUE_1, ENQUEUE_16, BULK_ENQUEUE, DRAIN] {
        let mut bars: Vec<(&str, f64)> = rows
            .iter()
            .filter(|row| row.backend == Backend::Postgres && row.workload == workload)
            .filter_map(|row| {
                let rates = row.rounds.iter().map(|sample| sample.rate).collect();
                Some((row.contender.as_str(), median(rates)?))
            })
            .collect();
        bars.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let Some((_, most)) = bars.first().copied() else {
            continue;
        };
        let _ = writeln!(
            body,
            r#"<text class="head" x="0" y="{}">{workload}, messages per second</text>"#,
            top + HEAD - 12
        );
        top += HEAD;
        for (name, rate) in bars {
            bar(&mut body, top, name, rate, most);
            top += STEP;
        }
        top += 8;
    }
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" font-family="system-ui, sans-serif" font-size="13">
<style>
text {{ fill: #24292f }} .head {{ font-weight: 600 }}
.ours {{ fill: #1f6feb }} .floor {{ fill: #8c959f }} .peer {{ fill: #d4a72c }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} }}
</style>
{body}</svg>
"#
    )
}

fn bar(body: &mut String, top: usize, name: &str, rate: f64, most: f64) {
    let class = match name {
        name if name.starts_with(POSTROOM) => "ours",
        name if name.starts_with(FLOOR) => "floor",
        _ => "peer",
    };
    let length = ((WIDTH - LABELS - 70) as f64 * rate / most).max(1.0);
    let line = top + BAR - 5;
    let _ = writeln!(
        body,
        r#"<text x="{}" y="{line}" text-anchor="end">{name}</text><rect class="{class}" x="{LABELS}" y="{top}" width="{length:.0}" height="{BAR}" rx="2"/><text x="{:.0}" y="{line}">{rate:.0}</text>"#,
        LABELS - 8,
        LABELS as f64 + length + 6.0,
    );
}
