//! What the gateway and the connector have in common: one connection from accept to close.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pgshrink_wire::startup::StartupPacket;
use pgshrink_wire::{Link, LinkConfig, MemoryBudget, Role};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::admin::{self, Access};
use crate::cancel::{CancelTable, KnownKey};
use crate::config::{AdminConfig, LimitsConfig, Network, PolicyConfig, TcpConfig, TimeoutsConfig};
use crate::error::{Error, Failure, Refusal, sqlstate};
use crate::handshake::Ready;
use crate::handshake::first::{Opened, Opening, open_client};
use crate::handshake::leg::Leg;
use crate::lifecycle::Control;
use crate::observe::Meter;
use crate::pump::{End, Pump};
use crate::registry::{Arrival, Events, Full, Phase, Registered, Registry, Session};
use crate::stream::{Peer, Socket};
use crate::throttle::limited;
use crate::tls::server::ListenTls;
use crate::upstream::{Target, TcpOptions};

/// What outlives a reload.
pub(crate) struct Shared {
    pub(crate) registry: Arc<Registry>,
    pub(crate) budget: MemoryBudget,
    pub(crate) keys: Arc<CancelTable<Target>>,
    /// Orders for the process: the console's RELOAD and SHUTDOWN.
    pub(crate) control: mpsc::UnboundedSender<Control>,
}

/// Settings both roles need at each connection.
pub(crate) struct Common {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tls: Option<ListenTls>,
    pub(crate) proxies: Vec<Network>,
    pub(crate) limits: LimitsConfig,
    pub(crate) timeouts: TimeoutsConfig,
    pub(crate) link: Arc<LinkConfig>,
    pub(crate) tcp: TcpOptions,
    /// Who may use the console.
    pub(crate) access: Access,
}

impl Common {
    pub(crate) fn load(
        shared: &Arc<Shared>,
        tls: Option<ListenTls>,
        limits: &LimitsConfig,
        timeouts: &TimeoutsConfig,
        policy: &PolicyConfig,
        tcp: &TcpConfig,
        admin: &AdminConfig,
    ) -> Result<Self, Error> {
        let access = Access::load(admin)?;
        pgshrink_codec::stream::check_library().map_err(|e| Error::config("lz4", e.to_string()))?;
        shared.budget.set_limit(limits.max_codec_memory_mib << 20);
        Ok(Self {
            shared: shared.clone(),
            tls,
            proxies: Vec::new(),
            limits: limits.clone(),
            timeouts: timeouts.clone(),
            link: Arc::new(LinkConfig { policy: policy.to_policy()?, ..LinkConfig::default() }),
            tcp: TcpOptions {
                tcp: tcp.clone(),
                connect_limit: Duration::from_secs(timeouts.connect_timeout_s),
            },
            access,
        })
    }

    pub(crate) fn events(&self) -> &Events {
        &self.shared.registry.events
    }
}

/// A session that has a server.
pub(crate) struct Placed {
    pub(crate) server: Leg,
    pub(crate) target: Arc<Target>,
    pub(crate) link: Option<Box<Link>>,
    /// What counts its traffic, when that is observed.
    pub(crate) meter: Option<Box<Meter>>,
    /// Why it is plain, for the log.
    pub(crate) plain_because: &'static str,
}

/// The gateway or the connector.
pub(crate) trait Service: Send + Sync + 'static {
    const ROLE: Role;

    fn common(&self) -> &Common;

    /// Where a cancel request with a foreign key goes.
    fn cancel_targets(&self) -> Vec<&Target>;

    /// Takes a client from its startup packet to AuthenticationOk, which it has got when this returns.
    fn place(
        &self,
        client: &mut Leg,
        packet: StartupPacket,
        session: &Session,
    ) -> impl Future<Output = Result<Placed, Failure>> + Send;
}

