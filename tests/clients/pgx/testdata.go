package main

import (
	"crypto/md5"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"strings"
)

// Deterministic data; the same formulas stand in every client's program.
const (
	copyRowCount = 20_000
	mebibyte     = 1 << 20
	unicodeText  = "naïve Ünïcödé, жук, ☃, 🐘, 日本語"
	copyColumns  = "id int PRIMARY KEY, label text NOT NULL, note text, amount numeric(12,2) NOT NULL"
	copiedMD5SQL = "SELECT md5(string_agg(id || '|' || label || '|' || coalesce(note, '') || '|' || amount, '' ORDER BY id)) FROM "
	jsonQuery    = "SELECT jsonb_build_object('id', i, 'name', 'user-' || (i * 7919 % 10007), 'tags', jsonb_build_array(i % 7, i % 11," +
		" md5(i::text)), 'note', CASE WHEN i % 5 = 0 THEN NULL ELSE '☃ ' || i END)::text AS doc, i FROM generate_series(1, 5000) AS i"
)

type copiedRow struct {
	id     int
	label  string
	note   *string
	amount string
}

func copyValues(id int) copiedRow {
	row := copiedRow{id: id, label: fmt.Sprintf("row-%d-Ünï-☃", id*7919%10_007)}
	if id%7 != 0 {
		note := fmt.Sprintf("tab\there \\ back %d", id*31%1009)
		row.note = &note
	}
	cents := id * 37 % 100_003
	row.amount = fmt.Sprintf("%d.%02d", cents/100, cents%100)
	return row
}

// copyText is rows 1 to count in COPY's text format, in the very form in which the server writes them; badRow has letters where
// the integer belongs (0: none).
func copyText(count, badRow int) string {
	escape := strings.NewReplacer("\\", "\\\\", "\t", "\\t")
	var text strings.Builder
	for id := 1; id <= count; id++ {
		row := copyValues(id)
		note := "\\N"
		if row.note != nil {
			note = escape.Replace(*row.note)
		}
		if id == badRow {
			text.WriteString("bad")
		}
		fmt.Fprintf(&text, "%d\t%s\t%s\t%s\n", id, row.label, note, row.amount)
	}
	return text.String()
}

// copiedMD5 is what copiedMD5SQL must say of a table with all the rows.
func copiedMD5() string {
	var text strings.Builder
	for id := 1; id <= copyRowCount; id++ {
		row := copyValues(id)
		note := ""
		if row.note != nil {
			note = *row.note
		}
		fmt.Fprintf(&text, "%d|%s|%s|%s", id, row.label, note, row.amount)
	}
	return md5Of(text.String())
}

// noise is bytes that no codec can shrink: a chain of hashes.
func noise(size int) []byte {
	out := make([]byte, 0, size+sha512.Size)
	digest := sha512.Sum512([]byte("noise"))
	for len(out) < size {
		out = append(out, digest[:]...)
		digest = sha512.Sum512(digest[:])
	}
	return out[:size]
}

// prose is text of at least size bytes that shrinks well.
func prose(size int) string {
	var text strings.Builder
	for i := 0; text.Len() < size; i++ {
		fmt.Fprintf(&text, "line %d: %s\n", i, unicodeText)
	}
	return text.String()
}

func md5Of(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}
