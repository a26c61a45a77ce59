//! A chart of points: MB/s across on a logarithmic scale, ratio upwards. Colours are the style sheet's.

use maud::{Markup, html};

use super::speed::Codec;
use crate::report::shown;

// In units of the drawing. As wide as a phone, so that letters stay readable there.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 34.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 38.0;
/// Of a label's letters, on average, and between labels.
const LETTER: f64 = 5.4;
const LABEL_HEIGHT: f64 = 11.0;
/// More points than this have no room for names.
const POINTS_MAX: usize = 40;

struct Point {
    name: String,
    x: f64,
    y: f64,
    hint: String,
}

struct Label {
    x: f64,
    y: f64,
    /// It stands to the left of its point.
    is_left: bool,
    width: f64,
}

pub(super) fn scatter<'a>(
    title: &str,
    codecs: &[Codec<'a>],
    speed: impl Fn(&Codec<'a>) -> Option<f64>,
) -> Markup {
    let known: Vec<(&Codec, f64)> =
        codecs.iter().filter_map(|codec| Some((codec, speed(codec)?))).take(POINTS_MAX).collect();
    if known.is_empty() {
        return html! {};
    }
    let slowest = known.iter().map(|(_, mb_s)| *mb_s).fold(f64::INFINITY, f64::min);
    let fastest = known.iter().map(|(_, mb_s)| *mb_s).fold(0.0, f64::max);
    // A little more than they need, and at least a factor of ten.
    let (low, high) = (slowest.log10() - 0.12, (fastest.log10() + 0.12).max(slowest.log10() + 0.88));
    let most = known.iter().map(|(codec, _)| codec.ratio()).fold(1.0, f64::max) * 1.08;
    let least = known.iter().map(|(codec, _)| codec.ratio()).fold(1.0, f64::min).clamp(0.0, 1.0);
    let across = |mb_s: f64| LEFT + (mb_s.log10() - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    let up =
        |ratio: f64| HEIGHT - BOTTOM - (ratio - least) / (most - least).max(0.1) * (HEIGHT - BOTTOM - TOP);
    let points: Vec<Point> = known
        .iter()
        .map(|(codec, mb_s)| Point {
            name: shown::name(codec.name),
            x: across(*mb_s),
            y: up(codec.ratio()),
            hint: format!("{}: {mb_s:.0} MB/s, {:.2}x", shown::name(codec.name), codec.ratio()),
        })
        .collect();
    let words: Vec<&str> = points.iter().map(|point| point.hint.as_str()).collect();
    html! {
        figure.scatter {
            figcaption { strong { (title) } }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ (title) ": " (words.join("; ")) } {
                (axes(low, high, least, most, across, up))
                @for (point, label) in points.iter().zip(labels(&points)) { (draw(point, &label)) }
            }
        }
    }
}

fn draw(point: &Point, label: &Label) -> Markup {
    let anchor = if label.is_left { "end" } else { "start" };
    let edge = if label.is_left { label.x + 2.0 } else { label.x - 2.0 };
    html! {
        g {
            title { (point.hint) }
            @if (label.y - point.y).abs() > LABEL_HEIGHT / 2.0 {
                line.lead x1=(unit(point.x)) y1=(unit(point.y)) x2=(unit(edge)) y2=(unit(label.y)) {}
            }
            circle cx=(unit(point.x)) cy=(unit(point.y)) r="4" {}
            text x=(unit(label.x)) y=(unit(label.y + 3.5)) text-anchor=(anchor) { (point.name) }
        }
    }
}

/// Beside each point, moved up or down until no label lies on another label or point.
fn labels(points: &[Point]) -> Vec<Label> {
    let mut labels: Vec<Label> = points
        .iter()
        .map(|point| {
            let width = point.name.chars().count() as f64 * LETTER;
            let is_left = point.x + 9.0 + width > WIDTH - 2.0;
            Label { x: if is_left { point.x - 9.0 } else { point.x + 9.0 }, y: point.y, is_left, width }
        })
        .collect();
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|a, b| points[*a].y.total_cmp(&points[*b].y));
    let mut placed: Vec<usize> = Vec::new();
    for index in order {
        let wished = labels[index].y;
        // The nearest free place, above or below.
        let places = (0..60).flat_map(|step| [f64::from(step) * 2.0, f64::from(step) * -2.0]);
        for place in places.map(|away| wished + away) {
            if !(TOP..=HEIGHT - BOTTOM - 4.0).contains(&place) {
                continue;
            }
            labels[index].y = place;
            let hits_label = placed.iter().any(|other| overlap(&labels[index], &labels[*other]));
            let hits_point = points
                .iter()
                .enumerate()
                .any(|(other, point)| other != index && is_below(&labels[index], point));
            if !hits_label && !hits_point {
                break;
            }
            labels[index].y = wished;
        }
        placed.push(index);
    }
    labels
}

