-- What the server has for jsonb since 16.
SELECT '{"a": 1}'::jsonb IS JSON, '[1]'::jsonb IS JSON ARRAY, '{}'::jsonb IS JSON OBJECT, '1'::jsonb IS JSON SCALAR;
