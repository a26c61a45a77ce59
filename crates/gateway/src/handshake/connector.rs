//! The connector's handshake: reach a target, ask for compression in its name, and go on plain where it is refused.
//!
//! A client must not notice. What a target answers to our key (`z`, `v`, an error about an unknown parameter, a closed
//! connection) is swallowed, and the session begins again without the key; the target is then not asked again for
//! [`PLAIN_MEMORY`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pgshrink_codec::AlgorithmList;
use pgshrink_wire::message::{Header, parse_parameter_status, report_fields, tag};
use pgshrink_wire::negotiate::RESTART_STATUS_NAME;
use pgshrink_wire::setting;
use pgshrink_wire::startup::StartupPacket;
use pgshrink_wire::{Agreed, Dialect, Link, Offer, Role};

use super::auth::{self, Outcome, Rules};
use super::gateway::reject;
use super::leg::Leg;
use super::start::{Started, start};
use crate::admin::settings;
use crate::config::ConnectorConfig;
use crate::error::{Error, Failure, Refusal, sqlstate};
use crate::registry::{Compression, Events, Identity, Session};
use crate::service::{Common, Placed, Service, Shared};
use crate::throttle::limited;
use crate::tls::client::TargetTls;
use crate::tls::server::ListenTls;
use crate::upstream::{OpenError, Target};

/// How long a target that refused our key is not asked again.
const PLAIN_MEMORY: Duration = Duration::from_secs(300);
/// SQLSTATEs of servers and poolers that refuse an unknown startup parameter.
const KEY_REFUSALS: [&[u8]; 4] = [b"08P01", b"0A000", b"42704", b"22023"];

/// A connector with one configuration.
pub(crate) struct Connector {
    common: Common,
    targets: Vec<Arc<Target>>,
    list: AlgorithmList,
    dialect: Dialect,
    required: bool,
    pack_rows: bool,
    plain: Mutex<HashMap<String, Instant>>,
}

/// A target that has answered.
struct Reached {
    server: Leg,
    first: Option<Header>,
    target: Arc<Target>,
    /// Our key is in the packet it answered.
    asked: bool,
}

impl Connector {
    /// Checks a configuration and reads the files it names.
    pub(crate) fn load(config: &ConnectorConfig, shared: &Arc<Shared>) -> Result<Self, Error> {
        config.validate()?;
        let tls = config.tls.as_ref().map(ListenTls::load).transpose()?;
        let targets = config
            .targets
            .iter()
            .map(|target| Ok(Arc::new(Target { tls: TargetTls::load(target)?, config: target.clone() })));
        let ConnectorConfig { limits, timeouts, policy, tcp, admin, .. } = config;
        let connector = Self {
            common: Common::load(shared, tls, limits, timeouts, policy, tcp, admin)?,
            targets: targets.collect::<Result<_, Error>>()?,
            list: config.asked()?,
            dialect: config.dialect()?,
            required: config.required,
            pack_rows: config.policy.pack_rows,
            plain: Mutex::default(),
        };
        let process = &shared.registry.process;
        process.set_settings(settings::settings(config));
        process.set_servers(settings::connector_servers(config));
        Ok(connector)
    }

    fn is_plain(&self, target: &Target) -> bool {
        let mut plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        plain.retain(|_, since| since.elapsed() < PLAIN_MEMORY);
        plain.contains_key(&target.describe())
    }

    fn remember_plain(&self, target: &Target) {
        let mut plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        plain.insert(target.describe(), Instant::now());
    }

    /// The first target that takes the connection.
    async fn reach(&self, packet: &StartupPacket, ask: bool) -> Result<Reached, Refusal> {
        let (mut reasons, mut is_insecure) = (Vec::new(), false);
        for target in &self.targets {
            match self.reach_one(target, packet, ask).await {
                Ok(reached) => return Ok(reached),
                Err(error) => {
                    self.common.shared.registry.count_connect_failure(&target.describe());
                    is_insecure |= matches!(error, OpenError::Insecure(_));
                    reasons.push(error.reason().to_owned());
                }
            }
        }
        let reason = reasons.join("; ");
        limited!(warn, error = reason, "no target reached");
        // The one state after which libpq goes on to the next host of its list.
        let refusal = Refusal::new(sqlstate::CANNOT_CONNECT_NOW, reason);
        Err(match is_insecure {
            true => refusal
                .hint("Compare sslmode, sslrootcert and the host's name with what the target's TLS offers."),
            false => refusal,
        })
    }

