//! x
#[path = "../tests/it/report/example.rs"]
#[allow(dead_code)]
mod example;
use pgshrink_advisor::report::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let r = match a[1].as_str() {
        "empty" => example::empty(),
        "small" => example::small(),
        "odd" => example::odd(300),
        _ => example::everything(),
    };
    let colour = if a.len() > 4 { Colour::Ansi } else { Colour::Plain };
    match a[2].as_str() {
        "text" => print!("{}", text(&r, a[3].parse().unwrap(), Style { colour, ..Style::default() })),
        "sql" => print!("{}", sql(&r)),
        "svg" => print!("{}", picture_svg(&example::picture())),
        "html" => {
            print!("{}", if a[1] == "all" { html_with_picture(&r, &example::picture()) } else { html(&r) })
        }
        _ => println!("{}", serde_json::to_string_pretty(&r).unwrap()),
    }
}
