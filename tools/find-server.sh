# Which server the extensions are built for and installed into. Sourced by tools/setup, tools/extensions and tools/install.

major_of() { # PG_CONFIG
  "$1" --version | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p'
}

# find_server sets pg_config to that of PG_CONFIG, or to the one in PATH, or to that of Debian's PostgreSQL 15 if it is
# installed, and major to its major version. It fails, and sets problem, if there is none of a version that is supported.
find_server() {
  local own=/usr/lib/postgresql/15/bin
  pg_config=${PG_CONFIG:-} major="" problem=""
  [ -n "$pg_config" ] || pg_config=$(command -v pg_config) || pg_config=""
  if [ -n "$pg_config" ]; then
    major=$(major_of "$pg_config" 2>/dev/null) || true
  fi
  # Debian's pg_config in PATH says nothing without libpq-dev or a package of headers.
  if [ -z "$major" ] && [ -z "${PG_CONFIG:-}" ] && [ -e "${machine:-}$own/postgres" ]; then
    pg_config=$own/pg_config major=15
  fi
  case $major in
    15 | 16 | 17 | 18) return 0 ;;
    "") problem="no server to build for: name its pg_config with PG_CONFIG=/path/to/pg_config" ;;
    *) problem="$pg_config is of PostgreSQL $major; the extensions are for 15 to 18" ;;
  esac
  if [ -z "$major" ] && [ -n "${PG_CONFIG:-}" ]; then
    problem="$PG_CONFIG (PG_CONFIG) is no pg_config: give the path of the server's own"
  fi
  return 1
}