fn span(label: &Label) -> (f64, f64) {
    if label.is_left { (label.x - label.width, label.x) } else { (label.x, label.x + label.width) }
}

fn overlap(one: &Label, other: &Label) -> bool {
    let ((a, b), (c, d)) = (span(one), span(other));
    a < d && c < b && (one.y - other.y).abs() < LABEL_HEIGHT
}

fn is_below(label: &Label, point: &Point) -> bool {
    let (from, to) = span(label);
    from - 4.0 < point.x && point.x < to + 4.0 && (label.y - point.y).abs() < LABEL_HEIGHT / 2.0 + 3.0
}

fn axes(
    low: f64,
    high: f64,
    least: f64,
    most: f64,
    across: impl Fn(f64) -> f64,
    up: impl Fn(f64) -> f64,
) -> Markup {
    let bottom = HEIGHT - BOTTOM;
    let decades = (low.floor() as i32).max(-3)..=(high.ceil() as i32).min(7);
    let speeds: Vec<f64> = decades
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(decade)))
        .filter(|mb_s| (low..=high).contains(&mb_s.log10()))
        .collect();
    let step =
        [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0].into_iter().find(|step| (most - least) / step <= 6.0);
    let step = step.unwrap_or(1000.0);
    let ratios: Vec<f64> = (0..8)
        .map(|index| (least / step).ceil() * step + f64::from(index) * step)
        .filter(|ratio| *ratio <= most)
        .collect();
    html! {
        g.grid {
            @for ratio in &ratios {
                line x1=(LEFT) x2=(WIDTH - RIGHT) y1=(unit(up(*ratio))) y2=(unit(up(*ratio))) {}
                text x=(LEFT - 5.0) y=(unit(up(*ratio) + 3.5)) text-anchor="end" { (ratio) "x" }
            }
            @for mb_s in &speeds {
                line x1=(unit(across(*mb_s))) x2=(unit(across(*mb_s))) y1=(bottom) y2=(bottom + 4.0) {}
                text x=(unit(across(*mb_s))) y=(bottom + 15.0) text-anchor="middle" { (mb_s) }
            }
            line.axis x1=(LEFT) x2=(WIDTH - RIGHT) y1=(bottom) y2=(bottom) {}
            text x=(WIDTH - RIGHT) y=(HEIGHT - 6.0) text-anchor="end" { "MB/s of one thread" }
        }
    }
}

fn unit(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_points_that_lie_close_together_do_not_cover_each_other() {
        let point = |name: &str, x, y| Point { name: name.to_owned(), x, y, hint: String::new() };
        let points: Vec<Point> = (0..10)
            .map(|index| point("zstd:1, columns off", 100.0 + f64::from(index), 100.0 + f64::from(index % 3)))
            .chain([point("at the right", 345.0, 100.0)])
            .collect();
        let labels = labels(&points);
        assert!(labels[10].is_left);
        for (index, label) in labels.iter().enumerate() {
            assert!(labels[..index].iter().all(|other| !overlap(label, other)), "{index} at {}", label.y);
        }
    }
}
