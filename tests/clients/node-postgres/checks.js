'use strict'

// node-postgres against a PostgreSQL server, whatever stands between. Connection data comes from the PG* environment.
const assert = require('node:assert')
const { once } = require('node:events')
const { Readable } = require('node:stream')
const { pipeline } = require('node:stream/promises')
const { setTimeout: sleep } = require('node:timers/promises')
const { TLSSocket } = require('node:tls')
const { Client } = require('pg')
const Cursor = require('pg-cursor')
const copyStreams = require('pg-copy-streams')
const data = require('./testdata')
const { SCHEMA, SSLMODE, Skip, connect, one, fails, main } = require('./harness')

const equal = (what, expected, found) => assert.deepStrictEqual(found, expected, `${what}: expected ${brief(expected)}, found ${brief(found)}`)

function brief(value) {
  const text = JSON.stringify(value) ?? String(value)
  return text.length <= 120 ? text : `${text.slice(0, 120)}... (${text.length} characters)`
}

function chunks(content, size) {
  const parts = []
  for (let start = 0; start < content.length; start += size) parts.push(content.subarray(start, start + size))
  return parts
}

async function connect_server_version(client) {
  const [version] = await one(client, 'SHOW server_version_num')
  assert.ok(Number(version) >= 150000, `server_version_num ${version}`)
}

async function wrong_password_28P01() {
  if (!process.env.PGPASSWORD) throw new Skip('no PGPASSWORD: the server asks for none')
  await fails('28P01', connect({ password: 'not the password' }))
}

async function tls_as_asked(client) {
  const required = ['require', 'verify-ca', 'verify-full'].includes(SSLMODE)
  if (required || SSLMODE === 'disable') {
    equal(`TLS with sslmode=${SSLMODE}`, required, client.connection.stream instanceof TLSSocket)
  }
}

async function simple_query_types(client) {
  const results = await client.query({
    text: "SELECT 42, (-9223372036854775808)::int8, 1.5::float8, true, DATE '2024-02-29', NULL::text; SELECT 'second'",
    rowMode: 'array',
    types: { getTypeParser: () => (value) => value },
  })
  equal('first', [['42', '-9223372036854775808', '1.5', 't', '2024-02-29', null]], results[0].rows)
  equal('second', [['second']], results[1].rows)
}

async function extended_query_types(client) {
  const bytes = Buffer.from([0, 1, 0xff, 0x5c, 0x27, 0])
  const instant = new Date('2024-02-29T12:34:56.789Z')
  const uuid = '0190b5a0-7f2e-7c4d-8e1f-0123456789ab'
  const values = [-7, '9223372036854775807', 3.141592653589793, '12345678901234567890.0123456789', false, "it's", bytes, instant, uuid, [3, 1, 2]]
  const types = ['int4', 'int8', 'float8', 'numeric', 'bool', 'text', 'bytea', 'timestamptz', 'uuid', 'int4[]']
  const { rows } = await client.query({
    text: 'SELECT ' + types.map((type, i) => `$${i + 1}::${type}`).join(', '),
    values,
    rowMode: 'array',
  })
  equal('row', values, rows[0])
}

async function null_and_unicode(client) {
  const { rows } = await client.query({
    text: "SELECT $1::text, $2::int4, $3::text, length($3::text), ''::text",
    values: [null, null, data.UNICODE],
    rowMode: 'array',
  })
  equal('row', [null, null, data.UNICODE, [...data.UNICODE].length, ''], rows[0])
}

async function text_1mb_round_trip(client) {
  const text = data.prose(data.MEBIBYTE)
  const [back, server] = await one(client, 'SELECT t, md5(t) FROM (SELECT $1::text AS t) AS one', [text])
  equal("server's md5", data.md5(text), server)
  assert.ok(back === text, 'returned text differs')
}

async function bytea_1mb_round_trip(client) {
  const content = data.noise(data.MEBIBYTE)
  const [back, server] = await one(client, 'SELECT b, md5(b) FROM (SELECT $1::bytea AS b) AS one', [content])
  equal("server's md5", data.md5(content), server)
  assert.ok(content.equals(back), 'returned bytes differ')
}

