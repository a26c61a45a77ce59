//! A client that asks a question and keeps the answer exactly as it came.
//!
//! Only for servers that trust it. Messages are not interpreted beyond their headers.

use std::io::{Read, Write};
use std::net::TcpStream;

use pgshrink_bench_report::Result;
use pgshrink_wire::message::{self, HEADER_SIZE, tag};
use pgshrink_wire::startup::StartupPacket;

/// Server: send the data of a COPY now.
pub const COPY_IN_RESPONSE: u8 = b'G';
/// Server: the data of a COPY follows.
pub const COPY_OUT_RESPONSE: u8 = b'H';
/// Both: the data of a COPY has ended.
pub const COPY_DONE: u8 = b'c';

/// A connection that is ready for a query.
#[derive(Debug)]
pub struct Session(TcpStream);

impl Session {
    /// Connects to a port of 127.0.0.1 as the superuser, with more startup parameters.
    pub fn connect(port: u16, parameters: &[(&str, &str)]) -> Result<Session> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let mut session = Session(stream);
        let mut packet = StartupPacket { protocol: 3 << 16, parameters: Vec::new() };
        for (name, value) in [("user", "postgres"), ("database", "postgres")].iter().chain(parameters) {
            packet.set(name, value.as_bytes());
        }
        session.0.write_all(&packet.to_bytes())?;
        session.answer(usize::MAX)?;
        Ok(session)
    }

    /// The server's messages for `sql` up to ReadyForQuery; about `size_max` bytes of whole messages when it says more,
    /// and then this session is of no more use.
    pub fn query(&mut self, sql: &str, size_max: usize) -> Result<Vec<u8>> {
        self.0.write_all(&message::message(tag::QUERY, &[sql.as_bytes(), b"\0"].concat()))?;
        self.answer(size_max)
    }

    /// Sends `data` as the COPY that `sql` asks for, in messages of 8 KiB.
    pub fn copy_in(&mut self, sql: &str, data: &[u8]) -> Result<()> {
        self.0.write_all(&message::message(tag::QUERY, &[sql.as_bytes(), b"\0"].concat()))?;
        let mut response = [0; HEADER_SIZE + 3];
        self.0.read_exact(&mut response)?;
        if response[0] != COPY_IN_RESPONSE {
            return Err(format!("`{sql}` is answered by '{}'", response[0] as char).into());
        }
        let columns = u16::from_be_bytes([response[6], response[7]]);
        self.0.read_exact(&mut vec![0; 2 * usize::from(columns)])?;
        for piece in data.chunks(8192) {
            self.0.write_all(&message::message(tag::COPY_DATA, piece))?;
        }
        self.0.write_all(&message::message(COPY_DONE, b""))?;
        self.answer(usize::MAX).map(drop)
    }

    fn answer(&mut self, size_max: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 256 << 10];
        let mut at = 0;
        loop {
            while let Some(header) =
                bytes.get(at..at + HEADER_SIZE).map(message::header).transpose()?.flatten()
            {
                if bytes.len() < at + header.total() {
                    break;
                }
                if header.tag == tag::ERROR_RESPONSE {
                    let text = String::from_utf8_lossy(&bytes[at + HEADER_SIZE..at + header.total()]);
                    return Err(format!("the server says: {}", text.replace('\0', " ")).into());
                }
                at += header.total();
                if header.tag == tag::READY_FOR_QUERY || at >= size_max {
                    bytes.truncate(at);
                    return Ok(bytes);
                }
            }
            match self.0.read(&mut buffer)? {
                0 => return Err("the server closed the connection".into()),
                n => bytes.extend_from_slice(&buffer[..n]),
            }
        }
    }
}

/// Length of the whole messages at the start of `bytes`, at most `size_max` of them.
pub fn whole_messages_size(bytes: &[u8], size_max: usize) -> Result<usize> {
    let mut whole = 0;
    while let Some(header) = bytes.get(whole..whole + HEADER_SIZE).map(message::header).transpose()?.flatten()
    {
        if whole + header.total() > bytes.len().min(size_max) {
            break;
        }
        whole += header.total();
    }
    Ok(whole)
}

/// The data in a server's messages as psql would print it: COPY lines, or one column's values with a newline each.
pub fn text_of(messages: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::with_capacity(messages.len());
    let mut at = 0;
    while let Some(header) = messages.get(at..at + HEADER_SIZE).map(message::header).transpose()?.flatten() {
        let body = messages.get(at + HEADER_SIZE..at + header.total()).ok_or("a message is cut")?;
        match header.tag {
            tag::COPY_DATA => text.extend_from_slice(body),
            tag::DATA_ROW => {
                // Int16 column count, Int32 length, value.
                text.extend_from_slice(body.get(6..).unwrap_or_default());
                text.push(b'\n');
            }
            _ => {}
        }
        at += header.total();
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_the_rows_hold() {
        let copied =
            [message::message(tag::COPY_DATA, b"1\ta\n"), message::command_complete("COPY 1")].concat();
        assert_eq!(text_of(&copied).unwrap(), b"1\ta\n");
        assert_eq!(whole_messages_size(&copied, copied.len() - 1).unwrap(), 9);
        assert_eq!(text_of(&message::data_row(&[Some("{}")])).unwrap(), b"{}\n");
    }
}
