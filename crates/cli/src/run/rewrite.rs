//! From a command to a plan: which connections it makes, which of them are compressed, and how it is told to
//! make them through stand-ins.
//!
//! Pure: reads arguments, environment and files through [`Surroundings`], writes nothing.
//!
//! Rules:
//! 1. A stand-in is a socket that bears the port of the host it stands for, in a directory of its own. So only
//!    hosts are replaced; ports, and what is derived from them, stay.
//! 2. Each place that mentions a host of a compressed connection says the stand-ins' directories instead:
//!    connection string, `-h`, service file, `PGHOST`. Several hosts become as many directories in the same
//!    order, so trying them, `target_session_attrs` and `load_balance_hosts` remain the client's business.
//! 3. `hostaddr`, `requirepeer` and `sslcertmode=require`, which a client would act on although it talks to
//!    a socket, are hidden from it; the stand-in does what they say. The other `ssl*` parameters do nothing on
//!    a socket and stay.
//! 4. `compression` is taken out wherever it stands, also where it says `off`.
//! 5. Strength: connection string, service file, `--compression`, `PGCOMPRESSION`.
//! 6. In the arguments of a program that is not PostgreSQL's, only URIs and strings with `compression=` are
//!    taken for connection strings; its environment is rewritten whatever the arguments are.

use super::error::RunError;
use super::options::{self, Item, Place};
use super::plan::{Plan, StandIn};
use super::private::PrivateCopies;
use super::programs::{Order, Positional, Program};
use super::site::Site;
use pgshrink_pgclient::conninfo::{self, Conninfo, Setting};
use pgshrink_pgclient::ssl::SslParameters;
use pgshrink_pgclient::{Source, Surroundings, target};
use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A command to be run.
pub struct Request<'a> {
    /// The command and its arguments.
    pub argv: &'a [Vec<u8>],
    /// `--compression`.
    pub compression: Option<&'a str>,
    /// `--required`.
    pub required: bool,
    /// The program asks for compression itself.
    pub speaks: bool,
    /// Its environment and files.
    pub around: &'a Surroundings<'a>,
    /// Where stand-ins and private copies will be.
    pub private_dir: &'a Path,
}

/// Plans the command.
pub fn plan(request: &Request<'_>) -> Result<Plan, RunError> {
    let mut rewriter = Rewriter {
        request,
        plan: Plan::unchanged(request.argv),
        copies: PrivateCopies::new(request.private_dir, request.around),
    };
    let command =
        request.argv.first().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
    if request.speaks {
        let mut plan = Plan::unchanged(request.argv);
        plan.notes.push(format!("{command} asks for compression itself and is left unchanged"));
        return Ok(plan);
    }
    match Program::find(&command) {
        Some(program) => rewriter.known(program)?,
        None => rewriter.unknown()?,
    }
    rewriter.finish()
}

struct Rewriter<'a> {
    request: &'a Request<'a>,
    plan: Plan,
    copies: PrivateCopies<'a>,
}

/// A connection string in an argument or variable, and who reads it.
struct Slot<'a> {
    info: &'a mut Conninfo,
    /// The reader drops empty values, so an empty `hostaddr` hides nothing.
    drops_empty: bool,
    /// The reader may not be libpq, and may want TLS on a socket.
    foreign: bool,
}

