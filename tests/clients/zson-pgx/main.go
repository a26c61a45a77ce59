// What zson columns return and take in pgx: the same as jsonb columns.
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerZson is the recipe: for a pool, its AfterConnect.
func registerZson(ctx context.Context, connection *pgx.Conn) error {
	var oid, array uint32
	err := connection.QueryRow(ctx, "SELECT oid, typarray FROM pg_type WHERE oid = to_regtype('zson')").Scan(&oid, &array)
	if err != nil {
		return fmt.Errorf("this database has no type zson on the search path: %w", err)
	}
	zson := &pgtype.Type{Name: "zson", OID: oid, Codec: pgtype.JSONBCodec{}}
	connection.TypeMap().RegisterType(zson)
	connection.TypeMap().RegisterType(&pgtype.Type{Name: "_zson", OID: array, Codec: &pgtype.ArrayCodec{ElementType: zson}})
	return nil
}

var documents = []any{
	map[string]any{"a": 1.0, "b": []any{nil, true, "xä€"}, "c": map[string]any{"d": 1.5}},
	[]any{}, "text", 12.0, map[string]any{},
}

// A string is JSON's text to pgx, for jsonb too.
func given(document any) any {
	if text, is := document.(string); is {
		return strconv.Quote(text)
	}
	return document
}

func same(found, expected any) error {
	if !reflect.DeepEqual(found, expected) {
		return fmt.Errorf("expected %#v, found %#v", expected, found)
	}
	return nil
}

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, "")
	if err == nil {
		err = registerZson(ctx, connection)
	}
	if err != nil {
		fmt.Println("not ok connect:", err)
		os.Exit(1)
	}
	table := fmt.Sprintf("zson_%08x", rand.Uint32()^uint32(os.Getpid()))
	failed := false
	check := func(name string, run func() error) {
		if err := run(); err != nil {
			failed = true
			fmt.Printf("not ok %s: %v\n", name, err)
		} else {
			fmt.Println("ok", name)
		}
	}
	selected := func(from int) error {
		for n, document := range documents {
			var doc, was any
			err := connection.QueryRow(ctx, "SELECT doc, was FROM "+table+" WHERE id = $1", from+n).Scan(&doc, &was)
			if err != nil {
				return err
			}
			if err := same(doc, was); err != nil {
				return err
			}
			if err := same(doc, document); err != nil {
				return err
			}
		}
		return nil
	}
	check("inserted_and_selected", func() error {
		if _, err := connection.Exec(ctx, "CREATE TABLE "+table+" (id int, doc zson('drivers'), was jsonb)"); err != nil {
			return err
		}
		for n, document := range documents {
			if _, err := connection.Exec(ctx, "INSERT INTO "+table+" VALUES ($1, $2, $3)", n, given(document), given(document)); err != nil {
				return err
			}
		}
		return selected(0)
	})
	check("copied_in_binary", func() error {
		rows := [][]any{}
		for n, document := range documents {
			rows = append(rows, []any{100 + n, given(document), given(document)})
		}
		columns := []string{"id", "doc", "was"}
		if _, err := connection.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromRows(rows)); err != nil {
			return err
		}
		return selected(100)
	})
	check("structs_operators_arrays_and_nulls", func() error {
		var doc struct{ C struct{ D float64 } }
		query := "SELECT doc, NULL::zson, array[doc, NULL] FROM " + table + " WHERE doc @> $1::zson AND id < 100"
		var none *map[string]any
		var array []any
		err := connection.QueryRow(ctx, query, map[string]any{"a": 1}).Scan(&doc, &none, &array)
		if err != nil {
			return err
		}
		if none != nil || doc.C.D != 1.5 {
			return fmt.Errorf("found %v and %v", none, doc)
		}
		return same(array, []any{documents[0], nil})
	})
	if _, err := connection.Exec(ctx, "DROP TABLE "+table); err != nil {
		failed = true
		fmt.Println("not ok drop:", err)
	}
	connection.Close(ctx)
	if failed {
		os.Exit(1)
	}
}
