//! The last look: what the gateway says it moved against what the relay before it counted.

use super::SharedLink;
use super::metrics::{self, WireBytes};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::report::size;
use crate::stage::Stage;
use crate::step::{Report, Step};

/// What one login may take in one direction: SCRAM's exchange is some 300 bytes. The gateway's counters begin after it.
const LOGIN_SIZE_MAX: u64 = 512;

/// Compares, and has the gateway end.
pub(super) struct Agreement {
    link: SharedLink,
}

impl Agreement {
    pub(super) fn new(link: SharedLink) -> Agreement {
        Agreement { link }
    }
}

impl Step for Agreement {
    fn title(&self) -> &'static str {
        "counters"
    }

    fn phase_count(&self) -> u64 {
        1
    }

    fn run(&mut self, stage: &Stage, progress: &Progress, report: &mut Report) -> Result<(), Failure> {
        progress.phase("comparing the gateway's counters with the relay's");
        let link = self.link.get(stage)?;
        link.wait_until_idle()?;
        let (counted, session_count) = link.counted();
        let reported = metrics::read(link.metrics_port())?;
        if reported.explains(counted, session_count * LOGIN_SIZE_MAX) {
            report.notes.push(agreement_note(reported, counted, session_count));
        } else {
            report.problems.push(format!(
                "the gateway's /metrics says {reported:?}, the relay before it counted {counted:?} in {session_count} \
                 sessions; this is a bug, please report it"
            ));
        }
        link.stop_gateway()
    }
}

fn agreement_note(reported: WireBytes, counted: WireBytes, session_count: u64) -> String {
    let reported_all = size(reported.sum());
    match counted.sum() - reported.sum() {
        0 => format!("The gateway's /metrics and the relay before it agree to the byte: {reported_all}."),
        logins => format!(
            "The gateway's /metrics and the relay before it agree: {reported_all}, and {} of logins in {session_count} \
             sessions, which /metrics leaves out.",
            size(logins),
        ),
    }
}