/// Serves one connection to its end.
pub(crate) async fn serve<S: Service>(service: Arc<S>, socket: Socket, arrival: Arrival) {
    let common = service.common();
    let peer = match &socket {
        Socket::Tcp(stream) => match stream.peer_addr() {
            Ok(address) => Peer::Address(address),
            // Closed before it was served.
            Err(_) => return,
        },
        Socket::Unix(stream) => Peer::Unix { uid: stream.peer_cred().map_or(u32::MAX, |c| c.uid()) },
    };
    if let Err(error) = socket.tune(&common.tcp.tcp) {
        tracing::debug!(client = %peer, %error, "socket options");
    }
    let mut entry = common.shared.registry.enter(peer);
    drop(arrival);
    // Boxed, so that a session in the pump does not carry the space of its handshake.
    let Some((ready, target)) = Box::pin(login(&*service, socket, &mut entry)).await else {
        return;
    };
    let session = entry.session.clone();
    session.set_phase(Phase::Active);
    session.release_after(Duration::from_secs(common.timeouts.idle_release_s));
    session.limit_silence(Duration::from_secs(common.tcp.tcp.user_timeout_s));
    let mut pump = Pump::new(S::ROLE, ready, session.clone());
    let mut key: Option<KnownKey<Target>> = None;
    let end = pump
        .run(|bytes| {
            let known = common.shared.keys.remember(bytes, target.clone());
            session.set_backend_pid(known.pid());
            tracing::debug!(session = session.id, backend_pid = known.pid(), "server process");
            key = Some(known);
        })
        .await;
    session.set_phase(Phase::Closing);
    Box::pin(finish(common, &session, pump, end)).await;
}

/// Everything before the pump. `None`: the connection is over, and has been logged.
async fn login<S: Service>(
    service: &S,
    socket: Socket,
    entry: &mut Registered,
) -> Option<(Ready, Arc<Target>)> {
    let common = service.common();
    let deadline = Instant::now() + Duration::from_secs(common.timeouts.login_timeout_s);
    let Opened { mut client, opening } = open(common, socket, entry, deadline).await?;
    let packet = match opening {
        Opening::Cancel(request) => {
            relay_cancel(service, &request, entry).await;
            return None;
        }
        Opening::Startup(packet) => packet,
    };
    if common.access.is_meant(&packet) {
        serve_console(common, entry, client, packet, deadline).await;
        return None;
    }
    if let Err(refusal) = admit(common, entry, &client) {
        fail(common, entry, Some(client), refusal.into()).await;
        return None;
    }
    let process = &common.shared.registry.process;
    let placed = async {
        process.wait_until_resumed().await;
        refuse_while_draining(common)?;
        service.place(&mut client, packet, &entry.session).await
    };
    match timeout_at(deadline, placed).await {
        Ok(Ok(placed)) => {
            log_connect(common, &entry.session, &placed);
            let Placed { server, target, link, meter, .. } = placed;
            Some((Ready { client, server, link, meter }, target))
        }
        Ok(Err(failure)) => {
            fail(common, entry, Some(client), failure).await;
            None
        }
        Err(_) => {
            Events::count(&common.events().login_timeouts);
            fail(common, entry, Some(client), timeout_refusal(common).into()).await;
            None
        }
    }
}

/// Reads up to the first packet. `None`: the connection is over, and has been logged.
async fn open(common: &Common, socket: Socket, entry: &mut Registered, deadline: Instant) -> Option<Opened> {
    let (events, session) = (common.events(), entry.session.clone());
    let id = session.id;
    let arriving = common.shared.registry.pools.arrivals.take(session.peer(), common.limits.max_clients);
    let opened = open_client(socket, &session, &arriving, common.tls.as_ref(), &common.proxies);
    let opened = tokio::select! {
        biased;
        opened = timeout_at(deadline, opened) => opened,
        () = arriving.sent_away() => {
            Events::count(&events.dropped);
            limited!(
                warn,
                session = id,
                client = %session.peer(),
                "closed before its startup packet arrived: too many new connections at once"
            );
            return None;
        }
    };
    match opened {
        Ok(Ok(opened)) => Some(opened),
        Ok(Err((client, failure))) => {
            drop(arriving);
            fail(common, entry, client, failure).await;
            None
        }
        Err(_) => {
            Events::count(&events.login_timeouts);
            limited!(warn, session = id, client = %session.peer(), "no startup packet in time");
            None
        }
    }
}

