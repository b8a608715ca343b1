// Keeps what the page shows in its URL, so that a reload and a shared link show the same.
// The URL never contains the API key.

/** The query that the page shows. */
let shown = location.search;

/**
 * Whether Back or Forward has changed the query since the last call and the last write();
 * a link to a section changes only the fragment.
 */
export function detectChange() {
  const changed = location.search !== shown;
  shown = location.search;
  return changed;
}

/** The values of those of `names` that the URL contains. */
export function read(names) {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(names.filter(name => query.has(name)).map(name => [name, query.get(name)]));
}

/** Puts `values` into the URL and adds a step to the browser's history. An empty value removes its name. */
export function write(values) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value === '' || value === null || value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString().replaceAll('%2F', '/').replaceAll('%3A', ':');
  const next = location.pathname + (text ? `?${text}` : '');
  if (next !== location.pathname + location.search) history.pushState(null, '', next);
  shown = location.search;
}
