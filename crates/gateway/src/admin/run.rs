//! What the console changes.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::command::{Command, Which};
use super::table::{Column, Kind, Row};
use crate::error::{Refusal, sqlstate};
use crate::lifecycle::Control;
use crate::registry::{Phase, Registry, Session};

/// How long a session may take to obey. Its task looks at orders at each turn, and one that waits is woken.
const SESSION_LIMIT: Duration = Duration::from_secs(2);
/// How long a reload may take: it reads files.
const RELOAD_LIMIT: Duration = Duration::from_secs(30);

/// Answer of SET COMPRESSION.
pub(super) const SET_COLUMNS: &[Column] = &[("id", Kind::Int), ("sending", Kind::Text), ("note", Kind::Text)];

/// What an order came to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) rows: Vec<Row>,
    pub(super) notice: Option<String>,
    pub(super) done: &'static str,
}

impl Outcome {
    fn done(done: &'static str) -> Self {
        Self { rows: Vec::new(), notice: None, done }
    }

    fn notice(mut self, text: impl Into<String>) -> Self {
        self.notice = Some(text.into());
        self
    }
}

/// Where orders go.
#[derive(Clone, Copy)]
pub(super) struct Orders<'a> {
    pub(super) registry: &'a Registry,
    pub(super) control: &'a mpsc::UnboundedSender<Control>,
}

impl Orders<'_> {
    /// Carries out what is not a question.
    pub(super) async fn obey(&self, command: &Command) -> Result<Outcome, Refusal> {
        let process = &self.registry.process;
        match command {
            Command::SetCompression(which, text) => self.set_compression(*which, text).await,
            Command::Kill(id) => self.kill(*id),
            Command::Reload => self.reload().await,
            Command::Pause if process.is_paused() => Err(state("already paused", "RESUME ends it.")),
            Command::Pause => {
                process.pause();
                tracing::warn!("paused from the console: new sessions wait");
                Ok(Outcome::done("PAUSE"))
            }
            Command::Resume if !process.is_paused() => {
                Err(state("not paused", "PAUSE makes new sessions wait."))
            }
            Command::Resume => {
                process.resume();
                tracing::info!("resumed from the console");
                Ok(Outcome::done("RESUME"))
            }
            Command::Shutdown { immediate } => {
                tracing::warn!(immediate, "shutdown from the console");
                self.order(if *immediate { Control::Stop } else { Control::Drain })?;
                Ok(Outcome::done("SHUTDOWN"))
            }
            other => Err(Refusal::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{other:?} is not an order"))),
        }
    }

    fn order(&self, control: Control) -> Result<(), Refusal> {
        self.control
            .send(control)
            .map_err(|_| state("the process is already shutting down", "SHOW STATE shows the progress."))
    }

    async fn reload(&self) -> Result<Outcome, Refusal> {
        let process = &self.registry.process;
        let before = process.reloads();
        self.order(Control::Reload)?;
        let failed = |reason: String| {
            Refusal::new(
                sqlstate::CONFIG_FILE,
                "the configuration was not reloaded, the old one stays in effect",
            )
            .detail(reason)
        };
        match timeout(RELOAD_LIMIT, process.wait_reloaded(before)).await {
            Ok(Ok(())) => Ok(Outcome::done("RELOAD")
                .notice("new sessions use the new configuration, existing ones keep theirs")),
            Ok(Err(reason)) => Err(failed(reason)),
            Err(_) => Err(failed(format!("no answer in {} s", RELOAD_LIMIT.as_secs()))),
        }
    }

    fn find(&self, id: u64) -> Result<std::sync::Arc<Session>, Refusal> {
        self.registry.find(id).ok_or_else(|| {
            Refusal::new(sqlstate::UNDEFINED_OBJECT, format!("there is no session {id}"))
                .hint("SHOW CLIENTS lists sessions with their ids.")
        })
    }

    fn kill(&self, id: u64) -> Result<Outcome, Refusal> {
        let session = self.find(id)?;
        if session.phase() == Phase::Login {
            return Err(state(
                &format!("session {id} is not logged in yet"),
                "timeouts.login_timeout_s ends logins that take too long.",
            ));
        }
        tracing::warn!(session = id, "killed from the console");
        session.kill(Refusal::new(
            sqlstate::ADMIN_SHUTDOWN,
            "terminating connection due to administrator command",
        ));
        Ok(Outcome::done("KILL"))
    }

    async fn set_compression(&self, which: Which, text: &str) -> Result<Outcome, Refusal> {
        tracing::info!(%which, text, "compression set from the console");
        let mut outcome = Outcome::done("SET");
        match which {
            Which::One(id) => {
                let session = self.find(id)?;
                let sending = set_one(&session, text).await.map_err(|reason| {
                    Refusal::new(sqlstate::NOT_IN_PREREQUISITE_STATE, format!("session {id}: {reason}"))
                        .hint("SHOW CLIENTS shows what was agreed.")
                })?;
                outcome.rows.push(vec![id.into(), sending.into(), Option::<&str>::None.into()]);
            }
            Which::All => {
                let mut sessions = self.registry.sessions();
                sessions.sort_by_key(|s| s.id);
                // All are asked before any is waited for.
                let mut asked = tokio::task::JoinSet::new();
                for session in sessions {
                    let text = text.to_string();
                    asked.spawn(async move {
                        let answer = set_one(&session, &text).await;
                        (session, answer)
                    });
                }
                let mut answers = asked.join_all().await;
                answers.sort_by_key(|(session, _)| session.id);
                outcome.rows =
                    answers.into_iter().map(|(session, answer)| answer_row(&session, answer)).collect();
            }
        }
        Ok(outcome)
    }
}

fn answer_row(session: &Session, answer: Result<String, String>) -> Row {
    match answer {
        Ok(sending) => vec![session.id.into(), sending.into(), Option::<&str>::None.into()],
        Err(note) => vec![session.id.into(), session.sending().into(), note.into()],
    }
}

/// Asks one session, and waits for what it says.
async fn set_one(session: &Session, text: &str) -> Result<String, String> {
    if session.phase() == Phase::Login {
        return Err("it is not logged in yet".into());
    }
    match timeout(SESSION_LIMIT, session.request_compression(text)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err("it ended in the meantime".into()),
        Err(_) => Err(format!("no answer in {} s", SESSION_LIMIT.as_secs())),
    }
}

fn state(message: &str, hint: &str) -> Refusal {
    Refusal::new(sqlstate::NOT_IN_PREREQUISITE_STATE, message).hint(hint)
}
