// Makes a container: node -e THIS PORT ACCOUNT KEY CONTAINER. Signed with a shared key, as Azure's documentation of it says.
const { createHmac } = require("node:crypto");
const http = require("node:http");

const [port, account, key, container] = process.argv.slice(1);
const date = new Date().toUTCString();
const version = "2021-08-06";
const headers = `x-ms-date:${date}\nx-ms-version:${version}\n`;
const text = `PUT${"\n".repeat(12)}${headers}/${account}/${account}/${container}\nrestype:container`;
const signature = createHmac("sha256", Buffer.from(key, "base64")).update(text).digest("base64");
const request = http.request({
  host: "127.0.0.1",
  port,
  method: "PUT",
  path: `/${account}/${container}?restype=container`,
  headers: {
    "x-ms-date": date,
    "x-ms-version": version,
    Authorization: `SharedKey ${account}:${signature}`,
    "Content-Length": 0,
  },
});
request.on("response", (response) => {
  if (response.statusCode !== 201) {
    console.error(`status ${response.statusCode}`);
    process.exitCode = 1;
  }
  response.resume();
});
request.end();
