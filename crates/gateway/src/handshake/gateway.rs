//! The gateway's handshake: route, take the client's offer out of the startup packet, relay the authentication, answer
//! the offer at the moment its dialect asks for.

use std::net::SocketAddr;
use std::sync::Arc;

use pgshrink_codec::AlgorithmList;
use pgshrink_wire::message::{Report, tag};
use pgshrink_wire::setting;
use pgshrink_wire::startup::StartupPacket;
use pgshrink_wire::{Answer, Link, Offer, Role};

use super::auth::{self, Outcome, Rules};
use super::leg::Leg;
use super::start::{Started, start};
use crate::admin::settings;
use crate::config::GatewayConfig;
use crate::error::{Error, Failure, Refusal, sqlstate};
use crate::observe::{self, Core};
use crate::proxy_protocol;
use crate::registry::{Compression, Events, Identity, Session};
use crate::route::{self, Server};
use crate::service::{Common, Placed, Service, Shared};
use crate::stream::Peer;
use crate::throttle::limited;
use crate::tls::server::ListenTls;
use crate::upstream::{OpenError, Target};

/// A gateway with one configuration.
pub(crate) struct Gateway {
    pub(crate) config: GatewayConfig,
    common: Common,
    servers: Vec<Arc<Server>>,
    /// Measures, and nothing is compressed.
    observer: Option<Arc<Core>>,
}

impl Gateway {
    /// Checks a configuration and reads the files it names.
    pub(crate) fn load(config: GatewayConfig, shared: &Arc<Shared>) -> Result<Self, Error> {
        config.validate()?;
        let tls = config.tls.as_ref().map(ListenTls::load).transpose()?;
        let GatewayConfig { limits, timeouts, policy, tcp, admin, .. } = &config;
        let mut common = Common::load(shared, tls, limits, timeouts, policy, tcp, admin)?;
        common.proxies = config.trusted_proxies.iter().map(|p| p.parse()).collect::<Result<_, _>>()?;
        let servers = config.servers.iter().map(|s| Server::load(s, &config)).collect::<Result<_, _>>()?;
        // Last: what fails before must not leave the file open or changed.
        let observed = observe::Settings::of(&config);
        let observer = observed.map(|settings| shared.registry.observer.apply(settings)).transpose()?;
        let process = &shared.registry.process;
        process.set_settings(settings::settings(&config));
        process.set_servers(settings::gateway_servers(&config));
        Ok(Self { config, common, servers, observer })
    }

    /// Takes the offer and everything the server must not see out of the packet.
    fn take_offer(&self, packet: &mut StartupPacket, server: &Server, session: &Session) -> Option<Answer> {
        let offer = Offer::take(packet);
        for name in &self.config.ignore_startup_parameters {
            packet.remove(name);
        }
        let Some(offer) = offer else {
            Events::count(&self.common.events().plain_unasked);
            return None;
        };
        let offer = offer.allow_packed_rows(server.pack_rows);
        if self.observer.is_some() {
            Events::count(&self.common.events().plain_observed);
            return Some(offer.answer(&AlgorithmList::default(), 0));
        }
        let answer = offer.answer(&server.allowed, self.common.shared.budget.window_log_invited());
        for item in &answer.unknown {
            Events::count(&self.common.events().unknown_algorithms);
            limited!(warn, session = session.id, client = %session.peer(), item, "unknown item in offer");
        }
        if answer.agreed.is_none() {
            Events::count(&self.common.events().plain_no_common);
            limited!(
                info,
                session = session.id,
                client = %session.peer(),
                asked = offer.text,
                allowed = %server.allowed,
                "no algorithm in common"
            );
        }
        Some(answer)
    }