    async fn reach_one(
        &self,
        target: &Arc<Target>,
        packet: &StartupPacket,
        ask: bool,
    ) -> Result<Reached, OpenError> {
        let size_max = self.common.limits.max_auth_message_size;
        if ask && (self.required || !self.is_plain(target)) {
            let mut asking = packet.clone();
            Offer::new(self.dialect, &self.list)
                .allow_packed_rows(self.pack_rows)
                .invite_window(self.common.shared.budget.window_log_invited())
                .put(&mut asking);
            let Started { server, first } =
                start(target, &self.common.tcp, &[], &asking.to_bytes(), size_max).await?;
            if !refuses_key(&server, first, self.dialect) {
                return Ok(Reached { server, first, target: target.clone(), asked: true });
            }
            tracing::info!(target = %target.describe(), "target refuses the compression key, continuing \
                without compression");
        }
        let started = start(target, &self.common.tcp, &[], &packet.to_bytes(), size_max).await?;
        let Started { server, first } = started.answered(target)?;
        let accepted = first.is_some_and(|h| h.tag != tag::ERROR_RESPONSE);
        if ask && accepted && !self.is_plain(target) {
            self.remember_plain(target);
        }
        Ok(Reached { server, first, target: target.clone(), asked: false })
    }

    /// Ack dialect: the target's first message says what was agreed.
    fn take_ack(&self, reached: &mut Reached) -> Result<Option<Agreed>, Failure> {
        match reached.first.filter(|h| h.tag == tag::COMPRESSION_ACK) {
            Some(header) => {
                let message = reached.server.take(header);
                Ok(Agreed::from_ack(&self.list, &message[pgshrink_wire::message::HEADER_SIZE..])?)
            }
            None => Ok(None),
        }
    }

    /// Restart dialect: the answer is a ParameterStatus between AuthenticationOk and ReadyForQuery. Everything before it
    /// goes to the client.
    async fn find_status(&self, client: &mut Leg, server: &mut Leg) -> Result<Option<Agreed>, Failure> {
        let size_max = self.common.limits.max_auth_message_size;
        loop {
            let Some(header) = server.peek(size_max).await? else { return Ok(None) };
            match header.tag {
                tag::PARAMETER_STATUS => {
                    let value = match parse_parameter_status(server.body(header)) {
                        Some((name, value)) if name == RESTART_STATUS_NAME.as_bytes() => {
                            Some(String::from_utf8_lossy(value).into_owned())
                        }
                        _ => None,
                    };
                    let message = server.take(header);
                    match value {
                        Some(value) => return Ok(Agreed::from_status(&self.list, &value)),
                        None => client.send(&message).await?,
                    }
                }
                // Frames before the answer: the target compresses with something of ours, that much is sure.
                tag::COMPRESSION_ACK => {
                    let own = Offer::new(self.dialect, &self.list).text;
                    return Ok(Agreed::from_status(&self.list, &own));
                }
                tag::READY_FOR_QUERY | tag::ERROR_RESPONSE => return Ok(None),
                _ => {
                    let message = server.take(header);
                    client.send(&message).await?;
                }
            }
        }
    }

    fn refuse_plain(&self, target: &Target) -> Refusal {
        Events::count(&self.common.events().refused_plain);
        Refusal::new(
            sqlstate::REJECTED,
            format!("compression is required, but {} does not agree to it", target.describe()),
        )
        .detail(format!("Asked for {} in the {} dialect.", self.list, self.dialect.name()))
        .hint(
            "Is a pgshrink gateway listening there, and does its libpq_compression allow one of these? \
             Without required, the session continues without compression.",
        )
    }
}

impl Service for Connector {
    const ROLE: Role = Role::Connector;

    fn common(&self) -> &Common {
        &self.common
    }

    fn cancel_targets(&self) -> Vec<&Target> {
        self.targets.iter().map(|t| &**t).collect()
    }