impl Rewriter<'_> {
    fn known(&mut self, program: &Program) -> Result<(), RunError> {
        let items = options::read(program, self.request.argv);
        let is = |item: &&Item, test: fn(&Program, &str) -> bool| {
            item.option.as_deref().is_some_and(|option| test(program, option))
        };
        let hosts: Vec<Place> =
            items.iter().filter(|item| is(item, Program::takes_host)).filter_map(|item| item.value).collect();
        let port = items.iter().rfind(|item| is(item, Program::takes_port)).and_then(|item| item.value);
        let mut flags = Vec::new();
        for (keyword, place) in [("host", hosts.last()), ("port", port.as_ref())] {
            let value = place.map(|&place| self.at(place)).filter(|value| !value.is_empty());
            flags.extend(value.map(|value| Setting { keyword: keyword.into(), value }));
        }
        if program.is_probe() {
            return self.strip(&conninfo_places(program, &items, self.request.argv));
        }
        self.warn_about_recorded_connections(program, &items);
        let slots = conninfo_places(program, &items, self.request.argv);
        if slots.is_empty() {
            return self.flags_only(&flags, &hosts);
        }
        for place in slots {
            let text = self.at(place);
            let Some(mut info) = self.parse(&text)? else { continue };
            let explicit = match program.order {
                Order::ConninfoWins => [&flags[..], &info.settings()].concat(),
                Order::FlagsWin => [&info.settings()[..], &flags].concat(),
            };
            let Some(site) = self.site("connection string", &explicit)? else { continue };
            let drops_empty = program.order == Order::FlagsWin;
            let dirs = self.edit(&site, Slot { info: &mut info, drops_empty, foreign: false })?;
            self.put(place, &info.text());
            if let Some(dirs) = dirs.filter(|_| drops_empty) {
                hosts.iter().for_each(|&host| self.put(host, &dirs));
            }
        }
        Ok(())
    }

    /// A PostgreSQL program without a connection string: `-h`, `-p` and the environment.
    fn flags_only(&mut self, flags: &[Setting], hosts: &[Place]) -> Result<(), RunError> {
        if flags.is_empty() {
            return self.environment();
        }
        let Some(site) = self.site("arguments", flags)? else { return Ok(()) };
        self.copies.drop_from_service(&site, "compression");
        let Some(dirs) = self.open(&site)? else { return Ok(()) };
        self.hide_everywhere(&site, "hostaddr");
        if hosts.is_empty() {
            self.plan.argv.splice(1..1, [b"-h".to_vec(), dirs]);
        } else {
            hosts.iter().for_each(|&host| self.put(host, &dirs));
        }
        Ok(())
    }

    /// The connection that the environment alone describes.
    fn environment(&mut self) -> Result<(), RunError> {
        let Some(site) = self.site("environment", &[])? else { return Ok(()) };
        self.copies.drop_from_service(&site, "compression");
        let Some(dirs) = self.open(&site)? else { return Ok(()) };
        self.hide_everywhere(&site, "hostaddr");
        if site.service_says("host") || site.service_says("hostaddr") {
            self.copies.set_host_of_service(&site, &dirs);
        } else {
            self.set_env("PGHOST", dirs);
        }
        Ok(())
    }

    fn unknown(&mut self) -> Result<(), RunError> {
        self.environment()?;
        for argument in 1..self.request.argv.len() {
            let text = self.request.argv[argument].clone();
            let Some(offset) = foreign_conninfo(&text) else { continue };
            if let Some(edited) = self.foreign(&text[offset..], "connection string")? {
                self.put(Place { argument, offset }, &edited);
            }
        }
        let uris: Vec<_> =
            self.request.around.env.iter().filter(|(_, value)| conninfo::is_uri(value.as_bytes())).collect();
        for (name, value) in uris {
            let place = format!("variable {}", name.to_string_lossy());
            if let Some(edited) = self.foreign(value.as_bytes(), &place)? {
                self.plan.env.insert(name.as_bytes().to_vec(), Some(edited));
            }
        }
        Ok(())
    }

    /// A connection string of a program that may not use libpq.
    fn foreign(&mut self, text: &[u8], place: &str) -> Result<Option<Vec<u8>>, RunError> {
        let Some(mut info) = self.parse(text)? else { return Ok(None) };
        let explicit = info.settings();
        let Some(site) = self.site(place, &explicit)? else { return Ok(None) };
        let foreign = info.is_uri();
        self.edit(&site, Slot { info: &mut info, drops_empty: false, foreign })?;
        Ok(Some(info.text()).filter(|edited| edited != text))
    }

    /// Points a connection string at stand-ins, and returns their directories.
    fn edit(&mut self, site: &Site, slot: Slot<'_>) -> Result<Option<Vec<u8>>, RunError> {
        let info = slot.info;
        info.remove("compression");
        self.copies.drop_from_service(site, "compression");
        let Some(dirs) = self.open_for(site, Some(info))? else { return Ok(None) };
        info.set("host", &dirs);
        let said_elsewhere = self.request.around.var("PGHOSTADDR").is_some() || site.service_says("hostaddr");
        if slot.drops_empty {
            info.remove("hostaddr");
            self.hide_everywhere(site, "hostaddr");
        } else if said_elsewhere {
            info.set("hostaddr", b"");
        } else {
            info.remove("hostaddr");
        }
        if let Some(copy) = self.copies.service_file_of(site).filter(|_| info.get("servicefile").is_some()) {
            info.set("servicefile", copy.as_os_str().as_bytes());
        }
        info.remove("requirepeer");
        if info.get("sslcertmode").as_deref() == Some(b"require") {
            info.remove("sslcertmode");
        }
        if slot.foreign {
            let tls = info.settings().into_iter().filter(|setting| setting.keyword.starts_with(b"ssl"));
            for keyword in tls.map(|setting| setting.keyword).collect::<Vec<_>>() {
                info.remove(&String::from_utf8_lossy(&keyword));
            }
        }
        Ok(Some(dirs))
    }

    fn open(&mut self, site: &Site) -> Result<Option<Vec<u8>>, RunError> {
        self.open_for(site, None)
    }

    /// Makes the stand-ins of a connection, and returns their directories as a host list.
    fn open_for(&mut self, site: &Site, info: Option<&mut Conninfo>) -> Result<Option<Vec<u8>>, RunError> {
        let Some(compression) = &site.compression else {
            self.plan.notes.push(format!("{}: no compression requested, connecting directly", site.place));
            return Ok(None);
        };
        site.check_possible()?;
        self.check_host_is_known(site)?;
        let around = self.request.around;
        let targets = target::targets(&site.parameters, around).map_err(|e| site.error(e))?;
        site.check_peer(&targets)?;
        let ssl = SslParameters::resolve(&site.parameters, around).map_err(|e| site.error(e))?;
        let keepalive = target::keepalive(&site.parameters).map_err(|e| site.error(e))?;
        let mut dirs: Vec<Vec<u8>> = Vec::new();
        for target in &targets {
            let dir = self.stand_in(StandIn {
                dir: PathBuf::new(),
                target: target.clone(),
                ssl: ssl.clone(),
                keepalive: keepalive.clone(),
                compression: compression.clone(),
            });
            self.plan.notes.push(format!("{}: {} through {}", site.place, describe(target), dir.display()));
            dirs.push(dir.into_os_string().into_vec());
        }
        let names = targets.iter().zip(&dirs).map(|(target, dir)| (target.passfile_host(), dir.clone()));
        if let Some(copy) = self.copies.password_file(site, names.collect()) {
            match (site.parameters.source("passfile"), info) {
                (Some(Source::Explicit), Some(info)) => info.set("passfile", copy.as_os_str().as_bytes()),
                (Some(Source::Service), _) => self.copies.set_passfile_of_service(site, &copy),
                _ => self.set_env("PGPASSFILE", copy.into_os_string().into_vec()),
            }
        }
        self.hide_everywhere(site, "requirepeer");
        if site.parameters.get("sslcertmode") == Some(b"require") {
            self.hide_everywhere(site, "sslcertmode");
        }
        Ok(Some(dirs.join(&b',')))
    }

    fn check_host_is_known(&self, site: &Site) -> Result<(), RunError> {
        let named = |keyword| site.parameters.get_nonempty(keyword).is_some();
        if named("host") || named("hostaddr") {
            return Ok(());
        }
        let flag = |word: &Vec<u8>| word == b"--cluster" || word.starts_with(b"--cluster=");
        let chooser = match self.request.argv.iter().any(flag) {
            true => "--cluster",
            false if self.request.around.var("PGCLUSTER").is_some() => "PGCLUSTER",
            false => return Ok(()),
        };
        Err(RunError::Cluster { place: site.place.clone(), chooser })
    }

    /// The directory of a stand-in, shared with an equal one.
    fn stand_in(&mut self, wanted: StandIn) -> PathBuf {
        let same = |known: &&StandIn| StandIn { dir: PathBuf::new(), ..(*known).clone() } == wanted;
        if let Some(known) = self.plan.stand_ins.iter().find(same) {
            return known.dir.clone();
        }
        let dir = self.request.private_dir.join(self.plan.stand_ins.len().to_string());
        self.plan.stand_ins.push(StandIn { dir: dir.clone(), ..wanted });
        dir
    }

    /// Takes a parameter out of environment and service.
    fn hide_everywhere(&mut self, site: &Site, keyword: &'static str) {
        let env = pgshrink_pgclient::keyword::find(keyword.as_bytes()).and_then(|known| known.env);
        if let Some(name) = env.filter(|name| self.request.around.var(name).is_some()) {
            self.plan.env.insert(name.into(), None);
        }
        self.copies.drop_from_service(site, keyword);
    }

    /// Merges a site. What cannot be merged is the command's own business unless compression was asked for.
    fn site(&mut self, place: &str, explicit: &[Setting]) -> Result<Option<Site>, RunError> {
        match Site::new(place, explicit, self.request.compression, self.request.around) {
            Ok(site) => Ok(Some(site)),
            Err(RunError::Connection { source, .. })
                if !self.asked() && !explicit.iter().any(|s| s.keyword == b"compression") =>
            {
                self.plan.notes.push(format!("{place}: left unchanged: {source}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn parse(&mut self, text: &[u8]) -> Result<Option<Conninfo>, RunError> {
        match Conninfo::parse(text) {
            Ok(info) => Ok(Some(info)),
            Err(source) if !self.asked() && !String::from_utf8_lossy(text).contains("compression") => {
                self.plan.notes.push(format!("connection string: left unchanged: {source}"));
                Ok(None)
            }
            Err(source) => Err(RunError::Connection { place: "connection string".to_owned(), source }),
        }
    }

    /// Whether flag or environment ask for compression.
    fn asked(&self) -> bool {
        self.request.compression.is_some() || self.request.around.var("PGCOMPRESSION").is_some()
    }

    /// Only takes `compression` out of connection strings and service.
    fn strip(&mut self, places: &[Place]) -> Result<(), RunError> {
        let mut explicit = Vec::new();
        for &place in places {
            let Some(mut info) = self.parse(&self.at(place))? else { continue };
            if info.remove("compression") {
                self.put(place, &info.text());
            }
            explicit.extend(info.settings());
        }
        if let Some(site) = self.site("arguments", &explicit)? {
            self.copies.drop_from_service(&site, "compression");
        }
        self.plan
            .notes
            .push("arguments: only checks whether a server answers, connecting directly".to_owned());
        Ok(())
    }

    fn warn_about_recorded_connections(&mut self, program: &Program, items: &[Item]) {
        let has =
            |names: &[&str]| items.iter().any(|i| i.option.as_deref().is_some_and(|o| names.contains(&o)));
        let records = match program.name {
            "pg_basebackup" | "pg_rewind" => has(&["R", "write-recovery-conf"]),
            "pg_createsubscriber" => true,
            _ => false,
        };
        if records {
            self.plan.warnings.push(format!(
                "{} writes its connection string into the new server's configuration: with compression \
                 this is a socket that disappears when this command ends. Set primary_conninfo (or the \
                 subscription's connection) to the server, or to a permanent `pgshrink connect`.",
                program.name
            ));
        }
    }

    fn at(&self, place: Place) -> Vec<u8> {
        self.request.argv[place.argument][place.offset..].to_vec()
    }

    fn put(&mut self, place: Place, text: &[u8]) {
        let argument = &mut self.plan.argv[place.argument];
        argument.truncate(place.offset);
        argument.extend_from_slice(text);
    }

    fn set_env(&mut self, name: &str, value: Vec<u8>) {
        self.plan.env.insert(name.into(), Some(value));
    }

    fn finish(mut self) -> Result<Plan, RunError> {
        if self.request.required && self.plan.stand_ins.is_empty() {
            return Err(RunError::NothingToCompress);
        }
        if self.plan.stand_ins.is_empty() {
            self.plan.warnings.clear();
        } else if self.request.around.var("PGCOMPRESSION").is_some() {
            // A `pgshrink run` below this one would put a connector before the connector.
            self.plan.env.insert(b"PGCOMPRESSION".to_vec(), None);
        }
        let env = self.copies.finish(&mut self.plan);
        self.plan.env.extend(env.into_iter().collect::<BTreeMap<_, _>>());
        Ok(self.plan)
    }
}

/// Where a PostgreSQL program's connection strings stand.
fn conninfo_places(program: &Program, items: &[Item], argv: &[Vec<u8>]) -> Vec<Place> {
    let names_database =
        |item: &Item| matches!(item.option.as_deref(), Some("d" | "dbname")) && item.value.is_some();
    let named = items.iter().any(|item| names_database(item) && program.takes_conninfo("d"));
    let words = match program.positional {
        Positional::None => 0,
        Positional::First => usize::from(!named),
        Positional::All => usize::MAX,
    };
    let options = items.iter().filter(|i| i.option.as_deref().is_some_and(|o| program.takes_conninfo(o)));
    let positional = items.iter().filter(|item| item.option.is_none()).take(words);
    let places = options.chain(positional).filter_map(|item| item.value);
    places.filter(|place| conninfo::is_recognized(&argv[place.argument][place.offset..])).collect()
}

/// Where in an argument of an unknown program a connection string begins: the whole argument, or what follows
/// the first `=` as in `--dsn=…` and `DATABASE_URL=…`.
fn foreign_conninfo(text: &[u8]) -> Option<usize> {
    let behind_equals = text.iter().position(|&byte| byte == b'=').map(|at| at + 1);
    [Some(0), behind_equals].into_iter().flatten().find(|&offset| {
        let text = &text[offset..];
        let asks = || Conninfo::parse_strict(text).is_ok_and(|info| info.get("compression").is_some());
        conninfo::is_uri(text) || asks()
    })
}

fn describe(target: &target::Target) -> String {
    match target.endpoint() {
        target::Endpoint::Tcp { host, port } => format!("{host} port {port}"),
        target::Endpoint::Unix(path) => path.display().to_string(),
        target::Endpoint::Abstract(name) => format!("@{name}"),
    }
}
