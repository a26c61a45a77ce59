//! Messages of a client, appended to a buffer.
//!
//! Strings must have no zero byte; callers check what comes from outside with [`has_no_zero`].

use pgshrink_wire::message::tag;

/// Largest query text or parameter sent; PostgreSQL refuses larger messages than 1 GiB.
pub const TEXT_SIZE_MAX: usize = 64 << 20;
/// Most parameters of a statement: their count is 16 bits wide.
pub const PARAMETER_COUNT_MAX: usize = u16::MAX as usize;
/// SSLRequest, whole.
pub const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

const PROTOCOL_3_0: u32 = 3 << 16;
const CANCEL_CODE: u32 = 1234 << 16 | 5678;

/// Whether the text can be sent as a string.
pub fn has_no_zero(text: &[u8]) -> bool {
    !text.contains(&0)
}

/// A startup packet with these parameters.
pub fn startup(out: &mut Vec<u8>, parameters: &[(&str, &[u8])]) {
    with_length(out, |out| {
        out.extend_from_slice(&PROTOCOL_3_0.to_be_bytes());
        for (name, value) in parameters {
            string(out, name.as_bytes());
            string(out, value);
        }
        out.push(0);
    });
}

/// A request to cancel what the session with this key runs.
pub fn cancel(out: &mut Vec<u8>, process: u32, secret: &[u8]) {
    with_length(out, |out| {
        out.extend_from_slice(&CANCEL_CODE.to_be_bytes());
        out.extend_from_slice(&process.to_be_bytes());
        out.extend_from_slice(secret);
    });
}

/// A password, in clear or hashed.
pub fn password(out: &mut Vec<u8>, password: &[u8]) {
    message(out, tag::PASSWORD, |out| string(out, password));
}

/// The first answer of a SASL exchange.
pub fn sasl_initial(out: &mut Vec<u8>, mechanism: &str, data: &[u8]) {
    message(out, tag::PASSWORD, |out| {
        string(out, mechanism.as_bytes());
        value(out, Some(data));
    });
}

/// A later answer of a SASL exchange.
pub fn sasl_response(out: &mut Vec<u8>, data: &[u8]) {
    message(out, tag::PASSWORD, |out| out.extend_from_slice(data));
}

/// A simple query.
pub fn query(out: &mut Vec<u8>, sql: &str) {
    message(out, tag::QUERY, |out| string(out, sql.as_bytes()));
}

/// Prepares a statement; the server infers the parameters' types.
pub fn parse(out: &mut Vec<u8>, name: &str, sql: &str) {
    message(out, tag::PARSE, |out| {
        string(out, name.as_bytes());
        string(out, sql.as_bytes());
        out.extend_from_slice(&0_u16.to_be_bytes());
    });
}

/// The form of a result's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As text.
    Text = 0,
    /// As the type's `send` function gives it.
    Binary = 1,
}

/// Binds parameters in text form to the unnamed portal.
pub fn bind(out: &mut Vec<u8>, statement: &str, parameters: &[Option<&[u8]>], results: Format) {
    message(out, tag::BIND, |out| {
        string(out, b"");
        string(out, statement.as_bytes());
        out.extend_from_slice(&0_u16.to_be_bytes());
        out.extend_from_slice(&(parameters.len() as u16).to_be_bytes());
        for parameter in parameters {
            value(out, *parameter);
        }
        out.extend_from_slice(&1_u16.to_be_bytes());
        out.extend_from_slice(&(results as u16).to_be_bytes());
    });
}

/// Asks for the columns of the unnamed portal.
pub fn describe(out: &mut Vec<u8>) {
    const DESCRIBE: u8 = b'D';
    message(out, DESCRIBE, |out| out.extend_from_slice(b"P\0"));
}

/// Runs the unnamed portal to its end.
pub fn execute(out: &mut Vec<u8>) {
    message(out, tag::EXECUTE, |out| {
        string(out, b"");
        out.extend_from_slice(&0_u32.to_be_bytes());
    });
}

/// Ends a series of the extended protocol.
pub fn sync(out: &mut Vec<u8>) {
    message(out, tag::SYNC, |_| {});
}

/// COPY data.
pub fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    message(out, tag::COPY_DATA, |out| out.extend_from_slice(data));
}

/// The end of COPY data.
pub fn copy_done(out: &mut Vec<u8>) {
    message(out, tag::COPY_DONE, |_| {});
}

/// Gives up a COPY.
pub fn copy_fail(out: &mut Vec<u8>, reason: &str) {
    message(out, tag::COPY_FAIL, |out| string(out, reason.as_bytes()));
}

/// Ends the session.
pub fn terminate(out: &mut Vec<u8>) {
    message(out, tag::TERMINATE, |_| {});
}

fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    with_length(out, body);
}

fn with_length(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(0);
}

fn value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        Some(bytes) => {
            out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            out.extend_from_slice(bytes);
        }
    }
}