async function prepared_reused_100(client) {
  for (let i = 0; i < 100; i++) {
    const row = await one(client, { name: 'thrice', text: "SELECT $1::int4 * 3 AS product, 'n' || $1::int4 AS label", values: [i] })
    equal('row', [i * 3, `n${i}`], row)
  }
  equal('prepared statements', ['1'], await one(client, "SELECT count(*) FROM pg_prepared_statements WHERE name = 'thrice'"))
}

async function batch_pipeline(client) {
  // node-postgres queues: all are handed over before the first answer, and each must get its own.
  await client.query('CREATE TABLE batched (id int PRIMARY KEY, label text)')
  const ids = Array.from({ length: 1000 }, (_, i) => i)
  const answers = await Promise.all(ids.map((i) => one(client, 'INSERT INTO batched VALUES ($1, $2) RETURNING id', [i, `label ${i}`])))
  equal('ids returned', ids, answers.flat())
  const [first, second, third] = await Promise.allSettled([2000, 5, 2001].map((i) => client.query('INSERT INTO batched VALUES ($1, $2)', [i, 'x'])))
  equal('outcomes', ['fulfilled', '23505', 'fulfilled'], [first.status, second.reason?.code, third.status])
  equal('sum', [String(499500 + 4001)], await one(client, 'SELECT sum(id) FROM batched'))
}

async function copy_in_out_20000(client) {
  await client.query(`CREATE TABLE copied (${data.COPY_COLUMNS})`)
  const rows = data.copyText(data.COPY_ROWS, 0)
  const into = client.query(copyStreams.from('COPY copied FROM STDIN'))
  await pipeline(Readable.from(chunks(rows, 5000)), into)
  equal('rows in', data.COPY_ROWS, into.rowCount)
  const back = []
  for await (const chunk of client.query(copyStreams.to('COPY (SELECT * FROM copied ORDER BY id) TO STDOUT'))) back.push(chunk)
  equal('md5 of COPY OUT', data.md5(rows), data.md5(Buffer.concat(back)))
  equal("server's md5 of the values", [data.copiedMd5()], await one(client, data.COPIED_MD5 + 'copied'))
}

async function copy_in_bad_row_22P02(client) {
  await client.query(`CREATE TABLE copied_badly (${data.COPY_COLUMNS})`)
  const rows = data.copyText(data.COPY_ROWS, data.COPY_ROWS / 2)
  await fails('22P02', pipeline(Readable.from(chunks(rows, 5000)), client.query(copyStreams.from('COPY copied_badly FROM STDIN'))))
  equal('rows left', ['0'], await one(client, 'SELECT count(*) FROM copied_badly'))
}

async function copy_in_aborted_by_client(client) {
  await client.query(`CREATE TABLE copied_partly (${data.COPY_COLUMNS})`)
  const into = client.query(copyStreams.from('COPY copied_partly FROM STDIN'))
  await new Promise((resolve, reject) => into.write(data.copyText(500, 0), (problem) => (problem ? reject(problem) : resolve())))
  // Destroying the stream is what makes pg-copy-streams send CopyFail.
  const failed = once(into, 'error')
  into.destroy(new Error('the source broke'))
  await failed
  equal('rows left', ['0'], await one(client, 'SELECT count(*) FROM copied_partly'))
}

async function cursor_declare_fetch(client) {
  await client.query('BEGIN')
  await client.query('DECLARE rows_of SCROLL CURSOR FOR SELECT i, md5(i::text) FROM generate_series(1, 1000) AS i')
  const found = []
  for (;;) {
    const { rows } = await client.query('FETCH 150 FROM rows_of')
    if (rows.length === 0) break
    found.push(...rows)
  }
  const expected = Array.from({ length: 1000 }, (_, i) => ({ i: i + 1, md5: data.md5(String(i + 1)) }))
  equal('rows', expected, found)
  equal('backwards', [1000, data.md5('1000')], await one(client, 'FETCH LAST FROM rows_of'))
  await client.query('CLOSE rows_of')
  await client.query('COMMIT')
}

