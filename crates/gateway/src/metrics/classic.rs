//! The page in Prometheus' older text format (0.0.4), for scrapers that do not ask for OpenMetrics.
//!
//! Samples are the same; the older format names a counter with its `_total`, and knows neither units, infos nor the end
//! mark.

/// The media type.
pub(super) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Rewrites the lines that differ.
pub(super) fn from_open_metrics(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let Some(help) = line.strip_prefix("# HELP ") else {
            out.extend([line, "\n"]);
            continue;
        };
        // A family begins with its HELP, and its TYPE follows.
        let kind = lines.next_if(|next| next.starts_with("# TYPE ")).and_then(|next| next.rsplit(' ').next());
        let (suffix, kind) = match kind {
            Some("counter") => ("_total", "counter"),
            Some("info") => ("_info", "gauge"),
            other => ("", other.unwrap_or("untyped")),
        };
        let (name, text) = help.split_once(' ').unwrap_or((help, ""));
        out.push_str(&format!("# HELP {name}{suffix} {text}\n# TYPE {name}{suffix} {kind}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_rewritten_line_by_line() {
        let page = "# HELP a_bytes Text of a.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{x=\"y\"} 1\n\
                    # HELP b Text.\n# TYPE b info\nb_info{v=\"1\"} 1\n# HELP c Text.\n# TYPE c gauge\nc 2\n# EOF\n";
        assert_eq!(
            from_open_metrics(page),
            "# HELP a_bytes_total Text of a.\n# TYPE a_bytes_total counter\na_bytes_total{x=\"y\"} 1\n\
             # HELP b_info Text.\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n# HELP c Text.\n# TYPE c gauge\nc 2\n"
        );
    }
}
