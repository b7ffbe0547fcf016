"""A local web page over a folder of runs: `hushrec ui`. Needs the extra `serve`.

Goes in: a folder of runs, folders of federations, requests of one person's browser. Opens a port, starts runs as
processes of their own, and writes below `RUNS/.hushrec` only: its index, tags, logs of what it started, its
address. No request leaves the machine.

How it is made, for whoever adds a page NAME:

1. `ui/NAME.py` has `def routes(site: Site) -> list[Route]`; all paths are below `/api/NAME/`. Handlers are plain
   functions (`def handler(request: Request) -> Response`), which run in threads, so they may read files and
   compute; `async def` only for streams. `site.answer(value)` makes JSON of anything that msgspec encodes. A POST
   is `Route(path, taking(Type, work), methods=["POST"])`, where `work(value: Type) -> Response` gets its body as a
   msgspec Struct or a dataclass; see `ui/site.py`. Refuse with a `HushrecError` (422) or a
   `serving.gate.Problem(404, "...")`: one line that says what to do, which the page shows. A run's id is its path
   below the runs folder, given as `?id=`; `site.folder_of(id)` is its folder, or refuses. Add the module to
   `PAGES` in `ui/app.py`.
2. `ui/page_files/page_NAME.js` exports `async function render(main, parameters)`. It fills the empty element
   `main`; `parameters` has `id` (what follows `#/NAME/`, or null) and `query` (URLSearchParams of what follows a
   `?` there). It may return a function that is called when the page is left (to end streams and timers). A
   rejected promise is shown as a line. Add its line to `PAGES` in `shell.js`.
3. Modules to use: `api.js` (`get(path, query)`, `post(path, value)`, `follow(path, query, onMessage)` for
   server-sent events; all with the token and the header that the server wants), `dom.js` (`make(tag, attributes,
   ...children)`, text is always text, never HTML; `table`), `charts.js` (`lineChart`, `scatter`, `bars`,
   `parallel`), `figures.js` (`framed`, for pictures of another kind), `saving.js` (`saveable`). Requests are
   relative to the server; the policy of the page forbids all others, inline scripts and inline styles.
4. Colours are custom properties of `style.css` (`--ink`, `--quiet`, `--paper`, `--card`, `--line`, `--accent`,
   `--good`, `--bad`, `--series-1` to `--series-8`), each with a dark twin. No colour alone carries meaning: a
   word, a sign, a dash or a marker stands beside it.
"""
