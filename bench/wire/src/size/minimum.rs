//! pgbench's dialogues: what small messages cost, and what the smallest group tried makes of it.

use pgshrink_bench_report::{Result, Table, Unit, Value};
use pgshrink_wire::policy::{GROUP_SIZE_MIN_DEFAULT, PRIMING_BYTES_MAX};
use pgshrink_wire::{Dialect, LinkConfig};

use super::{Bench, DIALECTS, policy};
use crate::pair::{Cost, Pair};
use crate::recording::Way;

const MINIMA: [usize; 5] = [32, 64, 128, 256, 512];

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = format!(
        "Recorded sessions, zstd:1, context preserved: wire bytes to plain bytes in each direction, by the smallest group \
         that is tried; below 1 is a saving. The default is {GROUP_SIZE_MIN_DEFAULT}. No direction may ever pass plain + \
         {PRIMING_BYTES_MAX} bytes (the negotiation itself comes on top, once). `lz4`, `zlib`: at the default. CPU is both \
         links' at the default, in microseconds for each message group that went this way."
    );
    let heads = MINIMA.map(|minimum| format!("{minimum}"));
    let mut columns = vec![
        ("session", Unit::Text),
        ("dialect", Unit::Text),
        ("direction", Unit::Text),
        ("plain", Unit::Bytes),
    ];
    columns.extend(heads.iter().map(|head| (head.as_str(), Unit::Ratio)));
    columns.extend([("lz4", Unit::Ratio), ("zlib", Unit::Ratio), ("us a group", Unit::Ms)]);
    let mut table = Table::new("pgbench-bytes", "Bytes of small dialogues", &about, &columns);
    let (mut worst, mut best_direction) = (i64::MIN, Vec::new());
    for dialogue in bench.dialogues()? {
        for dialect in DIALECTS {
            let carry = |algorithm: &str, config: LinkConfig| -> Result<[Cost; 2]> {
                Pair::new(dialect, algorithm, config)?.carry_dialogue(&dialogue.pieces)
            };
            let mut sweep = Vec::new();
            for minimum in MINIMA {
                sweep.push(carry("zstd:1", policy(|policy| policy.group_size_min = minimum))?);
            }
            let default = carry("zstd:1", LinkConfig::default())?;
            let (lz4, zlib) = (carry("lz4", LinkConfig::default())?, carry("zlib", LinkConfig::default())?);
            for way in Way::BOTH {
                let at = way as usize;
                let of = |costs: &[Cost; 2]| Value::from(costs[at].wire as f64 / costs[at].raw as f64);
                let groups = dialogue.pieces.iter().filter(|piece| piece.way == way).count();
                let mut row: Vec<Value> = vec![dialogue.name.clone().into(), dialect.name().into()];
                row.extend([way.name().into(), default[at].raw.into()]);
                row.extend(sweep.iter().map(of));
                row.extend([of(&lz4), of(&zlib), (default[at].seconds() * 1e6 / groups as f64).into()]);
                table.push(row);
                for costs in sweep.iter().chain([&default, &lz4, &zlib]) {
                    worst = worst.max(costs[at].wire as i64 - costs[at].raw as i64);
                }
            }
            if dialect == Dialect::Ack {
                let least = Way::BOTH.map(|way| default[way as usize]).map(|c| c.wire as f64 / c.raw as f64);
                best_direction.push((dialogue.name.clone(), least[0].min(least[1])));
            }
        }
    }
    table.verdict(
        "bytes on pgbench -S and tpcb-like, every direction, dialect, algorithm and minimum",
        &format!("at most plain + {PRIMING_BYTES_MAX}"),
        format!("plain {worst:+} at worst"),
        worst <= PRIMING_BYTES_MAX,
    );
    let weakest = best_direction.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).ok_or("no dialogue")?;
    table.verdict(
        "bytes in the direction that repeats, preserved context, zstd:1",
        "below plain",
        format!("{:.3} of plain at worst ({})", weakest.1, weakest.0),
        weakest.1 < 1.0,
    );
    Ok(table)
}
