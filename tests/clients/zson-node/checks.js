"use strict";
// What zson columns return and take in node-postgres: the same as jsonb columns.
const assert = require("node:assert");
const pg = require("pg");

const DOCUMENTS = [{ a: 1, b: [null, true, "xä€"], c: { d: 1.5 } }, [], "text", 12, null, {}];
const TABLE = "zson_" + Math.random().toString(16).slice(2, 10);

// The recipe: one look-up, and the parser that jsonb has. Arrays of documents have a type of their own.
async function registerZson(client) {
  const { rows } = await client.query("SELECT oid::int, typarray::int FROM pg_type WHERE oid = to_regtype('zson')");
  const parseArray = pg.types.getTypeParser(3807);
  client.setTypeParser(rows[0].oid, JSON.parse);
  client.setTypeParser(rows[0].typarray, parseArray);
}

async function main() {
  const client = new pg.Client({ ssl: false });
  await client.connect();
  let failed = false;
  const check = async (name, run) => {
    try {
      await run();
      console.log(`ok ${name}`);
    } catch (error) {
      failed = true;
      console.log(`not ok ${name}: ${error.message}`);
    }
  };
  await registerZson(client);
  await client.query(`CREATE TABLE ${TABLE} (id int, doc zson('drivers'), was jsonb)`);
  await check("inserted_and_selected", async () => {
    for (const [id, document] of DOCUMENTS.entries()) {
      await client.query(`INSERT INTO ${TABLE} VALUES ($1, $2, $3)`, [id, JSON.stringify(document), JSON.stringify(document)]);
    }
    for (const text of [`SELECT doc, was FROM ${TABLE} ORDER BY id`, { text: `SELECT doc, was FROM ${TABLE} ORDER BY id`, name: "prepared" }]) {
      const { rows } = await client.query(text);
      assert.deepStrictEqual(rows.map((row) => row.doc), DOCUMENTS);
      assert.deepStrictEqual(rows.map((row) => row.was), DOCUMENTS);
    }
  });
  await check("operators_with_parameters", async () => {
    const { rows } = await client.query(`SELECT id FROM ${TABLE} WHERE doc @> $1 AND doc->'c'->>'d' = $2`, [{ a: 1 }, "1.5"]);
    assert.deepStrictEqual(rows, [{ id: 0 }]);
  });
  await check("arrays_and_nulls", async () => {
    const { rows } = await client.query(`SELECT array_agg(doc ORDER BY id) AS docs, NULL::zson AS none FROM ${TABLE} WHERE id < 2`);
    assert.deepStrictEqual(rows, [{ docs: DOCUMENTS.slice(0, 2), none: null }]);
  });
  await client.query(`DROP TABLE ${TABLE}`);
  await client.end();
  process.exitCode = failed ? 1 : 0;
}

main().catch((error) => {
  console.log(`not ok run: ${error.message}`);
  process.exitCode = 1;
});
