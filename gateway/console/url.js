// What is looked at stands in the address bar, so that it survives a reload and can be sent to a colleague. Never the API key.

/** The value of each of `names` that the address has. */
export function read(names) {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(names.filter(name => query.has(name)).map(name => [name, query.get(name)]));
}

/** Puts `values` there, as a step that Back undoes; an empty value takes its name out. */
export function write(values) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value === '' || value === null || value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString().replaceAll('%2F', '/').replaceAll('%3A', ':');
  const next = location.pathname + (text ? `?${text}` : '');
  if (next !== location.pathname + location.search) history.pushState(null, '', next);
}
