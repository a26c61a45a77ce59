-- What later versions have for jsonb: IS JSON and constructors since 16, query functions and JSON_TABLE since 17. Where
-- the server does not have a statement, both sides fail alike.
CREATE TABLE s (id int, j jsonb);
INSERT INTO s VALUES (1, '{"a": 1, "b": [1, "x", null], "c": {"d": "2024-01-02"}}'), (2, '[1, 2]'), (3, '"x"'), (4, 'null'), (5, NULL);
SELECT id, j IS JSON, j IS JSON OBJECT, j IS JSON ARRAY, j IS JSON SCALAR, j IS NOT JSON FROM s ORDER BY id;
SELECT id, j::text IS JSON, j::text IS JSON WITH UNIQUE KEYS FROM s ORDER BY id;
SELECT pg_input_is_valid('{"a"', 'jsonb'), pg_input_is_valid('{"a": 1}', 'jsonb');
SELECT message, detail, sql_error_code FROM pg_input_error_info('{"a"', 'jsonb');
SELECT JSON_OBJECT('k': j RETURNING jsonb), JSON_OBJECT('k' VALUE j ABSENT ON NULL) FROM s ORDER BY id;
SELECT JSON_ARRAY(j, 1, j RETURNING jsonb), JSON_ARRAY(j NULL ON NULL) FROM s ORDER BY id;
SELECT JSON_ARRAY(SELECT j FROM s ORDER BY id RETURNING jsonb);
SELECT JSON_ARRAYAGG(j ORDER BY id RETURNING jsonb), JSON_ARRAYAGG(j ORDER BY id NULL ON NULL) FROM s;
SELECT JSON_OBJECTAGG(id: j RETURNING jsonb), JSON_OBJECTAGG(id: j ABSENT ON NULL) FROM s;
SELECT JSON_SCALAR(1), JSON_SERIALIZE(j::text), JSON_SERIALIZE(j::text RETURNING bytea) FROM s ORDER BY id;
SELECT JSON(j::text) FROM s ORDER BY id;
SELECT JSON_EXISTS(j, '$.a'), JSON_EXISTS(j, '$.b[*] ? (@ == $x)' PASSING 'x' AS x) FROM s ORDER BY id;
SELECT JSON_VALUE(j, '$.a'), JSON_VALUE(j, '$.a' RETURNING int), JSON_VALUE(j, '$.c.d' RETURNING date) FROM s ORDER BY id;
SELECT JSON_VALUE(j, '$.none' DEFAULT 'absent' ON EMPTY), JSON_VALUE(j, '$.b' ERROR ON ERROR) FROM s WHERE id = 1;
SELECT JSON_QUERY(j, '$.b'), JSON_QUERY(j, '$.b[*]' WITH WRAPPER), JSON_QUERY(j, '$.c' RETURNING jsonb) FROM s ORDER BY id;
SELECT JSON_QUERY(j, '$.c.d' OMIT QUOTES), JSON_QUERY(j, 'strict $.none' EMPTY ARRAY ON ERROR) FROM s ORDER BY id;
SELECT t.* FROM s, JSON_TABLE(j, '$.b[*]' COLUMNS (n FOR ORDINALITY, v text PATH '$', w jsonb PATH '$', e int EXISTS PATH '$')) t;
SELECT t.* FROM s, JSON_TABLE(j, '$' COLUMNS (a int PATH '$.a', NESTED PATH '$.b[*]' COLUMNS (b jsonb PATH '$'))) t ORDER BY 1, 2;
SELECT jsonb_strip_nulls(j, true), jsonb_path_query_tz(j, '$.c.d.date()') FROM s ORDER BY id;
SELECT jsonb_path_query(j, '$.a.string()'), jsonb_path_query(j, '$.c.d.date()') FROM s ORDER BY id;
SELECT any_value(j) FROM s WHERE id = 2;
SELECT j FROM s ORDER BY j LIMIT 2;
