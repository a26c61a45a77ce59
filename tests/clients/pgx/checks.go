package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

var checks = []struct {
	name string
	body func(*session) error
}{
	{"connect_server_version", connectServerVersion},
	{"wrong_password_28P01", wrongPassword},
	{"tls_as_asked", tlsAsAsked},
	{"simple_query_types", simpleQueryTypes},
	{"extended_query_types", extendedQueryTypes},
	{"null_and_unicode", nullAndUnicode},
	{"text_1mb_round_trip", bigText},
	{"bytea_1mb_round_trip", bigBytes},
	{"prepared_reused_100", preparedReused},
	{"batch_pipeline", batchPipeline},
	{"copy_in_out_20000", copyBothWays},
	{"copy_in_bad_row_22P02", copyBadRow},
	{"copy_in_aborted_by_client", copyAborted},
	{"cursor_declare_fetch", cursorDeclareFetch},
	{"large_object", largeObject},
	{"transaction_rollback", transactionRollback},
	{"error_fields", errorFields},
	{"listen_notify_within_1s", listenNotify},
	{"notice_before_sleep_ends", noticeEarly},
	{"cancel_57014_within_3s", cancelQuery},
	{"statement_timeout_57014", statementTimeout},
	{"short_queries_200", shortQueries},
	{"json_5000_rows_md5", jsonRows},
	{"binary_result", binaryResult},
	{"clean_close", cleanClose},
}

func connectServerVersion(s *session) error {
	number, err := s.text("SHOW server_version_num")
	if err != nil {
		return err
	}
	if version, err := strconv.Atoi(number); err != nil || version < 150_000 {
		return fmt.Errorf("server_version_num %s", number)
	}
	shown, err := s.text("SHOW server_version")
	return all(err, equal("ParameterStatus", shown, s.conn.PgConn().ParameterStatus("server_version")))
}

func wrongPassword(s *session) error {
	if os.Getenv("PGPASSWORD") == "" {
		return skip("no PGPASSWORD: the server asks for none")
	}
	wrong, err := open(s.ctx, "", func(config *pgx.ConnConfig) {
		config.Password = "not the password"
	})
	if err == nil {
		wrong.conn.Close(s.ctx)
	}
	_, err = fails("28P01", err)
	return err
}

func tlsAsAsked(s *session) error {
	_, encrypted := s.conn.PgConn().Conn().(*tls.Conn)
	switch mode := os.Getenv("PGSSLMODE"); mode {
	case "require", "verify-ca", "verify-full":
		return equal("TLS with sslmode="+mode, true, encrypted)
	case "disable":
		return equal("TLS with sslmode="+mode, false, encrypted)
	}
	return nil
}

func transactionRollback(s *session) error {
	if err := s.exec("CREATE TABLE ledger (id int)"); err != nil {
		return err
	}
	tx, err := s.conn.Begin(s.ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(s.ctx)
	if err := s.exec("INSERT INTO ledger VALUES (1)"); err != nil {
		return err
	}
	nested, err := tx.Begin(s.ctx)
	if err != nil {
		return err
	}
	return all(s.exec("INSERT INTO ledger VALUES (2)"), nested.Rollback(s.ctx),
		s.is("after the savepoint", "1", "SELECT count(*)::text FROM ledger"), tx.Rollback(s.ctx),
		s.is("after the rollback", "0", "SELECT count(*)::text FROM ledger"))
}

func errorFields(s *session) error {
	if err := s.exec("CREATE TABLE unique_of (id int CONSTRAINT unique_of_once PRIMARY KEY)"); err != nil {
		return err
	}
	if err := s.exec("INSERT INTO unique_of VALUES (1)"); err != nil {
		return err
	}
	duplicate, err := fails("23505", s.exec("INSERT INTO unique_of VALUES (1)"))
	if err != nil {
		return err
	}
	unknown, err := fails("42703", s.exec("SELECT 1, no_such_column"))
	if err != nil {
		return err
	}
	raised, err := fails("P0404", s.exec("DO $$ BEGIN RAISE EXCEPTION 'says no' USING ERRCODE = 'P0404', HINT = 'ask again', DETAIL = 'because'; END $$"))
	if err != nil {
		return err
	}
	return all(
		equal("severity", "ERROR", duplicate.Severity),
		equal("detail", "Key (id)=(1) already exists.", duplicate.Detail),
		equal("schema", s.schema, duplicate.SchemaName),
		equal("table", "unique_of", duplicate.TableName),
		equal("constraint", "unique_of_once", duplicate.ConstraintName),
		equal("position", 11, unknown.Position),
		equal("hint", "ask again", raised.Hint),
		equal("detail", "because", raised.Detail))
}

func listenNotify(s *session) error {
	if err := s.exec("LISTEN " + s.schema); err != nil {
		return err
	}
	sender, err := open(s.ctx, "", nil)
	if err != nil {
		return err
	}
	defer sender.conn.Close(s.ctx)
	sent := time.Now()
	if err := sender.exec("NOTIFY " + s.schema + ", 'from the other ☃'"); err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(s.ctx, 2*time.Second)
	defer stop()
	notification, err := s.conn.WaitForNotification(waiting)
	if err != nil {
		return err
	}
	took := time.Since(sent)
	return all(equal("channel", s.schema, notification.Channel), equal("payload", "from the other ☃", notification.Payload),
		equal(fmt.Sprintf("took %v, at most 1 s", took), true, took <= time.Second))
}

func noticeEarly(s *session) error {
	if err := s.exec("DO $$ BEGIN RAISE NOTICE 'early bird'; PERFORM pg_sleep(2); END $$"); err != nil {
		return err
	}
	ended := time.Now()
	if len(*s.notices) != 1 || (*s.notices)[0].message != "early bird" {
		return fmt.Errorf("notices: %v", *s.notices)
	}
	early := ended.Sub((*s.notices)[0].at)
	return equal(fmt.Sprintf("arrived %v before the end of a 2 s sleep", early), true, early >= time.Second)
}

func cancelQuery(s *session) error {
	asked := make(chan time.Time, 1)
	go func() {
		time.Sleep(300 * time.Millisecond)
		asked <- time.Now()
		_ = s.conn.PgConn().CancelRequest(s.ctx)
	}()
	err := s.exec("SELECT pg_sleep(60)")
	if _, err := fails("57014", err); err != nil {
		return err
	}
	took := time.Since(<-asked)
	return all(equal(fmt.Sprintf("took %v, at most 3 s", took), true, took <= 3*time.Second), s.is("usable after cancel", "1", "SELECT '1'"))
}

func statementTimeout(s *session) error {
	if err := s.exec("SET statement_timeout = '150ms'"); err != nil {
		return err
	}
	_, err := fails("57014", s.exec("SELECT pg_sleep(30)"))
	return all(err, s.exec("RESET statement_timeout"))
}

func cleanClose(s *session) error {
	closing, err := open(s.ctx, "", nil)
	if err != nil {
		return err
	}
	backend, err := closing.text("SELECT pg_backend_pid()::text")
	if err := all(err, closing.conn.Close(s.ctx)); err != nil {
		return err
	}
	left := ""
	for attempt := 0; attempt < 40; attempt++ {
		left, err = s.text("SELECT count(*)::text FROM pg_stat_activity WHERE pid::text = $1", backend)
		if err != nil || left == "0" {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return equal("backends left of a closed connection", "0", left)
}
