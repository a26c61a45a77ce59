//! Everything that can be wrong with what a user said about a connection, and with the connection itself.
//!
//! Texts begin as libpq's do, so that a user who searches for them finds libpq's documentation. They differ
//! where libpq would print a password.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::connection::{Phase, Place};
use crate::protocol::Malformed;
use crate::protocol::backend::Report;

/// Why connection parameters could not be understood, or why a connection could not be made or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each text says what its fields are")]
pub enum Error {
    /// A keyword without `=`; `position` counts bytes from 1.
    #[error("missing \"=\" after \"{after}\" in connection info string (byte {position})")]
    MissingEquals { after: String, position: usize },
    /// The same right after a password, where the leftover may be a part of it.
    #[error(
        "missing \"=\" in connection info string at byte {position}, after the {keyword}: a value with spaces must be \
         in single quotes"
    )]
    MissingEqualsAfterSecret { keyword: String, position: usize },
    /// A quote that never closes.
    #[error("unterminated quoted string in connection info string (value of \"{keyword}\", byte {position})")]
    UnterminatedQuote { keyword: String, position: usize },
    /// A keyword no libpq knows, where that is not left to the client's own libpq.
    #[error("invalid connection option \"{keyword}\"")]
    UnknownOption { keyword: String },
    /// `[` without `]`.
    #[error("end of string reached when looking for matching \"]\" in IPv6 host address in URI: \"{uri}\"")]
    UriUnclosedBracket { uri: String },
    /// `[]`.
    #[error("IPv6 host address may not be empty in URI: \"{uri}\"")]
    UriEmptyBracket { uri: String },
    /// Something else than `:`, `/`, `?` or `,` after `]`; `position` counts bytes from 1.
    #[error(
        "unexpected character \"{found}\" at position {position} in URI (expected \":\" or \"/\"): \"{uri}\""
    )]
    UriUnexpectedCharacter { found: char, position: usize, uri: String },
    /// `?a=b=c`.
    #[error("extra key/value separator \"=\" in URI query parameter: \"{keyword}\"")]
    UriExtraEquals { keyword: String },
    /// `?a`.
    #[error("missing key/value separator \"=\" in URI query parameter: \"{keyword}\"")]
    UriMissingEquals { keyword: String },
    /// `?unknown=1`, where that is not left to the client's own libpq.
    #[error("invalid URI query parameter: \"{keyword}\"")]
    UriUnknownParameter { keyword: String },
    /// `%` without two hexadecimal digits.
    #[error("invalid percent-encoded token: \"{token}\"")]
    UriBadPercent { token: String },
    /// `%00`.
    #[error("forbidden value %00 in percent-encoded value: \"{token}\"")]
    UriZeroPercent { token: String },
    /// A service was asked for and the file that must have it cannot be opened.
    #[error("service file \"{}\" not found ({reason})", path.display())]
    ServiceFileNotFound { path: PathBuf, reason: String },
    /// libpq reads lines into 1,024 bytes.
    #[error("line {line} too long in service file \"{}\" (at most 1022 bytes, newline included)", path.display())]
    ServiceLineTooLong { path: PathBuf, line: usize },
    /// No `=`, or a keyword no libpq knows.
    #[error("syntax error in service file \"{}\", line {line}: {reason}", path.display())]
    ServiceSyntax { path: PathBuf, line: usize, reason: String },
    /// `service=` inside a service.
    #[error("nested {keyword} specifications not supported in service file \"{}\", line {line}", path.display())]
    ServiceNested { keyword: &'static str, path: PathBuf, line: usize },
    /// libpq would ask an LDAP server; pgshrink does not.
    #[error(
        "service file \"{}\", line {line}: LDAP lookup is not supported by pgshrink; name the parameters there or \
         run the command without compression",
        path.display()
    )]
    ServiceLdap { path: PathBuf, line: usize },
    /// No section of that name in any file.
    #[error("definition of service \"{name}\" not found")]
    ServiceNotFound { name: String },
    /// `host` and `hostaddr` of different length.
    #[error("could not match {hosts} host names to {addresses} hostaddr values")]
    HostCount { hosts: usize, addresses: usize },
    /// Neither one port nor one per host.
    #[error("could not match {ports} port numbers to {hosts} hosts")]
    PortCount { ports: usize, hosts: usize },
    /// Outside 1 to 65535.
    #[error("invalid port number: \"{value}\" (allowed: 1 to 65535)")]
    PortNumber { value: String },
    /// Not a 32-bit integer.
    #[error("invalid integer value \"{value}\" for connection option \"{keyword}\"")]
    Integer { keyword: &'static str, value: String },
    /// A word that is not one of the few allowed.
    #[error("invalid {keyword} value: \"{value}\" (allowed: {allowed})")]
    InvalidValue { keyword: &'static str, value: String, allowed: &'static str },
    /// `sslrootcert=system` trusts every public authority, so it must check the name as well.
    #[error("weak sslmode \"{mode}\" may not be used with sslrootcert=system (use \"verify-full\")")]
    WeakModeForSystemRoots { mode: &'static str },
    /// Without a preceding SSLRequest there is no way back to plain.
    #[error(
        "weak sslmode \"{mode}\" may not be used with sslnegotiation=direct (use \"require\", \"verify-ca\", or \
         \"verify-full\")"
    )]
    WeakModeForDirect { mode: &'static str },
    /// `ssl_min_protocol_version` above `ssl_max_protocol_version`.
    #[error("invalid SSL protocol version range: {min} to {max}")]
    SslVersionRange { min: &'static str, max: &'static str },
    /// verify-ca or verify-full without a file to verify against.
    #[error(
        "root certificate file \"{}\" does not exist\nEither provide the file, use the system's trusted roots with \
         sslrootcert=system, or change sslmode to disable server certificate verification.",
        path.display()
    )]
    RootCertificateMissing { path: PathBuf },
    /// The same without even a place to look for it.
    #[error(
        "could not get home directory to locate root certificate file\nEither provide the file, use the system's \
         trusted roots with sslrootcert=system, or change sslmode to disable server certificate verification."
    )]
    NoHomeForRootCertificate,
    /// A certificate whose key is not there.
    #[error("certificate present, but not private key file \"{}\"", path.display())]
    KeyMissing { path: PathBuf },
    /// A key that is no file.
    #[error("private key file \"{}\" is not a regular file", path.display())]
    KeyNotAFile { path: PathBuf },
    /// A key that others can read.
    #[error(
        "private key file \"{}\" has group or world access; file must have permissions u=rw (0600) or less if owned \
         by the current user, or permissions u=rw,g=r (0640) or less if owned by root",
        path.display()
    )]
    KeyExposed { path: PathBuf },
    /// A file that is there and cannot be looked at.
    #[error("could not open {what} \"{}\": {reason}", path.display())]
    Unreadable { what: &'static str, path: PathBuf, reason: String },
    /// A host, port or mode that is not UTF-8.
    #[error("{keyword} is not valid UTF-8")]
    NotText { keyword: &'static str },
    /// A certificate or key that cannot be used.
    #[error("cannot read {what} {}: {reason}", path.display())]
    File { what: &'static str, path: PathBuf, reason: String },
    /// TLS material that does not fit together.
    #[error("{what}: {reason}")]
    Tls { what: &'static str, reason: String },
    /// A name without an address.
    #[error("could not translate host name \"{host}\" to address: {reason}")]
    Resolve { host: String, reason: String },
    /// Nobody answers there.
    #[error("connection to server {place} failed: {reason}")]
    Unreachable { place: Place, kind: io::ErrorKind, reason: String },
    /// TLS was required but is not available.
    #[error("connection to server {place} failed: {reason}")]
    Insecure { place: Place, reason: String },
    /// The client cannot or must not authenticate as the server asks.
    #[error("connection to server {place} failed: {reason}")]
    Authentication { place: Place, reason: String },
    /// The server is not of the sort that `target_session_attrs` wants.
    #[error("connection to server {place} failed: {reason}")]
    WrongSession { place: Place, reason: &'static str },
    /// The server said so.
    #[error("server {place}, while {phase}: {report}")]
    Server { place: Place, phase: Phase, report: Box<Report> },
    /// The end of the connection without a reason.
    #[error("server {place} closed the connection unexpectedly, while {phase}")]
    Closed { place: Place, phase: Phase },
    /// The end of the connection, for a reason of the network.
    #[error("connection to server {place} was lost, while {phase}: {reason}")]
    Lost { place: Place, phase: Phase, kind: io::ErrorKind, reason: String },
    /// Silence.
    #[error("server {place} did not answer within {} ms, while {phase}", after.as_millis())]
    TimedOut { place: Place, phase: Phase, after: Duration },
    /// A message that does not belong there or is damaged.
    #[error("server {place} broke the protocol, while {phase}: {malformed}")]
    Protocol { place: Place, phase: Phase, malformed: Box<Malformed> },
    /// More than is accepted.
    #[error("{what} of {found} bytes from server {place} is over the limit of {allowed}")]
    Limit { place: Place, what: &'static str, found: u64, allowed: u64 },
    /// Something to be sent is too large.
    #[error("{what} of {found} is over the limit of {allowed}")]
    RequestLimit { what: &'static str, found: usize, allowed: usize },
    /// A result that is not what the command promises.
    #[error("server {place} sent an unexpected answer to {command}: expected {expected}")]
    Answer { place: Place, command: &'static str, expected: &'static str },
    /// Every host, or every way of connecting to one, failed.
    #[error("{}", each_once(.0))]
    AllFailed(Vec<Error>),
    /// Another command's answer has not been read to its end.
    #[error("the connection to server {place} is in the middle of another command")]
    Busy { place: Place },
    /// Parameters that libpq knows and pgshrink does not have.
    #[error("{what} is not supported by pgshrink")]
    NotSupported { what: String },
    /// A string with a zero byte cannot be sent.
    #[error("{what} contains a zero byte")]
    ZeroByte { what: &'static str },
    /// Neither a parameter nor the system says who connects.
    #[error("no user name: give one with user=NAME or PGUSER")]
    NoUser,
}

/// With `sslmode=prefer` a server refuses twice, with TLS and without, and says the same.
fn each_once(errors: &[Error]) -> String {
    let mut texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    texts.dedup();
    texts.join("\n")
}

#[test]
fn what_two_attempts_came_to_alike_is_said_once() {
    let [user, other] = [Error::NoUser, Error::NotSupported { what: "x".to_owned() }];
    let failed = Error::AllFailed(vec![user.clone(), user.clone(), other.clone(), user.clone()]);
    assert_eq!(failed.to_string(), format!("{user}\n{other}\n{user}"));
}

impl Error {
    /// The SQLSTATE of a server's error.
    pub fn sqlstate(&self) -> Option<&str> {
        self.report().map(|report| report.sqlstate.as_str())
    }

    /// What the server said, of several attempts the last one that says something.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Error::Server { report, .. } => Some(report),
            Error::AllFailed(errors) => errors.iter().rev().find_map(Error::report),
            _ => None,
        }
    }
}
