// Generates src/generated from openapi.json: schema.ts, the types of requests and answers, and problems.ts,
// an error class for each slug. Copies the licence, and marks what will be built in dist/cjs as CommonJS modules.
// FENCEGATE_SOURCE is the folder of the repository, if this package is not inside it.

import {copyFile, mkdir, readFile, writeFile} from 'node:fs/promises';
import {pathToFileURL} from 'node:url';
import openapiTypescript, {astToString} from 'openapi-typescript';

const here = new URL('..', import.meta.url);
const source = process.env.FENCEGATE_SOURCE ? pathToFileURL(`${process.env.FENCEGATE_SOURCE}/`)
  : new URL('../../', here);
const contract = new URL('gateway/api/service/openapi.json', source);
const generated = new URL('src/generated/', here);
const commonJs = new URL('dist/cjs/', here);
const NOTE = '// Generated from openapi.json by scripts/generate.js.\n\n';

/** `lease-lost` has LeaseLostError, `internal-error` has InternalError. */
function classNameOf(slug) {
  const words = slug.split('-').map(word => word[0].toUpperCase() + word.slice(1));
  return words.at(-1) === 'Error' ? words.join('') : `${words.join('')}Error`;
}

function errorClasses(document) {
  const slugs = document.components.schemas.problem.properties.type.enum.map(type => type.replace('/problems/', ''));
  const classes =
    slugs.map(slug => `/** The problem \`${slug}\`. */\nexport class ${classNameOf(slug)} extends ProblemError {}\n`);
  const entries = slugs.map(slug => `  '${slug}': ${classNameOf(slug)},\n`);
  return `${NOTE}import {ProblemError} from '../errors.js';\n\n${classes.join('\n')}\n`
    + `/** The error class of each slug. */\nexport const problemClasses = {\n${entries.join('')}} as const;\n`;
}

await mkdir(generated, {recursive: true});
await writeFile(new URL('schema.ts', generated), NOTE + astToString(await openapiTypescript(contract, {silent: true})));
await writeFile(new URL('problems.ts', generated), errorClasses(JSON.parse(await readFile(contract, 'utf8'))));
await copyFile(new URL('LICENSE', source), new URL('LICENSE', here));
await mkdir(commonJs, {recursive: true});
await writeFile(new URL('package.json', commonJs), '{"type": "commonjs"}\n');