async function driver_fetch_size(client) {
  const cursor = client.query(new Cursor('SELECT i FROM generate_series(1, $1::int4) AS i', [2000]))
  const found = []
  for (;;) {
    const rows = await cursor.read(97)
    if (rows.length === 0) break
    assert.ok(rows.length <= 97, `${rows.length} rows at once`)
    found.push(...rows.map((row) => row.i))
  }
  await cursor.close()
  equal('rows', Array.from({ length: 2000 }, (_, i) => i + 1), found)
}

async function large_object(client) {
  // node-postgres has no large object interface of its own.
  const content = data.noise(300000)
  const [oid] = await one(client, 'SELECT lo_from_bytea(0, $1)', [content])
  const [back] = await one(client, 'SELECT lo_get($1::oid)', [oid])
  await client.query('SELECT lo_put($1::oid, 5, $2)', [oid, Buffer.from('over')])
  const [middle] = await one(client, 'SELECT lo_get($1::oid, 4, 6)', [oid])
  await client.query('SELECT lo_unlink($1::oid)', [oid])
  assert.ok(content.equals(back), 'content differs')
  equal('overwritten', Buffer.concat([content.subarray(4, 5), Buffer.from('over'), content.subarray(9, 10)]).toString('hex'), middle.toString('hex'))
}

async function transaction_rollback(client) {
  await client.query('CREATE TABLE ledger (id int)')
  await client.query('BEGIN')
  await client.query('INSERT INTO ledger VALUES (1)')
  await client.query('SAVEPOINT point')
  await client.query('INSERT INTO ledger VALUES (2)')
  await client.query('ROLLBACK TO SAVEPOINT point')
  equal('after the savepoint', ['1'], await one(client, 'SELECT count(*) FROM ledger'))
  await fails('22012', client.query('SELECT 1 / 0'))
  await fails('25P02', client.query('SELECT 1'))
  await client.query('ROLLBACK')
  equal('after the rollback', ['0'], await one(client, 'SELECT count(*) FROM ledger'))
}

async function error_fields(client) {
  await client.query('CREATE TABLE unique_of (id int CONSTRAINT unique_of_once PRIMARY KEY)')
  await client.query('INSERT INTO unique_of VALUES (1)')
  const { severity, detail, schema, table, constraint } = await fails('23505', client.query('INSERT INTO unique_of VALUES (1)'))
  equal('fields', ['ERROR', 'Key (id)=(1) already exists.', SCHEMA, 'unique_of', 'unique_of_once'], [severity, detail, schema, table, constraint])
  equal('position', '11', (await fails('42703', client.query('SELECT 1, no_such_column'))).position)
  const raised = await fails(
    'P0404',
    client.query("DO $$ BEGIN RAISE EXCEPTION 'says no' USING ERRCODE = 'P0404', HINT = 'ask again', DETAIL = 'because'; END $$")
  )
  equal('hint and detail', ['ask again', 'because'], [raised.hint, raised.detail])
}

async function listen_notify_within_1s(client) {
  await client.query(`LISTEN ${SCHEMA}`)
  const sender = await connect()
  const arrived = once(client, 'notification', { signal: AbortSignal.timeout(2000) })
  const sent = Date.now()
  await sender.query(`NOTIFY ${SCHEMA}, 'from the other ☃'`)
  const [{ channel, payload }] = await arrived.finally(() => sender.end())
  const took = Date.now() - sent
  equal('notification', [SCHEMA, 'from the other ☃'], [channel, payload])
  assert.ok(took <= 1000, `took ${took} ms, at most 1000`)
}

