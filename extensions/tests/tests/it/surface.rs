//! jsonb's surface on zson: the catalog's entries one by one, and the same statements on a column of either type.

mod catalog;
mod costs;
mod expressions;
mod indexes;
mod sorting;
mod subscripts;

use crate::databases::Database;

/// `z (id int, doc zson)` and `j (id int, doc jsonb)` with the same documents, of every shape, and a NULL.
fn pair(database: &Database) {
    database.sql(
        "create table j (id int, doc jsonb);
        insert into j select i, jsonb_build_object('a', i % 10, 'b', jsonb_build_object('c', i, 'd', array[i, i + 1]), 's', 'x' || i)
            from generate_series(1, 2000) i;
        insert into j values (3000, '[1, 2, \"a\"]'), (3001, '\"str\"'), (3002, '12.50'), (3003, 'null'), (3004, 'true'),
            (3005, '[]'), (3006, '{}'), (3007, null);
        create table z (id int, doc zson);
        insert into z select id, doc from j;
        analyze z, j;",
    );
}

/// `outcome(query)`: the type and text of its value, or its error.
fn outcomes(database: &Database) {
    database.sql(
        "create function outcome(query text) returns text language plpgsql as $$
        declare value text;
        begin
            execute 'select pg_typeof(x)::text || '': '' || coalesce(x::text, ''NULL'') from (' || query || ') s(x)' into value;
            return value;
        exception when others then
            return sqlerrm;
        end $$",
    );
}
