// Command pgx runs the pgx driver's checks against a PostgreSQL server, whatever stands between. Connection data comes from
// the PG* environment; CLIENT_MODE is a pgx query execution mode (simple, describe) instead of prepared statements.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// checkSecondsMax is the time after which a check counts as hanging: it fails by name and the next one goes on.
const checkSecondsMax = 20 * time.Second

// skip is the error of a check whose precondition the server or the driver does not meet.
type skip string

func (s skip) Error() string { return string(s) }

// session is what a check gets: a connection of its own, so that one that fails cannot spoil the next.
type session struct {
	ctx     context.Context
	conn    *pgx.Conn
	schema  string
	notices *[]arrival
}

type arrival struct {
	message string
	at      time.Time
}

func main() {
	os.Exit(run())
}

func run() int {
	suffix := make([]byte, 4)
	if _, err := rand.Read(suffix); err != nil {
		panic(err)
	}
	schema := "client_pgx_" + hex.EncodeToString(suffix)
	if err := once("CREATE SCHEMA " + schema); err != nil {
		fmt.Println("not ok connect_server_version:", oneLine(err))
		return 1
	}
	code := 0
	for _, c := range checks {
		if !report(c.name, attempt(schema, c.body)) {
			code = 1
		}
	}
	if err := once("SET client_min_messages = warning; SET lock_timeout = '5s'; DROP SCHEMA " + schema + " CASCADE"); err != nil {
		fmt.Println("not ok drop_schema:", oneLine(err))
		code = 1
	}
	return code
}

func attempt(schema string, body func(*session) error) error {
	ctx, stop := context.WithTimeout(context.Background(), checkSecondsMax)
	defer stop()
	s, err := open(ctx, schema, nil)
	if err != nil {
		return err
	}
	defer s.conn.Close(ctx)
	return body(s)
}

func report(name string, err error) bool {
	var skipped skip
	switch {
	case err == nil:
		fmt.Println("ok", name)
	case errors.As(err, &skipped):
		fmt.Printf("skip %s: %s\n", name, skipped)
	default:
		fmt.Printf("not ok %s: %s\n", name, oneLine(err))
		return false
	}
	return true
}

// open connects with the environment's settings, changed by adjust.
func open(ctx context.Context, schema string, adjust func(*pgx.ConnConfig)) (*session, error) {
	config, err := pgx.ParseConfig("")
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = "pgx checks"
	if schema != "" {
		config.RuntimeParams["search_path"] = schema
	}
	switch os.Getenv("CLIENT_MODE") {
	case "simple":
		config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	case "describe":
		config.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	}
	notices := new([]arrival)
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
		*notices = append(*notices, arrival{notice.Message, time.Now()})
	}
	if adjust != nil {
		adjust(config)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &session{ctx, conn, schema, notices}, nil
}

func once(sql string) error {
	ctx, stop := context.WithTimeout(context.Background(), checkSecondsMax)
	defer stop()
	s, err := open(ctx, "", nil)
	if err != nil {
		return err
	}
	defer s.conn.Close(ctx)
	_, err = s.conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

func (s *session) exec(sql string, args ...any) error {
	_, err := s.conn.Exec(s.ctx, sql, args...)
	return err
}

// one scans the only row of a query into targets.
func (s *session) one(targets []any, sql string, args ...any) error {
	return s.conn.QueryRow(s.ctx, sql, args...).Scan(targets...)
}

func (s *session) text(sql string, args ...any) (string, error) {
	var value string
	err := s.one([]any{&value}, sql, args...)
	return value, err
}

// is queries one text and compares it.
func (s *session) is(what, expected, sql string, args ...any) error {
	found, err := s.text(sql, args...)
	if err != nil {
		return err
	}
	return equal(what, expected, found)
}

// fails checks that err is a server error with the SQLSTATE and returns its fields.
func fails(state string, err error) (*pgconn.PgError, error) {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return nil, fmt.Errorf("expected SQLSTATE %s, found %v", state, err)
	}
	return server, equal("SQLSTATE", state, server.Code)
}

func equal[T comparable](what string, expected, found T) error {
	if expected != found {
		return fmt.Errorf("%s: expected %s, found %s", what, brief(expected), brief(found))
	}
	return nil
}

// all returns the first error of several comparisons.
func all(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func brief(value any) string {
	text := fmt.Sprintf("%#v", value)
	if len(text) > 120 {
		return fmt.Sprintf("%s... (%d characters)", text[:120], len(text))
	}
	return text
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
