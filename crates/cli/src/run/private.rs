//! Private copies of service and password files, for a command that calls its hosts by other names.

use super::plan::Plan;
use super::site::Site;
use pgshrink_pgclient::Surroundings;
use pgshrink_pgclient::conninfo::Setting;
use pgshrink_pgclient::passfile::{self, Alias};
use pgshrink_pgclient::service::{self, Edit, Service};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Edits that are gathered first and written at once.
pub(crate) struct PrivateCopies<'a> {
    dir: &'a Path,
    around: &'a Surroundings<'a>,
    services: Vec<ServiceEdit>,
    passwords: Vec<PasswordFile>,
}

struct ServiceEdit {
    service: Service,
    host: Option<Vec<u8>>,
    passfile: Option<Vec<u8>>,
    drops: BTreeSet<&'static str>,
}

struct PasswordFile {
    original: PathBuf,
    copy: PathBuf,
    aliases: Vec<Alias>,
}

impl<'a> PrivateCopies<'a> {
    pub(crate) fn new(dir: &'a Path, around: &'a Surroundings<'a>) -> Self {
        Self { dir, around, services: Vec::new(), passwords: Vec::new() }
    }

    /// Takes a keyword out of the site's service, if it is there.
    pub(crate) fn drop_from_service(&mut self, site: &Site, keyword: &'static str) {
        if site.service_says(keyword)
            && let Some(edit) = self.edit(site)
        {
            edit.drops.insert(keyword);
        }
    }

    /// Makes the site's service name this host.
    pub(crate) fn set_host_of_service(&mut self, site: &Site, host: &[u8]) {
        if let Some(edit) = self.edit(site) {
            edit.host = Some(host.to_vec());
        }
    }

    /// Makes the site's service name this password file.
    pub(crate) fn set_passfile_of_service(&mut self, site: &Site, path: &Path) {
        if let Some(edit) = self.edit(site) {
            edit.passfile = Some(path.as_os_str().as_bytes().to_vec());
        }
    }

    /// The copy that the site has to read its service from, if its service was edited.
    pub(crate) fn service_file_of(&self, site: &Site) -> Option<PathBuf> {
        let service = site.parameters.service()?;
        let mut edits = self.services.iter().filter(|edit| edit.changes());
        edits.any(|edit| edit.service == *service).then(|| self.service_copy())
    }

    fn service_copy(&self) -> PathBuf {
        self.dir.join("pg_service.conf")
    }

    fn edit(&mut self, site: &Site) -> Option<&mut ServiceEdit> {
        let service = site.parameters.service()?;
        let same =
            |edit: &ServiceEdit| edit.service.name == service.name && edit.service.path == service.path;
        let index = self.services.iter().position(same).unwrap_or_else(|| {
            let service = service.clone();
            self.services.push(ServiceEdit { service, host: None, passfile: None, drops: BTreeSet::new() });
            self.services.len() - 1
        });
        self.services.get_mut(index)
    }

    /// Where the copy of the site's password file will be, or `None` when the original does as well. `names`
    /// are the hosts as libpq looks them up, with the names they get.
    pub(crate) fn password_file(&mut self, site: &Site, names: Vec<(String, Vec<u8>)>) -> Option<PathBuf> {
        let original = passfile::path(site.parameters.path("passfile").as_deref(), self.around)?;
        let alias = |(host, stands_for): (String, Vec<u8>)| Alias { host: host.into_bytes(), stands_for };
        let aliases: Vec<Alias> = names.into_iter().map(alias).collect();
        passfile::for_aliases(&original, &aliases, self.around).ok().flatten()?;
        if let Some(known) = self.passwords.iter_mut().find(|known| known.original == original) {
            known.aliases.extend(aliases);
            return Some(known.copy.clone());
        }
        let copy = self.dir.join(format!("pgpass.{}", self.passwords.len()));
        self.passwords.push(PasswordFile { original, copy: copy.clone(), aliases });
        Some(copy)
    }

    /// Adds the copies to the plan, and returns the variables that point at them.
    pub(crate) fn finish(self, plan: &mut Plan) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let mut env = BTreeMap::new();
        for file in &self.passwords {
            if let Ok(Some(text)) = passfile::for_aliases(&file.original, &file.aliases, self.around) {
                plan.file(&file.copy, text);
            }
        }
        if let Some(text) = self.service_text() {
            let copy = self.service_copy();
            plan.file(&copy, text);
            env.insert(b"PGSERVICEFILE".to_vec(), Some(copy.into_os_string().into_vec()));
        }
        env
    }

    /// The user's service file with the edited sections. Those of other files come first: the copy is searched
    /// before the system's file, which still answers for services that were not edited.
    fn service_text(&self) -> Option<Vec<u8>> {
        let edits: Vec<_> = self.services.iter().filter(|edit| edit.changes()).collect();
        if edits.is_empty() {
            return None;
        }
        let user_file = service::user_file(None, self.around);
        let read = |path: &Path| self.around.files.read(path).unwrap_or_default();
        let mut text = user_file.as_deref().map(read).unwrap_or_default();
        for edit in edits {
            if Some(&edit.service.path) == user_file.as_ref() {
                text = edit.apply(&text);
            } else {
                let section = service::section(&read(&edit.service.path), &edit.service.name);
                text = [edit.apply(&section), text].concat();
            }
        }
        Some(text)
    }
}

impl ServiceEdit {
    fn changes(&self) -> bool {
        self.host.is_some() || self.passfile.is_some() || !self.drops.is_empty()
    }

    fn apply(&self, text: &[u8]) -> Vec<u8> {
        let replaced = [("host", &self.host), ("passfile", &self.passfile)];
        let edit = |setting: &Setting| {
            let replaces = replaced.iter().any(|(keyword, value)| value.is_some() && said(setting, keyword));
            let dropped = self.drops.iter().any(|keyword| said(setting, keyword));
            if replaces || dropped { Edit::Drop } else { Edit::Keep }
        };
        let first: Vec<Setting> = replaced
            .iter()
            .filter_map(|(keyword, value)| {
                let value = value.as_ref()?.clone();
                Some(Setting { keyword: keyword.as_bytes().to_vec(), value })
            })
            .collect();
        service::rewrite(text, &self.service.name, edit, &first)
    }
}

fn said(setting: &Setting, keyword: &str) -> bool {
    setting.keyword == keyword.as_bytes()
}