    async fn reach(&self, server: &Server, packet: &StartupPacket, peer: Peer) -> Result<Leg, Failure> {
        let greeting = match (server.send_proxy, peer) {
            (None, _) => Vec::new(),
            (Some(version), Peer::Unix { .. } | Peer::Proxied(_)) => {
                proxy_protocol::build(version, None, None)
            }
            (Some(version), Peer::Address(client)) => {
                let port = server.target.config.port;
                let there = server.target.config.hostaddr.or_else(|| server.target.config.host.parse().ok());
                proxy_protocol::build(version, Some(client), there.map(|ip| SocketAddr::new(ip, port)))
            }
        };
        let started = start(
            &server.target,
            &self.common.tcp,
            &greeting,
            &packet.to_bytes(),
            self.common.limits.max_auth_message_size,
        )
        .await;
        match started.and_then(|started| started.answered(&server.target)) {
            Ok(Started { server, .. }) => Ok(server),
            Err(error) => {
                self.common.shared.registry.count_connect_failure(&server.name);
                limited!(warn, server = server.name, error = error.reason(), "server not reached");
                let hint = match error {
                    OpenError::Unreachable(_) => {
                        "Is the server running, and do its listen_addresses and pg_hba.conf let the gateway in?"
                    }
                    OpenError::Insecure(_) => {
                        "The server answers, but not with TLS as the gateway requires: compare sslmode, \
                         sslrootcert and host of this server in the gateway's configuration with the \
                         server's ssl settings and certificate."
                    }
                };
                Err(Refusal::new(
                    // The one state after which libpq goes on to the next host of its list.
                    sqlstate::CANNOT_CONNECT_NOW,
                    format!("the gateway could not connect to server \"{}\"", server.name),
                )
                .detail(error.reason())
                .hint(hint)
                .into())
            }
        }
    }

    fn rules(&self, client: &Leg, upstream: &Leg, server: &Server, peer: Peer) -> Rules {
        let both_tls = client.stream.is_tls() && upstream.stream.is_tls();
        let same_certificate = both_tls
            && self.common.tls.as_ref().is_some_and(|own| {
                upstream.stream.peer_certificate().is_some_and(|theirs| *theirs == *own.certificate)
            });
        Rules {
            message_size_max: self.common.limits.max_auth_message_size,
            strip_plus: !client.stream.is_tls(),
            refuse_plus: (both_tls && !same_certificate).then(auth::plus_refusal),
            refuse_unchallenged: self.refuse_unchallenged(peer, server),
            // Its offer was taken out, and nobody behind the gateway answers one.
            client_asked: false,
        }
    }

    /// A server that asks for no password judged the gateway, not the client. That is fine for a client that would get
    /// the same by itself: one on this machine, unless the gateway lends it an identity (its own user behind `peer`, its
    /// own certificate behind `cert`).
    fn refuse_unchallenged(&self, peer: Peer, server: &Server) -> Option<Refusal> {
        if self.config.allow_unchallenged {
            return None;
        }
        let own_uid = rustix::process::geteuid().as_raw();
        let is_self = matches!(peer, Peer::Unix { uid } if uid == own_uid || uid == 0);
        let target = &server.target.config;
        let lends = target.unix_path().is_some() || target.tls.sslcert.is_some();
        if is_self || (peer.is_local() && !lends) {
            return None;
        }
        let why = if peer.is_local() {
            "Without a password, the server authenticates the gateway's own operating system user or \
             certificate, not this client's."
        } else {
            "Behind the gateway every client looks local to the server; trust, peer and ident rules meant for local \
             users would let anybody in."
        };
        Some(
            Refusal::new(
                sqlstate::INVALID_AUTHORIZATION,
                "the server admitted this session without asking for a password, and the gateway refuses \
                 to pass that on",
            )
            .detail(why)
            .hint(
                "Make pg_hba.conf require scram-sha-256 for connections from the gateway, or set \
                 allow_unchallenged = true on the gateway if everybody who can reach it may log in without \
                 a password.",
            ),
        )
    }
}

impl Service for Gateway {
    const ROLE: Role = Role::Gateway;

    fn common(&self) -> &Common {
        &self.common
    }

    fn cancel_targets(&self) -> Vec<&Target> {
        let mut seen: Vec<&Target> = Vec::new();
        for server in &self.servers {
            if !seen.iter().any(|t| t.config == server.target.config) {
                seen.push(&server.target);
            }
        }
        seen
    }

