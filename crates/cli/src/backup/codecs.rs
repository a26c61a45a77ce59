//! Compressions that a server lacks.
//!
//! A server that was built without a library refuses BASE_BACKUP before its checkpoint, in words of its own language. Only
//! then is it asked which compressions it has, with commands that end before the checkpoint too.

use super::Failure;
use super::source::Server;
use pgshrink_backup::base_backup::{Compression, CompressionAlgorithm, Options, Probed};

/// In this order, when the default is not there.
pub(super) const INSTEAD: [Compression; 2] = [
    Compression { algorithm: CompressionAlgorithm::Lz4, ..Compression::NONE },
    Compression { algorithm: CompressionAlgorithm::Gzip, level: Some(1), ..Compression::NONE },
];

/// What to do about a failure to begin with a compression: another one to try, if `may_change`, or the reason.
pub(super) fn instead(
    failure: Failure,
    server: &mut Server,
    wanted: Compression,
    may_change: bool,
) -> Result<Compression, Failure> {
    let lacks = lacks(failure, server, wanted)?;
    if may_change {
        let mut other = Compression::NONE;
        for compression in INSTEAD {
            if probe(server, compression)? == Probed::Has {
                other = compression;
                break;
            }
        }
        eprintln!(
            "pgshrink: {lacks}: it will compress with {other}. Use --compression to choose another one"
        );
        return Ok(other);
    }
    let mut has = vec!["none"];
    for algorithm in
        CompressionAlgorithm::ALL.into_iter().filter(|known| *known != CompressionAlgorithm::None)
    {
        if probe(server, Compression { algorithm, ..Compression::NONE })? == Probed::Has {
            has.push(algorithm.name());
        }
    }
    Err(Failure::new("--compression", format!("{lacks}; it has {}", has.join(", "))))
}

/// That the server lacks this compression, where that is the reason of a failure to begin with it. Otherwise the failure.
pub(super) fn lacks(failure: Failure, server: &mut Server, wanted: Compression) -> Result<String, Failure> {
    let sqlstate = match &failure {
        Failure::Server(said) => said.sqlstate(),
        _ => None,
    };
    let is_lacking = sqlstate.map(Probed::of) == Some(Probed::Lacks)
        && wanted.algorithm != CompressionAlgorithm::None
        && probe(server, wanted)? == Probed::Lacks;
    if !is_lacking {
        return Err(failure);
    }
    Ok(format!("this server was built without {}", wanted.algorithm.name()))
}

fn probe(server: &mut Server, compression: Compression) -> Result<Probed, Failure> {
    let question = Options::probe(compression, server.major)?;
    match server.stream()?.0.simple_query(&question) {
        Ok(_) => Ok(Probed::Other),
        Err(error) => match error.sqlstate() {
            Some(sqlstate) => Ok(Probed::of(sqlstate)),
            None => Err(error.into()),
        },
    }
}
