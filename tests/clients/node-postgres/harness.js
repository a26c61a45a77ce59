'use strict'

// Runs named checks one after another, each on a connection of its own, and prints one line for each.
const assert = require('node:assert')
const fs = require('node:fs')
const { randomBytes } = require('node:crypto')
const { Client } = require('pg')

// A check that takes longer hangs: it fails by name and the next one goes on.
const CHECK_MS_MAX = 20000
const SCHEMA = 'client_node_' + randomBytes(4).toString('hex')
const SSLMODE = process.env.PGSSLMODE || 'prefer'

/** The server or the driver does not meet the check's precondition. */
class Skip extends Error {}

/** node-postgres reads PGSSLMODE in its own way; this maps libpq's meanings to its options. It has no "prefer". */
function tlsOptions() {
  const root = process.env.PGSSLROOTCERT
  const ca = root ? fs.readFileSync(root) : undefined
  switch (SSLMODE) {
    case 'require':
      return { rejectUnauthorized: false }
    case 'verify-ca':
      return { ca, checkServerIdentity: () => undefined }
    case 'verify-full':
      return { ca }
    default:
      return false
  }
}

async function connect(options = {}) {
  const client = new Client({ ssl: tlsOptions(), application_name: 'node-postgres checks', ...options })
  // Without a listener the end of a connection would end the process.
  client.on('error', () => {})
  await client.connect()
  return client
}

async function one(client, ...query) {
  const { rows } = await client.query(...query)
  return Object.values(rows[0])
}

/** The error of a promise that must fail with the SQLSTATE. */
async function fails(state, promise) {
  const error = await promise.then(
    () => assert.fail(`expected SQLSTATE ${state}, found success`),
    (problem) => problem
  )
  assert.strictEqual(error.code, state, `expected SQLSTATE ${state}, found ${error.code}: ${error.message}`)
  return error
}

function limited(promise) {
  let timer
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end within ${CHECK_MS_MAX / 1000} s`)), CHECK_MS_MAX)
  })
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer))
}

async function run(check) {
  const start = Date.now()
  let client
  let passed = true
  try {
    client = await limited(connect({ options: `-c search_path=${SCHEMA}` }))
    await limited(check(client))
    console.log(`ok ${check.name}`)
  } catch (problem) {
    const reason = String(problem.message || problem).split(/\s+/).join(' ').slice(0, 400)
    passed = problem instanceof Skip
    console.log(`${passed ? 'skip' : 'not ok'} ${check.name}: ${reason}`)
    if (process.env.CLIENT_TRACE) console.error(problem)
  }
  if (client) await Promise.race([client.end(), new Promise((resolve) => setTimeout(resolve, 1000))])
  if (process.env.CLIENT_TRACE) console.error(`# ${check.name} ${Date.now() - start} ms`)
  return passed
}

async function once(sql) {
  const client = await limited(connect())
  await limited(client.query(sql))
  await client.end()
}

async function main(checks) {
  try {
    await once(`CREATE SCHEMA ${SCHEMA}`)
  } catch (problem) {
    console.log(`not ok ${checks[0].name}: ${problem.message || problem}`)
    return 1
  }
  let failed = false
  for (const check of checks) failed = !(await run(check)) || failed
  await once(`SET client_min_messages = warning; SET lock_timeout = '5s'; DROP SCHEMA ${SCHEMA} CASCADE`)
  return failed ? 1 : 0
}

module.exports = { SCHEMA, SSLMODE, Skip, connect, one, fails, main }