/// A client that asks for the console. It is no session.
async fn serve_console(
    common: &Common,
    entry: &mut Registered,
    mut client: Leg,
    packet: StartupPacket,
    deadline: Instant,
) {
    entry.become_console();
    let caller = admin::Caller { client: &mut client, peer: entry.session.peer(), packet: &packet, deadline };
    let Shared { registry, control, .. } = &*common.shared;
    if let Err(failure) = admin::serve(caller, &common.access, registry, control).await {
        if matches!(&failure, Failure::Refused(refusal) if refusal.sqlstate != sqlstate::ADMIN_SHUTDOWN) {
            Events::count(&common.events().refused_console);
        }
        fail(common, entry, Some(client), failure).await;
    }
}

fn timeout_refusal(common: &Common) -> Refusal {
    let refusal = if common.shared.registry.process.is_paused() {
        Refusal::new(sqlstate::CANNOT_CONNECT_NOW, "new sessions are paused by the operator")
    } else {
        Refusal::new(sqlstate::CONNECTION_FAILURE, "login took too long")
    };
    refusal.detail(format!("The limit is {} s (timeouts.login_timeout_s).", common.timeouts.login_timeout_s))
}

/// Makes a client a session, if it may be one.
fn admit(common: &Common, entry: &mut Registered, client: &Leg) -> Result<(), Refusal> {
    refuse_while_draining(common)?;
    let (peer, limits) = (entry.session.peer(), &common.limits);
    let place = entry.become_session(limits.max_clients, limits.max_clients_per_address);
    if let Err(full) = place {
        Events::count(&common.events().refused_limit);
        let (message, limit, name) = match full {
            Full::Clients => ("sorry, too many clients already", limits.max_clients, "limits.max_clients"),
            Full::Address => (
                "too many connections from this address",
                limits.max_clients_per_address,
                "limits.max_clients_per_address",
            ),
        };
        return Err(Refusal::new(sqlstate::TOO_MANY_CONNECTIONS, message)
            .detail(format!("The limit is {limit} ({name}).")));
    }
    let must_encrypt = common.tls.as_ref().is_some_and(|tls| tls.required);
    if must_encrypt && !client.stream.is_tls() && !peer.is_local() {
        Events::count(&common.events().refused_tls_required);
        return Err(Refusal::new(sqlstate::INVALID_AUTHORIZATION, "connection requires SSL")
            .hint("Use sslmode=require or stronger."));
    }
    Ok(())
}

fn refuse_while_draining(common: &Common) -> Result<(), Refusal> {
    if common.shared.registry.is_draining() {
        Events::count(&common.events().refused_draining);
        return Err(Refusal::new(sqlstate::CANNOT_CONNECT_NOW, "the gateway is shutting down"));
    }
    Ok(())
}

/// A cancel request takes no client place: a flood of them must not keep clients out.
async fn relay_cancel<S: Service>(service: &S, request: &[u8], entry: &Registered) {
    let (common, session) = (service.common(), &entry.session);
    Events::count(&common.events().cancels);
    let limit = Duration::from_secs(common.timeouts.cancel_timeout_s);
    let own = common.shared.keys.find(request);
    let pools = &common.shared.registry.pools;
    let own_place = own.as_ref().and_then(|_| pools.own_cancels.take(request));
    let foreign_place = if own.is_none() { pools.foreign_cancels.take(session.peer()) } else { None };
    if own_place.is_none() && foreign_place.is_none() {
        Events::count(&common.events().dropped_cancels);
        let known = own.is_some();
        limited!(
            warn,
            session = session.id,
            client = %session.peer(),
            known,
            "too many cancel requests, this one was dropped"
        );
        return;
    }
    let targets = match &own {
        Some(target) => vec![&**target],
        None => service.cancel_targets(),
    };
    tracing::debug!(session = session.id, client = %session.peer(), servers = targets.len(), "cancel request");
    crate::cancel::relay(request, &targets, &common.tcp, limit).await;
}

