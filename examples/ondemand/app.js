// An app of Open OnDemand: runs `orchestrator web` as its user, and passes requests to its socket.
// docs/howto/ondemand.md describes config.json.

"use strict";
const { spawn } = require("child_process");
const fs = require("fs");
const http = require("http");
const os = require("os");
const path = require("path");

const START_SECONDS = 30;
const folder = path.join(os.tmpdir(), `orchestrator-${process.getuid()}`);
const socket = path.join(folder, "ondemand.sock");
let child = null;
let problem = "";

function configuration() {
  const file = path.join(__dirname, "config.json");
  try {
    return JSON.parse(fs.readFileSync(file, "utf8"));
  } catch (error) {
    throw new Error(`${file} cannot be read: ${error.message}`);
  }
}

// Starts the server unless it runs, and waits until it listens.
async function started() {
  if (!child) {
    const { command, url } = configuration();
    problem = "";
    const words = [...command.slice(1), "--socket", socket, "--url", url];
    const mine = (child = spawn(command[0], words, { stdio: ["ignore", "pipe", "pipe"] }));
    mine.listening = new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("orchestrator web does not start")), START_SECONDS * 1000);
      mine.stdout.on("data", (text) => String(text).includes("and open") && resolve());
      mine.stderr.on("data", (text) => (problem = (problem + text).slice(-2000)));
      mine.on("error", reject);
      mine.on("close", () => {
        clearTimeout(timer);
        if (child === mine) child = null;
        reject(new Error(problem || "orchestrator web has ended"));
      });
    });
  }
  await child.listening;
}

const server = http.createServer(async (request, response) => {
  try {
    await started();
  } catch (error) {
    response.writeHead(502, { "content-type": "text/plain; charset=utf-8" });
    response.end(`${error.message}\n`);
    return;
  }
  // Apache connects to localhost, and appends the name that the browser asked for.
  const names = (request.headers["x-forwarded-host"] || request.headers.host).split(",");
  const headers = { ...request.headers, host: names[names.length - 1].trim() };
  const options = { socketPath: socket, path: request.url, method: request.method, headers };
  const passed = http.request(options, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  passed.on("error", (error) => {
    if (!response.headersSent) response.writeHead(502, { "content-type": "text/plain" });
    response.end(`${error.message}\n`);
  });
  response.on("close", () => passed.destroy());
  request.pipe(passed);
});

for (const name of ["SIGTERM", "SIGINT"]) {
  process.on(name, () => {
    child?.kill("SIGTERM");
    process.exit(0);
  });
}
process.on("exit", () => child?.kill("SIGTERM"));
// Passenger replaces the port.
server.listen(process.env.PORT || 3000);
