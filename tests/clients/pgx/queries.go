package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

func simpleQueryTypes(s *session) error {
	results := s.conn.PgConn().Exec(s.ctx,
		"SELECT 42, (-9223372036854775808)::int8, 1.5::float8, true, DATE '2024-02-29', NULL::text; SELECT 'second'")
	var found []string
	for results.NextResult() {
		reader := results.ResultReader()
		for reader.NextRow() {
			for _, value := range reader.Values() {
				if value == nil {
					found = append(found, "NULL")
				} else {
					found = append(found, string(value))
				}
			}
		}
	}
	if err := results.Close(); err != nil {
		return err
	}
	return equal("values", "42 -9223372036854775808 1.5 t 2024-02-29 NULL second", strings.Join(found, " "))
}

func extendedQueryTypes(s *session) error {
	var (
		i4      int32
		i8      int64
		f8      float64
		numeric string
		boolean bool
		text    string
		content []byte
		at      time.Time
		uuid    pgtype.UUID
		array   []int32
	)
	instant := time.Date(2024, 2, 29, 12, 34, 56, 789_012_000, time.UTC)
	id := pgtype.UUID{Bytes: [16]byte{1, 0x90, 0xb5, 0xa0, 0x7f, 0x2e, 0x7c, 0x4d, 0x8e, 0x1f, 1, 0x23, 0x45, 0x67, 0x89, 0xab}, Valid: true}
	raw := []byte{0, 1, 0xff, '\\', '\'', 0}
	err := s.one([]any{&i4, &i8, &f8, &numeric, &boolean, &text, &content, &at, &uuid, &array},
		"SELECT $1::int4, $2::int8, $3::float8, $4::numeric::text, $5::bool, $6::text, $7::bytea, $8::timestamptz, $9::uuid, $10::int4[]",
		-7, int64(1<<63-1), 3.141592653589793, "12345678901234567890.0123456789", false, "it's", raw, instant, id, []int32{3, 1, 2})
	return all(err,
		equal("int4", -7, i4),
		equal("int8", int64(1<<63-1), i8),
		equal("float8", 3.141592653589793, f8),
		equal("numeric", "12345678901234567890.0123456789", numeric),
		equal("bool", false, boolean),
		equal("text", "it's", text),
		equal("bytea", string(raw), string(content)),
		equal("timestamptz", true, instant.Equal(at)),
		equal("uuid", id, uuid),
		equal("int4[]", "[3 1 2]", fmt.Sprint(array)))
}

func nullAndUnicode(s *session) error {
	var nothing, text, empty *string
	var number *int32
	var length int
	err := s.one([]any{&nothing, &number, &text, &length, &empty}, "SELECT $1::text, $2::int4, $3::text, length($3::text), ''::text", nil, nil, unicodeText)
	if err != nil {
		return err
	}
	return all(
		equal("null text", true, nothing == nil),
		equal("null int", true, number == nil),
		equal("unicode", unicodeText, *text),
		equal("characters", len([]rune(unicodeText)), length),
		equal("empty is not null", true, empty != nil && *empty == ""))
}

func bigText(s *session) error {
	sent := prose(mebibyte)
	var back, server string
	err := s.one([]any{&back, &server}, "SELECT t, md5(t) FROM (SELECT $1::text AS t) AS one", sent)
	return all(err, equal("server's md5", md5Of(sent), server), equal("returned text", sent, back))
}

func bigBytes(s *session) error {
	sent := noise(mebibyte)
	var back []byte
	var server string
	err := s.one([]any{&back, &server}, "SELECT b, md5(b) FROM (SELECT $1::bytea AS b) AS one", sent)
	return all(err, equal("server's md5", md5Of(string(sent)), server), equal("returned bytes", true, bytes.Equal(sent, back)))
}

func preparedReused(s *session) error {
	statement, err := s.conn.Prepare(s.ctx, "thrice", "SELECT $1::int4 * 3, 'n' || $1::int4")
	if err != nil {
		return err
	}
	for i := 0; i < 100; i++ {
		var product int
		var label string
		err := s.one([]any{&product, &label}, statement.Name, i)
		if err := all(err, equal("product", i*3, product), equal("label", fmt.Sprint("n", i), label)); err != nil {
			return err
		}
	}
	return s.conn.Deallocate(s.ctx, "thrice")
}

