'use strict'

// Deterministic data; the same formulas stand in every client's program.
const { createHash } = require('node:crypto')

const COPY_ROWS = 20000
const MEBIBYTE = 1 << 20
const UNICODE = 'naïve Ünïcödé, жук, ☃, 🐘, 日本語'
const COPY_COLUMNS = 'id int PRIMARY KEY, label text NOT NULL, note text, amount numeric(12,2) NOT NULL'
const COPIED_MD5 = "SELECT md5(string_agg(id || '|' || label || '|' || coalesce(note, '') || '|' || amount, '' ORDER BY id)) AS md5 FROM "
const JSON_QUERY =
  "SELECT jsonb_build_object('id', i, 'name', 'user-' || (i * 7919 % 10007), 'tags', jsonb_build_array(i % 7, i % 11," +
  " md5(i::text)), 'note', CASE WHEN i % 5 = 0 THEN NULL ELSE '☃ ' || i END)::text AS doc, i FROM generate_series(1, 5000) AS i"

function copyValues(id) {
  const cents = (id * 37) % 100003
  return {
    id,
    label: `row-${(id * 7919) % 10007}-Ünï-☃`,
    note: id % 7 === 0 ? null : `tab\there \\ back ${(id * 31) % 1009}`,
    amount: `${Math.floor(cents / 100)}.${String(cents % 100).padStart(2, '0')}`,
  }
}

/** Rows 1 to count in COPY's text format, as the server writes them; badRow has letters where the integer belongs (0: none). */
function copyText(count, badRow) {
  const lines = []
  for (let id = 1; id <= count; id++) {
    const { label, note, amount } = copyValues(id)
    const escaped = note === null ? '\\N' : note.replace(/\\/g, '\\\\').replace(/\t/g, '\\t')
    lines.push(`${id === badRow ? 'bad' : ''}${id}\t${label}\t${escaped}\t${amount}\n`)
  }
  return Buffer.from(lines.join(''))
}

/** What COPIED_MD5 must say of a table with all the rows. */
function copiedMd5() {
  let text = ''
  for (let id = 1; id <= COPY_ROWS; id++) {
    const { label, note, amount } = copyValues(id)
    text += `${id}|${label}|${note ?? ''}|${amount}`
  }
  return md5(text)
}

/** Bytes that no codec can shrink: a chain of hashes. */
function noise(size) {
  const blocks = []
  let digest = Buffer.from('noise')
  for (let length = 0; length < size; length += 64) {
    digest = createHash('sha512').update(digest).digest()
    blocks.push(digest)
  }
  return Buffer.concat(blocks).subarray(0, size)
}

/** Text of at least size characters that shrinks well. */
function prose(size) {
  let text = ''
  for (let i = 0; text.length < size; i++) text += `line ${i}: ${UNICODE}\n`
  return text
}

function md5(content) {
  return createHash('md5').update(content).digest('hex')
}

module.exports = { COPY_ROWS, MEBIBYTE, UNICODE, COPY_COLUMNS, COPIED_MD5, JSON_QUERY, copyText, copiedMd5, noise, prose, md5 }
