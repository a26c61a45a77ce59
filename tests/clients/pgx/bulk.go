package main

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
)

func copyBothWays(s *session) error {
	if err := s.exec("CREATE TABLE copied (" + copyColumns + "); CREATE TABLE copied_binary (LIKE copied)"); err != nil {
		return err
	}
	rows := copyText(copyRowCount, 0)
	tag, err := s.conn.PgConn().CopyFrom(s.ctx, strings.NewReader(rows), "COPY copied FROM STDIN")
	if err := all(err, equal("rows in", int64(copyRowCount), tag.RowsAffected())); err != nil {
		return err
	}
	var back bytes.Buffer
	tag, err = s.conn.PgConn().CopyTo(s.ctx, &back, "COPY (SELECT * FROM copied ORDER BY id) TO STDOUT")
	err = all(err, equal("rows out", int64(copyRowCount), tag.RowsAffected()), equal("md5 of COPY OUT", md5Of(rows), md5Of(back.String())),
		s.is("server's md5 of the values", copiedMD5(), copiedMD5SQL+"copied"))
	if err != nil {
		return err
	}
	// The driver's own bulk loader speaks the binary format.
	source := pgx.CopyFromSlice(copyRowCount, func(i int) ([]any, error) {
		row := copyValues(i + 1)
		return []any{row.id, row.label, row.note, row.amount}, nil
	})
	count, err := s.conn.CopyFrom(s.ctx, pgx.Identifier{"copied_binary"}, []string{"id", "label", "note", "amount"}, source)
	return all(err, equal("rows in, binary", int64(copyRowCount), count), s.is("server's md5 of the binary values", copiedMD5(), copiedMD5SQL+"copied_binary"))
}

func copyBadRow(s *session) error {
	if err := s.exec("CREATE TABLE copied_badly (" + copyColumns + ")"); err != nil {
		return err
	}
	rows := strings.NewReader(copyText(copyRowCount, copyRowCount/2))
	_, err := s.conn.PgConn().CopyFrom(s.ctx, rows, "COPY copied_badly FROM STDIN")
	_, err = fails("22P02", err)
	return all(err, s.is("rows left", "0", "SELECT count(*)::text FROM copied_badly"))
}

func copyAborted(s *session) error {
	if err := s.exec("CREATE TABLE copied_partly (" + copyColumns + ")"); err != nil {
		return err
	}
	// A reader that fails is what makes pgx send CopyFail.
	broken := io.MultiReader(strings.NewReader(copyText(500, 0)), failingReader{})
	_, err := s.conn.PgConn().CopyFrom(s.ctx, broken, "COPY copied_partly FROM STDIN")
	_, err = fails("57014", err)
	return all(err, s.is("rows left", "0", "SELECT count(*)::text FROM copied_partly"))
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("the source broke") }

func largeObject(s *session) error {
	content := noise(300_000)
	tx, err := s.conn.Begin(s.ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(s.ctx)
	objects := tx.LargeObjects()
	oid, err := objects.Create(s.ctx, 0)
	if err != nil {
		return err
	}
	object, err := objects.Open(s.ctx, oid, pgx.LargeObjectModeRead|pgx.LargeObjectModeWrite)
	if err != nil {
		return err
	}
	if _, err := object.Write(content); err != nil {
		return err
	}
	if _, err := object.Seek(0, io.SeekStart); err != nil {
		return err
	}
	back := make([]byte, len(content))
	_, err = io.ReadFull(object, back)
	return all(err, equal("content", true, bytes.Equal(content, back)), object.Close(), objects.Unlink(s.ctx, oid), tx.Commit(s.ctx))
}
