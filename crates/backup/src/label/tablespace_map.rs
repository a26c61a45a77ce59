//! `tablespace_map`: a line for each tablespace outside the data directory, from which a server makes the
//! links in `pg_tblspc` when it starts.

use super::check_size;
use crate::error::Error;

/// The most tablespaces that a map may have.
pub const TABLESPACES_MAX: usize = 65_536;
/// Linux's `PATH_MAX`.
const LOCATION_BYTES_MAX: usize = 4096;

/// Where a tablespace lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TablespaceLocation {
    /// The tablespace, which is also the name of its link in `pg_tblspc`. Not 0.
    pub oid: u32,
    /// The target of that link, as bytes of the operating system. Tablespaces that lie in `pg_tblspc`
    /// themselves (`allow_in_place_tablespaces`) have no line.
    pub location: Vec<u8>,
}

/// Writes a map: newlines, carriage returns and backslashes of a location are escaped by a backslash, as in
/// `do_pg_backup_start` (`src/backend/access/transam/xlog.c`).
///
/// # Errors
/// [`Error::Malformed`] and [`Error::Limit`] for what a server would not take.
pub fn write_tablespace_map(tablespaces: &[TablespaceLocation]) -> Result<Vec<u8>, Error> {
    check_size("number of tablespaces", tablespaces.len(), TABLESPACES_MAX)?;
    let mut map = Vec::new();
    for tablespace in tablespaces {
        check(tablespace)?;
        map.extend_from_slice(tablespace.oid.to_string().as_bytes());
        map.push(b' ');
        for byte in &tablespace.location {
            if matches!(byte, b'\n' | b'\r' | b'\\') {
                map.push(b'\\');
            }
            map.push(*byte);
        }
        map.push(b'\n');
    }
    Ok(map)
}

/// Reads a map as `read_tablespace_map` does (`src/backend/access/transam/xlogrecovery.c`): an unescaped
/// newline or carriage return ends a line, and empty lines are passed over.
///
/// # Errors
/// [`Error::Malformed`] and [`Error::Limit`].
pub fn parse_tablespace_map(map: &[u8]) -> Result<Vec<TablespaceLocation>, Error> {
    let mut tablespaces: Vec<TablespaceLocation> = Vec::new();
    let (mut line, mut escaped) = (Vec::new(), false);
    for byte in map {
        match byte {
            b'\n' | b'\r' if !escaped => {
                if !line.is_empty() {
                    check_size("number of tablespaces", tablespaces.len() + 1, TABLESPACES_MAX)?;
                    tablespaces.push(parse_line(&line)?);
                    line.clear();
                }
            }
            b'\\' if !escaped => escaped = true,
            _ => {
                escaped = false;
                check_size("line of a tablespace_map in bytes", line.len() + 1, LOCATION_BYTES_MAX + 11)?;
                line.push(*byte);
            }
        }
    }
    if escaped || !line.is_empty() {
        return Err(Error::malformed("tablespace_map", "a newline at its end", &line));
    }
    Ok(tablespaces)
}

fn parse_line(line: &[u8]) -> Result<TablespaceLocation, Error> {
    let refused = || Error::malformed("line of a tablespace_map", "OID LOCATION", line);
    let space = line.iter().position(|byte| *byte == b' ').ok_or_else(refused)?;
    let digits = std::str::from_utf8(&line[..space]).map_err(|_| refused())?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let oid = digits.parse().ok().filter(|_| plain).ok_or_else(refused)?;
    let tablespace = TablespaceLocation { oid, location: line[space + 1..].to_vec() };
    check(&tablespace)?;
    Ok(tablespace)
}

fn check(tablespace: &TablespaceLocation) -> Result<(), Error> {
    let location = &tablespace.location;
    check_size("location of a tablespace in bytes", location.len(), LOCATION_BYTES_MAX)?;
    if tablespace.oid == 0 {
        return Err(Error::malformed("OID of a tablespace", "a number from 1 to 4294967295", b"0"));
    }
    if location.is_empty() || location.contains(&0) {
        return Err(Error::malformed("location of a tablespace", "a path without NUL bytes", location));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(oid: u32, location: &[u8]) -> TablespaceLocation {
        TablespaceLocation { oid, location: location.to_vec() }
    }

    #[test]
    fn locations_are_escaped_as_the_server_does() {
        let spaces = [space(16384, b"/disk/ a"), space(u32::MAX, b"/b\n\r\\\xff"), space(1, b"c")];
        let map = write_tablespace_map(&spaces).unwrap();
        assert_eq!(map, b"16384 /disk/ a\n4294967295 /b\\\n\\\r\\\\\xff\n1 c\n");
        assert_eq!(parse_tablespace_map(&map).unwrap(), spaces);
        assert_eq!(parse_tablespace_map(b"").unwrap(), []);
        assert_eq!(parse_tablespace_map(b"\n16384 /a\r\n").unwrap(), [space(16384, b"/a")]);
    }

    #[test]
    fn any_location_comes_back() {
        let mut rng = pgshrink_testkit::Seed::from_env_or_time().rng();
        for _ in 0..2000 {
            let length = rng.between(1, 30);
            let location: Vec<u8> = (0..length).map(|_| *rng.pick(b"/a \\\n\r\t\xff0")).collect();
            let spaces = [space(rng.bits() as u32 | 1, &location)];
            assert_eq!(parse_tablespace_map(&write_tablespace_map(&spaces).unwrap()).unwrap(), spaces);
        }
    }

    #[test]
    fn lines_that_are_none_are_refused() {
        for map in [
            "16384",
            "16384 /a",
            "16384 /a\\",
            "0 /a\n",
            "+1 /a\n",
            " /a\n",
            "x /a\n",
            "1 \n",
            "1 /a\\\n",
            "99999999999 /a\n",
        ] {
            assert!(parse_tablespace_map(map.as_bytes()).is_err(), "{map}");
        }
        let long = [b"1 /".to_vec(), vec![b'x'; LOCATION_BYTES_MAX + 20], b"\n".to_vec()].concat();
        assert!(matches!(parse_tablespace_map(&long), Err(Error::Limit { .. })));
        assert!(
            write_tablespace_map(&[space(1, b"a\0")]).is_err()
                && write_tablespace_map(&[space(0, b"/a")]).is_err()
        );
    }
}
