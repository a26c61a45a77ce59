//! Starting a gateway or a connector: as a process with signals, or on threads of their own.

use std::sync::Arc;

use pgshrink_wire::{MemoryBudget, Role};
use tokio::sync::mpsc;

use crate::cancel::CancelTable;
use crate::config::{ConnectorConfig, GatewayConfig, check_addresses};
use crate::error::Error;
use crate::handshake::connector::Connector;
use crate::handshake::gateway::Gateway;
use crate::lifecycle::{Control, Engine, Running, Workers, current_thread, notify_systemd, watch_signals};
use crate::listen::{Address, Listener, bind};
use crate::metrics;
use crate::registry::Registry;
use crate::service::{Service, Shared};

/// Serves as a gateway until a signal ends it. `reload` reads the configuration again on SIGHUP.
pub fn run_gateway(
    config: GatewayConfig,
    reload: impl Fn() -> Result<GatewayConfig, Error> + Send + 'static,
) -> Result<(), Error> {
    let parts = gateway_parts(config, reload)?;
    run(parts)
}

/// Serves as a connector until a signal ends it. `reload` reads the configuration again on SIGHUP.
pub fn run_connector(
    config: ConnectorConfig,
    reload: impl Fn() -> Result<ConnectorConfig, Error> + Send + 'static,
) -> Result<(), Error> {
    let parts = connector_parts(config, reload)?;
    run(parts)
}

/// Serves as a gateway on threads of its own.
pub fn start_gateway(config: GatewayConfig) -> Result<Running, Error> {
    let again = config.clone();
    let parts = gateway_parts(config, move || Ok(again.clone()))?;
    Running::spawn(parts.engine, parts.listeners, parts.orders, parts.received)
}

/// Serves as a connector on threads of its own.
pub fn start_connector(config: ConnectorConfig) -> Result<Running, Error> {
    let again = config.clone();
    let parts = connector_parts(config, move || Ok(again.clone()))?;
    Running::spawn(parts.engine, parts.listeners, parts.orders, parts.received)
}

struct Parts<S, L> {
    engine: Engine<S, L>,
    listeners: Vec<Listener>,
    orders: mpsc::UnboundedSender<Control>,
    received: mpsc::UnboundedReceiver<Control>,
}

fn shared(role: Role, limit_mib: u64, orders: &mpsc::UnboundedSender<Control>) -> Arc<Shared> {
    let budget = MemoryBudget::new(limit_mib << 20);
    Arc::new(Shared {
        registry: Arc::new(Registry::new(role, budget.clone())),
        budget,
        keys: Arc::new(CancelTable::default()),
        control: orders.clone(),
    })
}

fn gateway_parts(
    config: GatewayConfig,
    reload: impl Fn() -> Result<GatewayConfig, Error>,
) -> Result<Parts<Gateway, impl FnMut() -> Result<Gateway, Error>>, Error> {
    let (orders, received) = mpsc::unbounded_channel();
    let shared = shared(Role::Gateway, config.limits.max_codec_memory_mib, &orders);
    let service = Gateway::load(config, &shared)?;
    let config = &service.config;
    config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    check_addresses(&config.listen, config.metrics_listen.as_deref())
        .into_iter()
        .next()
        .map_or(Ok(()), Err)?;
    let listeners = bind(&config.listen, config.unix_socket.as_ref(), config.tcp.backlog)?;
    let own: Vec<Address> = listeners.iter().flat_map(Listener::reached_by).collect();
    config.check_servers(&own)?;
    let metrics = config.metrics_listen.as_deref().map(metrics::Endpoint::bind).transpose()?;
    let workers = Workers::start(config.threads)?;
    let registry = shared.registry.clone();
    let load = move || {
        let config = reload()?;
        config.check_servers(&own)?;
        Gateway::load(config, &shared)
    };
    Ok(Parts {
        engine: Engine { service: Arc::new(service), registry, workers, load, metrics },
        listeners,
        orders,
        received,
    })
}

fn connector_parts(
    config: ConnectorConfig,
    reload: impl Fn() -> Result<ConnectorConfig, Error>,
) -> Result<Parts<Connector, impl FnMut() -> Result<Connector, Error>>, Error> {
    let (orders, received) = mpsc::unbounded_channel();
    let shared = shared(Role::Connector, config.limits.max_codec_memory_mib, &orders);
    let service = Connector::load(&config, &shared)?;
    config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    check_addresses(&config.listen, config.metrics_listen.as_deref())
        .into_iter()
        .next()
        .map_or(Ok(()), Err)?;
    let listeners = bind(&config.listen, config.unix_socket.as_ref(), config.tcp.backlog)?;
    let own: Vec<Address> = listeners.iter().flat_map(Listener::reached_by).collect();
    config.check_targets(&own)?;
    let metrics = config.metrics_listen.as_deref().map(metrics::Endpoint::bind).transpose()?;
    let workers = Workers::start(config.threads)?;
    let registry = shared.registry.clone();
    let load = move || {
        let config = reload()?;
        config.check_targets(&own)?;
        Connector::load(&config, &shared)
    };
    Ok(Parts {
        engine: Engine { service: Arc::new(service), registry, workers, load, metrics },
        listeners,
        orders,
        received,
    })
}

fn run<S: Service, L: FnMut() -> Result<S, Error>>(parts: Parts<S, L>) -> Result<(), Error> {
    crate::memory::return_large_blocks();
    let Parts { engine, listeners, orders, received } = parts;
    crate::descriptors::provide(engine.service.common().limits.max_clients);
    let runtime = current_thread().map_err(|source| Error::Runtime { what: "the acceptor", source })?;
    runtime.block_on(async move {
        // Whoever has read that it listens may send a signal.
        watch_signals(orders)?;
        for address in listeners.iter().filter_map(Listener::address) {
            tracing::info!(%address, "listening");
        }
        engine.run(listeners, received, notify_systemd).await
    })
}