func batchPipeline(s *session) error {
	if err := s.exec("CREATE TABLE batched (id int PRIMARY KEY, label text)"); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	for i := 0; i < 1000; i++ {
		batch.Queue("INSERT INTO batched VALUES ($1, $2) RETURNING id", i, fmt.Sprint("label ", i))
	}
	results := s.conn.SendBatch(s.ctx, batch)
	for i := 0; i < 1000; i++ {
		var id int
		if err := all(results.QueryRow().Scan(&id), equal("id", i, id)); err != nil {
			results.Close()
			return err
		}
	}
	if err := all(results.Close(), s.is("sum", "499500", "SELECT sum(id)::text FROM batched")); err != nil {
		return err
	}
	failing := &pgx.Batch{}
	for _, id := range []int{2000, 5, 2001} {
		failing.Queue("INSERT INTO batched VALUES ($1, 'x')", id)
	}
	_, err := fails("23505", s.conn.SendBatch(s.ctx, failing).Close())
	return all(err, s.is("rows of the failed batch", "0", "SELECT count(*)::text FROM batched WHERE id >= 2000"))
}

func cursorDeclareFetch(s *session) error {
	tx, err := s.conn.Begin(s.ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(s.ctx)
	if err := s.exec("DECLARE rows_of SCROLL CURSOR FOR SELECT i, md5(i::text) FROM generate_series(1, 1000) AS i"); err != nil {
		return err
	}
	next := 1
	for fetched := 1; fetched > 0; {
		rows, err := s.conn.Query(s.ctx, "FETCH 150 FROM rows_of")
		if err != nil {
			return err
		}
		fetched = 0
		for ; rows.Next(); fetched++ {
			var i int
			var digest string
			if err := all(rows.Scan(&i, &digest), equal("row", next, i), equal("md5", md5Of(fmt.Sprint(next)), digest)); err != nil {
				return err
			}
			next++
		}
		if rows.Err() != nil {
			return rows.Err()
		}
	}
	var last int
	var digest string
	err = s.one([]any{&last, &digest}, "FETCH LAST FROM rows_of")
	return all(err, equal("rows", 1001, next), equal("backwards", 1000, last), s.exec("CLOSE rows_of"), tx.Commit(s.ctx))
}

func shortQueries(s *session) error {
	for i := 0; i < 200; i++ {
		if err := s.is("query", strconv.Itoa(i), fmt.Sprintf("SELECT '%d'", i)); err != nil {
			return err
		}
	}
	return nil
}

func jsonRows(s *session) error {
	rows, err := s.conn.Query(s.ctx, jsonQuery+" ORDER BY i")
	if err != nil {
		return err
	}
	var documents strings.Builder
	count := 0
	for ; rows.Next(); count++ {
		var document string
		var i int
		if err := rows.Scan(&document, &i); err != nil {
			return err
		}
		documents.WriteString(document)
	}
	return all(rows.Err(), equal("rows", 5000, count),
		s.is("md5", md5Of(documents.String()), "SELECT md5(string_agg(doc, '' ORDER BY i)) FROM ("+jsonQuery+") AS documents"))
}

func binaryResult(s *session) error {
	rows, err := s.conn.Query(s.ctx, "SELECT i, i::int8 << 33, i / 8.0::float8, decode(md5(i::text), 'hex'), md5(i::text)::uuid,"+
		" DATE '2000-01-01' + i FROM generate_series($1::int4, 300) AS i",
		pgx.QueryExecModeDescribeExec, pgx.QueryResultFormats{pgx.BinaryFormatCode}, 1)
	if err != nil {
		return err
	}
	count := 0
	for rows.Next() {
		count++
		if err := binaryRow(rows, count); err != nil {
			rows.Close()
			return err
		}
	}
	return all(rows.Err(), equal("rows", 300, count))
}

func binaryRow(rows pgx.Rows, i int) error {
	var number int
	var shifted int64
	var eighth float64
	var digest []byte
	var uuid [16]byte
	var day time.Time
	err := rows.Scan(&number, &shifted, &eighth, &digest, &uuid, &day)
	return all(err,
		equal("format of the column", int16(pgx.BinaryFormatCode), rows.FieldDescriptions()[1].Format),
		equal("int4", i, number),
		equal("int8", int64(i)<<33, shifted),
		equal("float8", float64(i)/8, eighth),
		equal("bytea", md5Of(strconv.Itoa(i)), fmt.Sprintf("%x", digest)),
		equal("uuid", md5Of(strconv.Itoa(i)), fmt.Sprintf("%x", uuid)),
		equal("date", time.Date(2000, 1, 1+i, 0, 0, 0, 0, time.UTC), day))
}
