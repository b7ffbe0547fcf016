// Requests to the server that this page came from, and to no other.

const KEY = "hushrec-token";
let askForToken = async () => null; // set by the shell: shows a form, gives what was typed

export function onTokenWanted(ask) {
  askForToken = ask;
}

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

function address(path, query) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") words.append(name, one);
    }
  }
  return words.size ? `${path}?${words}` : path;
}

async function send(path, options) {
  for (;;) {
    const headers = { "x-hushrec-page": "1", ...options.headers };
    const token = sessionStorage.getItem(KEY);
    if (token) headers.authorization = `Bearer ${token}`;
    let answer;
    try {
      answer = await fetch(path, { ...options, headers, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused(0, "the server does not answer; start it again with: hushrec ui");
    }
    if (answer.ok) return answer;
    const told = await answer.json().catch(() => ({}));
    if (answer.status !== 401) throw new Refused(answer.status, told.detail ?? `the server answered ${answer.status}`);
    sessionStorage.removeItem(KEY);
    const typed = await askForToken();
    if (!typed) throw new Refused(401, "a token is needed");
    sessionStorage.setItem(KEY, typed);
  }
}

// The JSON at a path: get("/api/runs/list", {sort: "started"}).
export async function get(path, query) {
  return (await send(address(path, query), { method: "GET" })).json();
}

// Send a value as JSON, and get the answer's.
export async function post(path, value) {
  const options = { method: "POST", body: JSON.stringify(value), headers: { "content-type": "application/json" } };
  return (await send(path, options)).json();
}

// Server-sent events, until the function that is returned is called. Goes on by itself after a break. A tab that
// nobody sees is not told anything: browsers allow few connections, and all tabs share them.
// onMessage gets the JSON of each event; onBreak is told why nothing comes (a text), or null when it comes again;
// onSame is told that the server lives and has nothing new.
export function follow(path, query, onMessage, onBreak = () => {}, onSame = () => {}) {
  let isLeft = false;
  let connection = null;
  let wake = () => {};
  const onSight = () => {
    if (document.hidden) connection?.abort();
    else wake();
  };
  document.addEventListener("visibilitychange", onSight);
  const pause = (milliseconds) => new Promise((done) => {
    wake = done;
    if (milliseconds) setTimeout(done, milliseconds);
  });
  const listen = async () => {
    while (!isLeft) {
      if (document.hidden) await pause(0);
      if (isLeft) return;
      connection = new AbortController();
      try {
        const answer = await send(address(path, query), { method: "GET", signal: connection.signal });
        onBreak(null);
        await readEvents(answer.body.getReader(), onMessage, onSame);
      } catch (error) {
        if (isLeft) return;
        if (error.name !== "AbortError") onBreak(error.message);
        if (error.status >= 400 && error.status < 500) return;
      }
      if (!document.hidden) await pause(1000);
    }
  };
  listen();
  return () => {
    isLeft = true;
    document.removeEventListener("visibilitychange", onSight);
    connection?.abort();
    wake();
  };
}

async function readEvents(reader, onMessage, onSame) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data) onMessage(JSON.parse(data));
      else onSame();
    }
  }
}