/// Tells the client and the log.
async fn fail(common: &Common, entry: &mut Registered, client: Option<Leg>, failure: Failure) {
    entry.give_up_client_place();
    let session = &entry.session;
    let id = session.id;
    let peer = session.peer();
    match failure {
        Failure::Refused(refusal) => {
            let Refusal { sqlstate, message, .. } = &refusal;
            if refusal.hostile {
                common.events().count_hostile(&refusal);
                limited!(warn, session = id, client = %peer, sqlstate, error = %message, "connection refused");
            } else {
                limited!(info, session = id, client = %peer, sqlstate, error = %message, "connection refused");
            }
            let place = common.shared.registry.pools.farewells.take(peer);
            match (client, place) {
                (Some(client), Some(_place)) => client.farewell(&refusal.to_bytes()).await,
                (Some(client), None) => client.part(&refusal.to_bytes()).await,
                (None, _) => {}
            }
        }
        Failure::Lost(side, error) => {
            let events = common.events();
            Events::count(if side == "server" {
                &events.login_server_lost
            } else {
                &events.login_client_lost
            });
            limited!(info, session = id, client = %peer, side, %error, "connection lost before login");
        }
        Failure::Done(why) => tracing::debug!(session = id, client = %peer, why, "connection closed"),
    }
}

fn log_connect(common: &Common, session: &Session, placed: &Placed) {
    Events::count(&common.events().sessions);
    let identity = session.identity().cloned().unwrap_or_default();
    let compression = session.compression();
    if compression.is_some() {
        Events::count(&common.events().compressed);
    }
    let (dialect, agreed) = match &compression {
        Some(c) => (c.dialect, c.agreed.as_str()),
        None => {
            session.set_plain(placed.plain_because);
            ("none", placed.plain_because)
        }
    };
    tracing::info!(
        session = session.id,
        client = %session.peer(),
        user = %identity.user,
        database = %identity.database,
        application = %identity.application,
        server = %identity.server,
        client_tls = identity.client_tls.as_deref().unwrap_or("off"),
        server_tls = identity.server_tls.as_deref().unwrap_or("off"),
        dialect,
        compression = agreed,
        "connected"
    );
}

/// Last words, and the line in the log.
async fn finish(common: &Common, session: &Session, pump: Pump, end: End) {
    let reason = match &end {
        End::Finished => "closed".to_string(),
        End::ClientLost(error) => format!("client lost: {error}"),
        End::ServerLost(error) => format!("server lost: {error}"),
        End::Refused(refusal) => refusal.message.clone(),
    };
    if let End::Refused(refusal) = &end {
        if refusal.hostile {
            common.events().count_hostile(refusal);
            tracing::warn!(
                session = session.id, client = %session.peer(), sqlstate = refusal.sqlstate, error = %refusal.message,
                "session ended"
            );
        }
        let [(client, to_client), (server, to_server)] = pump.into_last_words(refusal);
        tokio::join!(client.farewell(&to_client), server.farewell(&to_server));
    } else {
        drop(pump);
    }
    let (up, down) = (session.counters.to_server.snapshot(), session.counters.to_client.snapshot());
    tracing::info!(
        session = session.id,
        client = %session.peer(),
        seconds = session.started.elapsed().as_millis() as f64 / 1000.0,
        backend_pid = session.backend_pid(),
        to_server_raw = up.raw_bytes,
        to_server_wire = up.wire_bytes,
        to_client_raw = down.raw_bytes,
        to_client_wire = down.wire_bytes,
        to_client_ratio = (down.ratio() * 100.0).round() / 100.0,
        reason,
        "disconnected"
    );
}