    async fn place(
        &self,
        client: &mut Leg,
        mut packet: StartupPacket,
        session: &Session,
    ) -> Result<Placed, Failure> {
        let peer = session.peer();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (user, database) = (text(packet.user()), text(packet.database()));
        let server = route::choose(&self.servers, &database, &user)
            .inspect_err(|_| Events::count(&self.common.events().refused_no_server))?;
        let answer = self.take_offer(&mut packet, server, session);
        let setting = setting::take_from_startup(&mut packet);
        let mut upstream = self.reach(server, &packet, peer).await?;
        session.set_identity(Identity {
            user,
            database,
            server: server.name.clone(),
            client_tls: client.stream.tls_text(),
            server_tls: upstream.stream.tls_text(),
            application: packet.get("application_name").map(text).unwrap_or_default(),
            replication: packet.is_replication(),
        });
        if let Some(ack) = answer.as_ref().and_then(|a| a.ack.as_ref()) {
            client.send(ack).await?;
        }
        let rules = self.rules(client, &upstream, server, peer);
        let accepted = match auth::relay(client, &mut upstream, &rules).await {
            Ok(Outcome::Accepted(message)) => message,
            Ok(Outcome::Rejected) => return Err(reject(&self.common, client).await),
            Err(Failure::Refused(refusal)) => {
                if rules.refuse_unchallenged.as_ref() == Some(&refusal) {
                    Events::count(&self.common.events().refused_unchallenged);
                } else if !refusal.hostile {
                    Events::count(&self.common.events().refused_other);
                }
                upstream.farewell(&pgshrink_wire::message::message(tag::TERMINATE, &[])).await;
                return Err(refusal.into());
            }
            Err(failure) => return Err(failure),
        };
        let status = answer.as_ref().and_then(|a| a.status.clone()).unwrap_or_default();
        let is_plain = answer.as_ref().is_none_or(|a| a.agreed.is_none());
        let notice = setting.as_ref().filter(|_| is_plain).map(|_| plain_notice()).unwrap_or_default();
        client.send(&[accepted, status, notice].concat()).await?;
        let plain_because = match (&answer, &self.observer) {
            (None, _) => "the client did not ask for compression",
            (Some(_), Some(_)) => "this gateway only observes",
            (Some(_), None) => "no algorithm in common",
        };
        let meter = self.observer.as_ref().map(|observer| {
            let simulation = server.simulation.clone();
            Box::new(observer.meter(peer, session.identity(), simulation))
        });
        let link = answer.and_then(|a| a.agreed).map(|agreed| {
            let (config, budget) = (server.link.clone(), self.common.shared.budget.clone());
            let mut link = Link::new(Role::Gateway, agreed, config, budget).with_clock(super::clock);
            setting.iter().for_each(|text| link.begin_with(text));
            session.set_compression(Some(Compression {
                dialect: link.agreed().dialect().name(),
                agreed: link.agreed().describe(),
                sending: link.compression(),
            }));
            Box::new(link)
        });
        let target = Arc::new(server.target.clone());
        Ok(Placed { server: upstream, target, link, meter, plain_because })
    }
}

/// For a client that sets `pgshrink.compression` in its startup packet, where nothing can follow it.
fn plain_notice() -> Vec<u8> {
    Report {
        severity: "NOTICE",
        sqlstate: "00000",
        message: "pgshrink.compression has no effect: this session is not compressed",
        detail: None,
        hint: Some(
            "Connect through pgshrink run or pgshrink connect, or with a driver that asks for compression.",
        ),
    }
    .notice_response()
}

/// The server's no is with the client; close as the server does.
pub(super) async fn reject(common: &Common, client: &mut Leg) -> Failure {
    use tokio::io::AsyncWriteExt;
    Events::count(&common.events().login_rejected);
    // The client may have closed first.
    let _ = client.stream.shutdown().await;
    Failure::Done("the server refused the login")
}