    async fn place(
        &self,
        client: &mut Leg,
        packet: StartupPacket,
        session: &Session,
    ) -> Result<Placed, Failure> {
        // A client that asks by itself is served by whoever answers it.
        let own_offer = Offer::take(&mut packet.clone()).is_some();
        let ask = !own_offer && !self.list.is_empty();
        // The other end takes it out.
        let setting = setting::take_from_startup(&mut packet.clone());
        let mut reached = self.reach(&packet, ask).await?;
        let target = reached.target.clone();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        session.set_identity(Identity {
            user: text(packet.user()),
            database: text(packet.database()),
            server: target.describe(),
            client_tls: client.stream.tls_text(),
            server_tls: reached.server.stream.tls_text(),
            application: packet.get("application_name").map(text).unwrap_or_default(),
            replication: packet.is_replication(),
        });
        let mut agreed =
            if reached.asked && self.dialect == Dialect::Ack { self.take_ack(&mut reached)? } else { None };
        let is_error = reached.first.is_none_or(|h| h.tag == tag::ERROR_RESPONSE);
        let hopeless = !reached.asked || self.dialect == Dialect::Ack;
        if self.required && !own_offer && agreed.is_none() && hopeless && !is_error {
            return Err(self.refuse_plain(&target).into());
        }
        let mut server = reached.server;
        let both_tls = client.stream.is_tls() && server.stream.is_tls();
        let rules = Rules {
            message_size_max: self.common.limits.max_auth_message_size,
            strip_plus: !client.stream.is_tls(),
            refuse_plus: both_tls.then(auth::plus_refusal),
            // The client is judged by the target, as it would be without the connector.
            refuse_unchallenged: None,
            client_asked: own_offer,
        };
        match auth::relay(client, &mut server, &rules).await? {
            Outcome::Accepted(message) => client.send(&message).await?,
            Outcome::Rejected => return Err(reject(&self.common, client).await),
        }
        if reached.asked && self.dialect == Dialect::Restart {
            agreed = self.find_status(client, &mut server).await?;
            if self.required && agreed.is_none() {
                return Err(self.refuse_plain(&target).into());
            }
        }
        let plain_because = plain_because(agreed.is_some(), ask, reached.asked);
        self.count_plain(agreed.is_some(), ask, reached.asked);
        let link = agreed.map(|agreed| {
            let budget = self.common.shared.budget.clone();
            let mut link =
                Link::new(Role::Connector, agreed, self.common.link.clone(), budget).with_clock(super::clock);
            setting.iter().for_each(|text| link.begin_with(text));
            session.set_compression(Some(Compression {
                dialect: link.agreed().dialect().name(),
                agreed: link.agreed().describe(),
                sending: link.compression(),
            }));
            Box::new(link)
        });
        Ok(Placed { server, target, link, meter: None, plain_because })
    }
}

/// Why a session goes on plain; nothing for one that is compressed.
fn plain_because(agreed: bool, ask: bool, asked: bool) -> &'static str {
    match (agreed, ask, asked) {
        (true, ..) => "",
        (false, false, _) => "not asked for",
        (false, true, true) => "no algorithm in common",
        (false, true, false) => "the target rejects the request",
    }
}

impl Connector {
    fn count_plain(&self, agreed: bool, ask: bool, asked: bool) {
        let events = self.common.events();
        match (agreed, ask, asked) {
            (true, ..) => {}
            (false, false, _) => Events::count(&events.plain_unasked),
            (false, true, true) => Events::count(&events.plain_no_common),
            (false, true, false) => Events::count(&events.plain_refused_by_peer),
        }
    }
}

/// Whether the first reply is a no to our key: then the session begins again without it.
fn refuses_key(server: &Leg, first: Option<Header>, dialect: Dialect) -> bool {
    // Some poolers just close.
    let Some(header) = first else { return true };
    let body = server.body(header);
    let names_key = body.windows(dialect.key().len()).any(|w| w == dialect.key().as_bytes());
    match header.tag {
        tag::NEGOTIATE_PROTOCOL_VERSION => names_key,
        tag::ERROR_RESPONSE => {
            names_key || report_fields(body).any(|(code, text)| code == b'C' && KEY_REFUSALS.contains(&text))
        }
        _ => false,
    }
}