async function notice_before_sleep_ends(client) {
  const arrived = []
  client.on('notice', (notice) => arrived.push([notice.message, Date.now()]))
  await client.query("DO $$ BEGIN RAISE NOTICE 'early bird'; PERFORM pg_sleep(2); END $$")
  const ended = Date.now()
  equal('notices', ['early bird'], arrived.map(([message]) => message))
  const early = ended - arrived[0][1]
  assert.ok(early >= 1000, `arrived only ${early} ms before the end of a 2 s sleep`)
}

async function cancel_57014_within_3s(client) {
  const sleeping = fails('57014', client.query('SELECT pg_sleep(60)'))
  await sleep(300)
  const asked = Date.now()
  // Client.cancel wants a client that has not connected yet and the one whose query is to end. It has no TLS (it waits for an
  // event that a TLS connection does not send), and PostgreSQL takes a plain CancelRequest beside TLS sessions.
  const canceller = new Client({ host: client.host, port: client.port, ssl: false })
  canceller.connection.on('error', () => {})
  canceller.cancel(client, client.activeQuery)
  await sleeping
  const took = Date.now() - asked
  canceller.connection.stream.destroy()
  assert.ok(took <= 3000, `took ${took} ms, at most 3000`)
  equal('usable after cancel', [1], await one(client, 'SELECT 1'))
}

async function statement_timeout_57014(client) {
  await client.query("SET statement_timeout = '150ms'")
  await fails('57014', client.query('SELECT pg_sleep(30)'))
  await client.query('RESET statement_timeout')
}

async function short_queries_200(client) {
  for (let i = 0; i < 200; i++) equal('query', [i], await one(client, `SELECT ${i}`))
}

async function json_5000_rows_md5(client) {
  const { rows } = await client.query(data.JSON_QUERY + ' ORDER BY i')
  equal('rows', 5000, rows.length)
  const [server] = await one(client, `SELECT md5(string_agg(doc, '' ORDER BY i)) FROM (${data.JSON_QUERY}) AS documents`)
  equal('md5', server, data.md5(rows.map((row) => row.doc).join('')))
}

async function binary_result(client) {
  // node-postgres decodes binary values by way of a UTF-8 string: only bytes below 128 survive, so the values keep to those.
  const { fields, rows } = await client.query({
    text: "SELECT i, i << 8 AS high, i::int2 AS short, i % 2 = 0 AS even, 'row ' || i AS label FROM generate_series($1::int4, 127) AS i",
    values: [1],
    binary: true,
  })
  equal('formats', Array(5).fill('binary'), fields.map((field) => field.format))
  const expected = Array.from({ length: 127 }, (_, n) => n + 1).map((i) => ({ i, high: i << 8, short: i, even: i % 2 === 0, label: `row ${i}` }))
  equal('rows', expected, rows)
}

async function clean_close(client) {
  const closing = await connect()
  const [backend] = await one(closing, 'SELECT pg_backend_pid()')
  await closing.end()
  let left
  for (let attempt = 0; attempt < 40; attempt++) {
    ;[left] = await one(client, 'SELECT count(*) FROM pg_stat_activity WHERE pid = $1', [backend])
    if (left === '0') return
    await sleep(50)
  }
  equal('backends left of a closed connection', '0', left)
}

main([
  connect_server_version,
  wrong_password_28P01,
  tls_as_asked,
  simple_query_types,
  extended_query_types,
  null_and_unicode,
  text_1mb_round_trip,
  bytea_1mb_round_trip,
  prepared_reused_100,
  batch_pipeline,
  copy_in_out_20000,
  copy_in_bad_row_22P02,
  copy_in_aborted_by_client,
  cursor_declare_fetch,
  driver_fetch_size,
  large_object,
  transaction_rollback,
  error_fields,
  listen_notify_within_1s,
  notice_before_sleep_ends,
  cancel_57014_within_3s,
  statement_timeout_57014,
  short_queries_200,
  json_5000_rows_md5,
  binary_result,
  clean_close,
]).then(
  (code) => process.exit(code),
  (problem) => {
    console.log(`not ok run: ${problem.message || problem}`)
    process.exit(1)
  }
)
