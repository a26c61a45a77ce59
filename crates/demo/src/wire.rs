//! The rows of wire compression: the same traffic once plain, once through connector and gateway with zstd:1.

mod agreement;
mod link;
mod metrics;
mod pgbench;
mod queries;
mod replica;

use std::cell::OnceCell;
use std::rc::Rc;

use crate::failure::Failure;
use crate::stage::Stage;
use crate::step::Step;
use link::Link;

/// What the compressed side asks for and the gateway allows.
const COMPRESSION: &str = "zstd:1";

/// The steps, which share one gateway.
pub(crate) fn steps() -> Vec<Box<dyn Step>> {
    let link = SharedLink::default();
    vec![
        Box::new(queries::Query::copy_out(link.clone())),
        Box::new(queries::Query::copy_in(link.clone())),
        Box::new(queries::Query::json(link.clone())),
        Box::new(replica::Replica::new(link.clone())),
        Box::new(pgbench::Pgbench::new(link.clone())),
        Box::new(agreement::Agreement::new(link)),
    ]
}

/// The link, made when the first step needs it.
#[derive(Clone, Default)]
struct SharedLink(Rc<OnceCell<Link>>);

impl SharedLink {
    fn get(&self, stage: &Stage) -> Result<&Link, Failure> {
        match self.0.get() {
            Some(link) => Ok(link),
            None => {
                let made = Link::start(stage)?;
                Ok(self.0.get_or_init(|| made))
            }
        }
    }
}
